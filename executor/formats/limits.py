"""The ranges of integers and times, in the units in which formats write them (days, milliseconds)."""

from __future__ import annotations

INTEGER_RANGES: dict[str, tuple[int, int]] = {
    "INTEGER": (-(2**31), 2**31 - 1),
    "BIGINT": (-(2**63), 2**63 - 1),
    "TIME": (0, 86_399_999),
    # The ends of int32 are infinities in DuckDB, and the lower end of TIMESTAMP is DuckDB's.
    "DATE": (-(2**31) + 2, 2**31 - 2),
    "TIMESTAMP": (-9_223_372_022_400_000, 9_223_372_036_854_774),
}

# What Debezium and JDBC write for infinite dates and times of PostgreSQL, which lie beyond the ranges.
_ENDLESS: dict[str, tuple[int, int]] = {
    "DATE": (-(2**31), 2**31 - 1),
    "TIMESTAMP": (-9_223_372_036_832_400, 9_223_372_036_825_200),
}

UNITS: dict[str, int] = {"TIME": 1000, "TIMESTAMP": 1000}  # Arrow's microseconds in a millisecond

JSON_DEPTH_MAX = 500


def in_range(type_name: str, number: int) -> int | None:
    """The number; the end of the range for an infinite date or time; None if the type does not hold it.

    >>> in_range("DATE", 2**31 - 1), in_range("INTEGER", 2**31)
    (2147483646, None)
    """
    low, high = INTEGER_RANGES[type_name]
    if low <= number <= high:
        return number
    return max(low, min(number, high)) if number in _ENDLESS.get(type_name, ()) else None
