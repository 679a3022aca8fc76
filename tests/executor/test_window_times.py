"""Days of time zones, against the calendar of Python, hour by hour through the days on which clocks change."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from millstream.executor.window_times import DAY_MS, day_starts, days_of, window_ends

HOUR = 3_600_000
CHANGES = [
    ("Europe/Berlin", "2024-03-31", 23),
    ("Europe/Berlin", "2024-10-27", 25),
    ("America/New_York", "2024-03-10", 23),
    ("America/Sao_Paulo", "2018-11-04", 23),  # clocks go forward at midnight: the day begins at one o'clock
    ("America/Havana", "2024-11-03", 25),
    ("Asia/Kolkata", "2024-03-31", 24),
    ("Australia/Lord_Howe", "2024-04-07", 24.5),
    ("+05:30", "2024-03-31", 24),
]


def first_moment(zone: str, day: str) -> int:
    number = (datetime.fromisoformat(day).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).days
    return int(day_starts(np.array([number]), zone)[0])


@pytest.mark.parametrize(("zone", "day", "hours"), CHANGES)
def test_a_day_has_the_hours_of_its_zone(zone: str, day: str, hours: float) -> None:
    start = first_moment(zone, day)
    (end,) = window_ends(np.array([start]), DAY_MS, zone).tolist()
    assert (end - start) / HOUR == hours


@pytest.mark.parametrize(("zone", "day"), [(zone, day) for zone, day, _ in CHANGES if zone[0] != "+"])
def test_each_time_lies_in_the_day_that_its_clocks_show(zone: str, day: str) -> None:
    start = first_moment(zone, day)
    times = np.arange(start - 30 * HOUR, start + 60 * HOUR, HOUR // 4)
    shown = [datetime.fromtimestamp(time / 1000, ZoneInfo(zone)).date().toordinal() for time in times.tolist()]
    epoch = datetime(1970, 1, 1, tzinfo=UTC).date().toordinal()
    assert days_of(times, zone).tolist() == [ordinal - epoch for ordinal in shown]


def test_a_day_that_begins_twice_begins_once() -> None:
    """In Newfoundland clocks went back at a minute past midnight: a minute of the new day, then the old one again."""
    zone, start = "America/St_Johns", first_moment("America/St_Johns", "2010-11-07")
    times = np.arange(start - HOUR, start + 2 * HOUR, 1000)
    days = days_of(times, zone)
    assert (np.diff(days) >= 0).all()
    assert (days == np.where(times < start, days[0], days[-1])).all()


def test_windows_of_days_never_begin_before_the_epoch() -> None:
    assert day_starts(np.array([-1, 0, 1]), "Europe/Berlin").tolist() == [0, 0, 23 * HOUR]
    assert day_starts(np.array([0, 1]), "America/New_York").tolist() == [5 * HOUR, 29 * HOUR]


def test_a_start_at_the_end_of_time_does_not_wrap_around() -> None:
    latest = np.iinfo(np.int64).max
    assert window_ends(np.array([latest - 1]), DAY_MS).tolist() == [latest]
