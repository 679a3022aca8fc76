"""Records from the network are checked where they lie, as strictly as Kafka's clients read them."""

from __future__ import annotations

from types import ModuleType

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millstream.logcore.client import HEADERS, RowRecords
from millstream.logcore.records import bulk, small
from millstream.logcore.records.batch import read_header
from millstream.logcore.records.codec import encode, stored_batch
from millstream.logcore.records.record_layout import StoredBatch


def batch_of(count: int) -> bytes:
    table = pa.table(
        {
            "timestamp": pa.array(range(count), pa.int64()),
            "key": pa.array([None if row % 2 else b"key" for row in range(count)], pa.binary()),
            "value": pa.array([b"value" * row for row in range(count)], pa.binary()),
            "headers": pa.array([[{"key": "name", "value": None}] * (row % 3) for row in range(count)], HEADERS),
        }
    )
    (batch,) = encode(RowRecords(table))
    return b"".join(bytes(buffer) for buffer in batch.buffers)


def stored(data: bytes) -> StoredBatch:
    return stored_batch(read_header(data), memoryview(data))


def passes_check(codec: ModuleType, batch: StoredBatch) -> bool:
    try:
        codec.check_rows(batch)
    except (ValueError, IndexError):
        return False
    return True


def is_decoded(codec: ModuleType, batch: StoredBatch) -> bool:
    try:
        rows = codec.decode_rows([batch], 0)
    except (ValueError, IndexError, OverflowError):
        return False
    return rows["offset"].to_pylist() == list(range(batch.record_count))


@pytest.mark.parametrize("codec", [small, bulk], ids=["plain", "compiled"])
@given(
    count=st.integers(1, 20),
    damages=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 3),
)
@example(count=3, damages=[], cut=0)
def test_what_passes_the_check_can_be_decoded(
    codec: ModuleType, count: int, damages: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(batch_of(count))
    batch = stored(bytes(data))
    for place, byte in damages:
        data[batch.start + place % (batch.end - batch.start)] = byte
    damaged = StoredBatch(
        memoryview(bytes(data[: batch.end - cut])),
        batch.start,
        batch.end - cut,
        batch.record_count,
        batch.base_offset,
        batch.base_timestamp_ms,
        None,
    )
    assert passes_check(small, damaged) == passes_check(bulk, damaged)
    assert is_decoded(codec, damaged) or not passes_check(codec, damaged)
    if not damages and not cut:
        assert passes_check(codec, damaged)


@pytest.mark.parametrize("codec", [small, bulk], ids=["plain", "compiled"])
def test_records_whose_offsets_do_not_follow_each_other_do_not_pass(codec: ModuleType) -> None:
    data = bytearray(batch_of(3))
    batch = stored(bytes(data))
    data[batch.start + 3] = 2  # the offset of the first record: 1
    assert not passes_check(codec, stored(bytes(data)))


def records_of(*records: bytes, count: int | None = None, behind: bytes = b"") -> StoredBatch:
    """In: the records without their lengths."""
    data = b"".join(bytes([2 * len(record)]) + record for record in records) + behind
    return StoredBatch(memoryview(data), 0, len(data), len(records) if count is None else count, 0, 0, None)


HEAD = b"\0\0\0\x02k\x02v"  # attributes, deltas of time and offset, key and value
SECOND = b"\0\0\x02\x02k\x02v\0"


@pytest.mark.parametrize("codec", [small, bulk], ids=["plain", "compiled"])
@pytest.mark.parametrize(
    ("batch", "passes"),
    [
        (records_of(HEAD + b"\0"), True),
        (records_of(HEAD + b"\0", SECOND), True),
        (records_of(HEAD + b"\x02\0\0"), True),
        (records_of(HEAD + b"\x04\x02n\x01\x02m\x02c"), True),
        (records_of(HEAD + b"\x01"), False),
        (records_of(HEAD + b"\x02\x01\0"), False),
        (records_of(HEAD + b"\0\0"), False),
        (records_of(HEAD + b"\0\0", SECOND), False),
        (records_of(HEAD + b"\x02\0\0\0"), False),
        (records_of(HEAD + b"\0", behind=b"\0"), False),
        (records_of(HEAD + b"\0", SECOND, count=1), False),
    ],
    ids=["plain", "two", "an empty header", "two headers", "headers: -1", "a header without a name", "a byte more",
         "a byte more in the first", "a byte more after a header", "a byte after the last", "a record after the last"],
)  # fmt: skip
def test_what_kafkas_clients_cannot_read_does_not_pass(codec: ModuleType, batch: StoredBatch, passes: bool) -> None:
    """They would stop at such a record for good, and Kafka's broker does not take it."""
    assert passes_check(codec, batch) is passes
