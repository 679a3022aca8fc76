"""The sparse index of a segment: finds the position of an offset or a time. It can always be rebuilt from the segment.

An entry describes a batch: its first offset, its position in the file, and the largest timestamp before it. The file
`<base offset>.index` keeps the entries of a segment that is no longer written to, with a checksum.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import Final

from crc32c import crc32c

from .disk import replace_file

INDEX_BYTES: Final = 4096  # of log per entry
NO_TIME: Final = -1
_HEADER: Final = struct.Struct("<4sIQqqQ")  # magic, checksum of what follows, bytes covered, end offset, time, count
_MAGIC: Final = b"MSI1"
_CHECKED_FROM: Final = 8


class SegmentIndex:
    """State: the entries, and how far the segment was read to build them.

    Invariant: all batches below `covered` are in order and known, and `end_offset` follows them. Offsets, positions
    and times of the entries never decrease. `newest_ms` is the largest timestamp below `covered`.
    """

    def __init__(self, base_offset: int) -> None:
        self._base_offset = base_offset
        self.covered = 0
        self.end_offset = base_offset
        self.newest_ms = NO_TIME
        self._offsets = array("q")
        self._positions = array("q")
        self._times = array("q")

    def note(self, position: int, size: int, base_offset: int, last_offset: int, newest_ms: int) -> None:
        """Adds the next batch. In: `newest_ms`: its largest timestamp; `NO_TIME` if that does not count."""
        if not self._positions or position - self._positions[-1] >= INDEX_BYTES or base_offset != self.end_offset:
            self._offsets.append(base_offset)
            self._positions.append(position)
            self._times.append(self.newest_ms)
        self.covered = position + size
        self.end_offset = last_offset + 1
        self.newest_ms = max(self.newest_ms, newest_ms)

    def entry_before(self, offset: int) -> tuple[int, int]:
        """Position and first offset of a batch at or before the one with `offset`, at most 4 KiB and a batch away."""
        return self._entry(bisect_right(self._offsets, offset) - 1)

    def entry_of_time(self, timestamp_ms: int) -> tuple[int, int]:
        """Position and first offset of a batch such that every timestamp before it is smaller than `timestamp_ms`. The
        first timestamp that is not smaller, if there is one, is at most 4 KiB and a batch after it."""
        return self._entry(bisect_left(self._times, timestamp_ms) - 1)

    def _entry(self, entry: int) -> tuple[int, int]:
        return (self._positions[entry], self._offsets[entry]) if entry >= 0 else (0, self._base_offset)

    def fill(self, content: bytes, count: int) -> None:
        """In: `content`: the entries as `save` writes them."""
        for number, column in enumerate((self._offsets, self._positions, self._times)):
            column.frombytes(content[number * count * 8 : (number + 1) * count * 8])
            if sys.byteorder == "big":
                column.byteswap()

    def save(self, path: Path, *, durable: bool) -> None:
        """Raises OSError."""
        columns = [self._offsets, self._positions, self._times]
        if sys.byteorder == "big":
            columns = [column[:] for column in columns]
            for column in columns:
                column.byteswap()
        body = b"".join(column.tobytes() for column in columns)
        fields = (self.covered, self.end_offset, self.newest_ms, len(self._offsets))
        header = _HEADER.pack(_MAGIC, 0, *fields)
        checksum = crc32c(body, crc32c(header[_CHECKED_FROM:]))
        replace_file(path, _HEADER.pack(_MAGIC, checksum, *fields) + body, durable=durable)


def load_index(path: Path, base_offset: int, size_max: int) -> SegmentIndex | None:
    """The index in this file; None if it is missing, damaged, or covers more than `size_max`."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if len(content) < _HEADER.size:
        return None
    magic, checksum, covered, end_offset, newest_ms, count = _HEADER.unpack_from(content)
    if magic != _MAGIC or crc32c(memoryview(content)[_CHECKED_FROM:]) != checksum or covered > size_max:
        return None
    index = SegmentIndex(base_offset)
    index.covered, index.end_offset, index.newest_ms = covered, end_offset, newest_ms
    index.fill(content[_HEADER.size :], count)
    return index
