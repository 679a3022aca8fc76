"""Reading a partition as it lies on disk: whole batches for Fetch, and where a timestamp begins. Nothing is decoded
but the one batch that holds the timestamp.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from ..partition import Partition, ReadableFile, ReadView
from ..records.batch import HEADER_SIZE, BatchHeader, checksum_of, read_header
from ..records.codec import decode_rows, stored_batch
from .fetch import AbortedTransaction

_EVERYTHING: Final = 1 << 62
_WINDOW_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """Whole batches, in order; the first holds the offset that was asked for, or follows it."""

    records: list[memoryview]
    aborted: list[AbortedTransaction]

    @property
    def size(self) -> int:
        return sum(map(len, self.records))


def read_stored(view: ReadView, offset: int, bytes_max: int, *, committed_only: bool) -> StoredBytes:
    """As many batches as fit into `bytes_max`, and one in any case where there is one. Raises `CorruptLog`."""
    records: list[memoryview] = []
    end_offset = offset
    for file in view.files:
        left = bytes_max - sum(map(len, records))
        if records and left <= 0:
            break
        found, end_offset = _read_file(view, file, offset, left, end_offset, needed=not records)
        if found:
            records.append(found)
    aborted = _aborted(view, offset, end_offset) if committed_only and records else []
    return StoredBytes(records, aborted)


def _read_file(
    view: ReadView, file: ReadableFile, offset: int, bytes_max: int, end_offset: int, *, needed: bool
) -> tuple[memoryview | None, int]:
    """The batches to send of one file, as one stretch, and the offset after them."""
    position, length = file.start, min(max(bytes_max, HEADER_SIZE), _WINDOW_BYTES)
    while position + HEADER_SIZE <= file.end:
        buffer = _window(file, position, length)
        start, taken_from = 0, -1
        wanted = 0
        while start + HEADER_SIZE <= len(buffer):
            header = read_header(buffer, start)
            if header.base_offset >= view.limit_offset:
                return (buffer[taken_from:start] if taken_from >= 0 else None), end_offset
            if not header.plausible or position + start + header.size > file.end:
                raise file.segment.corrupt(position + start, "no record batch begins here")
            if start + header.size > len(buffer):
                wanted = header.size
                break
            if header.last_offset >= offset:
                taken_from = start if taken_from < 0 else taken_from
                end_offset = header.last_offset + 1
            start += header.size
        if taken_from >= 0:
            return buffer[taken_from:start], end_offset
        if wanted > bytes_max and not needed:
            return None, end_offset
        position, length = position + start, max(length, wanted)
    return None, end_offset


def _window(file: ReadableFile, position: int, length: int) -> memoryview:
    buffer = memoryview(pa.allocate_buffer(min(length, file.end - position))).cast("B")
    return buffer[: file.file.read_into(buffer, position)]


def _aborted(view: ReadView, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """The aborted transactions that have records in between, by first offset."""
    found = [
        AbortedTransaction(producer_id, range.first_offset)
        for producer_id, ranges in view.aborted.by_producer.items()
        for range in ranges
        if range.first_offset < end_offset and range.last_offset >= start_offset
    ]
    return sorted(found, key=lambda transaction: transaction.first_offset)


@dataclass(frozen=True, slots=True)
class TimestampOffset:
    timestamp_ms: int
    offset: int


def first_at_or_after(partition: Partition, timestamp_ms: int) -> TimestampOffset | None:
    """The first visible record with this timestamp or a later one."""
    for header, file, position in _headers(partition):
        if header.max_timestamp_ms >= timestamp_ms and not header.control:
            found = _first_in(header, file, position, timestamp_ms)
            if found is not None:
                return found
    return None


def latest_timestamp(partition: Partition) -> TimestampOffset | None:
    """The record with the largest timestamp, the first of them."""
    newest = max(
        (entry for entry in _headers(partition) if not entry[0].control),
        key=lambda entry: entry[0].max_timestamp_ms,
        default=None,
    )
    return None if newest is None else _first_in(*newest, newest[0].max_timestamp_ms)


def _headers(partition: Partition) -> Iterator[tuple[BatchHeader, ReadableFile, int]]:
    view = partition.view(partition.offsets().log_start_offset, _EVERYTHING, "read_uncommitted")
    for file in view.files:
        for position, header in file.segment.headers(file.start, file.end):
            if header.base_offset >= view.limit_offset:
                return
            yield header, file, position


def _first_in(header: BatchHeader, file: ReadableFile, position: int, timestamp_ms: int) -> TimestampOffset | None:
    """Within a batch. A columnar one has one timestamp for all its rows."""
    if header.columnar:
        return TimestampOffset(header.max_timestamp_ms, header.base_offset)
    batch = _window(file, position, header.size)
    if len(batch) < header.size or checksum_of(batch) != header.crc:
        raise file.segment.corrupt(position, "the checksum of the record batch does not fit")
    try:
        rows = decode_rows([stored_batch(header, batch)], header.base_offset)
    except ValueError as error:
        raise file.segment.corrupt(position, str(error)) from error
    timestamps = rows.column("timestamp").to_numpy()
    late = timestamps >= timestamp_ms
    if not late.any():
        return None
    row = int(late.argmax())
    return TimestampOffset(int(timestamps[row]), rows.column("offset")[row].as_py())
