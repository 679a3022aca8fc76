"""The clock with which a connector gets the time and waits: the machine's clock, or one that a test controls."""

from __future__ import annotations

import time
from typing import Final, Protocol


class TaskClock(Protocol):
    """`TaskInfo.clock`. Tests of a connector that uses no other clock do not have to wait."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment; it never goes back."""
        ...

    def sleep(self, seconds: float) -> None: ...


class MachineClock:
    """The real time."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class VirtualClock:
    """A clock for tests. State: the time since 1970. `advance` and `sleep` move it."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_us = now_ms * 1000

    def now_ms(self) -> int:
        return self._now_us // 1000

    def monotonic(self) -> float:
        return self._now_us / 1_000_000

    def sleep(self, seconds: float) -> None:
        self.advance(seconds * 1000)

    def advance(self, ms: float) -> None:
        self._now_us += max(0, round(ms * 1000))


MACHINE_CLOCK: Final = MachineClock()
