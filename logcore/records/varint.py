"""Zigzag varints for single numbers, as in records. `bulk.py` does it for whole columns."""

from __future__ import annotations

from typing import Final


def write_varint(out: bytearray, value: int) -> None:
    encoded = (value << 1) ^ (value >> 63)
    while encoded > 0x7F:
        out.append(encoded & 0x7F | 0x80)
        encoded >>= 7
    out.append(encoded)


def read_varint(buffer: memoryview, position: int) -> tuple[int, int]:
    """The number and the position after it. Raises IndexError past the end, ValueError for more than ten bytes."""
    encoded = 0
    for shift in range(0, 70, 7):
        byte = buffer[position]
        position += 1
        encoded |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (encoded >> 1) ^ -(encoded & 1), position
    raise ValueError("a varint of more than ten bytes")


def varint(value: int) -> bytes:
    """The bytes that `write_varint` appends."""
    if 0 <= value < len(_SMALL):
        return _SMALL[value]
    return _written(value)


def _written(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


_SMALL: Final = tuple(map(_written, range(1024)))  # most lengths and deltas; a look-up takes a third of the time
