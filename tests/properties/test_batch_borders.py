"""Law: where a batch ends changes nothing: a query writes the same records, byte for byte, partition by partition."""

from __future__ import annotations

from random import Random

import pytest
from drawn import drawn
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from laws.budget import Budget
from laws.queries import random_case
from laws.running import World, compacting, drain, same, world

from millstream.executor.sources.source_reader import SourceReader
from millstream.executor.tasks import needs_time_order
from millstream.logcore.client import TopicPartition
from millstream.planner.physical import PhysicalPlan

SEEDS = st.integers(0, 2**32)
BUDGET = Budget(seconds=8)


def check(seed: int) -> None:
    case = random_case(seed, reckless=True)
    rng = Random(seed + 1)
    with world(case, rng) as it, compacting(rng):
        for plan in it.plans:
            whole = it.runtime(plan)
            drain(whole)
            whole.close()
            by_size = it.variant(plan, "size")
            cut = it.runtime(by_size)
            while cut.step(rng.choice((1, 100, 1000))):
                pass
            cut.close()
            assert same(case, it, plan, by_size), case.text
            assert case.net or _counts(cut) == _counts(whole), case.text
            logged = it.errors_logged(plan)  # also expressions that give NULL, whose records are not left out
            assert it.errors_logged(by_size) == logged >= whole.metrics.rows_failed, case.text
            by_record = it.variant(plan, "record")
            _run_in_pieces(it, by_record, rng)
            assert same(case, it, plan, by_record), case.text


def _counts(runtime: object) -> tuple[int, ...]:
    metrics = runtime.metrics  # pyrefly: ignore[missing-attribute]
    assert metrics.rows_dropped >= 0
    assert metrics.rows_in == metrics.rows_used + metrics.rows_dropped + metrics.rows_failed
    return metrics.rows_in, metrics.rows_used, metrics.rows_dropped, metrics.rows_failed, metrics.rows_out


def _run_in_pieces(it: World, plan: PhysicalPlan, rng: Random) -> None:
    """The records in their order, cut at any record."""
    runtime = it.runtime(plan)
    order = _order(it, plan)
    while order:
        size = rng.choice((1, 2, 3, 10))
        runtime.step_in_order(order[:size])
        order = order[size:]
    runtime.close()


def _order(it: World, plan: PhysicalPlan) -> list[TopicPartition]:
    """The partitions of the records, in the order in which the query sees them."""
    positions = {TopicPartition(s.topic, p): 0 for s in plan.sources() for p in range(s.partition_count)}
    reader = SourceReader(it.client, plan.sources(), positions, time_order=needs_time_order(plan))
    order: list[TopicPartition] = []
    while (batch := reader.read(1 << 30, max_records=1)) is not None:
        found = {TopicPartition(error.topic, error.partition) for error in batch.errors}
        for source_id, changes in batch.inputs.items():
            found |= {TopicPartition(batch.topics[source_id], p) for p in changes.rows["_rowpartition"].to_pylist()}
        assert len(found) == batch.record_count == 1
        order += found
    return order


@settings(max_examples=drawn(40), derandomize=True, phases=[Phase.generate])
@given(seed=SEEDS)
def test_where_a_batch_ends_changes_nothing(seed: int) -> None:
    BUDGET.run(check, seed)


@pytest.mark.soak
@settings(max_examples=20_000, phases=[Phase.generate])
@given(seed=SEEDS)
def test_where_a_batch_ends_changes_nothing_in_many_queries(seed: int) -> None:
    check(seed)
