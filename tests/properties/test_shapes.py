"""Law: a persistent query, a pull query of the same text and DuckDB over the rows in the end agree, whatever the shape
of the statement, the number of partitions and the place of a restart."""

from __future__ import annotations

from random import Random

import pytest
from drawn import drawn
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from laws.answers import rows_expected, rows_pulled, rows_written
from laws.budget import Budget
from laws.running import World, compacting, world
from laws.shapes import random_shape_case

from millstream.planner.physical import PhysicalPlan

SEEDS = st.integers(0, 2**32)
BUDGET = Budget(seconds=10)


def check(seed: int) -> None:
    case = random_shape_case(seed)
    rng = Random(seed + 1)
    with world(case, rng) as it, compacting(rng):
        for plan in it.plans:
            _run_with_restarts(it, plan, rng)
        wanted = rows_expected(case)
        assert rows_written(case, it) == wanted, f"{case.text}\n-- reference:\n{case.shape.reference}"
        assert rows_pulled(case, it) == wanted, f"pulled: {case.text}\n-- reference:\n{case.shape.reference}"
        assert not any(it.errors_logged(plan) for plan in it.plans) or case.malformed


def _run_with_restarts(it: World, plan: PhysicalPlan, rng: Random) -> None:
    properties = {"ksql.streams.cache.max.bytes.buffering": rng.choice(("0", "0", "10000000"))}
    size = rng.choice((1, 400, 1 << 20))
    for steps in (rng.randint(0, 3), None):
        runtime = it.runtime(plan, properties=properties)
        try:
            while steps != 0 and runtime.step(size):
                steps = None if steps is None else steps - 1
        finally:
            runtime.close()


@settings(max_examples=drawn(100), derandomize=True, phases=[Phase.generate])
@given(seed=SEEDS)
def test_persistent_query_pull_query_and_batch_query_agree(seed: int) -> None:
    BUDGET.run(check, seed)


@pytest.mark.soak
@settings(max_examples=20_000, phases=[Phase.generate])
@given(seed=SEEDS)
def test_persistent_query_pull_query_and_batch_query_agree_in_many_statements(seed: int) -> None:
    check(seed)
