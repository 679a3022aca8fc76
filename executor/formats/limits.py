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

UNITS: dict[str, int] = {"TIME": 1000, "TIMESTAMP": 1000}  # Arrow's microseconds in a millisecond

JSON_DEPTH_MAX = 500
