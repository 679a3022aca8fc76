"""The statements of ksqlDB's own test cases parse."""

from __future__ import annotations

import json
from pathlib import Path

from millstream.errors import StatementError
from millstream.sql.parser import parse

# Refused on purpose: a DECIMAL has at most 38 digits here. Both cases expect an error, one statement later.
REFUSED = {
    "greatest - test implicit casting to decimal",
    "least - test implicit casting to decimal",
}


def test_statements_of_the_conformance_cases_parse(shared: Path) -> None:
    failures: dict[str, str] = {}
    count = 0
    for path in sorted([*shared.glob("qtt/cases/*.json"), *shared.glob("qtt/rest_cases/*.json")]):
        for case in json.loads(path.read_text(encoding="utf-8"))["cases"]:
            error = case["expect_error"] or {}
            if error.get("kind") == "parse" or "Syntax Error" in (error.get("message") or ""):
                continue
            for text in case["statements"][: -1 if error else None]:
                count += 1
                try:
                    parse(text)
                except StatementError as failure:
                    failures[case["id"]] = failure.render()
    assert failures.keys() == REFUSED, "\n".join(failures.values())
    assert count > 3_000
