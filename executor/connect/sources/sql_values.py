"""Converts values of a database's driver to JSON without loss: numbers keep their digits, bytes become base64."""

from __future__ import annotations

import base64
import datetime
import enum
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from .far_times import FarTime

TIMES: Final = ("connect_logical", "micros_long", "micros_string")
_EPOCH: Final = datetime.datetime(1970, 1, 1)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_LONG_MAX: Final = 2**63


def json_row(row: Mapping[str, Any], times: str) -> dict[str, Any]:
    """The row as JSON values. In: `times`: one of `TIMES`."""
    return {name: json_value(value, times) for name, value in row.items()}


def json_value(value: Any, times: str = "connect_logical") -> Any:
    """The JSON value. NaN and infinities, which JSON lacks, become texts; a whole number of any size stays a number.

    >>> json_value(datetime.date(1970, 1, 3)), json_value(b"a"), json_value(float("inf"))
    (2, 'YQ==', 'Infinity')
    """
    match value:
        case None | bool() | str():
            return str(value) if isinstance(value, enum.Enum) else value
        case int():
            return value if -_LONG_MAX <= value < _LONG_MAX else Decimal(value)
        case float():
            return value if math.isfinite(value) else _not_finite(value)
        case Decimal():
            return value if value.is_finite() else _not_finite(float(value))
        case datetime.datetime():
            return _moment(value, times)
        case datetime.date():
            return (value - _EPOCH.date()).days
        case datetime.time():
            return _time_of_day(value, times)
        case FarTime():
            return value.as_json(times)
        case datetime.timedelta():
            return value // _MICROSECOND
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(bytes(value)).decode()
        case dict():
            return {str(name): json_value(item, times) for name, item in value.items()}
        case list() | tuple():
            return [json_value(item, times) for item in value]
        case _:
            return str(value)


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _moment(value: datetime.datetime, times: str) -> int | str:
    if times == "micros_string":
        return value.isoformat(timespec="microseconds")
    utc = value.astimezone(datetime.UTC).replace(tzinfo=None) if value.tzinfo is not None else value
    micros = (utc - _EPOCH) // _MICROSECOND
    return micros if times == "micros_long" else micros // 1000


def _time_of_day(value: datetime.time, times: str) -> int | str:
    if times == "micros_string":
        return value.isoformat(timespec="microseconds")
    micros = ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    return micros if times == "micros_long" else micros // 1000
