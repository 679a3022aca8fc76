"""The threads that all queries of this process share, as many as it has cores: pieces of work that run side by side.

Who waits for a piece that no thread has begun does it himself. So a piece may itself have pieces done and wait for
them, however few threads there are, and nothing is ever handed over that would be done sooner at once.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, Generic, TypeVar, cast

T = TypeVar("T")

_RELIEF: Final = 16
_RELIEF_S: Final = 5.0  # how long a thread that is one too many stays without work


def cores() -> int:
    """How many this process may use; `taskset` and the like count."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


SLICE_ROWS = 10_000  # at least, for a thread: fewer are done sooner than another one is woken


def slices(rows: int, *, beside: int = 1) -> list[tuple[int, int]]:
    """Begin and end of the parts of so many rows that are worth a thread each: one for each core at most. In: `beside`:
    how many batches of rows are divided at the same time, and share the cores."""
    parts = max(1, min(-(-work_pool().cores // beside), rows // SLICE_ROWS))
    bounds = [rows * part // parts for part in range(parts + 1)]
    return list(pairwise(bounds))


class Work(Generic[T]):
    """A piece of work that is done once: by a thread of the pool, or by who waits for it first."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call: Callable[[], T] | None = call
        self._unclaimed = threading.Lock()  # whoever gets it does the work, and never gives it back
        self._done = threading.Event()
        self._result: T | None = None
        self._error: BaseException | None = None

    def do(self) -> None:
        """Does it now, unless somebody has begun."""
        if not self._unclaimed.acquire(blocking=False):
            return
        call, self._call = self._call, None
        assert call is not None
        try:
            self._result = call()
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    @property
    def is_over(self) -> bool:
        return self._done.is_set()

    def wait(self) -> None:
        """Returns once it is over."""
        self._done.wait()

    def drop(self) -> None:
        """Returns once it is over: it is not begun any more, and whatever came of it is forgotten."""
        if self._unclaimed.acquire(blocking=False):
            self._call = None
            self._done.set()
        self._done.wait()

    def result(self) -> T:
        """What came of it, or raises what it raised. Not after `drop`."""
        self.do()
        self.wait()
        if self._error is not None:
            raise self._error
        return cast("T", self._result)


class _Shared(Generic[T]):
    """Calls that several threads take one after the other until none is left: a thread is woken once for all of them,
    and one that comes too late finds nothing to do."""

    def __init__(self, calls: Sequence[Callable[[], T]]) -> None:
        self._calls = calls
        self._next = itertools.count()  # each number is given out once, whoever asks
        self._results: list[T | None] = [None] * len(calls)
        self._errors: list[BaseException | None] = [None] * len(calls)

    def work(self) -> None:
        """Until none is left to begin. Raises nothing."""
        while (number := next(self._next)) < len(self._calls):
            try:
                self._results[number] = self._calls[number]()
            except BaseException as error:
                self._errors[number] = error

    def results(self) -> list[T]:
        """Once all are over."""
        for error in self._errors:
            if error is not None:
                raise error
        return cast("list[T]", self._results)


class WorkPool:
    """Threads are made when there is work and none is free: up to one more than `cores`, since one of them mostly waits
    for a disk, and where that is not enough for long, up to `_RELIEF` more (`relieve`), which go again."""

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self._size = cores + 1
        self._now: deque[Work[Any]] = deque()
        self._later: deque[Work[Any]] = deque()
        self._changed = threading.Lock()  # guards what is waiting, who waits, and the counts
        self._waiting: list[threading.Condition] = []  # of the threads that nobody has woken, the last one to wait last
        self._idle = 0
        self._threads = 0
        self._later_began_s = 0.0  # when the last one of `_later` was, or had nothing before it

    @property
    def is_busy(self) -> bool:
        """Whether no thread is free."""
        return not self._idle

    @property
    def others_wait(self) -> bool:
        """Whether something was put off that nobody has begun."""
        return bool(self._later)

    def begin(self, call: Callable[[], T]) -> Work[T]:
        """Has it done by another thread, as soon as one is free."""
        work = Work(call)
        self._hand_over(self._now, [work])
        return work

    def later(self, call: Callable[[], T]) -> Work[T]:
        """Has it done behind everything else, in the order of these calls."""
        work = Work(call)
        with self._changed:
            if not self._later:
                self._later_began_s = time.monotonic()
        self._hand_over(self._later, [work])
        return work

    def side_by_side(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """What the calls give, in their order, once all are over; the first of those that failed is raised."""
        if len(calls) < 2 or self.cores < 2:
            return [call() for call in calls]
        shared = _Shared(calls)
        helpers = [Work(shared.work) for _ in range(min(len(calls), self.cores) - 1)]
        self._hand_over(self._now, helpers)
        shared.work()
        self._take_back(helpers)
        for helper in helpers:
            helper.drop()
        return shared.results()

    def relieve(self, patience_s: float) -> None:
        """One thread more, where for so long none has begun anything of what was put off."""
        with self._changed:
            late = bool(self._later) and not self._idle and time.monotonic() - self._later_began_s >= patience_s
            if late and self._threads < self._size + _RELIEF:
                self._start()

    def _hand_over(self, queue: deque[Work[Any]], work: Sequence[Work[Any]]) -> None:
        with self._changed:
            queue.extend(work)
            wanted = min(len(self._now) + len(self._later) - self._idle, self._size - self._threads)
            for _ in range(max(0, wanted)):
                self._start()
            for _ in range(min(len(work), len(self._waiting))):
                self._waiting.pop().notify()

    def _take_back(self, work: Sequence[Work[Any]]) -> None:
        """Nobody need begin these any more."""
        with self._changed:
            for each in work:
                with contextlib.suppress(ValueError):  # somebody has
                    self._now.remove(each)

    def _start(self) -> None:
        self._threads += 1
        threading.Thread(target=self._run, name="millstream-work", daemon=True).start()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            work.do()
            del work  # what it holds must not wait for the next one

    def _next(self) -> Work[Any] | None:
        """None where the thread is one too many. Who waits last is woken first, so that the others are without work for
        long enough to go: in turn a trickle would keep all of them."""
        with self._changed:
            self._idle += 1
            woken = threading.Condition(self._changed)
            while not (self._now or self._later):
                self._waiting.append(woken)
                in_time = woken.wait(None if self._threads <= self._size else _RELIEF_S)
                if woken in self._waiting:
                    self._waiting.remove(woken)
                if not in_time and not (self._now or self._later) and self._threads > self._size:
                    self._threads -= 1
                    self._idle -= 1
                    return None
            self._idle -= 1
            if self._now:
                return self._now.popleft()
            self._later_began_s = time.monotonic()
            return self._later.popleft()


@functools.cache
def work_pool() -> WorkPool:
    """Shared by all queries of the process. Made at first use: a process that was forked has its own."""
    os.register_at_fork(after_in_child=work_pool.cache_clear)
    return WorkPool(cores())
