"""A client's JSON as values of a MAP, a STRUCT, or an ARRAY whose element type has no array type in PostgreSQL.

It differs from `server/engine/json_rows.py`: a field is first searched by its exact name, because COPY … TO writes
exact names; unknown fields are refused; and a number keeps all its digits.
"""

from __future__ import annotations

import decimal
import functools
import math
from collections.abc import Callable
from typing import Any, Final

from ...executor.formats.json_text import InvalidJson, Real, parse_json
from ...sql.types import BIGINT, INTEGER, Array, Decimal, Map, SqlType, Struct
from ..engine.json_rows import reader

JsonReader = Callable[[bytes], Any]
_WHOLE_DIGITS_MAX: Final = 25  # an INTEGER has fewer; a text may have an exponent of billions


def json_reader(type_: SqlType) -> JsonReader:
    """A reader of JSON as values for Arrow: pairs for a MAP, fields by their names in Arrow. The reader raises
    ValueError."""
    read = _nested(type_)

    def value(content: bytes) -> Any:
        try:
            return read(parse_json(content))
        except InvalidJson as error:
            raise ValueError(str(error)) from None

    return value


def _nested(type_: SqlType) -> Callable[[Any], Any]:
    match type_:
        case Array(element):
            read = functools.partial(_array, _nested(element))
        case Map(key, value):
            read = functools.partial(_map, _nested(key), _nested(value))
        case Struct():
            named = zip(type_.engine_names, type_.fields, strict=True)
            read = functools.partial(_struct, {field.name: (known, _nested(field.type)) for known, field in named})
        case _:
            read = functools.partial(_plain, type_, reader(type_))
    return lambda value: None if value is None else read(value)


def _array(read: Callable[[Any], Any], value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("an array is wanted")
    return [read(item) for item in value]


def _map(key: Callable[[Any], Any], read: Callable[[Any], Any], value: Any) -> list[tuple[Any, Any]]:
    if not isinstance(value, dict):
        raise ValueError("an object is wanted")
    return [(key(name), read(item)) for name, item in value.items()]


def _struct(fields: dict[str, tuple[str, Callable[[Any], Any]]], value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("an object is wanted")
    found: dict[str, Any] = {}
    for name, item in value.items():
        known, read = fields.get(name) or fields.get(name.upper()) or (None, None)
        if known is None or read is None:
            raise ValueError(f"there is no field {name}; it has {', '.join(fields)}")
        if known in found:
            raise ValueError(f"the field {name} is there twice")
        found[known] = read(item)
    return found


def _plain(type_: SqlType, read: Callable[[Any], Any], value: Any) -> Any:
    return read(_number(type_, value) if isinstance(value, Real) else value)


def _number(type_: SqlType, text: Real) -> Any:
    """The number in the form that `json_rows.reader` accepts. DECIMAL is read from text, with all digits."""
    if isinstance(type_, Decimal):
        return str(text)
    if type_ in (INTEGER, BIGINT):
        number = decimal.Decimal(text)
        if number.adjusted() < _WHOLE_DIGITS_MAX and number == number.to_integral_value():
            return int(number)
    real = float(text)
    if not math.isfinite(real):
        raise ValueError(f"{text[:100]} is out of range")
    return real
