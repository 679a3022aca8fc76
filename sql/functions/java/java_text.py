"""Values as Java writes them as text: what CAST … AS STRING, ARRAY_JOIN and TO_JSON_STRING give."""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime, time
from decimal import Decimal as PythonDecimal
from typing import Any

from ...types import BYTES, DATE, TIME, TIMESTAMP, Array, Map, SqlType, Struct
from .calendar_days import date_text, timestamp_text


def double_text(value: float) -> str:
    """A DOUBLE as Java prints it: plain from 0.001 up to 10 million, else with an exponent. Where one digit says which
    number it is, Java takes the nearest two.

    >>> [double_text(value) for value in (1.0, 0.001, 1e10, -1.5e-7, 5e-324, float("inf"), float("nan"))]
    ['1.0', '0.001', '1.0E10', '-1.5E-7', '4.9E-324', 'Infinity', 'NaN']
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = repr(value)
        return text if "e" not in text else f"{PythonDecimal(text):f}"
    two_digits = f"{value:.1e}"
    shortest = two_digits if float(two_digits) == value else repr(value)
    sign, digits, exponent = PythonDecimal(shortest).as_tuple()
    mantissa = "".join(map(str, digits)).rstrip("0") or "0"
    power = len(digits) - 1 + int(exponent)
    return f"{'-' if sign else ''}{mantissa[0]}.{mantissa[1:] or '0'}E{power}"


def time_text(ms: int) -> str:
    """A TIME: seconds only where there are some, never fractions.

    >>> time_text(60_220_000), time_text(3_600_000)
    ('16:43:40', '01:00')
    """
    seconds = ms // 1000
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}"
    return f"{text}:{seconds % 60:02}" if seconds % 60 else text


def value_text(value: Any, type_: SqlType) -> str:
    """A value as Java's `toString`; inside collections texts stand bare, and NULL is `null`.

    >>> from ...types import DOUBLE
    >>> value_text([1.0, None], Array(DOUBLE))
    '[1.0, null]'
    """
    if value is None:
        return "null"
    match type_:
        case Array(element=element):
            return f"[{', '.join(value_text(item, element) for item in value)}]"
        case Map(key=key, value=of):
            return f"{{{', '.join(f'{value_text(k, key)}={value_text(v, of)}' for k, v in value)}}}"
        case Struct(fields=fields):
            shown = ((f, value[f.name]) for f in fields if value[f.name] is not None)
            return f"Struct{{{','.join(f'{f.name}={value_text(v, f.type)}' for f, v in shown)}}}"
        case _:
            return _scalar_text(value, type_)


def _scalar_text(value: Any, type_: SqlType) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, PythonDecimal):
        return f"{value:f}"
    if type_ in (TIMESTAMP, DATE, TIME):
        return _moment_text(value, type_)
    return base64.b64encode(value).decode() if type_ == BYTES else str(value)


def _moment_text(value: Any, type_: SqlType) -> str:
    """ISO text; a value in a column is a number, one inside a collection a Python object if Python has such a date."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, time):
        return time_text((value.hour * 60 + value.minute) * 60_000 + value.second * 1000)
    if type_ == TIME:
        return time_text(value)
    return date_text(value) if type_ == DATE else timestamp_text(value)


# ------------------------------------------------------------------ JSON


def quoted(text: str) -> str:
    """A text as a JSON string."""
    return json.dumps(text, ensure_ascii=False)


def json_text(value: Any, type_: SqlType) -> str:
    """A value as compact JSON; members of structs and maps are sorted by name.

    >>> from ...types import INTEGER, STRING, Field
    >>> json_text({"B": 1, "A": None}, Struct((Field("B", INTEGER), Field("A", STRING))))
    '{"A":null,"B":1}'
    """
    if value is None:
        return "null"
    match type_:
        case Array(element=element):
            return f"[{','.join(json_text(item, element) for item in value)}]"
        case Map(key=key, value=of):
            members = sorted((value_text(k, key), json_text(v, of)) for k, v in value)
            return f"{{{','.join(f'{quoted(k)}:{v}' for k, v in members)}}}"
        case Struct(fields=fields):
            members = sorted((f.name, json_text(value[f.name], f.type)) for f in fields)
            return f"{{{','.join(f'{quoted(k)}:{v}' for k, v in members)}}}"
        case _:
            text = _scalar_text(value, type_)
            bare = isinstance(value, bool | int | PythonDecimal) and type_ not in (TIMESTAMP, DATE, TIME)
            bare = bare or (isinstance(value, float) and math.isfinite(value))
            return text if bare else quoted(text)
