"""Whose turn it is to read on, where more streams are scanned than there are cores.

Scans that all go on at once all end late: of fifty over a million records each, on two busy cores, none ended within
the minute that it had; in turns all did. So before each batch a scan waits for its turn, and as many as there are cores
have one. Those that have read least go first, by steps of four times the time, and of one step the oldest: what can be
done soon is done, one after the other, and a scan that takes long holds up nobody. The first batch waits for nobody: a
query that is content with little has its answer then.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import threading
import time
from collections.abc import Callable, Generator
from typing import Final

from ..work_pool import cores
from .pull_limits import Deadline

_LOOK_S: Final = 0.1  # whether the time is over, or the client gone
_STEP: Final = 4.0  # of the seconds that a scan has read


class StreamScan:
    """State: the seconds that it has had its turn."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.taken_s = 0.0

    @property
    def rank(self) -> tuple[int, int]:
        """The lowest goes first."""
        return int(math.log(1.0 + self.taken_s, _STEP)), self._number


class ScanTurns:
    """In: `places`: so many scans have their turn at once. Any thread may call any method."""

    def __init__(self, places: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._free = places
        self._clock = clock
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._waiting: list[StreamScan] = []  # guarded by `_changed`, as `_free` is

    def begin(self) -> StreamScan:
        return StreamScan(next(self._numbers))

    @contextlib.contextmanager
    def turn(self, scan: StreamScan, deadline: Deadline) -> Generator[None]:
        """For the block. Raises `PullLimitExceeded` where it does not come before the deadline."""
        with self._changed:
            self._waiting.append(scan)
            try:
                while not self._free or min(self._waiting, key=lambda each: each.rank) is not scan:
                    deadline.check()
                    self._changed.wait(min(deadline.left_s, _LOOK_S))
            finally:
                self._waiting.remove(scan)
                self._changed.notify_all()
            self._free -= 1
        since = self._clock()
        try:
            yield
        finally:
            with self._changed:
                self._free += 1
                scan.taken_s += self._clock() - since
                self._changed.notify_all()


@functools.cache
def scan_turns() -> ScanTurns:
    """Of this process. A process that was forked has its own."""
    os.register_at_fork(after_in_child=scan_turns.cache_clear)
    return ScanTurns(cores())
