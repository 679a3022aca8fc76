"""Law: without late records, what a persistent query has written in the end is the batch query's answer."""

from __future__ import annotations

from random import Random

import pytest
from drawn import drawn
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from laws.budget import Budget
from laws.queries import random_case
from laws.reference import answer
from laws.running import content, drain, expected, world

SEEDS = st.integers(0, 2**32)
BUDGET = Budget(seconds=8)


def check(seed: int) -> None:
    case = random_case(seed)
    rng = Random(seed + 1)
    cache = rng.choice(("0", "0", "10000000"))
    with world(case, rng) as it:
        for plan in it.plans:
            runtime = it.runtime(plan, properties={"ksql.streams.cache.max.bytes.buffering": cache})
            try:
                drain(runtime, rng.choice((1, 400, 1 << 20)))
            finally:
                runtime.close()
        found = content(case, it.written(it.plans[-1]))
    wanted = expected(case, answer(case.sources, case.reference))
    assert found == wanted, f"{case.text}\n-- reference:\n{case.reference}"


@settings(max_examples=drawn(75), derandomize=True, phases=[Phase.generate])
@given(seed=SEEDS)
def test_the_changes_of_a_query_add_up_to_the_batch_querys_answer(seed: int) -> None:
    BUDGET.run(check, seed)


@pytest.mark.soak
@settings(max_examples=20_000, phases=[Phase.generate])
@given(seed=SEEDS)
def test_the_changes_of_many_queries_add_up_to_the_batch_querys_answer(seed: int) -> None:
    check(seed)
