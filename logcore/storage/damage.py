"""Finds where a segment continues after damaged bytes: the next record batch whose checksum is correct."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from ..records.batch import HEADER_SIZE, BatchHeader, checksum_of, read_header
from .disk import LogFile

_WINDOW_BYTES: Final = 1024 * 1024
_MAGIC_POSITION: Final = 16
_OFFSET_HIGH_BYTES: Final = 3  # of a base offset: nearby offsets have the same high bytes, except after a carry


class FoundBatch(NamedTuple):
    position: int
    header: BatchHeader


class DamagedRange(NamedTuple):
    """Records that cannot be read, from `first_offset` up to, not including, `end_offset`. If the two are equal, it is
    unknown which records were there, if any."""

    first_offset: int
    end_offset: int
    reason: str

    @property
    def is_empty(self) -> bool:
        return self.end_offset == self.first_offset

    def __str__(self) -> str:
        if self.is_empty:
            return f"what may have come at offset {self.first_offset}: {self.reason}"
        return f"the records from offset {self.first_offset} to {self.end_offset - 1}: {self.reason}"


def next_batch(file: LogFile, position: int, end: int, offset_min: int) -> FoundBatch | None:
    """The first whole batch at or after `position` that passes its checksum and whose base offset is at least
    `offset_min`."""
    while position + HEADER_SIZE <= end:
        window = memoryview(bytearray(min(_WINDOW_BYTES + HEADER_SIZE, end - position)))
        filled = file.read_into(window, position)
        for start in _candidates(window[:filled], offset_min):
            header = read_header(window, start)
            if header.plausible and header.base_offset >= offset_min and position + start + header.size <= end:
                if is_whole(file, position + start, header):
                    return FoundBatch(position + start, header)
        if filled < len(window):
            return None
        position += max(1, filled - HEADER_SIZE + 1)
    return None


def is_whole(file: LogFile, position: int, header: BatchHeader) -> bool:
    """Whether the bytes of this batch match its checksum. The checksum does not cover its offset and epoch."""
    batch = memoryview(bytearray(header.size))
    return file.read_into(batch, position) == header.size and checksum_of(batch) == header.crc


def _candidates(window: memoryview, offset_min: int) -> list[int]:
    """Positions where a header may begin: it has the version of all batches, and an offset close above `offset_min`."""
    count = len(window) - HEADER_SIZE + 1
    if count <= 0:
        return []
    data = np.frombuffer(window, np.uint8)
    likely = data[_MAGIC_POSITION : _MAGIC_POSITION + count] == 2
    high = offset_min.to_bytes(8, "big")[:_OFFSET_HIGH_BYTES]
    carried = ((offset_min >> 40) + 1).to_bytes(_OFFSET_HIGH_BYTES + 1, "big")[1:]
    fits = np.zeros(count, np.bool_)
    for prefix in (high, carried):
        same = np.ones(count, np.bool_)
        for place, byte in enumerate(prefix):
            same &= data[place : place + count] == byte
        fits |= same
    return np.flatnonzero(likely & fits).tolist()
