"""Whether the time of day can say how long something was not used (T-L24)."""

from __future__ import annotations

from typing import Final

_SET_MS: Final = 60 * 60 * 1000  # more than clocks drift apart, or are slewed


class TimeOfDay:
    """State: how far the time of day is ahead of time that only goes on.

    Where somebody set the clock it is not known which of both times was right: what seems to be unused for a week may
    have been used a minute ago.
    """

    def __init__(self, now_ms: int, wall_ms: int) -> None:
        self._ahead_ms = wall_ms - now_ms

    def was_set(self, now_ms: int, wall_ms: int) -> bool:
        """Since this was asked last. In: a monotonic time and the time of day."""
        before_ms, self._ahead_ms = self._ahead_ms, wall_ms - now_ms
        return abs(self._ahead_ms - before_ms) > _SET_MS
