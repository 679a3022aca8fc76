"""The starts and ends of windows: aligned to the epoch, or to the days of a time zone, which have 23 to 25 hours."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Any

import numpy as np

from ..sql.functions.java.java_zones import offset_seconds, zone_of

Ints = np.ndarray[Any, np.dtype[np.int64]]

DAY_MS = 86_400_000
_STEP_MS = 900_000  # clock changes happen on full quarters of an hour
_EPOCH = date(1970, 1, 1)
_LATEST = np.iinfo(np.int64).max
_LAST_DAY = (date(9999, 1, 1) - _EPOCH).days


def window_ends(starts: Ints, size_ms: int, timezone: str | None = None) -> Ints:
    """The ends of the windows with these starts. A start close to the largest time does not overflow."""
    if timezone is None:
        return np.where(starts > _LATEST - size_ms, _LATEST, starts + size_ms)
    return day_starts(days_of(starts, timezone) + size_ms // DAY_MS, timezone)


def days_of(times: Ints, timezone: str) -> Ints:
    """The zone's day in which each time (ms) lies, counted from 1970-01-01. A day lasts until the next one begins."""
    zone = zone_of(timezone)
    steps, where = np.unique(times // _STEP_MS, return_inverse=True)
    offsets = np.array([offset_seconds(zone, int(step) * _STEP_MS) for step in steps.tolist()], dtype=np.int64)
    days = (times + offsets[where] * 1000) // DAY_MS
    days = np.where(times < day_starts(days, timezone), days - 1, days)
    return np.where(times >= day_starts(days + 1, timezone), days + 1, days)


def day_starts(days: Ints, timezone: str) -> Ints:
    """The first moment of each of the zone's days, never below 0."""
    distinct, where = np.unique(np.minimum(days, _LAST_DAY), return_inverse=True)
    return np.array([_day_start(day, timezone) for day in distinct.tolist()], dtype=np.int64)[where]


@lru_cache(maxsize=64)
def first_day(timezone: str) -> int:
    """The zone's day in which time 0 lies."""
    return int(days_of(np.zeros(1, dtype=np.int64), timezone)[0])


@lru_cache(maxsize=16_384)
def _day_start(day: int, timezone: str) -> int:
    """If clocks go forward at midnight, the day begins at that moment."""
    if day <= -2:
        return 0
    first = _EPOCH + timedelta(days=day)
    midnight = datetime(first.year, first.month, first.day, tzinfo=zone_of(timezone))
    return max(0, int(midnight.timestamp() * 1000))
