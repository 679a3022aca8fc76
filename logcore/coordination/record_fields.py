"""Fields of the records that Kafka's coordinators write. Older records have texts with a length of two bytes. Newer
records have compact texts and arrays: the length plus one, as an unsigned varint; and tagged fields after each struct.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

BYTE: Final = struct.Struct(">b")
SHORT: Final = struct.Struct(">h")
INT: Final = struct.Struct(">i")
LONG: Final = struct.Struct(">q")


def text_field(text: str | None) -> bytes:
    encoded = None if text is None else text.encode()
    return SHORT.pack(-1) if encoded is None else SHORT.pack(len(encoded)) + encoded


def compact_field(text: str | None) -> bytes:
    encoded = None if text is None else text.encode()
    return varint(0) if encoded is None else varint(len(encoded) + 1) + encoded


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def no_tags() -> bytes:
    return b"\0"


def tagged_field(number: int, content: bytes) -> bytes:
    """One tagged field at the end of a struct."""
    return varint(1) + varint(number) + varint(len(content)) + content


def nullable_struct(content: bytes) -> bytes:
    """Encodes a nullable struct that is not null."""
    return BYTE.pack(1) + content


class RecordFieldReader:
    """Reads the fields one after the other. Raises ValueError if the bytes end too early."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._content):
            raise ValueError("a record ends too early")
        taken = self._content[self._position : end]
        self._position = end
        return taken

    def number(self, layout: struct.Struct) -> int:
        value: int = layout.unpack(self.take(layout.size))[0]
        return value

    def text(self) -> str | None:
        length = self.number(SHORT)
        return None if length < 0 else self.take(length).decode()

    def compact(self) -> str | None:
        length = self._varint()
        return None if length == 0 else self.take(length - 1).decode()

    def compact_bytes(self) -> bytes:
        return self.take(max(self._varint() - 1, 0))

    def is_null(self) -> bool:
        """Whether the next nullable struct is null."""
        return self.number(BYTE) < 0

    def elements(self) -> Iterator[int]:
        return iter(range(self._varint() - 1))

    def tags(self) -> dict[int, bytes]:
        """The tagged fields, by number."""
        return {self._varint(): self.take(self._varint()) for _ in range(self._varint())}

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
