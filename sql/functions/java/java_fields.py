"""The fields of dates and times: what a moment has of each, and what date or moment parsed ones say."""

from __future__ import annotations

import calendar
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone, tzinfo

from .calendar_days import near_date, near_year
from .java_zones import Unparsable, in_python_years, offset_seconds, zone_of

EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
DAY_MS = 86_400_000
_YEAR_MAX = 290_000  # DuckDB's TIMESTAMP ends in 294247
Fields = dict[str, int]


@dataclass(slots=True)
class Parsed:
    """What has been read of a text so far."""

    fields: Fields
    zone: tzinfo | None = None

    def put(self, name: str, value: int) -> None:
        if self.fields.setdefault(name, value) != value:
            raise Unparsable(f"{name} is given twice, differently")


@dataclass(slots=True)
class Moment:
    """A local date and time to be formatted; `zone` is None where a pattern may not ask for it."""

    day: int | None  # since 1970
    nano: int | None  # of the day
    zone: tzinfo | None = None
    zone_name: str = ""
    epoch_ms: int = 0

    @property
    def near_date(self) -> date:
        """Its year may be another one (`year`); everything else of it is right."""
        return self._near[0]

    @property
    def year(self) -> int:
        near, later = self._near
        return near.year + later

    @property
    def week_year(self) -> int:
        near, later = self._near
        return _weeks(near)[0] + later

    @property
    def _near(self) -> tuple[date, int]:
        if self.day is None:
            raise Unparsable("there is no date to format")
        return near_date(self.day)

    @property
    def nanos(self) -> int:
        if self.nano is None:
            raise Unparsable("there is no time of day to format")
        return self.nano

    @property
    def offset(self) -> int:
        if self.zone is None:
            raise Unparsable("there is no zone to format")
        return offset_seconds(self.zone, self.epoch_ms)


def moment_of(epoch_ms: int, zone_name: str) -> Moment:
    """The moment as it is called in a zone."""
    zone = zone_of(zone_name)
    day, ms = divmod(epoch_ms + offset_seconds(zone, epoch_ms) * 1000, DAY_MS)
    return Moment(day, ms * 1_000_000, zone, zone_name, epoch_ms)


HOUR, MINUTE, SECOND = 3_600_000_000_000, 60_000_000_000, 1_000_000_000


def _weeks(day: date) -> tuple[int, int]:
    """Week-based year and week, with weeks from Sunday, the first one holding January 1."""
    following = date(day.year + 1, 1, 1) if day.year < 9999 else None
    if following is not None and day >= following - timedelta(days=following.isoweekday() % 7):
        return day.year + 1, 1
    first = date(day.year, 1, 1)
    return day.year, (day.toordinal() - (first.toordinal() - first.isoweekday() % 7)) // 7 + 1


# A letter's field: its name, and its value in a moment.
NUMBERS: dict[str, tuple[str, Callable[[Moment], int]]] = {
    "u": ("year", lambda m: m.year),
    "y": ("year_of_era", lambda m: m.year if m.year > 0 else 1 - m.year),
    "Y": ("week_year", lambda m: m.week_year),
    "M": ("month", lambda m: m.near_date.month),
    "L": ("month", lambda m: m.near_date.month),
    "d": ("day", lambda m: m.near_date.day),
    "D": ("day_of_year", lambda m: m.near_date.timetuple().tm_yday),
    "Q": ("quarter", lambda m: (m.near_date.month + 2) // 3),
    "q": ("quarter", lambda m: (m.near_date.month + 2) // 3),
    "w": ("week", lambda m: _weeks(m.near_date)[1]),
    "W": (
        "week_of_month",
        lambda m: (m.near_date.day + m.near_date.replace(day=1).isoweekday() % 7 - 1) // 7 + 1,
    ),
    "e": ("sunday_first", lambda m: m.near_date.isoweekday() % 7 + 1),
    "c": ("sunday_first", lambda m: m.near_date.isoweekday() % 7 + 1),
    "F": ("week_aligned", lambda m: (m.near_date.day - 1) // 7 + 1),
    "H": ("hour", lambda m: m.nanos // HOUR),
    "k": ("clock_hour", lambda m: m.nanos // HOUR or 24),
    "K": ("hour_of_half", lambda m: m.nanos // HOUR % 12),
    "h": ("clock_hour_of_half", lambda m: m.nanos // HOUR % 12 or 12),
    "m": ("minute", lambda m: m.nanos // MINUTE % 60),
    "s": ("second", lambda m: m.nanos // SECOND % 60),
    "A": ("milli_of_day", lambda m: m.nanos // 1_000_000),
    "n": ("nano", lambda m: m.nanos % SECOND),
    "N": ("nano_of_day", lambda m: m.nanos),
}
_RANGES = {
    "month": (1, 12), "day": (1, 31), "day_of_year": (1, 366), "quarter": (1, 4), "week": (1, 53),
    "week_of_month": (0, 6), "week_aligned": (1, 5), "sunday_first": (1, 7), "hour": (0, 23), "clock_hour": (1, 24),
    "hour_of_half": (0, 11), "clock_hour_of_half": (1, 12), "minute": (0, 59), "second": (0, 59),
    "milli_of_day": (0, DAY_MS - 1), "nano": (0, SECOND - 1), "nano_of_day": (0, DAY_MS * 1_000_000 - 1),
}  # fmt: skip


# ------------------------------------------------------------------ what parsed fields say


def resolve(fields: Fields) -> None:
    """Check ranges, and turn years of an era, halves of days and clock hours into plain ones."""
    for name, (low, high) in _RANGES.items():
        if name in fields and not low <= fields[name] <= high:
            raise Unparsable(f"{name} {fields[name]} is out of range")
    if "year_of_era" in fields:
        year = fields.pop("year_of_era")
        if year < 1:
            raise Unparsable(f"year {year} of an era is out of range")
        _settle(fields, "year", year if fields.pop("era", 1) else 1 - year)
    if "clock_hour" in fields:
        _settle(fields, "hour", fields.pop("clock_hour") % 24)
    if "clock_hour_of_half" in fields:
        _settle(fields, "hour_of_half", fields.pop("clock_hour_of_half") % 12)
    if "hour_of_half" in fields and "half" in fields:
        _settle(fields, "hour", fields.pop("half") * 12 + fields.pop("hour_of_half"))
    if "milli_of_day" in fields:
        _settle(fields, "nano_of_day", fields.pop("milli_of_day") * 1_000_000)
    if "nano_of_day" in fields:
        nano = fields.pop("nano_of_day")
        for name, value in (("hour", nano // HOUR), ("minute", nano // MINUTE % 60),
                            ("second", nano // SECOND % 60), ("nano", nano % SECOND)):  # fmt: skip
            _settle(fields, name, value)


def _settle(fields: Fields, name: str, value: int) -> None:
    if fields.setdefault(name, value) != value:
        raise Unparsable(f"{name} is given twice, differently")


DATE_FIELDS = frozenset(
    ("year", "month", "day", "day_of_year", "quarter", "week_year", "week", "week_of_month", "weekday", "sunday_first",
     "week_aligned", "era")
)  # fmt: skip


def day_of(fields: Fields) -> int | None:
    """The date that the fields give, as days since 1970; None where they give no whole date.

    A day past the end of its month is the month's last, as in Java (unless it is none of 1 to 31).
    """
    year = fields.get("year")
    if year is None:
        return _week_day(fields)
    year, later = _near_year(year)
    if "month" in fields and "day" in fields:
        last = calendar.monthrange(year, fields["month"])[1]
        found = date(year, fields["month"], min(fields["day"], last))
    elif "day_of_year" in fields:
        found = date(year, 1, 1) + timedelta(days=fields["day_of_year"] - 1)
        if found.year != year:
            raise Unparsable(f"{fields['year']} has no day {fields['day_of_year']}")
    else:
        return None
    if fields.get("weekday", found.isoweekday()) != found.isoweekday():
        raise Unparsable(f"{found} is another day of the week")
    return found.toordinal() - EPOCH_ORDINAL + later


def _near_year(year: int) -> tuple[int, int]:
    """See `near_year`. Raises `Unparsable` for a year whose days do not fit a TIMESTAMP."""
    if abs(year) > _YEAR_MAX:
        raise Unparsable(f"year {year} is out of range")
    return near_year(year)


def _week_day(fields: Fields) -> int | None:
    if "week_year" not in fields or "week" not in fields:
        return None
    sunday_first = fields.get("sunday_first", fields.get("weekday", 7) % 7 + 1)
    year, later = _near_year(fields["week_year"])
    first = date(year, 1, 1)
    start = first.toordinal() - first.isoweekday() % 7 + later
    return start + 7 * (fields["week"] - 1) + sunday_first - 1 - EPOCH_ORDINAL


def nanos_of(fields: Fields) -> int | None:
    """The time of day that the fields give, in ns; None where they give none."""
    if "hour" not in fields:
        return None
    minute, second, nano = fields.get("minute"), fields.get("second"), fields.get("nano")
    if minute is None and (second is not None or nano is not None):
        return None
    return fields["hour"] * HOUR + (minute or 0) * MINUTE + (second or 0) * SECOND + (nano or 0)


def epoch_ms_of(parsed: Parsed, zone: tzinfo) -> int:
    """The moment that the fields give, in ms; what is missing comes from 1970-01-01T00:00, and a zone from `zone`."""
    fields = parsed.fields
    day = day_of(fields)
    if day is None:
        day = _partial_day(fields)
    hour = fields.get("hour", fields.get("hour_of_half", 0) + 12 * fields.get("half", 0))
    nano = hour * HOUR + fields.get("minute", 0) * MINUTE + fields.get("second", 0) * SECOND + fields.get("nano", 0)
    local_ms = day * DAY_MS + nano // 1_000_000
    return local_ms - _local_offset(parsed.zone or zone, local_ms) * 1000


def _partial_day(fields: Fields) -> int:
    if fields.get("day_of_year") == 366 and "year" not in fields:
        raise Unparsable("a leap day needs a year")
    year, later = _near_year(fields.get("year", 1970))
    if "day_of_year" in fields:
        return (date(year, 1, 1) + timedelta(days=fields["day_of_year"] - 1)).toordinal() - EPOCH_ORDINAL + later
    month = fields.get("month", 1)
    found = date(year, month, min(fields.get("day", 1), calendar.monthrange(year, month)[1]))
    of_week = fields.get("weekday", found.isoweekday()) - found.isoweekday()
    return found.toordinal() - EPOCH_ORDINAL + of_week + later


def _local_offset(zone: tzinfo, local_ms: int) -> int:
    """The zone's offset at a local time; the earlier of two where clocks go back."""
    if isinstance(zone, timezone):
        return int(zone.utcoffset(None).total_seconds())
    local = datetime(1970, 1, 1) + timedelta(seconds=in_python_years(local_ms // 1000))
    offset = local.replace(tzinfo=zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())
