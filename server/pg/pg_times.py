"""Dates and timestamps in PostgreSQL's form, as text and as bytes. Also before the year 1 and after 9999, which Python
does not support: these are given as days or milliseconds since 1970."""

from __future__ import annotations

import datetime
import struct
from typing import Final

from millstream.errors import QueryError

from ...sql.functions.java.calendar_days import near_date

_EPOCH: Final = datetime.date(2000, 1, 1)
_EPOCH_TIME: Final = datetime.datetime(2000, 1, 1)
_DAYS_UNTIL_EPOCH: Final = (_EPOCH - datetime.date(1970, 1, 1)).days
_DAY_MS: Final = 86_400_000
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_INT4: Final = 1 << 31
_INT8: Final = 1 << 63


class PgTimeOutOfRange(QueryError):
    """A date outside the range of PostgreSQL's binary format."""

    code = "PG_TIME_RANGE"


def date_text(value: datetime.date | int) -> bytes:
    """In: an int is days since 1970.

    >>> date_text(2_932_897), date_text(-719_163)
    (b'10000-01-01', b'0001-12-31 BC')
    """
    date, era = _date_and_era(value)
    return (date + era).encode()


def date_binary(value: datetime.date | int) -> bytes:
    """Days since 2000. Raises `PgTimeOutOfRange`."""
    days = value - _DAYS_UNTIL_EPOCH if isinstance(value, int) else (value - _EPOCH).days
    if not -_INT4 <= days < _INT4:
        raise PgTimeOutOfRange("date out of range", hint="Ask for its text: CAST(… AS STRING).")
    return struct.pack("!i", days)


def time_text(value: datetime.time) -> bytes:
    """With as many digits as necessary."""
    return _short(value.isoformat()).encode()


def time_binary(value: datetime.time) -> bytes:
    """Microseconds since midnight."""
    minutes = value.hour * 60 + value.minute
    return struct.pack("!q", (minutes * 60 + value.second) * 1_000_000 + value.microsecond)


def timestamp_text(value: datetime.datetime | int) -> bytes:
    """`2020-01-02 03:04:05.678`, with as many digits as necessary. In: an int is milliseconds since 1970.

    >>> timestamp_text(253_402_300_800_500)
    b'10000-01-01 00:00:00.5'
    """
    if isinstance(value, int):
        day, rest = divmod(value, _DAY_MS)
        date, era = _date_and_era(day)
        clock = (datetime.datetime.min + datetime.timedelta(milliseconds=rest)).time()
        return f"{date} {_short(clock.isoformat())}{era}".encode()
    return _short(value.replace(tzinfo=None).isoformat(" ")).encode()


def timestamp_binary(value: datetime.datetime | int) -> bytes:
    """Microseconds since 2000. Raises `PgTimeOutOfRange`."""
    if isinstance(value, int):
        microseconds = (value - _DAYS_UNTIL_EPOCH * _DAY_MS) * 1000
    else:
        microseconds = (value.replace(tzinfo=None) - _EPOCH_TIME) // _MICROSECOND
    if not -_INT8 <= microseconds < _INT8:
        raise PgTimeOutOfRange("timestamp out of range", hint="Ask for its text: CAST(… AS STRING).")
    return struct.pack("!q", microseconds)


def _date_and_era(value: datetime.date | int) -> tuple[str, str]:
    """PostgreSQL has no year 0: the year before 1 is 1 BC. Its years have no sign."""
    near, later = (value, 0) if isinstance(value, datetime.date) else near_date(value)
    year = near.year + later
    shown, era = (year, "") if year > 0 else (1 - year, " BC")
    return f"{shown:04d}-{near.month:02d}-{near.day:02d}", era


def _short(text: str) -> str:
    return text.rstrip("0") if "." in text else text
