"""From rows to records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pytest
from hand_plans import ARROW, COUNTS, INPUT, count_plan, sink_of, stream_source

from millstream.executor import sink_writer, work_pool
from millstream.executor.batch import ChangeBatch
from millstream.executor.sink_writer import Output, SinkWriter
from millstream.executor.sources.source_reader import ReadBatch, RecordHeaders
from millstream.logcore.client import ColumnarRecords
from millstream.planner.schema import Column, Schema
from millstream.planner.specs import SqlExpression
from millstream.planner.steps.sink import Sink
from millstream.sql.types import BIGINT, INTEGER, Array

from .formats.record_formats import spec_of

NO_INPUT = ReadBatch({}, {})


def changes(*rows: Mapping[str, object]) -> ChangeBatch:
    """Each row: k0, v0, v1, and what differs from the defaults."""
    full = [
        {"_seq": i, "_sub": 0, "_part": 0, "_ts": 1_000 + i, "_weight": 1, "_null": False, **row}
        for i, row in enumerate(rows)
    ]
    types = {
        "_seq": pa.int64(), "_sub": pa.int32(), "_part": pa.int32(), "_ts": pa.int64(), "_weight": pa.int8(),
        "_null": pa.bool_(), "_ws": pa.int64(), "_we": pa.int64(), "k0": pa.string(), "v0": pa.int64(),
    }  # fmt: skip
    names = list(full[0])
    return ChangeBatch(pa.table({name: pa.array([row[name] for row in full], types.get(name)) for name in names}))


def written(output: Output) -> list[tuple[int, object, object, int]]:
    return [
        (partition, row["key"], row["value"], row["timestamp"])
        for partition, records in output.records
        for row in records.table.to_pylist()  # pyrefly: ignore[missing-attribute]
    ]


def stream_sink(partitions: int = 1) -> Sink:
    return sink_of(stream_source(), "out", INPUT, partitions)


def table_sink(window_ms: int | None = None) -> Sink:
    root = count_plan(window_ms=window_ms).root
    assert isinstance(root, Sink)
    return root


def test_a_streams_rows_become_records() -> None:
    output = SinkWriter(stream_sink()).encode(
        changes({"k0": "a", "v0": 1, "v1": "x"}, {"k0": None, "v0": None, "v1": None, "_null": True}), NO_INPUT
    )
    assert written(output) == [(0, b"a", b'{"V":1,"W":"x"}', 1000), (0, None, None, 1001)]


def test_an_update_of_a_table_is_one_record_and_a_lone_retraction_a_tombstone() -> None:
    output = SinkWriter(table_sink()).encode(
        changes(
            {"k0": "a", "v0": 1, "v1": 1, "_weight": -1, "_seq": 0},
            {"k0": "a", "v0": 2, "v1": 2, "_seq": 0, "_sub": 1},
            {"k0": "b", "v0": 1, "v1": 1, "_weight": -1, "_seq": 1},
        ),
        NO_INPUT,
    )
    assert [(key, value) for _, key, value, _ in written(output)] == [(b"a", b'{"N":2,"S":2}'), (b"b", None)]
    assert output.record_count == 2 and output.cause_count == 2


def test_a_windowed_key_ends_with_the_windows_start() -> None:
    output = SinkWriter(table_sink(1000)).encode(
        changes({"k0": "a", "v0": 1, "v1": 1, "_ws": 5000, "_we": 6000}), NO_INPUT
    )
    assert written(output)[0][1] == b"a" + (5000).to_bytes(8, "big")


def test_rows_go_to_the_partition_of_their_key_in_order() -> None:
    rows = [{"k0": f"key-{i % 5}", "v0": i, "v1": "x"} for i in range(50)]
    output = SinkWriter(stream_sink(4)).encode(changes(*rows), NO_INPUT)
    partition_of: dict[object, set[int]] = {}
    for partition, key, _, _ in written(output):
        partition_of.setdefault(key, set()).add(partition)
    assert len(partition_of) == 5
    assert all(len(partitions) == 1 for partitions in partition_of.values())
    for _, records in output.records:
        times = records.table["timestamp"].to_pylist()  # pyrefly: ignore[missing-attribute]
        assert times == sorted(times)


def test_a_null_key_stays_in_the_rows_partition() -> None:
    output = SinkWriter(stream_sink(4)).encode(changes({"k0": None, "v0": 1, "v1": "x", "_part": 6}), NO_INPUT)
    assert written(output)[0][0] == 2


def test_headers_of_the_input_are_passed_on() -> None:
    type_ = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = RecordHeaders(pa.array([[], [{"key": "h", "value": b"1"}]], type_), 1)
    output = SinkWriter(stream_sink()).encode(
        changes({"k0": "a", "v0": 1, "v1": "x", "_seq": 1}), replace(NO_INPUT, headers=headers)
    )
    assert output.records[0][1].table["headers"].to_pylist() == [[{"key": "h", "value": b"1"}]]  # pyrefly: ignore[missing-attribute]


def test_the_timestamp_column_sets_the_rowtime_and_a_missing_one_is_an_error() -> None:
    sink = replace(stream_sink(), timestamp=SqlExpression("v0", BIGINT))
    output = SinkWriter(sink).encode(
        changes({"k0": "a", "v0": 77, "v1": "x"}, {"k0": "b", "v0": None, "v1": "x"}, {"k0": "c", "v0": -1, "v1": "x"}),
        NO_INPUT,
    )
    assert [(key, time) for _, key, _, time in written(output)] == [(b"a", 77)]
    assert len(output.errors) == 2


def test_columnar_output_keeps_columns_and_times() -> None:
    sink = replace(table_sink(), value_format=ARROW)
    output = SinkWriter(sink).encode(
        changes({"k0": "a", "v0": 1, "v1": 2}, {"k0": "b", "v0": 1, "v1": 2, "_weight": -1}), NO_INPUT
    )
    ((partition, records),) = output.records
    assert isinstance(records, ColumnarRecords) and partition == 0
    assert records.batch.schema.names == [*(column.name for column in COUNTS), "_ts", "_null"]
    assert records.batch["_null"].to_pylist() == [False, True]
    assert records.timestamp_ms == 1001


def test_no_rows_give_no_records() -> None:
    empty = changes({"k0": "a", "v0": 1, "v1": "x"}).rows.slice(0, 0)
    assert SinkWriter(stream_sink()).encode(ChangeBatch(empty), NO_INPUT) == Output()


def protobuf_sink(partitions: int) -> Sink:
    columns = (Column("V", BIGINT), Column("W", Array(INTEGER)))
    sink = sink_of(stream_source(), "out", Schema((INPUT.key[0], *columns)), partitions)
    return replace(sink, value_format=spec_of("PROTOBUF", columns))


@pytest.mark.parametrize(("part_rows", "slice_rows"), [(1, 10_000), (1, 2), (10_000, 2), (10_000, 10_000)])
@pytest.mark.parametrize("partitions", [1, 4])
def test_rows_that_cannot_be_encoded_are_errors_of_their_records(
    monkeypatch: pytest.MonkeyPatch, part_rows: int, slice_rows: int, partitions: int
) -> None:
    """Whether partitions are encoded together, side by side, or in pieces."""
    monkeypatch.setattr(sink_writer, "PART_ROWS", part_rows)
    monkeypatch.setattr(work_pool, "SLICE_ROWS", slice_rows)
    bad = (0, 5, 8, 9)
    rows = [{"k0": f"key-{i}", "v0": i, "v1": [i, None] if i in bad else [i], "_seq": i // 2} for i in range(10)]
    output = SinkWriter(protobuf_sink(partitions)).encode(changes(*rows), NO_INPUT)
    assert sorted(str(key) for _, key, _, _ in written(output)) == [
        str(f"key-{i}".encode()) for i in (1, 2, 3, 4, 6, 7)
    ]
    assert (output.record_count, output.cause_count) == (6, 2)  # of the records 1 and 3 all rows are written
    assert [error.kind for error in output.errors] == ["encode"] * 3  # one for each record
    assert all(records.table.num_rows for _, records in output.records)  # pyrefly: ignore[missing-attribute]


def test_rows_that_are_encoded_in_pieces_are_the_same_records(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"k0": None if i % 5 else f"key-{i}", "v0": i, "v1": f"text {i}"} for i in range(50)]
    whole = SinkWriter(stream_sink()).encode(changes(*rows), NO_INPUT)
    monkeypatch.setattr(sink_writer, "PART_ROWS", 1)
    monkeypatch.setattr(work_pool, "SLICE_ROWS", 2)
    pieces = SinkWriter(stream_sink()).encode(changes(*rows), NO_INPUT)
    assert len(pieces.records) == min(25, work_pool.work_pool().cores)
    assert written(pieces) == written(whole)
    assert (pieces.record_count, pieces.cause_count) == (50, 50)


def test_where_no_row_can_be_encoded_nothing_is_written() -> None:
    rows = [{"k0": "a", "v0": 1, "v1": [None]}, {"k0": "b", "v0": 1, "v1": [1, None]}]
    output = SinkWriter(protobuf_sink(4)).encode(changes(*rows), NO_INPUT)
    assert (output.records, output.record_count, output.cause_count, len(output.errors)) == ([], 0, 0, 2)
