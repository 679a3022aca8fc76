"""Converts PostgreSQL's values, as its output functions write them, to the JSON values that Debezium documents.

The session must have the settings `SESSION`: dates in ISO format, times in UTC, bytes in hex.
"""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from ..cdc.civil_days import days_of
from ..cdc.exact_decimals import unscaled_text

Reader = Callable[[str], Any]

SESSION: Final = {
    "datestyle": "ISO, YMD",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "3",
    "lc_monetary": "C",
}
"""The required settings of a session."""

_US: Final = 1_000_000
_DAY_US: Final = 86_400 * _US
_UNITS_US: Final = {"year": 31_557_600 * _US, "mon": 2_629_800 * _US, "day": _DAY_US}
"""The units of intervals. A year has 365.25 days and a month a twelfth of it, as in Debezium."""
_LONG_MAX: Final = (1 << 63) - 1
# Debezium's values for infinite times, in microseconds since 1970.
_INFINITY_US: Final = {"infinity": 9_223_372_036_825_200_000, "-infinity": -9_223_372_036_832_400_000}
_INFINITY_DAYS: Final = {"infinity": 2_147_483_647, "-infinity": -2_147_483_648}
_DATE: Final = re.compile(r"(?P<year>\d+)-(?P<month>\d\d)-(?P<day>\d\d)")
_TIME: Final = re.compile(r"(?P<hour>\d+):(?P<minute>\d\d):(?P<second>\d\d)(?:\.(?P<fraction>\d+))?")


@dataclass(frozen=True, slots=True)
class ValueModes:
    """`decimals`: number (exact, as a JSON number), string, double or precise (Debezium's base64). `times`: adaptive
    (microseconds, or milliseconds if the type has at most three digits), connect (milliseconds) or isostring."""

    decimals: str = "number"
    times: str = "adaptive"


def value_reader(type_oid: int, modifier: int, modes: ValueModes) -> Reader:
    """A function that converts the texts of a column. Unknown types stay text, such as enums and types of
    extensions."""
    element = ARRAYS.get(type_oid)
    if element is not None:
        read = value_reader(element, modifier, modes)
        return lambda text: _array(text, read)
    match type_oid:
        case 1700:
            return _decimal_reader(modes.decimals, modifier)
        case 790:
            return lambda text: _decimal_reader(modes.decimals, -1)(re.sub(r"[^\d.-]", "", text))
        case 1082:
            return _iso_date if modes.times == "isostring" else _date
        case 1083:
            return _times(_clock_us, modifier, modes, lambda text: text)
        case 1114:
            return _times(_timestamp_us, modifier, modes, _iso_timestamp)
        case 1560 | 1562:
            return _bit if (type_oid, modifier) == (1560, 1) else _bits
        case _:
            return _READERS.get(type_oid, str)


# ------------------------------------------------------------------ numbers and bytes


def _float(text: str) -> float | str:
    """A float. NaN, infinity and numbers beyond those of a double become texts, because JSON does not have them."""
    number = float(text)
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def scale_of(modifier: int) -> int:
    """The scale of a NUMERIC with a precision; negative if digits before the point are rounded away."""
    return ((modifier - 4 & 0x7FF) ^ 0x400) - 0x400  # 11 bits with a sign


def _decimal_reader(mode: str, modifier: int) -> Reader:
    def read(text: str) -> Any:
        if text in ("NaN", "Infinity", "-Infinity") or mode == "string":
            return text
        if mode == "double":
            return _float(text)
        try:
            value = Decimal(text)
        except InvalidOperation:
            return text
        return value if mode == "number" else _precise(value, modifier)

    return read


def _precise(value: Decimal, modifier: int) -> Any:
    """The unscaled value in base64; together with its scale if the column has none."""
    if modifier >= 4:
        return unscaled_text(value, scale_of(modifier))
    scale = max(0, -int(value.as_tuple().exponent))
    return {"scale": scale, "value": unscaled_text(value, scale)}


def _bytes(text: str) -> str:
    return base64.b64encode(bytes.fromhex(text.removeprefix("\\x"))).decode()


def _bit(text: str) -> bool:
    return text == "1"


def _bits(text: str) -> str:
    """Little-endian bytes in base64, as in Debezium."""
    return base64.b64encode(int(text or "0", 2).to_bytes((len(text) + 7) // 8, "little")).decode()


def _point(text: str) -> dict[str, Any]:
    x, y = text.strip("()").split(",")
    wkb = struct.pack("<BIdd", 1, 1, float(x), float(y))
    return {"x": _float(x), "y": _float(y), "wkb": base64.b64encode(wkb).decode(), "srid": None}


# ------------------------------------------------------------------ dates and times


def _date(text: str) -> int:
    """Days since 1970, for any year, also BC."""
    found = _INFINITY_DAYS.get(text)
    return _days(text) if found is None else found


def _days(text: str) -> int:
    parts = _DATE.match(text)
    if parts is None:
        raise ValueError(f"{text!r} is not a date")
    year = 1 - int(parts["year"]) if text.endswith(" BC") else int(parts["year"])
    return days_of(year, int(parts["month"]), int(parts["day"]))


def _clock_us(text: str) -> int:
    parts = _TIME.search(text)
    if parts is None:
        raise ValueError(f"{text!r} is not a time")
    seconds = int(parts["hour"]) * 3600 + int(parts["minute"]) * 60 + int(parts["second"])
    return seconds * _US + int((parts["fraction"] or "").ljust(6, "0")[:6] or "0")


def _timestamp_us(text: str) -> int:
    found = _INFINITY_US.get(text)
    return _days(text) * _DAY_US + _clock_us(text) if found is None else found


def _times(read_us: Reader, modifier: int, modes: ValueModes, iso: Reader) -> Reader:
    if modes.times == "isostring":
        return iso
    if modes.times == "connect" or 0 <= modifier <= 3:
        return lambda text: read_us(text) // 1000
    return read_us


def _iso_date(text: str) -> str:
    return text if text in _INFINITY_DAYS else _years(text)


def _iso_timestamp(text: str) -> str:
    if text in _INFINITY_US:
        return text
    date, _, time = text.removesuffix(" BC").partition(" ")
    return f"{_years(date + text[len(text.removesuffix(' BC')) :])}T{time}Z"


def _zoned_timestamp(text: str) -> str:
    """A time in UTC, such as `2024-05-06T07:08:09.5Z`."""
    if text in _INFINITY_US:
        return text
    bare = text.removesuffix(" BC")
    return _iso_timestamp(bare.removesuffix("+00") + text[len(bare) :])


def _years(text: str) -> str:
    """Converts years BC to ISO 8601: 44 BC is the year -43."""
    if not text.endswith(" BC"):
        return text
    year, rest = text.removesuffix(" BC").split("-", 1)
    number = 1 - int(year)
    return f"{'-' if number < 0 else ''}{abs(number):04d}-{rest}"


def _zoned_time(text: str) -> str:
    return f"{text.removesuffix('+00')}Z" if text.endswith("+00") else text


def _interval(text: str) -> int:
    """Microseconds. What has more of them than a BIGINT holds, some 292,000 years, is the nearest BIGINT."""
    total = 0
    for count, unit in re.findall(r"(-?\+?\d+) (year|mon|day)", text):
        total += int(count) * _UNITS_US[unit]
    clock = re.search(r"([-+]?)\d+:\d\d:\d\d(?:\.\d+)?", text)
    if clock is not None:
        total += (-1 if clock[1] == "-" else 1) * _clock_us(clock.group())
    return max(-_LONG_MAX - 1, min(total, _LONG_MAX))


# ------------------------------------------------------------------ arrays


def _array(text: str, read: Reader) -> list[Any]:
    """Decodes an array such as `{1,NULL,{"a,b"}}`. Bounds, as in `[0:1]={…}`, are ignored."""
    items, _ = _array_at(text, text.index("{"), read)
    return items


_ARRAY_PART: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,{}"]+)', re.DOTALL)


def _array_at(text: str, start: int, read: Reader) -> tuple[list[Any], int]:
    items: list[Any] = []
    at = start + 1
    while text[at] != "}":
        if text[at] == ",":
            at += 1
        elif text[at] == "{":
            inner, at = _array_at(text, at, read)
            items.append(inner)
        else:
            part = _ARRAY_PART.match(text, at)
            if part is None:
                raise ValueError(f"{text!r} is not an array")
            at = part.end()
            quoted = part[1]
            if quoted is not None:
                items.append(read(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)))
            else:
                items.append(None if part[2] == "NULL" else read(part[2]))
    return items, at + 1


_READERS: Final[Mapping[int, Reader]] = {
    16: lambda text: text == "t",
    17: _bytes,
    20: int,
    21: int,
    23: int,
    26: int,
    28: int,
    700: _float,
    701: _float,
    600: _point,
    1184: _zoned_timestamp,
    1186: _interval,
    1266: _zoned_time,
}
ARRAYS: Final[Mapping[int, int]] = {
    1000: 16, 1001: 17, 1016: 20, 1005: 21, 1007: 23, 1028: 26, 1021: 700, 1022: 701, 1017: 600, 1231: 1700, 791: 790,
    1182: 1082, 1183: 1083, 1115: 1114, 1185: 1184, 1187: 1186, 1270: 1266, 1561: 1560, 1563: 1562, 1009: 25,
    1015: 1043, 1014: 1042, 1002: 18, 1003: 19, 2951: 2950, 199: 114, 3807: 3802, 1041: 869, 651: 650, 1040: 829,
}  # fmt: skip
"""The types of arrays, with the types of their elements."""
