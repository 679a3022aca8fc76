"""EMIT FINAL where the sources fall silent: how far stream time moves on without them."""

from __future__ import annotations

from collections.abc import Callable


class IdleTime:
    """How long nothing came. In: `idle_ms`: 0 is never.

    From `idle_ms` on the time since the last input is given out, each piece once, and in pieces of at least `idle_ms`.
    What was given out is recorded as the stream time it made, so a query that starts again begins to wait anew, and
    forgets nothing."""

    def __init__(self, idle_ms: int, clock: Callable[[], float]) -> None:
        self._idle_ms = idle_ms
        self._clock = clock
        self._since = clock()

    def came(self) -> None:
        """There was input just now."""
        if self._idle_ms:
            self._since = self._clock()

    def take(self) -> int:
        """The milliseconds by which stream time should move on now, often 0."""
        if not self._idle_ms:
            return 0
        elapsed_ms = int((self._clock() - self._since) * 1000)
        if elapsed_ms < self._idle_ms:
            return 0
        self._since += elapsed_ms / 1000
        return elapsed_ms
