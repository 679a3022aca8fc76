"""Lets scans of streams take turns if there are more scans than cores.

If all scans run at once, all of them end late. Of fifty scans over a million records each, on two busy cores, none
ended within its limit of a minute; with turns, all did. So a scan waits for its turn before each batch, and as many
scans have a turn as there are cores. Scans that have read for the shortest time go first. Times are compared in steps,
each four times the previous one; within a step the oldest scan goes first. So short scans end soon, one after the
other, and a long scan does not delay them. The first batch does not wait for a turn: it may already answer a query that
needs few rows.
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

_LOOK_S: Final = 0.1  # how often a waiting scan checks its deadline and whether its client has left
_STEP: Final = 4.0  # the factor between two steps of reading time


class StreamScan:
    """State: `taken_s`: the total seconds of its turns."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.taken_s = 0.0

    @property
    def rank(self) -> tuple[int, int]:
        """The scan with the lowest rank goes first."""
        return int(math.log(1.0 + self.taken_s, _STEP)), self._number


class ScanTurns:
    """In: `places`: how many scans may have a turn at the same time. Any thread may call any method."""

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
        """Waits for the scan's turn, which lasts for the block. Raises `PullLimitExceeded` at the deadline."""
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
    """The turns of this process. A forked process has its own."""
    os.register_at_fork(after_in_child=scan_turns.cache_clear)
    return ScanTurns(cores())
