"""The examples of the documentation run as they stand there, and give the rows that stand under them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from batch_answers import sandbox

from millstream.sql.ast import Query
from millstream.sql.parser import parse
from millstream.sql.splitting import split_statements

PAGES = ("beyond-ksqldb", "pull-queries", "replacing-queries")
DOCS = Path(__file__).parents[2] / "docs"
FENCE = re.compile(r"^```(sql|rows)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run(page: str) -> None:
    """`sql` blocks run in one engine, in order; a `rows` block has the rows of the query before it, one per line."""
    answer: list[str] = []
    with sandbox(**{"millstream.pull.full.sql": "true"}) as opened:
        for kind, block in FENCE.findall((DOCS / f"{page}.md").read_text(encoding="utf-8")):
            if kind == "rows":
                assert answer == sorted(json.dumps(json.loads(line)) for line in block.splitlines()), block
                continue
            for statement in split_statements(block):
                if not statement.strip():
                    continue
                if isinstance(parse(statement)[0], Query):
                    opened.drain()
                    rows = [found["row"]["columns"] for found in opened.query(statement) if "row" in found]
                    answer = sorted(json.dumps(row) for row in rows)
                else:
                    opened.execute(statement)
