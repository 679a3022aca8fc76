"""One file of a partition's log, and its sparse offset index. It knows positions and offsets, not what they mean."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .disk import LogFile
from .errors import CorruptLog
from .records.batch import HEADER_SIZE, BatchHeader, EncodedBatch, read_header

INDEX_BYTES: Final = 4096
_ALLOCATED_MIN: Final = 64 * 1024
_ALLOCATED_AHEAD_MAX: Final = 16 * 1024 * 1024
_SCAN_BYTES: Final = 1024 * 1024


class Segment:
    """State: the end of what is written, and every 4 KiB or so an offset with its position.

    Invariant: the file holds whole batches from 0 to `size`; what lies behind are zeros that nobody reads. Writers
    take turns; readers may read below a `size` they saw at any time.
    """

    def __init__(self, folder: Path, base_offset: int) -> None:
        self.base_offset = base_offset
        self.path = folder / file_name(base_offset)
        self._file: LogFile | None = None
        self.size = self._allocated = self.path.stat().st_size
        self.allocated_max = (
            0  # up to here the file is made longer ahead of writes: it syncs faster than one that grows
        )
        self._index_offsets = array("q")
        self._index_positions = array("q")
        self._indexed_to = 0

    @property
    def file(self) -> LogFile:
        """The file to write to, opened at first use: a log of many partitions needs few descriptors."""
        if self._file is None:
            self._file = LogFile(self.path)
        return self._file

    def reader(self) -> LogFile:
        """The file to read from; a sealed segment's is closed when its reader drops it."""
        return self._file or LogFile(self.path)

    def trim(self) -> None:
        """Gives back what was taken ahead. Raises OSError."""
        if self._allocated > self.size:
            self.truncate(self.size)

    def seal(self) -> None:
        """Nothing is written here any more."""
        self._file = None

    def append(self, batches: list[EncodedBatch]) -> None:
        """Writes batches whose offsets are set. Raises OSError; `size` is unchanged then."""
        position = self.size
        self._allocate(position + sum(batch.header.size for batch in batches))
        end = self.file.write([buffer for batch in batches for buffer in batch.buffers], position)
        if self._indexed_to == position:
            for batch in batches:
                self._note(batch.header.base_offset, position)
                position += batch.header.size
            self._indexed_to = end
        self.size = end

    def truncate(self, size: int) -> None:
        """Forgets everything from `size` on. Raises OSError."""
        self.file.truncate(size)
        self.size = self._allocated = size
        while self._index_positions and self._index_positions[-1] >= size:
            self._index_positions.pop()
            self._index_offsets.pop()
        self._indexed_to = min(self._indexed_to, size)

    def position_before(self, offset: int) -> int:
        """The start of a batch at or before the one with `offset`, at most 4 KiB and a batch away."""
        if self._indexed_to < self.size:
            self._build_index()
        entry = bisect_right(self._index_offsets, offset) - 1
        return self._index_positions[entry] if entry >= 0 else 0

    def headers(self, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch in between. Raises `CorruptLog`."""
        buffer = memoryview(bytearray(min(_SCAN_BYTES, max(end - position, HEADER_SIZE))))
        file = self.reader()
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
            hint="Restore the file from a backup. Nothing was deleted; the other partitions are not affected.",
        )

    def _allocate(self, needed: int) -> None:
        if self._allocated < needed <= self.allocated_max:
            ahead = min(max(needed, _ALLOCATED_MIN), _ALLOCATED_AHEAD_MAX)
            end = min(needed + ahead, self.allocated_max)
            try:
                self.file.allocate(self._allocated, end)
                self._allocated = end
            except OSError:
                self.allocated_max = 0  # no room, or a file system that cannot: the write says what is the matter

    def _build_index(self) -> None:
        for position, header in self.headers(self._indexed_to, self.size):
            self._note(header.base_offset, position)
            self._indexed_to = position + header.size

    def _note(self, base_offset: int, position: int) -> None:
        if not self._index_positions or position - self._index_positions[-1] >= INDEX_BYTES:
            self._index_offsets.append(base_offset)
            self._index_positions.append(position)


def file_name(base_offset: int) -> str:
    return f"{base_offset:020d}.log"


def base_offsets(folder: Path) -> list[int]:
    """The segments of a folder, by base offset, in order."""
    return sorted(int(path.stem) for path in folder.glob("*.log") if path.stem.isdigit())
