"""Detects jumps of the time of day, after which it cannot say how long something was unused (T-L24)."""

from __future__ import annotations

from typing import Final

_SET_MS: Final = 60 * 60 * 1000  # more than clocks drift apart, or are slewed


class TimeOfDay:
    """State: how far the time of day is ahead of the monotonic time.

    After somebody set the clock, it is unknown which of the two settings was right: something that seems to be unused
    for a week may have been used a minute ago.
    """

    def __init__(self, now_ms: int, wall_ms: int) -> None:
        self._ahead_ms = wall_ms - now_ms

    def was_set(self, now_ms: int, wall_ms: int) -> bool:
        """Whether the clock was set since the last call. In: a monotonic time and the time of day."""
        before_ms, self._ahead_ms = self._ahead_ms, wall_ms - now_ms
        return abs(self._ahead_ms - before_ms) > _SET_MS
