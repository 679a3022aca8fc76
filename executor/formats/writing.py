"""Writes one value as text, in Python. Small batches use it instead of the compiled writers; the bytes are the same."""

from __future__ import annotations

import base64
from collections.abc import Callable
from decimal import Decimal as Number
from typing import Any

import pyarrow as pa

from ...sql.types import Array, Decimal, Map, Primitive, SqlType, Struct
from .json_text import quote

Write = Callable[[Any], str]


def wire_type(type_: SqlType) -> pa.DataType:
    """The Arrow type to cast to before values become Python objects. Times are integers, so that none overflows."""
    match type_:
        case Primitive(name="DATE"):
            return pa.int32()
        case Primitive(name="TIME" | "TIMESTAMP"):
            return pa.int64()
        case Array():
            return pa.list_(wire_type(type_.element))
        case Map():
            return pa.map_(wire_type(type_.key), wire_type(type_.value))
        case Struct():
            return pa.struct([pa.field(name, wire_type(stored)) for name, stored in type_.stored])
        case _:
            return type_.arrow


def writer(type_: SqlType, *, json: bool) -> Write:
    """A function from a value (of `wire_type`, not None) to its text."""
    match type_:
        case Primitive(name="STRING"):
            return quote if json else str
        case Primitive(name="BYTES"):
            return _quoted_base64 if json else _base64
        case Primitive(name="DOUBLE"):
            return _json_double if json else double_text
        case Primitive(name="BOOLEAN"):
            return lambda value: "true" if value else "false"
        case Primitive(name="TIME" | "TIMESTAMP"):
            return lambda value: str(value // 1000)
        case Primitive():
            return str
        case Decimal():
            return lambda value: f"{value:f}"
        case Array():
            element = _nullable(type_.element)
            return lambda value: f"[{','.join(map(element, value))}]"
        case Map():
            key, member = _nullable(type_.key), _nullable(type_.value)
            return lambda value: "{" + ",".join(f"{key(k)}:{member(v)}" for k, v in value) + "}"
        case Struct():
            named = zip(type_.engine_names, type_.fields, strict=True)
            fields = [(name, f"{quote(field.name)}:", _nullable(field.type)) for name, field in named]
            return lambda value: "{" + ",".join(key + write(value[name]) for name, key, write in fields) + "}"
        case _:
            raise AssertionError(f"no format holds {type_}")


def _nullable(type_: SqlType) -> Write:
    write = writer(type_, json=True)
    return lambda value: "null" if value is None else write(value)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _quoted_base64(value: bytes) -> str:
    return f'"{_base64(value)}"'


def _json_double(value: float) -> str:
    # JSON has no word for NaN and Infinity: like ksqlDB, we write text, which a DOUBLE column reads again.
    return double_text(value) if value - value == 0 else f'"{double_text(value)}"'


def double_text(value: float) -> str:
    """The shortest digits that give the same double, in Java's notation: 1.0, 1.0E10, NaN."""
    if value != value:
        return "NaN"
    if value - value != 0:
        return "Infinity" if value > 0 else "-Infinity"
    sign, digit_tuple, exponent = Number(repr(value)).as_tuple()
    digits = "".join(map(str, digit_tuple)).rstrip("0") or "0"
    power = len(digit_tuple) + int(exponent) - 1 if value else 0
    minus = "-" if sign else ""
    if not -3 <= power < 7:
        return f"{minus}{digits[0]}.{digits[1:] or '0'}E{power}"
    if power < 0:
        return f"{minus}0.{'0' * (-power - 1)}{digits}"
    digits = digits.ljust(power + 2, "0")
    return f"{minus}{digits[: power + 1]}.{digits[power + 1 :]}"
