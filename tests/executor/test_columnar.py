"""The layout of columnar topics."""

from __future__ import annotations

import pyarrow as pa

from millstream.executor.columnar import columnar_batch, split_columnar
from millstream.planner.schema import Column
from millstream.sql.types import BIGINT, STRING

COLUMNS = (Column("ID", BIGINT, "KEY"), Column("_ts", STRING))


def _batch() -> pa.RecordBatch:
    meta = {"_ts": pa.array([1, 2], pa.int64()), "_null": pa.array([False, True])}
    return columnar_batch(COLUMNS, [pa.array([7, 8], pa.int64()), pa.array(["x", None])], meta)


def test_a_users_column_may_be_named_like_a_meta_column() -> None:
    part = split_columnar(_batch(), COLUMNS, 0)
    assert part.columns[1].to_pylist() == ["x", None]
    assert part.timestamps.to_pylist() == [1, 2]
    assert part.null_rows.to_pylist() == [False, True]


def test_a_missing_column_is_null() -> None:
    part = split_columnar(_batch(), [Column("OTHER", STRING)], 0)
    assert part.columns[0].to_pylist() == [None, None]


def test_a_column_of_another_type_is_cast() -> None:
    part = split_columnar(_batch(), [Column("ID", STRING, "KEY")], 0)
    assert part.columns[0].to_pylist() == ["7", "8"]


def test_a_column_that_cannot_be_cast_is_an_error() -> None:
    part = split_columnar(_batch(), [Column("_ts", BIGINT)], 0)
    assert "_ts" in part.errors


def test_a_foreign_batch_takes_its_time_from_the_record() -> None:
    part = split_columnar(pa.RecordBatch.from_pydict({"ID": [1, 2]}), COLUMNS, 99)
    assert part.timestamps.to_pylist() == [99, 99]
    assert part.null_rows.to_pylist() == [False, False]


def test_a_foreign_batch_may_say_anything_about_itself() -> None:
    meta = {b"millstream.meta": b"1"}
    fields = [pa.field("_ts", pa.string(), metadata=meta), pa.field("_null", pa.int64(), metadata=meta)]
    part = split_columnar(
        pa.RecordBatch.from_arrays([pa.array(["soon"]), pa.array([2])], schema=pa.schema(fields)), [], 0
    )
    assert set(part.errors) == {"_ts"}
    assert (part.timestamps.type, part.null_rows.to_pylist()) == (pa.int64(), [True])


def test_a_row_without_a_time_has_none_that_counts() -> None:
    meta = {"_ts": pa.array([1, None], pa.int64()), "_null": pa.array([None, True])}
    part = split_columnar(
        columnar_batch(COLUMNS, [pa.array([7, 8], pa.int64()), pa.array(["x", None])], meta), COLUMNS, 0
    )
    assert part.timestamps.to_pylist() == [1, -1]
    assert part.null_rows.to_pylist() == [False, True]
