"""Primitive values of the Kafka protocol, for the messages that carry records: those are read and written in place."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

INT8: Final = struct.Struct(">b")
INT16: Final = struct.Struct(">h")
UINT16: Final = struct.Struct(">H")
INT32: Final = struct.Struct(">i")
INT64: Final = struct.Struct(">q")
FLOAT64: Final = struct.Struct(">d")

_STRING_BYTES_MAX: Final = 0x7FFF
_VARINT_BYTES_MAX: Final = 5
_NONE: Final[Mapping[int, bytes]] = MappingProxyType({})


class MalformedMessage(Exception):
    """Bytes that violate the protocol. Nothing more from the peer can be understood."""


class Reader:
    """Reads values from a message, from front to end. Raises `MalformedMessage`.

    `flexible`: lengths are varints of one more, and structs end in tagged fields.
    """

    def __init__(self, message: memoryview, position: int = 0, *, flexible: bool = False) -> None:
        self.message = message
        self.position = position
        self.flexible = flexible

    def int8(self) -> int:
        return self._number(INT8)

    def int16(self) -> int:
        return self._number(INT16)

    def int32(self) -> int:
        return self._number(INT32)

    def int64(self) -> int:
        return self._number(INT64)

    def uint16(self) -> int:
        return self._number(UINT16)

    def float64(self) -> float:
        return FLOAT64.unpack(self.take(FLOAT64.size))[0]

    def _number(self, layout: struct.Struct) -> int:
        position = self.position
        if position + layout.size > len(self.message):
            raise MalformedMessage(f"the message ends at {len(self.message)}, inside a number of {layout.size} bytes")
        self.position = position + layout.size
        return layout.unpack_from(self.message, position)[0]

    def take(self, size: int) -> memoryview:
        start, end = self.position, self.position + size
        if end > len(self.message):
            raise MalformedMessage(f"the message ends at {len(self.message)}, inside a value of {size} bytes")
        self.position = end
        return self.message[start:end]

    def varint(self) -> int:
        """An unsigned number of up to five bytes."""
        if self.position < len(self.message) and self.message[self.position] < 0x80:
            self.position += 1
            return self.message[self.position - 1]
        value = 0
        for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise MalformedMessage("a varint of more than five bytes")

    def _length(self, layout: struct.Struct) -> int:
        length = self.varint() - 1 if self.flexible else self._number(layout)
        if length < -1:
            raise MalformedMessage(f"a length of {length}")
        return length

    def uuid(self) -> bytes:
        return bytes(self.take(16))

    def nullable_string(self) -> str | None:
        length = self._length(INT16)
        if length > _STRING_BYTES_MAX:
            raise MalformedMessage(f"a string of {length} bytes")
        if length < 0:
            return None
        try:
            return str(self.take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedMessage("a string that is not UTF-8") from error

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise MalformedMessage("a string is missing")
        return text

    def nullable_bytes(self) -> memoryview | None:
        """A view into the message."""
        length = self._length(INT32)
        return None if length < 0 else self.take(length)

    def count(self, size_min: int) -> int:
        """How many elements follow, of at least `size_min` bytes each. A missing array counts as empty."""
        return self.array_count(size_min) or 0

    def array_count(self, size_min: int = 1) -> int | None:
        """The same; None for a missing array."""
        count = self._length(INT32)
        if count * size_min > len(self.message) - self.position:
            raise MalformedMessage(f"{count} elements do not fit into the message")
        return None if count < 0 else count

    def varint_length(self) -> int:
        """A length, as a plain varint, of something that follows."""
        length = self.varint()
        if length > len(self.message) - self.position:
            raise MalformedMessage(f"the message ends at {len(self.message)}, inside a value of {length} bytes")
        return length

    def tags(self) -> None:
        """Skips the tagged fields of a struct, which newer peers may add."""
        if not self.flexible:
            return
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())

    def tagged(self) -> dict[int, memoryview]:
        """The tagged fields of a struct, by tag."""
        if not self.flexible:
            return {}
        return {self.varint(): self.take(self.varint()) for _ in range(self.varint())}


class Writer:
    """Writes values. Large byte fields stay separate buffers: `buffers()` returns all in order."""

    def __init__(self, *, flexible: bool = False) -> None:
        self.flexible = flexible
        self._done: list[memoryview | bytearray | bytes] = []
        self._current = bytearray()

    def buffers(self) -> list[memoryview | bytearray | bytes]:
        return [*self._done, self._current] if self._current else list(self._done)

    def int8(self, value: int) -> None:
        self._current += INT8.pack(value)

    def int16(self, value: int) -> None:
        self._current += INT16.pack(value)

    def int32(self, value: int) -> None:
        self._current += INT32.pack(value)

    def int64(self, value: int) -> None:
        self._current += INT64.pack(value)

    def varint(self, value: int) -> None:
        while value > 0x7F:
            self._current.append(value & 0x7F | 0x80)
            value >>= 7
        self._current.append(value)

    def uuid(self, id: bytes) -> None:
        self._current += id

    def nullable_string(self, text: str | None) -> None:
        encoded = None if text is None else text.encode()
        self._length(INT16, -1 if encoded is None else len(encoded))
        self._current += encoded or b""

    def string(self, text: str) -> None:
        self.nullable_string(text)

    def count(self, count: int) -> None:
        """In: -1 for a missing array."""
        self._length(INT32, count)

    def bytes_of(self, buffers: list[memoryview | bytearray | bytes]) -> None:
        """A byte field that consists of these buffers, without copying them."""
        self._length(INT32, sum(map(len, buffers)))
        self._done += [self._current, *buffers]
        self._current = bytearray()

    def _length(self, layout: struct.Struct, length: int) -> None:
        if self.flexible:
            self.varint(length + 1)
        else:
            self._current += layout.pack(length)

    def tags(self, fields: Mapping[int, bytes] = _NONE) -> None:
        """The tagged fields of a struct, most often none, by their tags in order."""
        if not self.flexible:
            return
        self.varint(len(fields))
        for tag, value in fields.items():
            self.varint(tag)
            self.varint(len(value))
            self._current += value
