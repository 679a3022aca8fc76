"""Much is read piece by piece, into memory that is used again: what was given away stays as it was."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millstream.logcore.client import ColumnarRecords, FetchedColumns, FetchedRows, RowRecords
from millstream.logcore.log import Log
from millstream.logcore.records.batch import HEADER_SIZE, reseal
from millstream.logcore.records.codec import encode
from millstream.logcore.records.compression import compress
from millstream.logcore.records.envelope import ALIGNMENT, decode_columns, misalignment
from millstream.logcore.storage.reader import UNPACKED_TIMES

ROWS = 4000


def rows_of(number: int) -> RowRecords:
    values = pa.array([b"%0500d" % (number * ROWS + row) for row in range(ROWS)], pa.binary())
    times, keys = pa.array([1] * ROWS, pa.int64()), pa.nulls(ROWS, pa.binary())
    return RowRecords(pa.table({"timestamp": times, "key": keys, "value": values}))


def columns_of(number: int) -> ColumnarRecords:
    return ColumnarRecords(pa.record_batch({"x": np.arange(number * ROWS, (number + 1) * ROWS) * 3}), 1)


def test_what_was_fetched_is_not_touched_by_what_is_fetched_next(log: Log) -> None:
    for number in range(12):
        log.append("t", 0, columns_of(number) if number % 3 == 2 else rows_of(number))
    fetched, offset = [], 0
    while offset < 12 * ROWS:
        fetched.append(log.fetch("t", 0, offset, max_bytes=3_000_000))
        offset = fetched[-1].next_offset
    again = log.fetch("t", 0, 0, max_bytes=64 << 20)
    for runs in ([run for each in fetched for run in each.runs], again.runs):
        seen = 0
        for run in runs:
            if isinstance(run, FetchedColumns):
                assert run.batch["x"].to_pylist() == [3 * (seen + row) for row in range(run.batch.num_rows)]
                seen += run.batch.num_rows
            else:
                assert isinstance(run, FetchedRows)
                assert run.table["value"].to_pylist() == [b"%0500d" % (seen + row) for row in range(len(run.table))]
                seen += len(run.table)
        assert seen == 12 * ROWS
    assert len(fetched) > 3


def test_a_columnar_batch_is_read_to_where_its_columns_need_no_copy() -> None:
    for rows in (1, 100, 20_000):
        (batch,) = encode(ColumnarRecords(pa.record_batch({"x": np.arange(rows)}), 1))
        content = b"".join(bytes(buffer) for buffer in batch.buffers)
        memory = pa.allocate_buffer(len(content) + ALIGNMENT)
        shift = (misalignment(memoryview(content)[HEADER_SIZE:]) - HEADER_SIZE) % ALIGNMENT
        placed = memoryview(memory).cast("B")[shift : shift + len(content)]
        placed[:] = content
        column = decode_columns(placed[HEADER_SIZE:]).column(0).buffers()[1]
        assert memory.address <= column.address < memory.address + memory.size


def test_bytes_that_are_no_columnar_record_lie_anywhere() -> None:
    assert misalignment(memoryview(b"")) == 0
    assert misalignment(memoryview(b"\xff" * 20)) == 0


@pytest.mark.parametrize("columnar", [False, True])
def test_a_fetch_is_bounded_by_what_its_records_take_without_their_compression(log: Log, columnar: bool) -> None:
    """Texts of a megabyte may be stored in a kilobyte: thousands of them are no answer to who asks for a megabyte."""
    size, count, max_bytes = 1 << 20, 20, 2 << 20
    for _ in range(count):
        if columnar:
            records: RowRecords | ColumnarRecords = ColumnarRecords(pa.record_batch({"x": ["a" * size]}), 1)
        else:
            records = RowRecords(pa.table({"timestamp": [1], "key": [b"k"], "value": [b"a" * size]}))
        (plain,) = encode(records)
        whole = b"".join(bytes(buffer) for buffer in plain.buffers)
        content = bytearray(HEADER_SIZE) + compress(4, memoryview(whole)[HEADER_SIZE:])
        header = plain.header._replace(attributes=plain.header.attributes | 4, batch_length=len(content) - 12)
        log.append_batches("t", 0, bytes(reseal([content], header).buffers[0]))
    offset, fetches = 0, 0
    while offset < count:
        fetched = log.fetch("t", 0, offset, max_bytes=max_bytes)
        assert fetched.next_offset > offset
        assert fetched.next_offset - offset <= 1 + UNPACKED_TIMES * max_bytes // size
        offset, fetches = fetched.next_offset, fetches + 1
    assert fetches == 3
    one_at_least = log.fetch("t", 0, 0, max_bytes=1)
    assert one_at_least.next_offset == 1
