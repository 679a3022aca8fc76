"""Reads the visible bytes of a partition as runs of rows and columnar batches."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from ..client import Fetched, FetchedColumns, FetchedRows
from ..errors import CorruptLog
from ..records.batch import COMPRESSION, HEADER_SIZE, BatchHeader, checksum_of, read_header
from ..records.codec import decode_rows, stored_batch
from ..records.envelope import ALIGNMENT, decode_columns, misalignment, split_deltas
from ..records.record_layout import StoredBatch
from .read_view import ReadableFile, ReadView, Sequel

_WINDOW_BYTES: Final = 8 * 1024 * 1024  # read and decoded at once; the memory of larger pieces is not reused
_ALONE_FROM: Final = 64 * 1024  # a columnar batch of this size is read alone, to an address that aligns its columns
_FIRST_BYTES: Final = HEADER_SIZE + 32
_SPARE_BYTES: Final = _WINDOW_BYTES
_SPARE_FROM: Final = 256 * 1024
UNPACKED_TIMES: Final = 4
_spares: Final[deque[pa.Buffer]] = deque(maxlen=2)
"""Buffers for reuse: rows are copied out of what is read, and allocating memory costs more than the copy."""


def read(view: ReadView, offset: int, max_bytes: int) -> Fetched:
    """Everything visible from `offset` on, up to about `max_bytes` of stored bytes and `UNPACKED_TIMES` as many
    uncompressed bytes. It returns at least one batch, if there is one.

    Raises `CorruptLog` if the batch at `offset` is damaged. Records before a later damage are returned.
    """
    reading = _Reading(view, offset, max_bytes)
    try:
        for file in view.files:
            if not reading.read_file(file):
                break
        reading.check_progress()
    except CorruptLog:
        if reading.next_offset == offset:
            raise
    return Fetched(tuple(reading.runs), reading.next_offset, view.offsets.last_stable_offset)


class _Reading:
    """State: what was found so far, where to continue, and how many more bytes may be read."""

    def __init__(self, view: ReadView, offset: int, max_bytes: int) -> None:
        self.runs: list[FetchedRows | FetchedColumns] = []
        self.next_offset = offset
        self._from_offset = offset
        self._view = view
        self._bytes_left = max_bytes
        self._unpacked_left = UNPACKED_TIMES * max_bytes
        self._rows: list[StoredBatch] = []
        self._sequel = Sequel(view)
        self._in_use = False  # columns point into the buffer, so it cannot be reused

    @property
    def done(self) -> bool:
        if self.next_offset >= self._view.limit_offset:
            return True
        return (self._bytes_left <= 0 or self._is_full) and bool(self.runs)

    @property
    def _is_full(self) -> bool:
        """Decompressed text may be a thousand times larger than stored: too much for a caller that asked for
        megabytes."""
        return self._unpacked_left <= 0

    def check_progress(self) -> None:
        """Raises `CorruptLog` if an expected batch is missing."""
        if self._view.gapless and self._view.files and self.next_offset == self._from_offset < self._view.limit_offset:
            last = self._view.files[-1]
            raise last.segment.corrupt(last.end, f"the file ends before the batch with offset {self._from_offset}")

    def read_file(self, file: ReadableFile) -> bool:
        """True if it reached the end of the file and reading continues with the next one."""
        position, wanted = file.start, 0
        while position + HEADER_SIZE <= file.end and not self.done:
            window = _window(file, position)
            stretch = min(max(self._bytes_left, HEADER_SIZE), window.length, file.end - position)
            length = min(max(stretch, wanted), file.end - position)
            taken, wanted = self._read_window(file, position, length, window.shift)
            position += taken
            if not taken and wanted <= length:
                return False
            if wanted > self._bytes_left and self.runs:
                return False  # the next batch is larger than the remaining bytes
        return not self.done

    def _read_window(self, file: ReadableFile, position: int, length: int, shift: int) -> tuple[int, int]:
        """Reads the complete batches of a window. Returns the bytes they take, and the size of a batch that did not
        fit, or 0."""
        owner = _borrow(length + shift)
        buffer = memoryview(owner).cast("B")[shift : shift + length]
        self._in_use = False
        filled = file.file.read_into(buffer, position)
        try:
            start, wanted = self._take_batches(file, position, buffer, filled)
        finally:
            self._flush_rows(file, position)
        if owner.size == _SPARE_BYTES and not self._in_use:
            _spares.append(owner)
        if self.runs:
            self._bytes_left -= start
        return start, wanted

    def _take_batches(self, file: ReadableFile, position: int, buffer: memoryview, filled: int) -> tuple[int, int]:
        start, wanted = 0, 0
        while start + HEADER_SIZE <= filled and self.next_offset < self._view.limit_offset and not self._is_full:
            header = read_header(buffer, start)
            if not header.plausible or position + start + header.size > file.end:
                raise file.segment.corrupt(position + start, "no record batch begins here")
            if start + header.size > filled:
                wanted = header.size
                break
            self._sequel.check(file, position + start, header)
            if header.last_offset >= self._from_offset:
                self._take(file, position + start, header, buffer[start : start + header.size])
            start += header.size
        return start, wanted

    def _take(self, file: ReadableFile, position: int, header: BatchHeader, batch: memoryview) -> None:
        if checksum_of(batch) != header.crc:
            raise file.segment.corrupt(position, "the checksum of the record batch does not fit")
        if header.record_count and not header.control and not self._view.aborted.covers(header):
            try:
                if header.columnar:
                    self._flush_rows(file, position)
                    columns = self._columns(header, batch)
                    if columns.batch.num_rows:
                        self.runs.append(columns)
                else:
                    stored = stored_batch(header, batch)
                    self._unpacked_left -= stored.end - stored.start
                    self._rows.append(stored)
            except ValueError as error:
                raise file.segment.corrupt(position, str(error)) from error
        self.next_offset = header.last_offset + 1

    def _columns(self, header: BatchHeader, batch: memoryview) -> FetchedColumns:
        records = batch[HEADER_SIZE:]
        self._in_use = True
        if header.attributes & COMPRESSION:
            records = stored_batch(header, batch).buffer
            self._unpacked_left -= len(records)
        columns, deltas = split_deltas(decode_columns(records), header.last_offset_delta + 1)
        wanted = max(0, self._from_offset - header.base_offset)
        if deltas is None:
            return FetchedColumns(columns.slice(wanted), header.base_offset + wanted, header.max_timestamp_ms)
        skipped = int(np.searchsorted(deltas, wanted))
        offsets = deltas[skipped:] + header.base_offset
        first = int(offsets[0]) if len(offsets) else header.last_offset + 1
        return FetchedColumns(columns.slice(skipped), first, header.max_timestamp_ms, offsets)

    def _flush_rows(self, file: ReadableFile, position: int) -> None:
        if not self._rows:
            return
        batches, self._rows = self._rows, []
        try:
            table = decode_rows(batches, self._from_offset)
        except ValueError as error:
            self.next_offset = max(self._from_offset, batches[0].base_offset)
            raise file.segment.corrupt(position, str(error)) from error
        if table.num_rows:
            self.runs.append(FetchedRows(table))


class _Window(NamedTuple):
    """How much to read at once, and how far after an aligned address to put it."""

    length: int
    shift: int


_MANY: Final = _Window(_WINDOW_BYTES, 0)


def _window(file: ReadableFile, position: int) -> _Window:
    if file.end - position < _ALONE_FROM:
        return _MANY
    first = memoryview(bytearray(_FIRST_BYTES))
    file.file.read_into(first, position)
    header = read_header(first)
    if not header.columnar or not _ALONE_FROM <= header.size <= file.end - position:
        return _MANY
    return _Window(header.size, (misalignment(first[HEADER_SIZE:]) - HEADER_SIZE) % ALIGNMENT)


def _borrow(length: int) -> pa.Buffer:
    if not _SPARE_FROM <= length <= _SPARE_BYTES:
        return pa.allocate_buffer(length)
    try:
        return _spares.pop()
    except IndexError:
        return pa.allocate_buffer(_SPARE_BYTES)
