"""Finds the offset of a time in a partition. It decodes only the one batch that contains the timestamp."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from ..records.batch import BatchHeader, checksum_of
from ..records.codec import decode_rows, stored_batch
from .partition_reading import ReadablePartition
from .read_view import ReadableFile, ReadView


@dataclass(frozen=True, slots=True)
class TimestampOffset:
    timestamp_ms: int
    offset: int


def first_at_or_after(partition: ReadablePartition, timestamp_ms: int) -> TimestampOffset | None:
    """The first visible record with this timestamp or a later one. Raises `CorruptLog`."""
    view = partition.view_from_time(timestamp_ms)
    for header, file, position in _headers(view):
        if header.max_timestamp_ms >= timestamp_ms and not header.control:
            found = _first_in(header, file, position, timestamp_ms, view.offsets.log_start_offset)
            if found is not None:
                return found
    return None


def latest_timestamp(partition: ReadablePartition) -> TimestampOffset | None:
    """The first record with the largest timestamp. Raises `CorruptLog`."""
    newest_ms = partition.newest_ms()
    found = first_at_or_after(partition, newest_ms) if newest_ms >= 0 else None
    if found is not None or newest_ms < 0:
        return found
    # The record with the largest timestamp is not visible yet. This case is rare, and the only one to read all headers.
    start = partition.offsets().log_start_offset
    view = partition.view(start, 1 << 62, "read_uncommitted")
    entries = [entry for entry in _headers(view) if not entry[0].control and entry[0].record_count]
    if not entries:
        return None
    newest = max(entries, key=lambda entry: entry[0].max_timestamp_ms)
    return _first_in(*newest, newest[0].max_timestamp_ms, start)


def _headers(view: ReadView) -> Iterator[tuple[BatchHeader, ReadableFile, int]]:
    for file in view.files:
        for position, header in file.segment.headers(file.start, file.end):
            if header.base_offset >= view.limit_offset:
                return
            yield header, file, position


def _first_in(
    header: BatchHeader, file: ReadableFile, position: int, timestamp_ms: int, from_offset: int
) -> TimestampOffset | None:
    """Searches one batch. A columnar batch has one timestamp for all its rows."""
    if header.last_offset < from_offset or not header.record_count:
        return None
    if header.columnar:
        return TimestampOffset(header.max_timestamp_ms, max(header.base_offset, from_offset))
    batch = memoryview(pa.allocate_buffer(header.size)).cast("B")
    if file.file.read_into(batch, position) < header.size or checksum_of(batch) != header.crc:
        raise file.segment.corrupt(position, "the checksum of the record batch does not fit")
    try:
        rows = decode_rows([stored_batch(header, batch)], max(header.base_offset, from_offset))
    except ValueError as error:
        raise file.segment.corrupt(position, str(error)) from error
    timestamps = rows.column("timestamp").to_numpy()
    late = timestamps >= timestamp_ms
    if not late.any():
        return None
    row = int(late.argmax())
    return TimestampOffset(int(timestamps[row]), rows.column("offset")[row].as_py())
