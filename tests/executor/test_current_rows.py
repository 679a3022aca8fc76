"""The rows of a table's partition from all of its changes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.executor.answers.current_rows import CurrentRows
from millstream.executor.sources.source_reader import empty_rows
from millstream.executor.state.connection import open_connection
from millstream.planner.schema import Column, Schema
from millstream.planner.specs import FormatSpec
from millstream.planner.steps.source import Source
from millstream.sql.types import BIGINT, STRING

Change = tuple[str | None, int | None, int]
"""Key, value (None deletes the row) and rowtime."""


def source(ttl_ms: int | None = None) -> Source:
    schema = Schema((Column("K", STRING, "KEY"), Column("V", BIGINT)))
    return Source("source", "t", "TABLE", schema, FormatSpec("KAFKA"), FormatSpec("JSON"), ttl_ms=ttl_ms)


def batch(changes: list[Change], first: int) -> pa.Table:
    count = len(changes)
    given = {
        "k0": pa.array([key for key, _, _ in changes], pa.string()),
        "v0": pa.array([value for _, value, _ in changes], pa.int64()),
        "_ts": pa.array([time for _, _, time in changes], pa.int64()),
        "_null": pa.array([value is None for _, value, _ in changes], pa.bool_()),
        "_offset": pa.array(np.arange(first, first + count)),
    }
    shape = empty_rows(source()).schema
    return pa.table([given.get(field.name, pa.array([0] * count)).cast(field.type) for field in shape], schema=shape)


def rows_of(batches: list[list[Change]], fold_rows: int, ttl_ms: int | None = None) -> dict[str | None, int]:
    with open_connection() as connection:
        current = CurrentRows(connection, source(ttl_ms), fold_rows)
        first = 0
        for changes in batches:
            current.add(batch(changes, first), {0: max((time for _, _, time in changes), default=-1)})
            first += len(changes)
        rows = current.rows()
        assert rows["_offset"].to_pylist() == sorted(rows["_offset"].to_pylist())
        return dict(zip(rows["k0"].to_pylist(), rows["v0"].to_pylist(), strict=True))


changes = st.tuples(st.sampled_from([*"abcde", None]), st.none() | st.integers(0, 99), st.integers(0, 9))


@given(st.lists(st.lists(changes, max_size=8), max_size=6), st.integers(1, 20))
def test_the_last_change_of_a_key_is_its_row_whenever_changes_are_folded(
    batches: list[list[Change]], fold_rows: int
) -> None:
    expected = {key: value for changes in batches for key, value, _ in changes}
    assert rows_of(batches, fold_rows) == {key: value for key, value in expected.items() if value is not None}


@pytest.mark.parametrize("fold_rows", [1, 100])
def test_a_row_expires_when_the_stream_time_of_its_partition_reaches_its_rowtime_plus_the_ttl(fold_rows: int) -> None:
    batches: list[list[Change]] = [[("a", 1, 0), ("b", 2, 1)], [("c", 3, 100), ("d", 4, 90)]]
    assert rows_of(batches, fold_rows, ttl_ms=100) == {"b": 2, "c": 3, "d": 4}
    assert rows_of(batches, fold_rows, ttl_ms=101) == {"a": 1, "b": 2, "c": 3, "d": 4}
