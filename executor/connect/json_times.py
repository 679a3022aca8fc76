"""Times in JSON: milliseconds since 1970, dates as days since 1970, or both in ISO 8601."""

from __future__ import annotations

import datetime
from typing import Any, Final

EPOCH: Final = datetime.datetime(1970, 1, 1)
_DAY_MS: Final = 86_400_000


def moment_of(value: Any, *, zoned: bool) -> datetime.datetime:
    """The moment in UTC. In: `zoned`: whether the result has a time zone. Raises ValueError, OverflowError."""
    moment = EPOCH + datetime.timedelta(milliseconds=value) if isinstance(value, int) else _iso(value)
    if moment.tzinfo is not None:
        moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    return moment.replace(tzinfo=datetime.UTC) if zoned else moment


def day_of(value: Any) -> datetime.date:
    """Raises ValueError, OverflowError."""
    return (EPOCH + datetime.timedelta(days=value)).date() if isinstance(value, int) else _iso(value).date()


def time_of(value: Any) -> datetime.time:
    """Raises ValueError."""
    if not isinstance(value, int):
        return datetime.time.fromisoformat(str(value))
    if not 0 <= value < _DAY_MS:
        raise ValueError(f"{value} is no millisecond of a day")
    return (EPOCH + datetime.timedelta(milliseconds=value)).time()


def _iso(value: Any) -> datetime.datetime:
    return datetime.datetime.fromisoformat(str(value))
