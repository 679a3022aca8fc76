"""The measurement of planning runs, and plans what it says. How long it takes, no test asks."""

from __future__ import annotations

import pytest

from bench import planning
from millstream.sql.parser import parse_one


def test_both_sides_read_the_same_statement() -> None:
    assert planning.bare_lark().parse(planning.statement(), start="statement") is not None
    parsed = parse_one(planning.statement())
    assert len(parsed.query.items) == planning.COLUMNS + 1  # pyrefly: ignore[missing-attribute]


@pytest.mark.soak
def test_its_lines_name_the_goal() -> None:
    lines = planning.planning_lines(rounds=1)
    assert [line.wanted for line in lines] == ["", "", "< 20 ×"]
