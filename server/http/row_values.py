"""The values of result rows as the HTTP API writes them: BYTES as base64 text, times as ISO text, the rest as JSON."""

from __future__ import annotations

import base64
import datetime
import math
from collections.abc import Callable
from typing import Any

from ...sql.types import Array, Decimal, Map, SqlType, Struct

Converter = Callable[[Any], Any]

_DAYS_BEFORE_1970 = datetime.date(1970, 1, 1).toordinal() - 1
_DAYS_OF_CYCLE = 146_097


def converter(type_: SqlType) -> Converter | None:
    """The function that turns a Python value of Arrow's into JSON; None where the value is JSON already.

    DECIMAL stays `decimal.Decimal`, with all the digits of its scale: who writes the JSON keeps them.
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


def date_text(value: datetime.date | int) -> str:
    """`2020-01-02`; as in ksqlDB years of more than four digits have a sign, `+10000-01-01`.

    >>> date_text(3_000_000), date_text(-800_000)
    ('+10183-09-21', '-0221-09-04')
    """
    if isinstance(value, datetime.date):
        return value.isoformat()
    # The calendar repeats after 400 years.
    cycles, days = divmod(value + _DAYS_BEFORE_1970, _DAYS_OF_CYCLE)
    near = datetime.date.fromordinal(days + 1)
    year = near.year + 400 * cycles
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}{near.isoformat()[4:]}"


def time_text(value: datetime.time) -> str:
    """`12:30`, `12:30:05` or `12:30:05.250`: no more than is needed."""
    if value.microsecond:
        return value.isoformat(timespec="milliseconds")
    return value.isoformat(timespec="seconds" if value.second else "minutes")


def timestamp_text(value: datetime.datetime | int) -> str:
    """`2020-01-02T03:04:05.678`."""
    if isinstance(value, int):
        days, rest = divmod(value, 86_400_000)
        clock = (datetime.datetime.min + datetime.timedelta(milliseconds=rest)).time()
        return f"{date_text(days)}T{clock.isoformat(timespec='milliseconds')}"
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
    """`fields`: each field's name and converter, by its name in Arrow."""

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        return {
            name: value.get(known) if use is None else use(value.get(known)) for known, (name, use) in fields.items()
        }

    return _or_none(convert)


def _double(value: float) -> float | str:
    """JSON has no NaN and no infinity."""
    return value if math.isfinite(value) else str(value).replace("inf", "Infinity").replace("nan", "NaN")


_PRIMITIVES: dict[str, Converter] = {
    "DOUBLE": _or_none(_double),
    "BYTES": _or_none(lambda value: base64.b64encode(value).decode("ascii")),
    "DATE": _or_none(date_text),
    "TIME": _or_none(time_text),
    "TIMESTAMP": _or_none(timestamp_text),
}
