"""EMIT FINAL with idle sources: by how much stream time advances without input."""

from __future__ import annotations

from collections.abc import Callable


class IdleTime:
    """The time without input. In: `idle_ms`: 0 turns it off.

    Once `idle_ms` have passed without input, `take` returns the time since then; each piece once, and in pieces of at
    least `idle_ms`. The query stores the resulting stream time. So a restarted query starts to wait again, and loses
    nothing."""

    def __init__(self, idle_ms: int, clock: Callable[[], float]) -> None:
        self._idle_ms = idle_ms
        self._clock = clock
        self._since = clock()

    def came(self) -> None:
        """Notes that there was input just now."""
        if self._idle_ms:
            self._since = self._clock()

    def take(self) -> int:
        """The milliseconds by which stream time should advance now, often 0."""
        if not self._idle_ms:
            return 0
        elapsed_ms = int((self._clock() - self._since) * 1000)
        if elapsed_ms < self._idle_ms:
            return 0
        self._since += elapsed_ms / 1000
        return elapsed_ms
