"""Law: whatever text comes, parsing and planning give a plan or an error of ours, and soon."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

import pytest
from damaged import Statement, damaged, planned, varied
from drawn import drawn
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from laws.budget import Budget

from millstream.errors import MillstreamError
from millstream.planner.insight.explain import explain
from millstream.planner.serde import plan_from_json, plan_to_json
from millstream.sql.parser import parse

SEEDS = st.integers(0, 2**32)
BUDGET = Budget(seconds=5)
SECONDS_MAX = 10.0  # of the processor: what takes longer is as good as a hang


def check_parsed(seed: int) -> None:
    statement = damaged(Random(seed))
    _check(statement, lambda: parse(statement.text, statement.catalog.types))


def check_planned(seed: int) -> None:
    """What is planned can be printed, and comes back from the catalog as it was."""
    rng = Random(seed)
    statement = damaged(rng) if rng.random() < 0.5 else varied(rng)
    _check(statement, lambda: _look_at_plans(statement))


def _look_at_plans(statement: Statement) -> None:
    for plan in planned(statement).made:
        assert plan_from_json(plan_to_json(plan)) == plan
        assert explain(plan)


def _check(statement: Statement, act: Callable[[], object]) -> None:
    message = None
    began = time.process_time()
    try:
        act()
    except MillstreamError as error:
        error.render().encode()
        message = str(error)
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}\n{statement.text}") from error
    assert time.process_time() - began < SECONDS_MAX, statement.text
    assert message != "", statement.text


@settings(max_examples=drawn(500), derandomize=True, phases=[Phase.generate])
@given(seed=SEEDS)
def test_a_damaged_statement_is_planned_or_refused_with_an_error_of_ours(seed: int) -> None:
    BUDGET.run(check_planned, seed)


@pytest.mark.soak
@settings(max_examples=200_000, phases=[Phase.generate])
@given(seed=SEEDS)
def test_many_damaged_statements_are_parsed_or_refused_with_an_error_of_ours(seed: int) -> None:
    check_parsed(seed)


@pytest.mark.soak
@settings(max_examples=20_000, phases=[Phase.generate])
@given(seed=SEEDS)
def test_many_damaged_statements_are_planned_or_refused_with_an_error_of_ours(seed: int) -> None:
    check_planned(seed)
