"""Days since 1970 as dates, also before the year 1 and after 9999, where Python's `date` ends and DuckDB's goes on.

One rule everywhere (CAST, TO_JSON_STRING, date patterns, answers): the proleptic calendar of ISO 8601, in which year 0
precedes year 1, and Java's sign for years of more than four digits.
"""

from __future__ import annotations

import datetime
from typing import Any, Final, Literal

import pyarrow as pa

_DAYS_BEFORE_1970: Final = datetime.date(1970, 1, 1).toordinal() - 1
_YEARS_OF_CYCLE: Final = 400
_DAYS_OF_CYCLE: Final = 146_097  # whole weeks, so that days of the week repeat as well
_DAY_MS: Final = 86_400_000


def near_date(day: int) -> tuple[datetime.date, int]:
    """A date of the same month, day and weekday in a year that Python has, and how many years later `day` is.

    >>> near_date(0)
    (datetime.date(1970, 1, 1), 0)
    """
    ordinal = day + _DAYS_BEFORE_1970
    if 0 <= ordinal < datetime.date.max.toordinal():
        return datetime.date.fromordinal(ordinal + 1), 0
    cycles, within = divmod(ordinal, _DAYS_OF_CYCLE)
    return datetime.date.fromordinal(within + 1), _YEARS_OF_CYCLE * cycles


def near_year(year: int) -> tuple[int, int]:
    """A year that Python has, with the same days, and how many days later `year` is.

    >>> near_year(2020), near_year(0)
    ((2020, 0), (2000, -730485))
    """
    cycles = (year - 2000) // _YEARS_OF_CYCLE
    return year - _YEARS_OF_CYCLE * cycles, _DAYS_OF_CYCLE * cycles


def date_text(day: int) -> str:
    """`2020-01-02`; as in ksqlDB years of more than four digits have a sign, `+10000-01-01`.

    >>> date_text(3_000_000), date_text(-800_000)
    ('+10183-09-21', '-0221-09-04')
    """
    near, later = near_date(day)
    if not later:
        return near.isoformat()
    year = near.year + later
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}{near.isoformat()[4:]}"


def timestamp_text(ms: int) -> str:
    """`2020-01-02T03:04:05.678`, of milliseconds since 1970."""
    day, rest = divmod(ms, _DAY_MS)
    clock = (datetime.datetime.min + datetime.timedelta(milliseconds=rest)).time()
    return f"{date_text(day)}T{clock.isoformat(timespec='milliseconds')}"


def python_values(
    array: pa.Array | pa.ChunkedArray, *, maps_as_pydicts: Literal["lossy", "strict"] | None = None
) -> list[Any]:
    """As `to_pylist`; but where a date is later than the year 9999 or before year 1, all are days or milliseconds since
    1970."""
    try:
        return array.to_pylist(maps_as_pydicts=maps_as_pydicts)
    except (OverflowError, ValueError):
        in_milliseconds = array.cast(_with_times(array.type, pa.date32(), pa.timestamp("ms")), safe=False)
        numbers = in_milliseconds.cast(_with_times(array.type, pa.int32(), pa.int64()))
        return numbers.to_pylist(maps_as_pydicts=maps_as_pydicts)


def _with_times(type_: pa.DataType, date: pa.DataType, timestamp: pa.DataType) -> pa.DataType:
    """The type with other types for the dates and timestamps in it."""
    if pa.types.is_date32(type_):
        return date
    if pa.types.is_timestamp(type_):
        return timestamp
    if pa.types.is_map(type_):
        return pa.map_(type_.key_type, _with_times(type_.item_type, date, timestamp))
    if pa.types.is_list(type_):
        return pa.list_(_with_times(type_.value_type, date, timestamp))
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_with_times(field.type, date, timestamp)) for field in type_])
    return type_
