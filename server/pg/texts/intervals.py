"""Lengths of time as PostgreSQL writes them: `'2 hours 30 minutes'`, `'1 day 02:03:04'`."""

from __future__ import annotations

import decimal
import re
from typing import Final

from ..pg_parameters import WrongParameter

UNITS: Final = ("DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND")
"""Those of our INTERVAL, whose number is alone in quotes; an S may follow."""
_SECOND: Final = 1000
_DAY: Final = 86_400_000
_MS: Final = {
    "": _SECOND, "ms": 1, "msec": 1, "millisecond": 1, "s": _SECOND, "sec": _SECOND, "second": _SECOND,
    "m": 60_000, "min": 60_000, "minute": 60_000, "h": 3_600_000, "hr": 3_600_000, "hour": 3_600_000,
    "d": _DAY, "day": _DAY, "w": 7 * _DAY, "week": 7 * _DAY,
}  # fmt: skip
_PART: Final = re.compile(
    r"\s*(?:([+-])?(\d{1,9}):(\d{2})(?::(\d{2}(?:\.\d{1,9})?))?(?=\s|$)|([+-]?\d{1,15}(?:\.\d{1,9})?)\s*([a-z]*))\s*",
    re.IGNORECASE | re.ASCII,
)


def interval_ms(text: str) -> int:
    """Raises `WrongParameter` if it is none, or has months and years, which have no fixed length.

    >>> interval_ms("1 day 02:00:01.5"), interval_ms("-90 min"), interval_ms("1.5h")
    (93601500, -5400000, 5400000)
    """
    at, total = 0, decimal.Decimal(0)
    while at < len(text) or at == 0:
        found = _PART.match(text, at)
        unit = "" if found is None else (found[6] or "").lower()
        length = _MS.get(unit, _MS.get(unit.removesuffix("s")))
        if found is None or length is None:
            raise WrongParameter(
                f"'{text[:100]}' is no interval of a fixed length",
                hint=f"Write a number of {', '.join(UNITS)} or WEEK, as in interval '90 minutes'.",
            )
        total += length * decimal.Decimal(found[5]) if found[5] else _clock_ms(found)
        at = found.end()
    return int(total)


def _clock_ms(found: re.Match[str]) -> decimal.Decimal:
    seconds = int(found[2]) * 3600 + int(found[3]) * 60 + decimal.Decimal(found[4] or 0)
    return seconds * (-_SECOND if found[1] == "-" else _SECOND)
