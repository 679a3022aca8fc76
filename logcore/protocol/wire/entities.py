"""Reads messages with schemas from kio. kio's own reader is native code that ends the process if a message claims a
count or a length that it does not have. This reader checks all of them, and limits the number of values.
"""

from __future__ import annotations

import dataclasses
import typing
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

from ...error_codes import ErrorCode
from .primitives import MalformedMessage, Reader

_ELEMENTS_MAX: Final = 200_000
"""For all arrays of a request together: an element may take one byte to send, and a hundred in memory. An answer comes
from a server that the reader has chosen, and is as long as what it has: the settings of 5,000 topics are 200,000."""

_Read = Callable[["_Entities"], Any]


class _Entities(Reader):
    """State: the position, and how many more elements are allowed."""

    def __init__(self, message: memoryview, position: int, *, flexible: bool, elements_max: int) -> None:
        super().__init__(message, position, flexible=flexible)
        self.elements_max = self.left = elements_max

    def elements(self) -> int | None:
        """How many follow; None for a missing array."""
        count = self.array_count()
        if count is None:
            return None
        self.left -= count
        if self.left < 0:
            raise MalformedMessage(f"a message with more than {self.elements_max} elements")
        return count


def read_entity(entity: type[Any], message: memoryview, position: int, *, is_answer: bool = False) -> Any:
    """An object of this class. Raises `MalformedMessage`."""
    elements_max = len(message) if is_answer else _ELEMENTS_MAX
    reader = _Entities(message, position, flexible=entity.__flexible__, elements_max=elements_max)
    return _entity_reader(entity)(reader)


@cache
def _entity_reader(entity: type[Any]) -> _Read:
    plain: list[tuple[str, _Read]] = []
    tagged: dict[int, tuple[str, _Read]] = {}
    otherwise: dict[str, Any] = {}
    for field in dataclasses.fields(entity):
        tag = field.metadata.get("tag")
        if tag is None:
            plain.append((field.name, _field_reader(field)))
        else:
            tagged[int(tag)] = (field.name, _field_reader(field, is_tagged=True))
            if field.default is dataclasses.MISSING:
                otherwise[field.name] = None if _is_optional(field.type) else _implied(field)
    flexible = entity.__flexible__

    def read(reader: _Entities) -> Any:
        values = dict(otherwise)
        for name, read_field in plain:
            values[name] = read_field(reader)
        if flexible:
            _read_tagged(reader, tagged, values)
        return entity(**values)

    return read


def _read_tagged(reader: _Entities, tagged: dict[int, tuple[str, _Read]], values: dict[str, Any]) -> None:
    for _ in range(reader.varint()):
        known = tagged.get(reader.varint())
        length = reader.varint_length()
        end = reader.position + length
        if known is not None:
            values[known[0]] = known[1](reader)
        reader.position = end


def _field_reader(field: dataclasses.Field[Any], *, is_tagged: bool = False) -> _Read:
    optional = _is_optional(field.type) and not is_tagged
    kind = _without_none(field.type)
    is_array = typing.get_origin(kind) is tuple
    element = typing.get_args(kind)[0] if is_array else kind
    element_type = _without_none(element)
    if dataclasses.is_dataclass(element_type):
        read = _entity_reader(typing.cast("type[Any]", element_type))
        read = _nullable(read) if optional and not is_array else read
    else:
        read = _primitive_reader(field.metadata["kafka_type"], optional=optional and not is_array)
    return _array_reader(read, field.name, nullable=_is_optional(field.type)) if is_array else read


def _array_reader(read: _Read, name: str, *, nullable: bool) -> _Read:
    def read_array(reader: _Entities) -> tuple[Any, ...] | None:
        count = reader.elements()
        if count is not None:
            return tuple([read(reader) for _ in range(count)])
        if not nullable:
            raise MalformedMessage(f"the array {name} is missing")
        return None

    return read_array


def _nullable(read: _Read) -> _Read:
    return lambda reader: None if reader.int8() < 0 else read(reader)


def _primitive_reader(kind: str, *, optional: bool) -> _Read:
    match kind:
        case "string":
            return Reader.nullable_string if optional else Reader.string
        case "bytes" | "records":
            return _nullable_bytes if optional else _bytes
        case _:
            return _PRIMITIVES[kind]


def _nullable_bytes(reader: Reader) -> bytes | None:
    found = reader.nullable_bytes()
    return None if found is None else bytes(found)


def _bytes(reader: Reader) -> bytes:
    return _nullable_bytes(reader) or b""


def _error_code(reader: Reader) -> ErrorCode:
    try:
        return ErrorCode(reader.int16())
    except ValueError:
        return ErrorCode.unknown_server_error


def _duration(milliseconds: int) -> timedelta:
    try:
        return timedelta(milliseconds=milliseconds)
    except OverflowError as error:
        raise MalformedMessage(f"a duration of {milliseconds} ms") from error


def _moment(reader: Reader) -> datetime | None:
    milliseconds = reader.int64()
    try:
        return None if milliseconds < 0 else datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError) as error:
        raise MalformedMessage(f"a time of {milliseconds} ms") from error


_PRIMITIVES: Final[dict[str, _Read]] = {
    "int8": Reader.int8,
    "int16": Reader.int16,
    "int32": Reader.int32,
    "int64": Reader.int64,
    "uint16": Reader.uint16,
    "bool": lambda reader: reader.int8() != 0,
    "float64": Reader.float64,
    "uuid": lambda reader: uuid.UUID(bytes=bytes(reader.take(16))),
    "error_code": _error_code,
    "timedelta_i32": lambda reader: _duration(reader.int32()),
    "timedelta_i64": lambda reader: _duration(reader.int64()),
    "datetime_i64": _moment,
}


def _is_optional(kind: Any) -> bool:
    return type(None) in typing.get_args(kind)


def _without_none(kind: Any) -> Any:
    if typing.get_origin(kind) is tuple:
        return kind
    arguments = [argument for argument in typing.get_args(kind) if argument is not type(None)]
    return arguments[0] if _is_optional(kind) and len(arguments) == 1 else kind


def _implied(field: dataclasses.Field[Any]) -> Any:
    return () if typing.get_origin(_without_none(field.type)) is tuple else None
