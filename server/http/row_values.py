"""The values of result rows in the HTTP API: BYTES as base64 text, times as ISO text, the rest as JSON."""

from __future__ import annotations

import base64
import datetime
import math
from collections.abc import Callable
from typing import Any

from ...sql.functions.java.calendar_days import date_text, timestamp_text
from ...sql.types import Array, Decimal, Map, SqlType, Struct

Converter = Callable[[Any], Any]


def converter(type_: SqlType) -> Converter | None:
    """The function that converts a Python value from Arrow to JSON; None if the value is JSON already.

    DECIMAL stays `decimal.Decimal`, with all the digits of its scale; the JSON writer has to keep them.
    """
    match type_:
        case Array(element):
            return _array(converter(element))
        case Map(_, value):
            return _map(converter(value))
        case Struct():
            named = zip(type_.engine_names, type_.fields, strict=True)
            return _struct({name: (field.name, converter(field.type)) for name, field in named})
        case Decimal():
            return None
        case _:
            return _PRIMITIVES.get(str(type_))


def _date(value: datetime.date | int) -> str:
    return date_text(value) if isinstance(value, int) else value.isoformat()


def time_text(value: datetime.time) -> str:
    """`12:30`, `12:30:05` or `12:30:05.250`: zero parts at the end are omitted."""
    if value.microsecond:
        return value.isoformat(timespec="milliseconds")
    return value.isoformat(timespec="seconds" if value.second else "minutes")


def _timestamp(value: datetime.datetime | int) -> str:
    if isinstance(value, int):
        return timestamp_text(value)
    return value.replace(tzinfo=None).isoformat(timespec="milliseconds")


def _or_none(convert: Converter) -> Converter:
    return lambda value: None if value is None else convert(value)


def _array(convert: Converter | None) -> Converter:
    if convert is None:
        return _or_none(list)
    return _or_none(lambda values: [convert(value) for value in values])


def _map(convert: Converter | None) -> Converter:
    # Arrow gives a map as a list of pairs.
    if convert is None:
        return _or_none(lambda pairs: {str(key): value for key, value in _pairs(pairs)})
    return _or_none(lambda pairs: {str(key): convert(value) for key, value in _pairs(pairs)})


def _pairs(value: Any) -> Any:
    return value.items() if isinstance(value, dict) else value


def _struct(fields: dict[str, tuple[str, Converter | None]]) -> Converter:
    """In: `fields`: each field's name and converter, by its name in Arrow."""

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        return {
            name: value.get(known) if use is None else use(value.get(known)) for known, (name, use) in fields.items()
        }

    return _or_none(convert)


def _double(value: float) -> float | str:
    """A double as JSON, which has no NaN and no infinity: those become text."""
    return value if math.isfinite(value) else str(value).replace("inf", "Infinity").replace("nan", "NaN")


_PRIMITIVES: dict[str, Converter] = {
    "DOUBLE": _or_none(_double),
    "BYTES": _or_none(lambda value: base64.b64encode(value).decode("ascii")),
    "DATE": _or_none(_date),
    "TIME": _or_none(time_text),
    "TIMESTAMP": _or_none(_timestamp),
}
