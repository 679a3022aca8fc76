"""Aggregates with little memory: the same results wherever their groups are, and a table that follows."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest
from drawn import drawn
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelines import aggregate, call, expression, plan, rows_of, shown, stream, tumbling

from millstream.executor.pipeline import Pipeline
from millstream.executor.state import cached_rows, placed_rows, store
from millstream.planner.physical import PhysicalPlan
from millstream.sql.types import BIGINT, DOUBLE

CALLS = [
    call("COUNT"),
    call("SUM", expression("v0", BIGINT)),
    call("MAX", expression("v1", DOUBLE)),
    call("COLLECT_LIST", expression("v0", BIGINT)),
]
keys = st.sampled_from(["a", "b", "c", "d", "e"])
records = st.lists(
    st.fixed_dictionaries(
        {
            "k0": keys,
            "v0": st.none() | st.integers(-5, 5),
            "v1": st.none() | st.floats(-2, 2, width=16),
            "ts": st.integers(0, 400),
            "part": st.integers(0, 1),
        }
    ),
    max_size=30,
)


def physical(*, windowed: bool) -> PhysicalPlan:
    return plan(aggregate(stream(), CALLS, window=tumbling(100, 100) if windowed else None, emit_old=True))


def outputs(pipeline: Pipeline, batches: list[list[dict[str, Any]]], first: int = 0) -> list[list[dict[str, Any]]]:
    (source,) = pipeline.plan.sources()
    out = []
    for rows in batches:
        out.append(shown(pipeline.process({source.id: rows_of(source, rows, first)})) if rows else [])
        first += len(rows)
    return out


@settings(max_examples=drawn(20), deadline=None)
@given(st.lists(records, min_size=1, max_size=4), st.integers(0, 3), st.booleans())
def test_states_may_be_forgotten_and_restored_at_any_time(
    batches: list[list[dict[str, Any]]], stop: int, windowed: bool
) -> None:
    whole = outputs(Pipeline(physical(windowed=windowed), duckdb.connect()), batches)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(placed_rows, "_BITS", 1)
        patched.setattr(cached_rows, "_FEWEST", 1)
        patched.setattr(store, "ROOM_BYTES", 0)  # one row stays in memory
        patched.setattr(store, "_COMPACT_FROM", -1)
        assert outputs(Pipeline(physical(windowed=windowed), duckdb.connect()), batches) == whole

    behind = Pipeline(physical(windowed=windowed), duckdb.connect(), write_behind=True)
    begun = outputs(behind, batches[:stop])
    rebuilt = Pipeline(physical(windowed=windowed), duckdb.connect(), write_behind=True)
    for change in behind.take_changes():
        rebuilt.restore(change.store, change.rows)
    rest = outputs(rebuilt, batches[stop:], sum(map(len, batches[:stop])))
    assert begun + rest == whole


def test_the_table_has_a_group_once_however_many_batches_changed_it() -> None:
    connection = duckdb.connect()
    pipeline = Pipeline(physical(windowed=False), connection, write_behind=True)
    outputs(pipeline, [[{"k0": "a", "v0": n}] for n in range(5)])

    def in_table() -> list[Any]:
        return connection.execute('SELECT s0_0 FROM "state aggregate"').fetchall()

    assert in_table() == []
    pipeline.settle()
    assert in_table() == [(5,)]
    assert sum(len(change.rows) for change in pipeline.take_changes()) == 5
