"""Law: however many threads work on a batch, a query writes the same records, partition by partition, in one order."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from random import Random
from unittest import mock

import pytest
from drawn import drawn
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from laws.budget import Budget
from laws.case import Case
from laws.queries import random_case
from laws.running import Written, drain, same, world
from laws.shapes import random_shape_case

from millstream.executor import sink_writer, work_pool
from millstream.executor.operators import stateless
from millstream.executor.queries import query
from millstream.executor.sources import source_reader, topic_feed
from millstream.executor.state import key_hash
from millstream.executor.work_pool import WorkPool
from millstream.planner.physical import PhysicalPlan
from millstream.planner.steps.over import Over
from millstream.planner.steps.sink import Sink

SEEDS = st.integers(0, 2**32)
BUDGET = Budget(seconds=8)


@contextmanager
def side_by_side(cores: int) -> Generator[None]:
    """Every batch counts as large, and whatever can be divided is."""
    pool = WorkPool(cores)
    pools = mock.Mock(return_value=pool)
    with (
        mock.patch.multiple(work_pool, SLICE_ROWS=1, work_pool=pools),
        mock.patch.multiple(topic_feed, UNIT_ROWS=1, work_pool=pools),
        mock.patch.multiple(source_reader, SLICE_ROWS=1, work_pool=pools),
        mock.patch.object(key_hash, "work_pool", pools),
        mock.patch.object(stateless, "work_pool", pools),
        mock.patch.multiple(sink_writer, PART_ROWS=1, work_pool=pools),
        mock.patch.multiple(query, READ_AHEAD_RECORDS=1, work_pool=pools),
    ):
        yield


def sink_of(plan: PhysicalPlan) -> str:
    assert isinstance(plan.root, Sink)
    return plan.root.topic


def left(records: Iterable[Written]) -> dict[object, object]:
    """The rows of a table in the end."""
    last = {(record.partition, record.key): record.value for record in records}
    return {place: value for place, value in last.items() if value is not None}


def check(seed: int) -> None:
    rng = Random(seed)
    case = random_shape_case(seed) if seed % 3 == 0 else random_case(seed, reckless=True)
    with world(case, rng) as it:
        topics = [sink_of(plan) for plan in it.plans]
        for plan in it.plans if len(set(topics)) == len(topics) else it.plans[:1]:
            divided = it.variant(plan, "divided")
            alone = it.runtime(plan)
            drain(alone)
            alone.close()
            for restarts in reversed(range(2)):
                with side_by_side(rng.choice((2, 3, 8))):
                    together = it.runtime(divided, it.directory / divided.query_id)
                    while together.step(rng.choice((500, 1 << 20))) and not restarts:
                        pass
                    together.close()
            if isinstance(case, Case):
                assert same(case, it, plan, divided), case.text
            elif any(isinstance(step, Over) for step in plan.steps()):
                # It gives what a batch changes in all, and the two runs have other batches.
                assert left(it.written(plan)) == left(it.written(divided)), case.text
            else:
                assert it.written(plan) == it.written(divided), case.text
            assert it.errors_logged(divided) == it.errors_logged(plan), case.text


@settings(max_examples=drawn(30), derandomize=True, phases=[Phase.generate])
@given(seed=SEEDS)
def test_threads_change_nothing(seed: int) -> None:
    BUDGET.run(check, seed)


@pytest.mark.soak
@settings(max_examples=20_000, phases=[Phase.generate])
@given(seed=SEEDS)
def test_threads_change_nothing_in_many_queries(seed: int) -> None:
    check(seed)
