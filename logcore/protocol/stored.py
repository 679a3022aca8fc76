"""Reads whole batches of a partition for Fetch, as they are on disk, without decoding them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from ..errors import CorruptLog
from ..records.batch import HEADER_SIZE, read_header
from ..storage.read_view import ReadableFile, ReadView, Sequel
from .wire.fetch_messages import AbortedTransaction

_WINDOW_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """Whole batches, in order; the first contains the requested offset, or follows it."""

    records: list[memoryview]
    aborted: list[AbortedTransaction]
    end_offset: int = -1

    @property
    def size(self) -> int:
        return sum(map(len, self.records))


def read_stored(view: ReadView, offset: int, bytes_max: int, *, committed_only: bool) -> StoredBytes:
    """As many batches as fit into `bytes_max`; at least one if there is one.

    Raises `CorruptLog` if the batch with `offset` is damaged. If a later batch is damaged, it returns those before.
    """
    reading = _Reading(view, offset, bytes_max)
    try:
        for file in view.files:
            if not reading.read_file(file):
                break
    except CorruptLog:
        if not reading.records:
            raise
    if view.files and not reading.records and reading.end_offset == offset < view.limit_offset and reading.ended:
        last = view.files[-1]
        raise last.segment.corrupt(last.end, f"the file ends before the batch with offset {offset}")
    aborted = _aborted(view, offset, reading.end_offset) if committed_only and reading.records else []
    return StoredBytes(reading.records, aborted, reading.end_offset)


class _Reading:
    """State: the stretches of batches to send, one per file, and the offset after them."""

    def __init__(self, view: ReadView, offset: int, bytes_max: int) -> None:
        self.records: list[memoryview] = []
        self.end_offset = offset
        self.ended = True  # the files were read to their end
        self._view = view
        self._offset = offset
        self._left = bytes_max
        self._sequel = Sequel(view)

    def read_file(self, file: ReadableFile) -> bool:
        """True if it reached the file's end, so that the next file may follow."""
        if self.records and self._left <= 0:
            return False
        position, length = file.start, min(max(self._left, HEADER_SIZE), _WINDOW_BYTES)
        while position + HEADER_SIZE <= file.end:
            buffer = _window(file, position, length)
            taken, start, wanted = self._take(file, position, buffer)
            if taken is not None:
                self.records.append(buffer[taken:start])
                self._left -= start - taken
            position += start
            if self.end_offset >= self._view.limit_offset:
                return False
            if wanted and self.records:
                self.ended = False
                return False
            if not start and not wanted:
                break
            length = max(min(max(self._left, HEADER_SIZE), _WINDOW_BYTES), wanted)
            if self.records and self._left <= 0:
                return False
        return True

    def _take(self, file: ReadableFile, position: int, buffer: memoryview) -> tuple[int | None, int, int]:
        """The start and end of the batches to send in the buffer, and the size of a batch that did not fit, or 0."""
        start, taken = 0, None
        try:
            while start + HEADER_SIZE <= len(buffer) and self.end_offset < self._view.limit_offset:
                header = read_header(buffer, start)
                if not header.plausible or position + start + header.size > file.end:
                    raise file.segment.corrupt(position + start, "no record batch begins here")
                if start + header.size > len(buffer):
                    return taken, start, header.size
                self._sequel.check(file, position + start, header)
                if header.last_offset >= self._offset:
                    taken = start if taken is None else taken
                    self.end_offset = header.last_offset + 1
                start += header.size
        except CorruptLog:
            if taken is not None:
                self.records.append(buffer[taken:start])
            raise
        return taken, start, 0


def _window(file: ReadableFile, position: int, length: int) -> memoryview:
    buffer = memoryview(pa.allocate_buffer(min(length, file.end - position))).cast("B")
    return buffer[: file.file.read_into(buffer, position)]


def _aborted(view: ReadView, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """The aborted transactions with records between these offsets, by first offset."""
    found = [
        AbortedTransaction(producer_id, range.first_offset)
        for producer_id, ranges in view.aborted.by_producer.items()
        for range in ranges
        if range.first_offset < end_offset and range.last_offset >= start_offset
    ]
    return sorted(found, key=lambda transaction: transaction.first_offset)
