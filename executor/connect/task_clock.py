"""What a connector takes the time from, and waits with: the machine's clock, or one that a test moves."""

from __future__ import annotations

import time
from typing import Final, Protocol


class TaskClock(Protocol):
    """`TaskInfo.clock`. A connector that asks nothing else can be tested in no time."""

    def now_ms(self) -> int:
        """Since 1970."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment; it never goes back."""
        ...

    def sleep(self, seconds: float) -> None: ...


class MachineClock:
    """The time as it is."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class VirtualClock:
    """State: the time, in milliseconds since 1970. It moves by `advance`, and by who sleeps."""

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
