"""A thread pool that all queries of this process share, with about one thread per core.

A caller that waits for a piece of work that no thread has begun does it itself. So a piece may hand over further pieces
and wait for them, however few threads there are, and work never waits for a thread while its caller is idle.
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
_RELIEF_S: Final = 5.0  # how long a surplus thread stays without work


def cores() -> int:
    """The number of cores that this process may use; respects `taskset` and similar limits."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


SLICE_ROWS = 10_000  # the least rows per thread: fewer take less time than waking another thread


def slices(rows: int, *, beside: int = 1) -> list[tuple[int, int]]:
    """Splits `rows` rows into parts that are worth a thread each, at most one per core. In: `beside`: how many batches
    are split at the same time and share the cores. Out: begin and end of each part."""
    parts = max(1, min(-(-work_pool().cores // beside), rows // SLICE_ROWS))
    bounds = [rows * part // parts for part in range(parts + 1)]
    return list(pairwise(bounds))


class Work(Generic[T]):
    """A piece of work that is done once: by a thread of the pool, or by the first caller that waits for it."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call: Callable[[], T] | None = call
        self._unclaimed = threading.Lock()  # the thread that acquires it does the work, and never releases it
        self._done = threading.Event()
        self._result: T | None = None
        self._error: BaseException | None = None

    def do(self) -> None:
        """Does the work now, unless another thread has begun it."""
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
        """Returns once the work is over."""
        self._done.wait()

    def drop(self) -> None:
        """Cancels the work if it has not begun; otherwise returns once it is over. Discards its result or error."""
        if self._unclaimed.acquire(blocking=False):
            self._call = None
            self._done.set()
        self._done.wait()

    def result(self) -> T:
        """Returns the result of the work, or raises its error. Must not be called after `drop`."""
        self.do()
        self.wait()
        if self._error is not None:
            raise self._error
        return cast("T", self._result)


class _Shared(Generic[T]):
    """Calls that several threads take one by one until none is left. A thread is woken once for all of them, and a
    thread that comes too late finds nothing to do."""

    def __init__(self, calls: Sequence[Callable[[], T]]) -> None:
        self._calls = calls
        self._next = itertools.count()  # returns each number once, to whichever thread asks
        self._results: list[T | None] = [None] * len(calls)
        self._errors: list[BaseException | None] = [None] * len(calls)

    def work(self) -> None:
        """Runs calls until none is left to begin. Raises nothing."""
        while (number := next(self._next)) < len(self._calls):
            try:
                self._results[number] = self._calls[number]()
            except BaseException as error:
                self._errors[number] = error

    def results(self) -> list[T]:
        """The results, in the order of the calls. To be called once all calls are over."""
        for error in self._errors:
            if error is not None:
                raise error
        return cast("list[T]", self._results)


class WorkPool:
    """Threads are created when there is work and no thread is free: up to `cores` + 1, since one of them mostly waits
    for a disk. If work has to wait for long, `relieve` adds up to `_RELIEF` more, which end when they are idle."""

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self._size = cores + 1
        self._now: deque[Work[Any]] = deque()
        self._later: deque[Work[Any]] = deque()
        self._changed = threading.Lock()  # guards the queues, the waiting threads and the counts
        self._waiting: list[threading.Condition] = []  # of threads not yet woken; the thread that began last is last
        self._idle = 0
        self._threads = 0
        self._later_began_s = 0.0  # when a piece of `_later` last began, or came into the empty queue

    @property
    def is_busy(self) -> bool:
        """Whether no thread is free."""
        return not self._idle

    @property
    def others_wait(self) -> bool:
        """Whether work of `later` has not begun yet."""
        return bool(self._later)

    def begin(self, call: Callable[[], T]) -> Work[T]:
        """Hands the call to another thread, which runs it as soon as it is free."""
        work = Work(call)
        self._hand_over(self._now, [work])
        return work

    def later(self, call: Callable[[], T]) -> Work[T]:
        """Like `begin`, but after all other work; calls of `later` keep their order."""
        work = Work(call)
        with self._changed:
            if not self._later:
                self._later_began_s = time.monotonic()
        self._hand_over(self._later, [work])
        return work

    def side_by_side(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Runs the calls in parallel. Returns their results in order once all are over; raises the error of the first
        call in order that failed."""
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
        """Adds a thread if no work of `later` has begun for `patience_s` although some is waiting."""
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
        """Removes work from the queue that no thread needs to begin any more."""
        with self._changed:
            for each in work:
                with contextlib.suppress(ValueError):  # a thread has already taken it
                    self._now.remove(each)

    def _start(self) -> None:
        self._threads += 1
        threading.Thread(target=self._run, name="millstream-work", daemon=True).start()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            work.do()
            del work  # frees its memory before waiting for the next piece

    def _next(self) -> Work[Any] | None:
        """The next piece of work; None if the thread is surplus and must end. The thread that began to wait last is
        woken first, so that the others stay idle long enough to end: waking them in turn would keep all of them."""
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
    """The pool that all queries of the process share. Created at first use; a forked process has its own."""
    os.register_at_fork(after_in_child=work_pool.cache_clear)
    return WorkPool(cores())
