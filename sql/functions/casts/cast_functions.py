"""The parts of CAST and of decimal arithmetic that DuckDB's SQL cannot say exactly."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from datetime import date
from decimal import ROUND_HALF_UP, Context
from decimal import Decimal as PythonDecimal
from typing import Any

from ...types import Decimal, SqlType
from ..java.calendar_days import near_year
from ..java.java_fields import epoch_ms_of
from ..java.java_text import value_text
from ..java.java_time import compile_pattern
from ..java.java_zones import Unparsable, zone_of
from ..udf import PythonFunction, by_row, by_typed_row
from .failing_casts import DIVISION_BY_ZERO

_EXACT = Context(prec=120, Emax=1000, Emin=-1000)
_TIME = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?")
_DATE = re.compile(r"(\d{4}|-\d{4,6}|\+\d{5,6})-(\d\d)-(\d\d)", re.ASCII)
_FULL_TIME = "HH:mm:ss.SSS"
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()


@by_typed_row
def to_java_text(parameters: tuple[SqlType, ...], _returns: SqlType) -> Callable[[Any], str]:
    type_ = parameters[0]
    return lambda value: value_text(value, type_)


@by_typed_row
def double_to_decimal(_parameters: tuple[SqlType, ...], returns: SqlType) -> Callable[[float], PythonDecimal]:
    """First rounded to the precision, then to the scale, as Java does."""
    assert isinstance(returns, Decimal)
    precision = Context(prec=returns.precision, rounding=ROUND_HALF_UP)
    return lambda value: _fit(precision.create_decimal_from_float(value), returns)


def _fit(value: PythonDecimal, type_: Decimal) -> PythonDecimal:
    """Rounded half up to the type's scale. Raises where the digits before the point are too many."""
    fitted = value.quantize(PythonDecimal(1).scaleb(-type_.scale), ROUND_HALF_UP, _EXACT)
    if not fitted.is_finite() or (fitted.adjusted() >= type_.precision - type_.scale and fitted):
        raise OverflowError(f"{value} does not fit into {type_}")
    return fitted


def _arithmetic(name: str, operation: Callable[[PythonDecimal, PythonDecimal], PythonDecimal]) -> PythonFunction:
    def make(_parameters: tuple[SqlType, ...], returns: SqlType) -> Callable[..., PythonDecimal]:
        assert isinstance(returns, Decimal)
        return lambda left, right: _fit(operation(left, right), returns)

    make.__name__ = name
    return by_typed_row(make)


def _dividing(operation: Callable[[PythonDecimal, PythonDecimal], PythonDecimal]) -> Callable[..., PythonDecimal]:
    def checked(dividend: PythonDecimal, divisor: PythonDecimal) -> PythonDecimal:
        if not divisor:
            raise ZeroDivisionError(DIVISION_BY_ZERO)
        return operation(dividend, divisor)

    return checked


decimal_add = _arithmetic("decimal_add", _EXACT.add)
decimal_subtract = _arithmetic("decimal_subtract", _EXACT.subtract)
decimal_multiply = _arithmetic("decimal_multiply", _EXACT.multiply)
decimal_divide = _arithmetic("decimal_divide", _dividing(_EXACT.divide))
decimal_modulo = _arithmetic("decimal_modulo", _dividing(_EXACT.remainder))


def complete_date(text: str) -> str:
    """A date of which month and day may be missing."""
    return text + {1: "-01-01", 2: "-01"}.get(len(text.split("-")), "")


def parse_sql_timestamp(text: str) -> int:
    """Milliseconds since 1970 of an ISO text that may end early and may have an offset.

    >>> parse_sql_timestamp("2020-05"), parse_sql_timestamp("2020-05-26T23:59+0200")
    (1588291200000, 1590530340000)

    Raises `Unparsable`.
    """
    text = text.strip()
    if "T" in text:
        day, _, rest = text.partition("T")
        split = min((i for i in (rest.find("+"), rest.find("-")) if i >= 0), default=len(rest))
        time, zone = rest[:split].removesuffix("Z"), rest[split:]
    else:
        day, time, zone = complete_date(text), "", ""
    time += re.sub("[a-zA-Z]", "0", _FULL_TIME[len(time) :])
    parsed = compile_pattern(f"uuuu-MM-dd'T'{_FULL_TIME}").parse(f"{day}T{time}")
    return epoch_ms_of(parsed, zone_of(zone.strip() or "Z"))


string_to_timestamp = by_row(parse_sql_timestamp)


@by_row
def string_to_time(text: str) -> int:
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise Unparsable(text)
    hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
    if hour > 23 or minute > 59 or second > 59:
        raise Unparsable(text)
    return (hour * 60 + minute) * 60_000 + second * 1000 + int((match[4] or "").ljust(3, "0")[:3])


@by_row
def string_to_date(text: str) -> int:
    text = complete_date(text.strip())
    match = _DATE.fullmatch(text)
    if match is None:
        raise Unparsable(text)
    year, later = near_year(int(match[1]))
    return date(year, int(match[2]), int(match[3])).toordinal() - _EPOCH_ORDINAL + later


@by_row
def string_to_bytes(text: str) -> bytes:
    return decode_base64(text.strip())


def decode_base64(text: str) -> bytes:
    """Strictly; only the padding may be missing."""
    return base64.b64decode(text + "=" * (-len(text) % 4) if "=" not in text else text, validate=True)
