"""Failures of the past, as they were shrunk: they stay away."""

from __future__ import annotations

import pytest

from .runs import SCENARIOS, execute, load_scenario

NAMES = sorted(path.stem for path in SCENARIOS.glob("*.json"))


@pytest.mark.parametrize("name", NAMES)
def test_a_failure_of_the_past_stays_away(name: str) -> None:
    outcome = execute(load_scenario(name))
    assert outcome.violated is None, outcome.report
