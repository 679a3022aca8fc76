"""One file of a partition's log, and its sparse index. It knows positions, offsets and times, and nothing else about
records."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from ..errors import CorruptLog
from ..records.batch import HEADER_SIZE, BatchHeader, Buffer, EncodedBatch, read_header
from .damage import is_whole, next_batch
from .disk import LogFile
from .open_files import OpenFiles
from .segment_index import NO_TIME, SegmentIndex, load_index

_ALLOCATED_MIN: Final = 64 * 1024
_ALLOCATED_AHEAD_MAX: Final = 16 * 1024 * 1024
_SCAN_BYTES: Final = 1024 * 1024
INDEX_SAVED_FROM: Final = 256 * 1024  # bytes of log: a smaller segment is indexed by reading it


class Segment:
    """State: the end of the written bytes, and an index that follows it.

    Invariant: the file holds complete batches from 0 to `size`, unless it is damaged; after that only zeros, which are
    never read. Only one thread writes at a time. Readers may always read below a `size` that they have seen.
    """

    def __init__(self, folder: Path, base_offset: int, files: OpenFiles) -> None:
        self.base_offset = base_offset
        self._path = f"{folder}/{file_name(base_offset)}"  # thousands are created at once, and pathlib is slow
        self._files = files
        self._file: LogFile | None = None
        self._index: SegmentIndex | None = None
        self._writing = False
        self._index_saved = True  # false: the index file may be missing or outdated
        status = os.stat(self._path)
        self.size = self._allocated = status.st_size
        self.written_ms = status.st_mtime_ns // 1_000_000  # the time of the last write
        self.allocated_max = (
            0  # up to here the file is preallocated: it syncs faster than a file that grows with each write
        )

    @property
    def path(self) -> Path:
        return Path(self._path)

    @property
    def file(self) -> LogFile:
        """The open file. It is opened when needed, so a log with many partitions has few open descriptors."""
        file = self._file
        if file is None:
            file = self._file = LogFile(self._path)
        self._files.used(self)
        return file

    def let_go(self) -> None:
        """Closes the file once its readers are done, and forgets the index if it can be read again."""
        self._file = None
        if not self._writing:
            self._index = None

    def end_at(self, size: int) -> None:
        """The bytes after `size` were preallocated by an earlier process and never written."""
        self.size = size

    def trim(self) -> None:
        """Frees the preallocated space. Raises OSError."""
        if self._allocated > self.size:
            self.file.truncate(self.size)
            self._allocated = self.size

    def seal(self) -> None:
        """The segment gets no more writes: saves its index in a file."""
        self._writing = False
        if self._index is not None:
            self._save(self._index)

    def remove(self) -> None:
        """Raises OSError."""
        self._files.forget(self)
        self.let_go()
        self.index_path.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)

    @property
    def index_path(self) -> Path:
        return self.path.with_suffix(".index")

    def append(self, batches: Sequence[EncodedBatch], now_ms: int) -> None:
        """Writes batches whose offsets are set. Raises OSError; `size` is unchanged then."""
        position = self.size
        size = 0
        buffers: list[Buffer] = []
        for batch in batches:
            size += batch.header.size
            buffers += batch.buffers
        self._allocate(position + size)
        end = self.file.write(buffers, position)
        if not position:
            self._index = SegmentIndex(self.base_offset)
        self._writing, self._index_saved = True, False
        index = self._index
        if index is not None and index.covered == position:
            for batch in batches:
                _note(index, position, batch.header)
                position += batch.header.size
        self.size = end
        self.written_ms = max(self.written_ms, now_ms)

    def take_back(self) -> None:
        """Frees the space that a failed append may have taken."""
        with contextlib.suppress(OSError):
            self.file.truncate(self.size)
            self._allocated = self.size

    def truncate(self, size: int) -> None:
        """Removes everything from `size` on. Raises OSError."""
        self.file.truncate(size)
        self.size = self._allocated = size
        self._index, self._index_saved = None, False
        self.index_path.unlink(missing_ok=True)

    def position_before(self, offset: int) -> tuple[int, int]:
        """Where to start reading to find this offset: a position, and the offset of the batch there."""
        return self.index.entry_before(offset)

    def entry_of_time(self, timestamp_ms: int) -> tuple[int, int]:
        """Where to start reading to find the first record with this timestamp or a later one."""
        return self.index.entry_of_time(timestamp_ms)

    @property
    def newest_ms(self) -> int:
        """The largest timestamp of a record; `NO_TIME` if there is none."""
        return self.index.newest_ms

    @property
    def index(self) -> SegmentIndex:
        index = self._index
        if index is None:
            index = load_index(self.index_path, self.base_offset, self.size)
            self._index_saved = index is not None
            index = index or SegmentIndex(self.base_offset)
        if index.covered < self.size:
            self._complete(index)
            self._index_saved = False
        self._index = index
        if not self._writing:
            self._save(index)
        return index

    def _save(self, index: SegmentIndex) -> None:
        if index.covered == self.size >= INDEX_SAVED_FROM and not self._index_saved:
            with contextlib.suppress(OSError):  # it can be built again
                index.save(self.index_path, durable=False)
                self._index_saved = True

    def headers(self, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch in between. Raises `CorruptLog`."""
        buffer = memoryview(bytearray(min(_SCAN_BYTES, max(end - position, HEADER_SIZE))))
        file = self.file
        start = filled = 0  # the buffer holds the file's bytes from `start` to `start + filled`
        while position < end:
            if not start <= position <= start + filled - HEADER_SIZE:
                start, filled = position, file.read_into(buffer, position)
                if filled < HEADER_SIZE:
                    raise self.corrupt(position, "the file ends inside a batch")
            header = read_header(buffer, position - start)
            if not header.plausible or position + header.size > end:
                raise self.corrupt(position, "no record batch begins here")
            yield position, header
            position += header.size

    def corrupt(self, position: int, reason: str) -> CorruptLog:
        return CorruptLog(
            f"{self.path} is damaged at position {position}: {reason}",
            hint="Restore the file from a backup, or go on behind the damage. Nothing was deleted, and everything else"
            " can be read.",
        )

    def _allocate(self, needed: int) -> None:
        if self._allocated < needed <= self.allocated_max:
            ahead = min(max(needed, _ALLOCATED_MIN), _ALLOCATED_AHEAD_MAX)
            end = min(needed + ahead, self.allocated_max)
            try:
                self.file.allocate(self._allocated, end)
                self._allocated = end
            except OSError:
                self.allocated_max = 0  # no space, or an unsupported file system: the write itself reports errors

    def _complete(self, index: SegmentIndex) -> None:
        """Extends the index to the end of the segment. It leaves out damaged parts; reading them raises the error."""
        size = self.size
        while index.covered < size:
            last: tuple[int, BatchHeader] | None = None
            position = index.covered
            try:
                for position, header in self.headers(index.covered, size):
                    if header.base_offset != index.end_offset:
                        break
                    _note(index, position, header)
                    last, position = (position, header), position + header.size
            except CorruptLog:
                pass
            if index.covered < size:
                self._skip_damage(index, position, last, size)

    def _skip_damage(self, index: SegmentIndex, position: int, last: tuple[int, BatchHeader] | None, size: int) -> None:
        """In: `last`: the batch before `position`; the damage may be its length."""
        start, offset_min = position + 1, index.end_offset + 1
        if last is not None and not is_whole(self.file, *last):
            start, offset_min = last[0] + 1, last[1].base_offset + 1
        found = next_batch(self.file, start, size, offset_min)
        if found is None:
            index.covered = size
        else:
            _note(index, *found)


def _note(index: SegmentIndex, position: int, header: BatchHeader) -> None:
    newest_ms = NO_TIME if header.control else header.max_timestamp_ms
    index.note(position, header.size, header.base_offset, header.last_offset, newest_ms)


def file_name(base_offset: int) -> str:
    return f"{base_offset:020d}.log"


def base_offsets(folder: Path) -> list[int]:
    """The segments of a folder, by base offset, in order."""
    return offsets_of(os.listdir(folder))


def offsets_of(names: Iterable[str]) -> list[int]:
    """The base offsets of those files that are segments, in order."""
    return sorted(int(name[:-4]) for name in names if name.endswith(".log") and name[:-4].isdigit())
