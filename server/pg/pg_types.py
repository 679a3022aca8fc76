"""The PostgreSQL types of our SQL types: their OIDs, and the bytes of a value in both formats.

| ours | PostgreSQL's | |
| --- | --- | --- |
| BOOLEAN, INTEGER, BIGINT, DOUBLE | bool, int4, int8, float8 | |
| DECIMAL(p, s) | numeric(p, s) | |
| STRING, BYTES | text, bytea | |
| DATE, TIME, TIMESTAMP | date, time, timestamp | without time zones: the times are UTC |
| ARRAY of these | the array type | |
| any other ARRAY, MAP, STRUCT | json | |
"""

from __future__ import annotations

import decimal
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from ...sql.types import BIGINT, BOOLEAN, BYTES, DATE, DOUBLE, INTEGER, STRING, TIME, TIMESTAMP, Array, Decimal, SqlType
from ..http.row_values import converter
from .pg_times import date_binary, date_text, time_binary, time_text, timestamp_binary, timestamp_text

Encode = Callable[[Any], bytes]
"""Encodes a value that is not NULL."""

_MODIFIER_BASE: Final = 4
JSON_OID: Final = 114


@dataclass(frozen=True, slots=True)
class PgType:
    """`name`: as in pg_type; `size` in bytes, -1 if it varies; `array`: the OID of its array type; `category`: as in
    pg_type; `words`: its name in SQL."""

    oid: int
    name: str
    size: int
    array: int
    category: str
    words: str


BOOL: Final = PgType(16, "bool", 1, 1000, "B", "boolean")
INT4: Final = PgType(23, "int4", 4, 1007, "N", "integer")
INT8: Final = PgType(20, "int8", 8, 1016, "N", "bigint")
FLOAT8: Final = PgType(701, "float8", 8, 1022, "N", "double precision")
NUMERIC: Final = PgType(1700, "numeric", -1, 1231, "N", "numeric")
TEXT: Final = PgType(25, "text", -1, 1009, "S", "text")
BYTEA: Final = PgType(17, "bytea", -1, 1001, "U", "bytea")
PG_DATE: Final = PgType(1082, "date", 4, 1182, "D", "date")
PG_TIME: Final = PgType(1083, "time", 8, 1183, "D", "time without time zone")
PG_TIMESTAMP: Final = PgType(1114, "timestamp", 8, 1115, "D", "timestamp without time zone")
JSON: Final = PgType(JSON_OID, "json", -1, 199, "U", "json")
OID: Final = PgType(26, "oid", 4, 1028, "N", "oid")

ELSEWHERE: Final = (
    PgType(18, "char", 1, 1002, "Z", '"char"'),
    PgType(19, "name", 64, 1003, "S", "name"),
    PgType(21, "int2", 2, 1005, "N", "smallint"),
    PgType(24, "regproc", 4, 1008, "N", "regproc"),
    PgType(700, "float4", 4, 1021, "N", "real"),
    PgType(705, "unknown", -2, 0, "X", "unknown"),
    PgType(1042, "bpchar", -1, 1014, "S", "character"),
    PgType(1043, "varchar", -1, 1015, "S", "character varying"),
    PgType(1184, "timestamptz", 8, 1185, "D", "timestamp with time zone"),
    PgType(1186, "interval", 16, 1187, "T", "interval"),
    PgType(1266, "timetz", 12, 1270, "D", "time with time zone"),
    PgType(2205, "regclass", 4, 2210, "N", "regclass"),
    PgType(2206, "regtype", 4, 2211, "N", "regtype"),
    PgType(2950, "uuid", 16, 2951, "U", "uuid"),
    PgType(3802, "jsonb", -1, 3807, "U", "jsonb"),
)
"""Types that no column of ours has, but that parameters and PostgreSQL's catalogs have."""


@dataclass(frozen=True, slots=True)
class CatalogType(SqlType):
    """A type that only columns of PostgreSQL's catalogs have."""

    name: str

    def __str__(self) -> str:
        return self.name


OID_TYPE: Final = CatalogType("OID")

_OF: Final[dict[SqlType, PgType]] = {
    BOOLEAN: BOOL, INTEGER: INT4, BIGINT: INT8, DOUBLE: FLOAT8, STRING: TEXT, BYTES: BYTEA, DATE: PG_DATE,
    TIME: PG_TIME, TIMESTAMP: PG_TIMESTAMP, OID_TYPE: OID,
}  # fmt: skip

PG_TYPES: Final = (*_OF.values(), NUMERIC, JSON, *ELSEWHERE)
BY_OID: Final = {type_.oid: type_ for type_ in PG_TYPES}
ELEMENT_OF_ARRAY: Final = {type_.array: type_ for type_ in PG_TYPES if type_.array}


def scalar_type(type_: SqlType) -> PgType:
    """PostgreSQL's type of a type that is not an array; json if there is no other."""
    if isinstance(type_, Decimal):
        return NUMERIC
    return TEXT if str(type_) == "NULL" else _OF.get(type_, JSON)


def element_type(type_: SqlType) -> SqlType | None:
    """The element type of an ARRAY that is an array in PostgreSQL, too. Arrays of arrays are json, because PostgreSQL's
    have to be rectangular."""
    if isinstance(type_, Array) and scalar_type(type_.element) is not JSON:
        return type_.element
    return None


def oid_of(type_: SqlType) -> int:
    element = element_type(type_)
    return scalar_type(type_).oid if element is None else scalar_type(element).array


def size_of(type_: SqlType) -> int:
    return -1 if element_type(type_) is not None else scalar_type(type_).size


def modifier_of(type_: SqlType) -> int:
    """The digits of a numeric, as PostgreSQL packs them."""
    inner = element_type(type_) or type_
    return (inner.precision << 16 | inner.scale) + _MODIFIER_BASE if isinstance(inner, Decimal) else -1


def encoder(type_: SqlType, format: int) -> Encode:
    """In: `format`: 0 text, 1 binary. The encoder takes Python values in the form of `python_values`."""
    element = element_type(type_)
    if element is not None:
        inner = encoder(element, format)
        return _array_text(inner) if format == 0 else _array_binary(inner, scalar_type(element).oid)
    if isinstance(type_, Decimal):
        return _decimal_text if format == 0 else numeric_binary
    found = (_TEXT if format == 0 else _BINARY).get(scalar_type(type_))
    return _json(type_) if found is None else found


def _utf8(value: str) -> bytes:
    """PostgreSQL's texts may not contain NUL: clients would end the text there."""
    return value.replace("\0", "\ufffd").encode("utf-8", "replace")


def _json(type_: SqlType) -> Encode:
    use = converter(type_) or (lambda value: value)
    options = orjson.OPT_NON_STR_KEYS
    return lambda value: orjson.dumps(use(value), default=str, option=options)


def _float_text(value: float) -> bytes:
    return repr(value).replace("inf", "Infinity").replace("nan", "NaN").encode()


def _decimal_text(value: decimal.Decimal) -> bytes:
    return format(value, "f").encode()


_TEXT: Final[dict[PgType, Encode]] = {
    BOOL: lambda value: b"t" if value else b"f",
    INT4: lambda value: b"%d" % value,
    INT8: lambda value: b"%d" % value,
    FLOAT8: _float_text,
    TEXT: _utf8,
    BYTEA: lambda value: b"\\x" + value.hex().encode(),
    PG_DATE: date_text,
    PG_TIME: time_text,
    PG_TIMESTAMP: timestamp_text,
    OID: lambda value: b"%d" % value,
}


_BINARY: Final[dict[PgType, Encode]] = {
    BOOL: lambda value: b"\1" if value else b"\0",
    INT4: struct.Struct("!i").pack,
    INT8: struct.Struct("!q").pack,
    FLOAT8: struct.Struct("!d").pack,
    TEXT: _utf8,
    BYTEA: bytes,
    PG_DATE: date_binary,
    PG_TIME: time_binary,
    PG_TIMESTAMP: timestamp_binary,
    OID: struct.Struct("!I").pack,
}


def numeric_binary(value: decimal.Decimal) -> bytes:
    """Digits in base 10,000: their count, the exponent of the first, the sign, the number of decimal places."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    whole = "".join(map(str, digits)) + "0" * max(0, exponent)
    whole = whole.rjust(scale + 1, "0")
    before, after = whole[: len(whole) - scale], whole[len(whole) - scale :]
    before = before.rjust(-(-len(before) // 4) * 4, "0")
    after = after.ljust(-(-len(after) // 4) * 4, "0")
    groups = [int((before + after)[at : at + 4]) for at in range(0, len(before) + len(after), 4)]
    weight = len(before) // 4 - 1
    while groups and groups[0] == 0:
        groups.pop(0)
        weight -= 1
    while groups and groups[-1] == 0:
        groups.pop()
    head = struct.pack("!HhHH", len(groups), weight if groups else 0, 0x4000 if sign and groups else 0, scale)
    return head + struct.pack(f"!{len(groups)}H", *groups)


def numeric_of(content: bytes) -> decimal.Decimal:
    """The inverse of `numeric_binary`. Raises ValueError, struct.error; NaN and infinities are ValueErrors, too.

    >>> numeric_of(numeric_binary(decimal.Decimal("-12345.0600")))
    Decimal('-12345.0600')
    """
    count, weight, sign, scale = struct.unpack_from("!HhHH", content)
    groups: Sequence[int] = struct.unpack(f"!{count}H", content[8:])
    if sign not in (0, 0x4000) or scale > 1000 or abs(weight) > 1000 or any(group > 9999 for group in groups):
        raise ValueError("no finite number")
    digits = int("".join(f"{group:04d}" for group in groups) or "0")
    with decimal.localcontext(prec=10_000):
        exact = decimal.Decimal(digits).scaleb(4 * (weight + 1 - count))
        return (-exact if sign else exact).quantize(decimal.Decimal(1).scaleb(-scale))


def _array_text(inner: Encode) -> Encode:
    def encode(values: Sequence[Any]) -> bytes:
        return b"{" + b",".join(b"NULL" if value is None else _quoted(inner(value)) for value in values) + b"}"

    return encode


def _quoted(item: bytes) -> bytes:
    plain = item and item.upper() != b"NULL" and not any(sign in item for sign in b'{}",\\ \t\n\r\v\f')
    return item if plain else b'"' + item.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def _array_binary(inner: Encode, oid: int) -> Encode:
    def encode(values: Sequence[Any]) -> bytes:
        has_null = any(value is None for value in values)
        head = struct.pack("!iiI", 1 if len(values) else 0, has_null, oid)
        if not len(values):
            return head
        items = (b"\xff\xff\xff\xff" if value is None else _sized(inner(value)) for value in values)
        return head + struct.pack("!ii", len(values), 1) + b"".join(items)

    return encode


def _sized(item: bytes) -> bytes:
    return struct.pack("!i", len(item)) + item
