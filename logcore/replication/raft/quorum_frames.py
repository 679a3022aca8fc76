"""The frames of the metadata log: its base, its entries, and marks of what is durable. Each has a checksum."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

MAGIC: Final = b"\xa7Qf1"
MARK: Final = 0xFFFF_FFFF  # in place of the term: everything up to this index is durable
BASE: Final = 0xFFFF_FFFE  # likewise, in the first frame: the log begins after this index; the payload is its term
_HEAD: Final = Struct(">4sIIQI")  # magic, length of the payload, CRC32C of what follows it, index, term
_CHECKED_FROM: Final = 12  # index, term and payload are under the checksum


class LogFrame(NamedTuple):
    position: int
    end: int
    index: int
    term: int
    payload: bytes


def framed(index: int, term: int, payload: bytes) -> bytes:
    checked = _HEAD.pack(MAGIC, 0, 0, index, term)[_CHECKED_FROM:] + payload
    return _HEAD.pack(MAGIC, len(payload), crc32c(checked), index, term) + payload


def _frame_at(content: bytes, position: int) -> LogFrame | None:
    if len(content) - position < _HEAD.size:
        return None
    magic, length, checksum, index, term = _HEAD.unpack_from(content, position)
    end = position + _HEAD.size + length
    if magic != MAGIC or end > len(content) or crc32c(content[position + _CHECKED_FROM : end]) != checksum:
        return None
    return LogFrame(position, end, index, term, content[position + _HEAD.size : end])


def frames(content: bytes) -> Iterator[LogFrame]:
    """The frames from the start of `content`, up to the first that is bad or incomplete."""
    position = 0
    while (frame := _frame_at(content, position)) is not None:
        yield frame
        position = frame.end


def marks_behind(content: bytes, position: int) -> int:
    """The highest mark anywhere after a bad frame; 0 if there is none."""
    highest = 0
    while (position := content.find(MAGIC, position)) >= 0:
        frame = _frame_at(content, position)
        if frame is not None and frame.term == MARK:
            highest = max(highest, frame.index)
        position += 1
    return highest
