"""Lengths of time in statements, in ms: of windows, joins, grace periods, intervals and TTLs."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

DAY_MS: Final = 86_400_000
UNIT_MS: Final = MappingProxyType(
    {"MILLISECOND": 1, "SECOND": 1_000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": DAY_MS}
)
# The sum of a rowtime and several durations must fit 64 bits: operators compute when a window closes or a row expires.
DURATION_MS_MAX: Final = 1_000_000_000 * DAY_MS
TOO_LONG: Final = "It can be 1000000000 DAYS at most."


def unit_ms(name: str) -> int | None:
    """The unit with this name in upper case, singular or plural; None if there is none.

    >>> unit_ms("SECOND"), unit_ms("DAYS"), unit_ms("YEARS")
    (1000, 86400000, None)
    """
    return UNIT_MS.get(name.removesuffix("S"))
