"""Texts of dates and times as PostgreSQL reads them. Its clients write a space where ksqlDB's dialect has a `T`, and
time zones in several forms, also behind a date or a time of day, where they have no meaning."""

from __future__ import annotations

import datetime
import re
from typing import Final

_DATE: Final = r"(?P<date>\d{4,}-\d{1,2}-\d{1,2})"
_CLOCK: Final = r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:\.(?P<fraction>\d{1,9}))?)?"
_ZONE: Final = r"(?P<zone>Z|UTC|GMT|[+-]\d{1,2}(?::?\d{2}(?::?\d{2})?)?)"
_SHOWN_MAX: Final = 50
_TEXT: Final = re.compile(rf"\s*(?:{_DATE})?(?:(?:(?<=\d)T|\s*\b){_CLOCK})?\s*{_ZONE}?\s*", re.IGNORECASE | re.ASCII)


def date_of(text: str) -> datetime.date:
    """The time of day and the zone are left out. Raises ValueError.

    >>> date_of("2020-03-01 -05"), date_of("2020-03-01 23:00:00+02")
    (datetime.date(2020, 3, 1), datetime.date(2020, 3, 1))
    """
    return _date(_matched(text))


def time_of(text: str) -> datetime.time:
    """The zone is left out. Raises ValueError.

    >>> time_of("10:11-05"), time_of("10:11:12.5")
    (datetime.time(10, 11), datetime.time(10, 11, 12, 500000))
    """
    found = _matched(text)
    if found["hour"] is None:
        raise ValueError("it has no time of day")
    return _clock(found)


def timestamp_of(text: str) -> datetime.datetime:
    """In UTC, without a zone. Raises ValueError.

    >>> timestamp_of("2020-03-01 10:11:12.5-05"), timestamp_of("2020-03-01")
    (datetime.datetime(2020, 3, 1, 15, 11, 12, 500000), datetime.datetime(2020, 3, 1, 0, 0))
    """
    found = _matched(text)
    local = datetime.datetime.combine(_date(found), _clock(found) if found["hour"] else datetime.time.min)
    try:
        return local - _offset(found["zone"] or "Z")
    except OverflowError:
        raise ValueError("it is out of range") from None


def _matched(text: str) -> re.Match[str]:
    found = _TEXT.fullmatch(text)
    if found is None or (found["date"] is None and found["hour"] is None):
        raise ValueError(f"{shortened(text)} is written in another form than 2020-12-31 23:59:59.999+00")
    return found


def _date(found: re.Match[str]) -> datetime.date:
    if found["date"] is None:
        raise ValueError("it has no date")
    year, month, day = map(int, found["date"].split("-"))
    return datetime.date(year, month, day)


def _clock(found: re.Match[str]) -> datetime.time:
    microsecond = int((found["fraction"] or "0").ljust(6, "0")[:6])
    return datetime.time(int(found["hour"]), int(found["minute"]), int(found["second"] or 0), microsecond)


def _offset(zone: str) -> datetime.timedelta:
    if zone[0] not in "+-":
        return datetime.timedelta(0)
    digits = zone[1:].replace(":", "")
    hours, rest = (digits[:-4], digits[-4:]) if len(digits) > 4 else (digits[:-2], digits[-2:])
    if len(digits) <= 2:
        hours, rest = digits, ""
    offset = datetime.timedelta(hours=int(hours or 0), minutes=int(rest[:2] or 0), seconds=int(rest[2:] or 0))
    return -offset if zone[0] == "-" else offset


def shortened(text: str) -> str:
    """For messages."""
    return f'"{text}"' if len(text) <= _SHOWN_MAX else f'"{text[:_SHOWN_MAX]}…"'
