"""From topics to change batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from hand_plans import ARROW, INPUT, JSON, rows, stream_source

from millstream.executor.batch import ChangeBatch
from millstream.executor.columnar import columnar_batch
from millstream.executor.sources import topic_feed
from millstream.executor.sources.source_reader import ReadBatch, SourceReader, empty_rows, times_only
from millstream.executor.work_pool import WorkPool
from millstream.logcore.client import ColumnarRecords, LogClient, RowRecords, TopicPartition
from millstream.logcore.log import open_log
from millstream.planner.schema import Column, Schema
from millstream.planner.specs import KeyWindow, SqlExpression
from millstream.planner.steps.source import Source
from millstream.sql.types import BIGINT, BYTES, STRING, Array, Field, Struct

HEADER_LIST = Array(Struct((Field("KEY", STRING), Field("VALUE", BYTES))))


@pytest.fixture
def client(tmp_path: Path) -> Iterator[LogClient]:
    client = open_log(tmp_path / "log", sync="never")
    for topic, partitions in (("input", 2), ("other", 1)):
        client.create_topic(topic, partitions)
    yield client
    client.close()


def reader_of(client: LogClient, *sources: Source, time_order: bool = True) -> SourceReader:
    topics = client.topics()
    positions = {
        TopicPartition(source.topic, partition): 0
        for source in sources
        for partition in range(topics[source.topic].partition_count)
    }
    return SourceReader(client, sources, positions, time_order=time_order)


def read(reader: SourceReader, **options: int) -> ReadBatch:
    batch = reader.read(1 << 20, **options)  # pyrefly: ignore[bad-argument-type]
    assert batch is not None
    return batch


def value(number: int) -> dict[str, object]:
    return {"V": number, "W": "w"}


def test_partitions_are_merged_by_time_and_numbered(client: LogClient) -> None:
    client.append("input", 0, rows([("a", value(1), 10), ("b", value(2), 30)]))
    client.append("input", 1, rows([("c", value(3), 20)]))
    changes = read(reader_of(client, stream_source())).inputs["s0"]
    assert changes.rows.select(
        ["k0", "v0", "v1", "_seq", "_part", "_ts", "_weight", "_null", "_offset"]
    ).to_pylist() == [
        {"k0": "a", "v0": 1, "v1": "w", "_seq": 0, "_part": 0, "_ts": 10, "_weight": 1, "_null": False, "_offset": 0},
        {"k0": "c", "v0": 3, "v1": "w", "_seq": 1, "_part": 1, "_ts": 20, "_weight": 1, "_null": False, "_offset": 0},
        {"k0": "b", "v0": 2, "v1": "w", "_seq": 2, "_part": 0, "_ts": 30, "_weight": 1, "_null": False, "_offset": 1},
    ]
    assert changes.stream_time_ms == {0: 30, 1: 20}


def test_a_batch_has_the_columns_of_one_without_rows_in_their_order(client: LogClient) -> None:
    client.append("input", 0, rows([("a", value(1), 10)]))
    source = stream_source()
    assert read(reader_of(client, source)).inputs["s0"].rows.schema.equals(empty_rows(source).schema)


def test_a_record_out_of_order_keeps_its_place_in_its_partition(client: LogClient) -> None:
    client.append("input", 0, rows([("a", value(1), 50), ("b", value(2), 10)]))
    client.append("input", 1, rows([("c", value(3), 20)]))
    changes = read(reader_of(client, stream_source())).inputs["s0"]
    assert changes.rows["k0"].to_pylist() == ["c", "a", "b"]


def test_several_sources_share_one_numbering(client: LogClient) -> None:
    client.append("input", 0, rows([("a", value(1), 10), ("b", value(2), 30)]))
    client.append("other", 0, rows([("x", value(1), 10), ("y", value(2), 20)]))
    batch = read(reader_of(client, stream_source(), stream_source("other", id="s1")))
    assert batch.inputs["s0"].rows["_seq"].to_pylist() == [0, 3]
    assert batch.inputs["s1"].rows["_seq"].to_pylist() == [1, 2]


def test_a_self_join_sees_each_record_on_its_left_side_first(client: LogClient) -> None:
    client.append("input", 0, rows([("a", value(1), 10), ("b", value(2), 30)]))
    batch = read(reader_of(client, stream_source(), stream_source(id="s1")))
    assert batch.record_count == 2
    assert batch.inputs["s0"].rows["_seq"].to_pylist() == [0, 2]
    assert batch.inputs["s1"].rows["_seq"].to_pylist() == [1, 3]


def test_of_one_time_a_tables_records_go_before_a_streams(client: LogClient) -> None:
    client.append("input", 0, rows([("a", value(1), 10), ("b", value(2), 30)]))
    client.append("other", 0, rows([("a", value(1), 10), ("b", value(2), 20), ("b", value(3), 30)]))
    table = replace(stream_source("other", id="s1"), kind="TABLE")
    batch = read(reader_of(client, stream_source(), table))
    assert batch.inputs["s1"].rows["_seq"].to_pylist() == [0, 2, 3]
    assert batch.inputs["s0"].rows["_seq"].to_pylist() == [1, 4]
    first = read(reader_of(client, stream_source(), table), max_records=1)
    assert (len(first.inputs["s1"].rows), len(first.inputs["s0"].rows)) == (1, 0)


def test_a_table_that_stands_still_leaves_its_share_of_a_batch_to_the_stream(client: LogClient) -> None:
    for n in range(200):
        client.append("input", n % 2, rows([("a", value(n), 10 + n)]))
    client.append("other", 0, rows([("a", value(1), 10)]))
    sources = stream_source(), replace(stream_source("other", id="s1"), kind="TABLE")

    def counts(reader: SourceReader) -> list[int]:
        found: list[int] = []
        while (batch := reader.read(3_000)) is not None:
            found.append(batch.inputs["s0"].rows.num_rows)
        return found

    alone, joined = counts(reader_of(client, sources[0])), counts(reader_of(client, *sources))
    assert sum(alone) == sum(joined) == 200
    assert joined[0] < alone[0]  # it is not known yet that the table has nothing more
    assert max(joined[1:-1]) == max(alone[:-1])


def test_a_table_and_a_stream_over_one_topic_see_each_record_in_the_table_first(client: LogClient) -> None:
    client.append("input", 0, rows([("a", value(1), 10), ("b", value(2), 30)]))
    batch = read(reader_of(client, stream_source(), replace(stream_source(id="s1"), kind="TABLE")))
    assert batch.inputs["s1"].rows["_seq"].to_pylist() == [0, 2]
    assert batch.inputs["s0"].rows["_seq"].to_pylist() == [1, 3]


def test_records_that_cannot_be_decoded_are_errors_and_nothing_more(client: LogClient) -> None:
    client.append("input", 1, rows([("a", b"{oops", 10), ("b", value(2), 30), ("c", value(3), -5)]))
    batch = read(reader_of(client, stream_source()))
    assert batch.inputs["s0"].rows["k0"].to_pylist() == ["b"]
    assert next((error.partition, error.offset, error.value) for error in batch.errors) == (1, 0, b"{oops")
    assert [error.offset for error in batch.errors] == [0, 2]
    assert batch.record_count == 3
    assert batch.positions[TopicPartition("input", 1)] == 3


def test_a_null_value_is_a_row_of_a_stream_and_a_deletion_in_a_table(client: LogClient) -> None:
    client.append("input", 0, rows([("a", None, 10)]))
    stream = read(reader_of(client, stream_source())).inputs["s0"].rows
    table = read(reader_of(client, replace(stream_source(), kind="TABLE"))).inputs["s0"].rows
    assert (stream["_null"].to_pylist(), stream["_weight"].to_pylist()) == ([True], [1])
    assert (table["_null"].to_pylist(), table["_weight"].to_pylist()) == ([True], [-1])


def test_columns_that_nobody_needs_are_left_out(client: LogClient) -> None:
    client.append("input", 0, rows([("a", value(1), 10)]))
    changes = read(reader_of(client, replace(stream_source(), columns=("v1",)))).inputs["s0"]
    assert "v0" not in changes.rows.column_names
    assert changes.rows.select(["k0", "v1"]).to_pylist() == [{"k0": None, "v1": "w"}]


def test_the_timestamp_expression_sets_the_rowtime_and_the_order(client: LogClient) -> None:
    source = replace(stream_source(), timestamp=SqlExpression("v0", BIGINT))
    client.append("input", 0, rows([("a", value(7), 1), ("b", value(-1), 2), ("c", {"V": None}, 3), ("d", None, 4)]))
    client.append("input", 1, rows([("e", value(5), 9)]))
    batch = read(reader_of(client, source))
    assert [(row["k0"], row["_ts"]) for row in batch.inputs["s0"].rows.to_pylist()] == [
        ("e", 5),
        ("d", 4),
        ("a", 7),
    ] or [(row["k0"], row["_ts"]) for row in batch.inputs["s0"].rows.to_pylist()] == [("e", 5), ("a", 7), ("d", 4)]
    assert [error.offset for error in batch.errors] == [1, 2]


def test_header_columns_and_headers(client: LogClient) -> None:
    columns = (*INPUT.columns, Column("H", HEADER_LIST, "HEADERS"), Column("A", BYTES, "HEADERS", "a"))
    table = rows([("k", value(1), 1), ("k", value(2), 2)]).table
    headers = [[{"key": "a", "value": b"1"}, {"key": "a", "value": b"2"}], []]
    type_ = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    client.append("input", 0, RowRecords(table.append_column("headers", pa.array(headers, type_))))
    batch = read(reader_of(client, replace(stream_source(), schema=Schema(columns))))
    got = batch.inputs["s0"].rows
    assert got["v2"].to_pylist() == [[{"KEY": "a", "VALUE": b"1"}, {"KEY": "a", "VALUE": b"2"}], []]
    assert got["v3"].to_pylist() == [b"2", None]
    assert batch.headers is not None
    assert batch.headers.of(pa.array([1, 0, 7])).to_pylist() == [headers[1], headers[0], None]


def test_columnar_batches_are_read_as_they_are(client: LogClient) -> None:
    meta = {"_ts": pa.array([10, 20]), "_null": pa.array([False, False])}
    arrays = [pa.array(["a", "b"]), pa.array([1, 2]), pa.array(["x", "y"])]
    client.append("input", 0, ColumnarRecords(columnar_batch(INPUT.columns, arrays, meta), 20))
    source = replace(stream_source(), key_format=ARROW, value_format=ARROW)
    changes = read(reader_of(client, source)).inputs["s0"]
    assert changes.rows.select(["k0", "v0", "v1", "_ts", "_offset"]).to_pylist() == [
        {"k0": "a", "v0": 1, "v1": "x", "_ts": 10, "_offset": 0},
        {"k0": "b", "v0": 2, "v1": "y", "_ts": 20, "_offset": 1},
    ]


def test_the_stream_time_of_a_partition_is_the_largest_of_all_batches_that_were_read_of_it(client: LogClient) -> None:
    for time in (10, 50, 20):
        meta = {"_ts": pa.array([time]), "_null": pa.array([False])}
        arrays = [pa.array(["a"]), pa.array([1]), pa.array(["x"])]
        client.append("input", 0, ColumnarRecords(columnar_batch(INPUT.columns, arrays, meta), time))
    source = replace(stream_source(), key_format=ARROW, value_format=ARROW)
    changes = read(reader_of(client, source)).inputs["s0"]
    assert (len(changes.rows), changes.stream_time_ms) == (3, {0: 50})


def test_a_row_record_in_a_columnar_topic_is_an_error(client: LogClient) -> None:
    client.append("input", 0, rows([("a", value(1), 10)]))
    batch = read(reader_of(client, replace(stream_source(), value_format=ARROW)))
    assert batch.inputs["s0"].rows.num_rows == 0
    assert len(batch.errors) == 1


def test_reading_ends_where_it_is_told_to(client: LogClient) -> None:
    client.append("input", 0, rows([(f"k{i}", value(i), i) for i in range(5)]))
    reader = reader_of(client, stream_source())
    batch = reader.read(1 << 20, {TopicPartition("input", 0): 3})
    assert batch is not None and batch.record_count == 3
    assert read(reader).record_count == 2


@pytest.mark.parametrize("columnar", [False, True])
def test_bytes_beyond_the_end_do_not_count(client: LogClient, columnar: bool) -> None:
    source = stream_source()
    if columnar:
        meta = {"_ts": pa.array(range(100)), "_null": pa.array([False] * 100)}
        arrays = [pa.array([f"k{n:02}" for n in range(100)]), pa.array(range(100)), pa.array(["w" * 50] * 100)]
        client.append("input", 0, ColumnarRecords(columnar_batch(INPUT.columns, arrays, meta), 0))
        source = replace(source, key_format=ARROW, value_format=ARROW)
    else:
        client.append("input", 0, rows([(f"k{n:02}", {"V": 10 + n % 10, "W": "w" * 50}, n) for n in range(100)]))
    whole = read(reader_of(client, source)).byte_count
    part = reader_of(client, source).read(1 << 20, {TopicPartition("input", 0): 10})
    assert part is not None
    assert 0.05 * whole < part.byte_count < 0.2 * whole


def test_a_limit_on_records_cuts_in_the_merged_order(client: LogClient) -> None:
    client.append("input", 0, rows([("a", value(1), 10), ("c", value(2), 30)]))
    client.append("input", 1, rows([("b", value(3), 20), ("d", value(3), 40)]))
    reader = reader_of(client, stream_source())
    seen = [read(reader, max_records=1).inputs["s0"].rows["k0"].to_pylist() for _ in range(4)]
    assert seen == [["a"], ["b"], ["c"], ["d"]]
    assert reader.read(1 << 20) is None


def test_records_are_read_in_the_order_asked_for(client: LogClient) -> None:
    client.append("input", 0, rows([("a", value(1), 10), ("b", value(2), 30)]))
    client.append("input", 1, rows([("c", value(3), 99), ("d", value(4), 5)]))
    p0, p1 = TopicPartition("input", 0), TopicPartition("input", 1)
    reader = reader_of(client, stream_source())
    batch = reader.read_in_order([p1, p0, p0])
    assert batch is not None
    assert batch.inputs["s0"].rows["k0"].to_pylist() == ["c", "a", "b"]
    assert batch.positions == {p0: 2, p1: 1}
    assert read(reader).inputs["s0"].rows["k0"].to_pylist() == ["d"]


@pytest.mark.parametrize("max_bytes", [1, 300, 100_000])
def test_where_a_batch_ends_does_not_change_the_order(client: LogClient, max_bytes: int) -> None:
    for first in range(0, 60, 3):
        client.append("input", 0, rows([("a", value(first + i), first + i) for i in range(3)]))
        client.append("input", 1, rows([("b", value(first), first * 2 % 50)]))
        client.append("other", 0, rows([("x", value(first), first + 1)]))
    sources = (stream_source(), stream_source("other", id="s1"))

    def sequence(size: int) -> list[tuple[str, int, int]]:
        reader, seen = reader_of(client, *sources), []
        while (batch := reader.read(size)) is not None:
            both = [
                (row["_seq"], source, row["_part"], row["_offset"])
                for source in ("s0", "s1")
                for row in batch.inputs[source].rows.to_pylist()
            ]
            seen += [row[1:] for row in sorted(both)]
        return seen

    assert sequence(max_bytes) == sequence(1 << 30)
    assert len(sequence(max_bytes)) == 100


@pytest.mark.parametrize("cores", [1, 2, 3])
@pytest.mark.parametrize("time_order", [True, False])
def test_several_threads_read_what_one_does(
    client: LogClient, monkeypatch: pytest.MonkeyPatch, cores: int, time_order: bool
) -> None:
    """Units of a few records, in both forms, with records that cannot be read and headers."""
    random = Random(cores)
    for first in range(0, 400, 20):
        listed = [
            (f"k{n}", value(n) if n % 17 else b"{broken", random.randrange(n + 30)) for n in range(first, first + 20)
        ]
        client.append("input", first // 20 % 2, with_headers(rows(listed), some=first % 3 == 0))
    expected = read_whole(client, 1 << 30, time_order)
    monkeypatch.setattr(topic_feed, "UNIT_ROWS", 7)
    monkeypatch.setattr(topic_feed, "WAVE_ROWS", 50)
    pool = WorkPool(cores)
    monkeypatch.setattr(topic_feed, "work_pool", lambda: pool)
    assert len(expected[0]) == 400 - len(expected[1]) == 376
    for size in (1, 2_000, 1 << 30):
        assert read_whole(client, size, time_order) == expected


def with_headers(records: RowRecords, *, some: bool) -> RowRecords:
    listed = [[{"key": "h", "value": b"%d" % n}] if n % 2 else None for n in range(len(records.table))]
    type_ = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return RowRecords(records.table.append_column("headers", pa.array(listed, type_))) if some else records


def read_whole(client: LogClient, max_bytes: int, time_order: bool) -> tuple[list[str], list[str]]:
    """The rows, in order where there is one, each with its headers, and what is wrong with the others."""
    reader = reader_of(client, stream_source(), time_order=time_order)
    seen: list[str] = []
    errors: list[str] = []
    while (batch := reader.read(max_bytes)) is not None:
        changes = batch.inputs["s0"].rows
        headers = [None] * len(changes)
        if batch.headers is not None:
            headers = batch.headers.of(changes["_seq"].combine_chunks()).to_pylist()
        records = zip(changes.drop_columns(["_seq"]).to_pylist(), headers, strict=True)
        seen += [f"{row} {own or None}" for row, own in records]
        errors += [f"{error.partition} {error.offset} {error.message}" for error in batch.errors]
    return (seen if time_order else sorted(seen)), sorted(errors)


def test_a_lane_is_filled_again_before_it_is_empty(client: LogClient) -> None:
    """Else each batch would end where the lane with the fewest records does: six thousand at a time, not fifty."""
    for first in range(0, 600, 10):
        client.append("input", 0, rows([("a", value(n), 3 * n) for n in range(first, first + 10)]))
        client.append("input", 1, rows([("b", value(n), 2 * n) for n in range(first, first + 10)]))
    reader, counts = reader_of(client, stream_source()), list[int]()
    while (batch := reader.read(8_000)) is not None:
        counts.append(batch.record_count)
    assert (sum(counts), counts[0]) == (1_200, 200)
    assert len(counts) < 14  # 16 where a lane is filled when it is empty


def test_a_tables_record_without_key_is_about_no_row(client: LogClient) -> None:
    client.append("input", 0, rows([(None, value(1), 10), ("a", value(2), 20), ("null", value(3), 30)]))
    table = replace(stream_source(), kind="TABLE", key_format=JSON)
    batch = read(reader_of(client, table))
    assert batch.inputs["s0"].rows["v0"].to_pylist() == [3]
    assert batch.inputs["s0"].rows["k0"].to_pylist() == [None]
    assert [error.offset for error in batch.errors] == [1]


def test_keys_are_not_decoded_where_no_key_column_is_declared(client: LogClient) -> None:
    client.append("input", 0, rows([("no JSON", value(1), 10), (None, value(2), 20)]))
    source = replace(stream_source(), schema=Schema(INPUT.value), key_format=JSON)
    batch = read(reader_of(client, source))
    assert batch.inputs["s0"].rows["v0"].to_pylist() == [1, 2]
    assert not batch.errors


def test_a_batch_tells_where_a_row_came_from() -> None:
    numbers = {"_seq": [4, 8], "_rowpartition": [1, 2], "_offset": [30, 60]}
    batch = ReadBatch({"s": ChangeBatch(pa.table(numbers))}, {}, topics={"s": "topic"})
    assert [batch.origin(sequence) for sequence in (4, 8, 6)] == [("topic", 1, 30), ("topic", 2, 60), ("", -1, -1)]


def test_a_batch_says_that_there_is_more_while_any_source_has_more(client: LogClient) -> None:
    client.append("input", 0, rows([("a", value(1), 10)]))
    client.append("other", 0, rows([("b", value(2), 20), ("c", value(3), 30)]))
    reader = reader_of(client, stream_source(), replace(stream_source(), id="s1", topic="other"))
    assert [read(reader, max_records=1).more for _ in range(3)] == [True, True, False]


def test_an_empty_batch_has_the_columns_that_somebody_reads_and_those_of_a_windowed_key() -> None:
    source = stream_source()
    assert {"k0", "v0", "v1"} <= set(empty_rows(source).column_names)
    assert "v0" not in empty_rows(replace(source, columns=("v1",))).column_names
    assert "v1" in empty_rows(replace(source, columns=("v1",))).column_names
    assert "_ws" not in empty_rows(source).column_names
    windowed = replace(source, key_window=KeyWindow("TUMBLING", 10))
    assert {"_ws", "_we"} <= set(empty_rows(windowed).column_names)


def test_for_its_times_a_source_needs_only_the_columns_of_its_timestamp() -> None:
    source = stream_source()
    assert times_only(source).columns == ()
    assert times_only(replace(source, timestamp=SqlExpression("v0 * 1000", BIGINT))).columns == ("v0",)
