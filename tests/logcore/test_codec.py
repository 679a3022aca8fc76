"""Rows and columnar batches survive the way to Kafka record batches and back."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest
from drawn import drawn
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.logcore.client import HEADERS, ROWS, ColumnarRecords, RowRecords
from millstream.logcore.errors import InvalidRecords
from millstream.logcore.records import bulk, small
from millstream.logcore.records.batch import (
    APPEND_TIME,
    CHECKED_FROM,
    HEADER,
    HEADER_SIZE,
    NOBODY,
    BatchProducer,
    EncodedBatch,
    checksum_of,
    place,
    read_header,
)
from millstream.logcore.records.codec import decode_rows, encode, stored_batch
from millstream.logcore.records.columns import RowColumns, row_columns
from millstream.logcore.records.control import encode_marker, marker_commits
from millstream.logcore.records.envelope import decode_columns
from millstream.logcore.records.record_layout import ROWS_MAX, STORED_BYTES_MAX, StoredBatch

Records = Sequence[tuple[int, bytes | None, bytes | None, Sequence[Mapping[str, object]]]]

HEADER_LISTS = st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=5), "value": st.none() | st.binary(max_size=5)}), max_size=3
)
RECORDS = st.lists(
    st.tuples(
        st.integers(-(2**61), 2**61),
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=200),
        HEADER_LISTS,
    ),
    min_size=1,
    max_size=30,
)


def table_of(records: Records) -> pa.Table:
    timestamps, keys, values, headers = zip(*records, strict=True)
    return pa.table(
        {
            "timestamp": pa.array(timestamps, pa.int64()),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array(headers, HEADERS),
        }
    )


def columns_of(table: pa.Table) -> RowColumns:
    (columns,) = row_columns(RowRecords(table.combine_chunks()))
    return columns


def whole(batch: EncodedBatch) -> memoryview:
    return memoryview(b"".join(batch.buffers))


def stored(batches: list[EncodedBatch]) -> list[StoredBatch]:
    offset, found = 0, []
    for batch in batches:
        data = whole(place(batch, offset, 0))
        header = read_header(data)
        assert checksum_of(data) == header.crc
        assert header.size == len(data)
        found.append(stored_batch(header, data))
        offset = header.last_offset + 1
    return found


@given(RECORDS)
@settings(max_examples=drawn(30), deadline=None)
def test_both_codecs_write_the_same_bytes_and_read_them_back(records: Records) -> None:
    table = table_of(records)
    plain, compiled = (codec.encode_rows(columns_of(table), NOBODY) for codec in (small, bulk))
    assert [bytes(whole(batch)) for batch in plain] == [bytes(whole(batch)) for batch in compiled]
    for codec in (small, bulk):
        decoded = codec.decode_rows(stored(compiled), 0)
        decoded.validate(full=True)
        assert decoded.schema == ROWS
        assert decoded.drop_columns("offset").to_pylist() == table.to_pylist()
        assert decoded["offset"].to_pylist() == list(range(len(records)))


@given(RECORDS, st.integers(0, 30))
@settings(max_examples=drawn(15), deadline=None)
def test_rows_below_the_asked_offset_are_cut_off(records: Records, start: int) -> None:
    batches = stored(small.encode_rows(columns_of(table_of(records)), NOBODY))
    for codec in (small, bulk):
        assert codec.decode_rows(batches, start)["offset"].to_pylist() == list(range(start, len(records)))


@given(RECORDS, st.integers(0, 10_000), st.integers(0, 255))
@settings(max_examples=drawn(50), deadline=None)
def test_garbage_is_an_error_and_never_a_crash(records: Records, at: int, byte: int) -> None:
    (batch,) = small.encode_rows(columns_of(table_of(records)), NOBODY)
    data = bytearray(whole(batch))
    data[HEADER_SIZE + at % (len(data) - HEADER_SIZE)] = byte
    damaged = stored_batch(read_header(data), memoryview(data))
    for codec in (small, bulk):
        try:
            codec.decode_rows([damaged], 0).validate(full=True)
        except (ValueError, IndexError, OverflowError):
            continue


def test_slices_and_null_headers_are_encoded_as_seen() -> None:
    table = table_of([(i, b"k%d" % i, None if i % 3 else b"v", [{"key": "h", "value": b"%d" % i}]) for i in range(100)])
    headers = pa.array([None if i % 2 else row for i, row in enumerate(table["headers"].to_pylist())], HEADERS)
    sliced = table.set_column(3, "headers", headers).slice(10, 50)
    expected = [row | {"headers": row["headers"] or []} for row in sliced.to_pylist()]
    for codec in (small, bulk):
        for piece in (sliced, sliced.combine_chunks()):
            batches = codec.encode_rows(next(row_columns(RowRecords(piece))), NOBODY)
            assert decode_rows(stored(batches), 0).drop_columns("offset").to_pylist() == expected


def test_batches_are_closed_at_the_bounds_of_rows_and_bytes() -> None:
    many = encode(RowRecords(table_of([(0, None, b"", [])] * (2 * ROWS_MAX + 1))))
    assert [batch.header.record_count for batch in many] == [ROWS_MAX, ROWS_MAX, 1]
    large = encode(RowRecords(table_of([(0, None, b"x" * (STORED_BYTES_MAX // 3), [])] * 7)))
    assert [batch.header.record_count for batch in large] == [2, 2, 2, 1]
    assert encode(RowRecords(table_of([(0, None, b"x" * 3 * STORED_BYTES_MAX, [])])))[0].header.record_count == 1


def test_sequence_numbers_go_on_over_batches_and_wrap() -> None:
    batches = encode(RowRecords(table_of([(0, None, b"", [])] * (ROWS_MAX + 1))), BatchProducer(5, 1, 2**31 - ROWS_MAX))
    assert [batch.header.base_sequence for batch in batches] == [2**31 - ROWS_MAX, 0]


def test_other_shapes_of_columns_are_converted() -> None:
    table = pa.table(
        {
            "timestamp": pa.array([5], pa.timestamp("us")).cast(pa.timestamp("us")),
            "key": pa.array(["a"]),
            "value": pa.array([b"b"], pa.large_binary()),
        }
    )
    decoded = decode_rows(stored(encode(RowRecords(table))), 0).to_pylist()
    assert decoded == [{"offset": 0, "timestamp": 0, "key": b"a", "value": b"b", "headers": []}]


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"timestamp": [1], "key": [b"k"]}),
        pa.table({"timestamp": pa.array([None], pa.int64()), "key": [b"k"], "value": [b"v"]}),
        pa.table({"timestamp": [1], "key": [1], "value": [b"v"]}),
    ],
)
def test_a_table_of_another_shape_is_refused(table: pa.Table) -> None:
    with pytest.raises(InvalidRecords):
        encode(RowRecords(table))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=50), st.integers(0, 2**41))
@settings(max_examples=drawn(15), deadline=None)
def test_a_columnar_batch_survives_in_its_envelope(numbers: list[int], timestamp: int) -> None:
    batch = pa.record_batch({"n": pa.array(numbers), "s": pa.array([str(n) for n in numbers])})
    (encoded,) = encode(ColumnarRecords(batch, timestamp))
    header = read_header(data := whole(place(encoded, 10, 0)))
    assert checksum_of(data) == header.crc
    assert (header.record_count, header.last_offset, header.columnar) == (1, 9 + len(numbers), True)
    assert header.max_timestamp_ms == timestamp
    assert decode_columns(data[HEADER_SIZE:]).equals(batch)


def test_a_client_that_knows_only_rows_reads_an_envelope_as_one_record_at_its_last_offset() -> None:
    batches = stored(encode(ColumnarRecords(pa.record_batch({"n": [1, 2, 3]}), 5)))
    (record,) = decode_rows(batches, 0).to_pylist()
    assert (record["offset"], record["key"]) == (2, None)
    assert record["headers"] == [{"key": "ms.enc", "value": b"arrow"}]
    assert pa.ipc.open_stream(record["value"]).read_all()["n"].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_says_whether_it_commits(committed: bool) -> None:
    data = whole(encode_marker(4, 2, committed=committed, timestamp_ms=1))
    assert marker_commits(data) is committed
    assert read_header(data).control
    assert len(data) == HEADER_SIZE + 17  # as Kafka's


@pytest.mark.parametrize(("kind", "name"), [(1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd")])
def test_compressed_batches_of_other_clients_are_read(kind: int, name: str) -> None:
    (batch,) = encode(RowRecords(table_of([(3, b"k", b"v" * 1000, [])])))
    header, records = batch.header, bytes(whole(batch)[HEADER_SIZE:])
    if name == "snappy":
        packed = pa.Codec("snappy").compress(records, asbytes=True)
    else:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, name) as stream:
            stream.write(records)
        packed = sink.getvalue().to_pybytes()
    variants = [packed]
    if name == "snappy":  # as Java's clients frame it
        variants.append(b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(packed)) + packed)
    for variant in variants:
        data = memoryview(HEADER.pack(*header._replace(attributes=kind)) + variant)
        assert decode_rows([stored_batch(read_header(data), data)], 0)["value"].to_pylist() == [b"v" * 1000]


def test_a_batch_with_append_time_gives_all_records_that_time() -> None:
    (batch,) = encode(RowRecords(table_of([(3, None, None, []), (4, None, None, [])])))
    header = batch.header._replace(attributes=APPEND_TIME, max_timestamp_ms=0)
    data = memoryview(HEADER.pack(*header) + bytes(whole(batch)[HEADER_SIZE:]))
    for codec in (small, bulk):
        assert codec.decode_rows([stored_batch(header, data)], 0)["timestamp"].to_pylist() == [0, 0]


def test_offset_and_epoch_are_outside_the_checksum() -> None:
    (batch,) = encode(RowRecords(table_of([(3, b"k", b"v", [])])))
    before = checksum_of(whole(batch))
    assert checksum_of(whole(place(batch, 12345, 3))) == before
    assert CHECKED_FROM == 21
