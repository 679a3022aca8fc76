"""SQL in, printed plan or rendered error out: each `golden/*.sql` beside its `.txt`.

`MILLSTREAM_ACCEPT=1 pytest tests/planner` writes the files anew; read the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from planning import Planner

from millstream.errors import StatementError
from millstream.planner.insight.explain import explain
from millstream.planner.serde import plan_from_json, plan_to_json
from millstream.sql.splitting import split_statements

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.sql")), ids=lambda path: path.stem)
def test_plans_and_errors_are_as_accepted(path: Path) -> None:
    printed = _printed(path.read_text(encoding="utf-8"))
    expected = path.with_suffix(".txt")
    if os.environ.get("MILLSTREAM_ACCEPT"):
        expected.write_text(printed, encoding="utf-8")
    assert printed == expected.read_text(encoding="utf-8")


def _printed(text: str) -> str:
    planner = Planner()
    blocks: list[str] = []
    for statement in split_statements(text):
        source = statement.strip()
        if not source:
            continue
        try:
            plans = list(planner.plans(source))
        except StatementError as error:
            error.text = error.text or source
            blocks.append(f"{source}\n{error.render()}\n")
            continue
        for plan in plans:
            assert plan_from_json(plan_to_json(plan)) == plan
            blocks.append(f"{source}\n{explain(plan)}\n")
    return "\n".join(blocks)
