"""CONTRIBUTING's table of changes is true: for each row that has places for a name, a change that touched no more.

A change is found by its name: the files that say it are those that its author had to touch.
"""

from __future__ import annotations

import re

import pytest
from repository import REPOSITORY

PRODUCT = ("sql", "planner", "logcore", "executor", "server", "repl", "millstream")
CHANGES = {  # the row, and the name of a change of its kind
    "a format": "msgpack",
    "an operator": "deduplicate",
    "a type of window": "cumulate",
    "a function": "json_items",
    "a rewrite of plans": "push_rank_bounds",
}
EXEMPLARY = {  # the row, and names that a change of its kind brought into the files that the row names
    "a route of HTTP": ["QueryPositions", "query_routes", "/queries/{id}/positions"],
    "a setting of topics": ["TIME_BEFORE", "InvalidTimestamps"],
}
FURTHER = {"a rewrite of plans": {"planner/optimize.py"}}  # a line that the row names without a place for a name


def row(kind: str) -> str:
    """What the table says of a kind of change."""
    table = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return next(line for line in table.splitlines() if line.startswith(f"| {kind} |"))


def places(kind: str) -> list[re.Pattern[str]]:
    """The product's files that the row lets one touch, with any name in the place of <name>."""
    written: list[str] = re.findall(r"`((?:\w+/)+(?:<\w+>\.py)?)`", row(kind))
    return [re.compile(place.partition("<")[0] + r"\w+\.py") for place in written if place.split("/")[0] in PRODUCT]


def touched(name: str) -> set[str]:
    """The files of the product that say the name as a word of its own."""
    word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE)
    files = [file for folder in PRODUCT for end in ("*.py", "*.lark") for file in (REPOSITORY / folder).rglob(end)]
    written = (file for file in files if "__pycache__" not in file.parts)  # the grammar's table is kept there
    found = (file for file in written if word.search(file.read_text(encoding="utf-8")))
    return {file.relative_to(REPOSITORY).as_posix() for file in found}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_touches_the_files_of_its_row_and_no_others(kind: str) -> None:
    files, allowed = touched(CHANGES[kind]), places(kind)
    assert allowed, "the row names a place"
    others = {file for file in files if not any(place.fullmatch(file) for place in allowed)}
    assert others == FURTHER.get(kind, set())
    assert len(files) == len(allowed) + len(others), "a file for each place"


@pytest.mark.parametrize("kind", EXEMPLARY)
def test_a_row_names_the_files_that_an_exemplary_change_touched(kind: str) -> None:
    named = {name for name in re.findall(r"`((?:\w+/)+\w+\.py)`", row(kind)) if name.split("/")[0] in PRODUCT}
    assert set().union(*map(touched, EXEMPLARY[kind])) == named
