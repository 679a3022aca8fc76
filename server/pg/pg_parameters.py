"""Parameters ($1, $2, … in text or binary) as literals of our dialect. A value is parsed by its type and rendered
again: none of its bytes are copied into SQL."""

from __future__ import annotations

import datetime
import decimal
import struct
import uuid
from collections.abc import Callable
from typing import Any, Final, TypeVar

from millstream.errors import StatementError

from ...sql.printing import literal
from ...sql.types import BIGINT, BOOLEAN, BYTES, DATE, DOUBLE, INTEGER, STRING, TIME, TIMESTAMP, Array, Decimal, SqlType
from .pg_types import BY_OID, ELEMENT_OF_ARRAY, OID_TYPE, numeric_of, oid_of
from .texts.time_texts import date_of, shortened, time_of, timestamp_of

T = TypeVar("T")
_EPOCH: Final = datetime.datetime(2000, 1, 1)
_DECIMAL_DIGITS: Final = 38
_ITEMS_MAX: Final = 100_000
NO_VALUE: Final = (ValueError, struct.error, decimal.InvalidOperation, OverflowError, IndexError)
"""The errors of parsing bytes that are not a value of their type."""


class WrongParameter(StatementError):
    """A parameter that is not a value of its type, or whose type is not supported."""

    code = "PG_PARAMETER"


_SQL_TYPES: Final[dict[str, SqlType]] = {
    "bool": BOOLEAN, "int2": INTEGER, "int4": INTEGER, "int8": BIGINT, "oid": OID_TYPE, "float4": DOUBLE,
    "float8": DOUBLE, "numeric": Decimal(_DECIMAL_DIGITS, 10), "text": STRING, "varchar": STRING, "bpchar": STRING,
    "name": STRING, "char": STRING, "unknown": STRING, "uuid": STRING, "json": STRING, "jsonb": STRING,
    "bytea": BYTES, "date": DATE, "time": TIME, "timestamp": TIMESTAMP, "timestamptz": TIMESTAMP,
}  # fmt: skip


def sql_type_of(oid: int) -> SqlType | None:
    """Our type for a parameter of this type; None if the server should choose, or the type is unknown."""
    element = ELEMENT_OF_ARRAY.get(oid)
    if element is not None:
        inner = _SQL_TYPES.get(element.name)
        return None if inner is None else Array(inner)
    found = BY_OID.get(oid)
    return None if found is None or found.name == "unknown" else _SQL_TYPES.get(found.name)


def sql_type_named(name: str) -> SqlType | None:
    """In: PostgreSQL's name of a type, in SQL or in its catalogs."""
    short = {"int": "int4", "integer": "int4", "bigint": "int8", "smallint": "int2", "boolean": "bool"}.get(name, name)
    return _SQL_TYPES.get(short)


def parameter_literal(content: bytes | None, format: int, oid: int) -> str:
    """In: `oid`: of PostgreSQL's type. Raises `WrongParameter`."""
    if content is None:
        return "NULL"
    try:
        return literal(decoded_value(content, format, oid))
    except NO_VALUE as error:
        known = BY_OID.get(oid) or ELEMENT_OF_ARRAY.get(oid)
        brackets = "[]" if oid in ELEMENT_OF_ARRAY else ""
        raise no_value(f"type {oid}" if known is None else known.words + brackets, error) from None


def no_value(type_: str, error: Exception) -> WrongParameter:
    return WrongParameter(f"a parameter is no {type_}: {error}")


def sample_literal(type_: SqlType | None) -> str:
    """A sample value of the type, for planning a statement before its parameters are known."""
    if isinstance(type_, Array):
        return f"ARRAY[{sample_literal(type_.element)}]"
    if isinstance(type_, Decimal):
        return f"CAST('1' AS DECIMAL({type_.precision}, {type_.scale}))"
    return _SAMPLES.get(type_, "''") if type_ is not None else "''"


_SAMPLES: Final[dict[SqlType, str]] = {
    BOOLEAN: "TRUE", INTEGER: "1", BIGINT: "1", OID_TYPE: "1", DOUBLE: "1E0", STRING: "''",
    BYTES: "TO_BYTES('00', 'hex')",
    DATE: "CAST('2000-01-01' AS DATE)", TIME: "CAST('00:00:00' AS TIME)",
    TIMESTAMP: "CAST('2000-01-01T00:00:00' AS TIMESTAMP)",
}  # fmt: skip


def parameter_oid(type_: SqlType | None) -> int:
    """The OID that the client gets for a parameter with an inferred type."""
    return oid_of(STRING if type_ is None else type_)


def decoded_value(content: bytes, format: int, oid: int) -> Any:
    """A value of PostgreSQL's type `oid`, in text (0) or binary (1). Raises the errors in `NO_VALUE`."""
    element = ELEMENT_OF_ARRAY.get(oid)
    if element is not None:
        return _binary_array(content) if format else text_array(content.decode(), element.name)
    found = BY_OID.get(oid)
    if found is None and oid != 0:
        raise ValueError("this type is not supported")
    name = "unknown" if found is None else found.name
    return _from_binary(content, name) if format else value_from_text(content.decode(), name)


def value_from_text(text: str, name: str) -> Any:
    match name:
        case "bool":
            return _bool(text)
        case "int2" | "int4" | "int8" | "oid":
            return _integer(_number_of(text, int, "whole number"), name)
        case "float4" | "float8":
            return _number_of(text, float, "number")
        case "numeric":
            return _finite(_number_of(text, decimal.Decimal, "number"))
        case "bytea":
            if not text.startswith("\\x"):
                raise ValueError("it does not begin with \\x")
            return bytes.fromhex(text[2:])
        case "date":
            return date_of(text)
        case "time":
            return time_of(text)
        case "timestamp" | "timestamptz":
            return timestamp_of(text)
        case name if name in _SQL_TYPES:
            return text
        case _:
            raise ValueError(f"there is no {name} here")


def _number_of(text: str, read: Callable[[str], T], what: str) -> T:
    try:
        return read(text)
    except (ValueError, decimal.InvalidOperation):
        raise ValueError(f"{shortened(text)} is no {what}") from None


_RANGES: Final = {"int2": 15, "int4": 31, "int8": 63, "oid": 32}
_INTEGERS: Final = {"int2": "!h", "int4": "!i", "int8": "!q", "oid": "!I"}
_MICROSECOND: Final = datetime.timedelta(microseconds=1)


def _integer(value: int, name: str) -> int:
    bits = _RANGES[name]
    if not -(1 << bits) <= value < 1 << bits:
        raise ValueError("it is out of range")
    return value


def _from_binary(content: bytes, name: str) -> Any:
    match name:
        case "bool":
            return struct.unpack("!?", content)[0]
        case "int2" | "int4" | "int8" | "oid":
            return struct.unpack(_INTEGERS[name], content)[0]
        case "float4" | "float8":
            return struct.unpack("!f" if name == "float4" else "!d", content)[0]
        case "numeric":
            return numeric_of(content)
        case "bytea":
            return content
        case "uuid":
            return str(uuid.UUID(bytes=content))
        case "date":
            return (_EPOCH + datetime.timedelta(days=struct.unpack("!i", content)[0])).date()
        case "time":
            return (_EPOCH + struct.unpack("!q", content)[0] * _MICROSECOND).time()
        case "timestamp" | "timestamptz":
            return _EPOCH + struct.unpack("!q", content)[0] * _MICROSECOND
        case "jsonb":
            return content[1:].decode()
        case name if _SQL_TYPES.get(name) == STRING:
            return content.decode()
        case _:
            raise ValueError(f"there is no {name} here")


def _bool(text: str) -> bool:
    word = text.strip().lower()
    if word in ("t", "true", "y", "yes", "on", "1"):
        return True
    if word in ("f", "false", "n", "no", "off", "0"):
        return False
    raise ValueError("it is neither true nor false")


def _finite(value: decimal.Decimal) -> decimal.Decimal:
    exponent = value.as_tuple().exponent
    if not value.is_finite() or not isinstance(exponent, int) or abs(value.adjusted()) > 1000 or exponent < -1000:
        raise ValueError("no number of a size that there is here")
    return value


def _binary_array(content: bytes) -> list[Any]:
    dimensions, _, oid = struct.unpack_from("!iiI", content)
    if dimensions == 0:
        return []
    if dimensions != 1:
        raise ValueError("it has more than one dimension")
    (count,) = struct.unpack_from("!i", content, 12)
    if not 0 <= count <= _ITEMS_MAX:
        raise ValueError("it has too many elements")
    values: list[Any] = []
    at = 20
    for _ in range(count):
        (size,) = struct.unpack_from("!i", content, at)
        at += 4
        if size < 0:
            values.append(None)
            continue
        if at + size > len(content):
            raise ValueError("it is cut off")
        values.append(decoded_value(content[at : at + size], 1, oid))
        at += size
    return values


def text_array(text: str, element: str) -> list[Any]:
    """`{1,NULL,"a \\"b\\""}`."""
    if text[:1] != "{" or text[-1:] != "}":
        raise ValueError("an array stands in braces")
    read: Callable[[str], Any] = lambda item: value_from_text(item, element)  # noqa: E731
    values: list[Any] = []
    at, end = 1, len(text) - 1
    while at < end:
        if text[at].isspace():
            at += 1
            continue
        item, quoted, at = _item(text, at, end)
        while at < end and text[at].isspace():
            at += 1
        values.append(None if not quoted and item.upper() == "NULL" else read(item))
        if at < end and text[at] != ",":
            raise ValueError("its elements are not parted by commas")
        at += 1
    return values


def _item(text: str, at: int, end: int) -> tuple[str, bool, int]:
    """An element, whether it was quoted, and the position after it."""
    if text[at] != '"':
        stop = text.find(",", at, end)
        stop = end if stop < 0 else stop
        if "{" in text[at:stop] or '"' in text[at:stop]:
            raise ValueError("it has more than one dimension, or a quote in the middle")
        return text[at:stop].strip(), False, stop
    signs: list[str] = []
    at += 1
    while at < end and text[at] != '"':
        if text[at] == "\\":
            at += 1
        signs.append(text[at])
        at += 1
    if at >= end:
        raise ValueError("a quote has no end")
    return "".join(signs), True, at + 1
