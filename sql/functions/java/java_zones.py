"""Time zones by the names that Java knows: ids, offsets, and the abbreviations and names of people."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo


class Unparsable(ValueError):
    """The text does not follow the pattern, or says something that cannot be."""


ZONES_BY_NAME = {
    "UTC": "UTC", "UT": "UTC", "GMT": "GMT", "Z": "UTC",
    "PST": "America/Los_Angeles", "PDT": "America/Los_Angeles", "PT": "America/Los_Angeles",
    "MST": "America/Denver", "MDT": "America/Denver", "MT": "America/Denver",
    "CST": "America/Chicago", "CDT": "America/Chicago", "CT": "America/Chicago",
    "EST": "America/New_York", "EDT": "America/New_York", "ET": "America/New_York",
    "AKST": "America/Anchorage", "AKDT": "America/Anchorage", "HST": "Pacific/Honolulu",
    "BST": "Europe/London", "WET": "Europe/Lisbon", "WEST": "Europe/Lisbon", "CET": "Europe/Paris",
    "CEST": "Europe/Paris", "EET": "Europe/Athens", "EEST": "Europe/Athens", "MSK": "Europe/Moscow",
    "IST": "Asia/Kolkata", "JST": "Asia/Tokyo",
    "KST": "Asia/Seoul", "HKT": "Asia/Hong_Kong", "PKT": "Asia/Karachi", "SAST": "Africa/Johannesburg",
    "AEST": "Australia/Sydney", "AEDT": "Australia/Sydney", "ACST": "Australia/Adelaide", "AWST": "Australia/Perth",
    "NZST": "Pacific/Auckland", "NZDT": "Pacific/Auckland",
}  # fmt: skip
LONG_NAMES = {
    "PST": "Pacific Standard Time", "PDT": "Pacific Daylight Time", "MST": "Mountain Standard Time",
    "MDT": "Mountain Daylight Time", "CST": "Central Standard Time", "CDT": "Central Daylight Time",
    "EST": "Eastern Standard Time", "EDT": "Eastern Daylight Time", "AKST": "Alaska Standard Time",
    "AKDT": "Alaska Daylight Time", "HST": "Hawaii-Aleutian Standard Time", "GMT": "Greenwich Mean Time",
    "UTC": "Coordinated Universal Time", "BST": "British Summer Time", "WET": "Western European Standard Time",
    "WEST": "Western European Summer Time", "CET": "Central European Standard Time",
    "CEST": "Central European Summer Time", "EET": "Eastern European Standard Time",
    "EEST": "Eastern European Summer Time", "MSK": "Moscow Standard Time", "IST": "India Standard Time",
    "JST": "Japan Standard Time", "KST": "Korean Standard Time", "AEST": "Australian Eastern Standard Time",
    "AEDT": "Australian Eastern Daylight Time", "NZST": "New Zealand Standard Time",
    "NZDT": "New Zealand Daylight Time",
}  # fmt: skip
# Ids of java.util.TimeZone, which ksqlDB's documentation names as the ids to use. Those that people read otherwise than
# Java (BST is Bangladesh there, AST Alaska) are no zones here.
_SHORT_IDS = {
    short: ZONES_BY_NAME[short]
    for short in ("PST", "PDT", "MDT", "CST", "CDT", "EDT", "CEST", "EEST", "IST", "JST", "AEDT", "NZDT")
}
OFFSET = re.compile(r"(?:(?:UTC|GMT|UT)(?=[+-]))?([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?)?")


@lru_cache(maxsize=1024)
def zone_of(name: str) -> tzinfo:
    """The zone by Java's `ZoneId.of`, an offset or a region; or by an abbreviation. Raises `Unparsable`.

    >>> zone_of("+0200").utcoffset(None)
    datetime.timedelta(seconds=7200)
    """
    if name in ("Z", "UTC", "GMT", "UT"):
        return UTC
    if match := OFFSET.fullmatch(name):
        return fixed_zone(match)
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9~/._+-]+", name):
        raise Unparsable(f"unknown time zone {name!r}")
    try:
        return ZoneInfo(_SHORT_IDS.get(name, name))
    except (KeyError, ValueError, OSError) as unknown:
        raise Unparsable(f"unknown time zone {name!r}") from unknown


def fixed_zone(match: re.Match[str]) -> tzinfo:
    seconds = int(match[2]) * 3600 + int(match[3] or 0) * 60 + int(match[4] or 0)
    if seconds > 18 * 3600:
        raise Unparsable(f"offset {match[0]} is too far")
    return timezone(timedelta(seconds=-seconds if match[1] == "-" else seconds))


_STEP_S = 900


def offset_seconds(zone: tzinfo, epoch_ms: int) -> int:
    """How far the zone is ahead of UTC at a moment."""
    seconds = epoch_ms // 1000
    offset = _offset_in_step(zone, seconds // _STEP_S) if seconds >= 0 else None
    return _offset_at(zone, seconds) if offset is None else offset


@lru_cache(maxsize=16_384)
def _offset_in_step(zone: tzinfo, step: int) -> int | None:
    """None if the clocks change within the quarter of an hour, as those of Newfoundland did at 00:01."""
    first, last = (_offset_at(zone, seconds) for seconds in (step * _STEP_S, (step + 1) * _STEP_S - 1))
    return first if first == last else None


_FIRST_S, _LAST_S = -62_135_510_400, 253_402_128_000  # 0001-01-02, 9999-12-30
_CYCLE_S = 146_097 * 86_400  # of the calendar


def in_python_years(seconds: int) -> int:
    """Later rules of a zone repeat with the calendar; before year 1 its offset is that of the first day."""
    if seconds > _LAST_S:
        return _LAST_S - _CYCLE_S + (seconds - _LAST_S) % _CYCLE_S
    return max(seconds, _FIRST_S)


def _offset_at(zone: tzinfo, seconds: int) -> int:
    if isinstance(zone, timezone):
        return int(zone.utcoffset(None).total_seconds())
    offset = datetime.fromtimestamp(in_python_years(seconds), zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())
