"""The settings of share groups, as read by their coordinator and by the leaders of their partitions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

SESSION_MS: Final = "share.session.timeout.ms"
HEARTBEAT_MS: Final = "share.heartbeat.interval.ms"
LOCK_MS: Final = "share.record.lock.duration.ms"
DELIVERIES: Final = "share.delivery.count.limit"
LOCKS: Final = "share.partition.max.record.locks"
RESET: Final = "share.auto.offset.reset"
ISOLATION: Final = "share.isolation.level"
RENEWS: Final = "share.renew.acknowledge.enable"

DEFAULTS: Final[Mapping[str, str]] = {
    SESSION_MS: "45000",
    HEARTBEAT_MS: "5000",
    LOCK_MS: "30000",
    DELIVERIES: "5",
    LOCKS: "2000",
    RESET: "latest",
    ISOLATION: "read_uncommitted",
    RENEWS: "true",
}

SIZE_MAX: Final = "group.share.max.size"
SESSIONS_MAX: Final = "group.share.max.share.sessions"
OF_ALL: Final = "group.share."
"""The prefix of settings for all brokers."""

_INT_MAX: Final = (1 << 31) - 1


class ShareRange(NamedTuple):
    """`least`, `greatest`: the range that a group may set, unless the settings of all brokers change that range; they
    may change it within `lowest` to `highest`."""

    lowest: int
    least: int
    greatest: int
    highest: int


RANGES: Final[Mapping[str, ShareRange]] = {
    SESSION_MS: ShareRange(1_000, 45_000, 60_000, _INT_MAX),
    HEARTBEAT_MS: ShareRange(100, 5_000, 15_000, _INT_MAX),
    LOCK_MS: ShareRange(1_000, 15_000, 60_000, 3_600_000),
    DELIVERIES: ShareRange(2, 2, 10, 25),
    LOCKS: ShareRange(100, 100, 4_000, 10_000),
}

_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"P(?:(\d{1,9})D)?(?:T(?=\d)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})(?:\.(\d{1,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class ShareLimits:
    """`lock_ms`: how long a member has an acquired record; `deliveries_max`: how often a record is delivered;
    `in_flight_max`: the number of records of a partition that are acquired, or were given back."""

    lock_ms: int = int(DEFAULTS[LOCK_MS])
    deliveries_max: int = int(DEFAULTS[DELIVERIES])
    in_flight_max: int = int(DEFAULTS[LOCKS])
    renews: bool = True


def of_all(name: str) -> str:
    """
    >>> of_all("share.record.lock.duration.ms")
    'group.share.record.lock.duration.ms'
    """
    return f"group.{name}"


def least_of(name: str) -> str:
    """
    >>> least_of("share.record.lock.duration.ms"), greatest_of("share.record.lock.duration.ms")
    ('group.share.min.record.lock.duration.ms', 'group.share.max.record.lock.duration.ms')
    """
    return name.replace("share.", "group.share.min.", 1)


def greatest_of(name: str) -> str:
    return name.replace("share.", "group.share.max.", 1)


def bounds_of(brokers: Mapping[str, str], name: str) -> tuple[int, int]:
    """The range that a group may set. In: `brokers`: the settings of all brokers."""
    known = RANGES[name]
    return int(brokers.get(least_of(name), known.least)), int(brokers.get(greatest_of(name), known.greatest))


def in_force(brokers: Mapping[str, str], group: Mapping[str, str]) -> dict[str, str]:
    """The settings that apply to a group: its own, else those of all brokers, else the defaults."""
    usual = {name: brokers.get(of_all(name), value) for name, value in DEFAULTS.items()}
    return {name: group.get(name, value) for name, value in usual.items()}


def limits_of(settings: Mapping[str, str]) -> ShareLimits:
    """In: `settings`: the result of `in_force`."""

    def value(name: str) -> str:
        return settings.get(name, DEFAULTS[name])

    return ShareLimits(int(value(LOCK_MS)), int(value(DELIVERIES)), int(value(LOCKS)), value(RENEWS) == "true")


def is_committed_only(settings: Mapping[str, str]) -> bool:
    return settings.get(ISOLATION, DEFAULTS[ISOLATION]) == "read_committed"


def reset_problem(text: str) -> str | None:
    if text in ("earliest", "latest") or duration_ms(text) is not None:
        return None
    return "It is earliest, latest, or by_duration: with a duration such as PT1H."


def duration_ms(text: str) -> int | None:
    """
    >>> duration_ms("by_duration:P1DT2H3M4.5S"), duration_ms("by_duration:P"), duration_ms("latest")
    (93784500, None, None)
    """
    if not text.startswith(_BY_DURATION):
        return None
    found = _DURATION.fullmatch(text.removeprefix(_BY_DURATION))
    if found is None or not any(found.groups()):
        return None
    days, hours, minutes, seconds, fraction = found.groups()
    milliseconds = int((fraction or "0").ljust(9, "0")[:9]) // 1_000_000
    whole = int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    return int(days or 0) * _DAY_MS + whole * 1000 + milliseconds
