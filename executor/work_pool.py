"""The threads that all queries of this process share, as many as it has cores: pieces of work that run side by side.

Who waits for a piece that no thread has begun does it himself. So a piece may itself have pieces done and wait for
them, however few threads there are, and nothing is ever handed over that would be done sooner at once.
"""

from __future__ import annotations

import functools
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


def cores() -> int:
    """How many this process may use; `taskset` and the like count."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
        return self._result  # type: ignore[return-value]


class WorkPool:
    """Threads are made when there is work and none is free, up to `size`."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._waiting: deque[Work[object]] = deque()
        self._changed = threading.Condition()  # guards what is waiting, and the counts
        self._idle = 0
        self._threads = 0

    def begin(self, call: Callable[[], T]) -> Work[T]:
        """Has it done by another thread, as soon as one is free."""
        work = Work(call)
        self._hand_over([work])
        return work

    def side_by_side(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """What the calls give, in their order, once all are over; the first of those that failed is raised."""
        if len(calls) < 2 or self.size < 2:
            return [call() for call in calls]
        work = [Work(call) for call in calls]
        self._hand_over(work[1:])
        for each in work:
            each.do()
        for each in work:
            each.wait()
        return [each.result() for each in work]

    def _hand_over(self, work: Sequence[Work[T]]) -> None:
        with self._changed:
            self._waiting.extend(work)  # type: ignore[arg-type]
            wanted = min(len(self._waiting), self.size - self._threads) - self._idle
            for _ in range(max(0, wanted)):
                self._threads += 1
                threading.Thread(target=self._run, name="millstream-work", daemon=True).start()
            self._changed.notify(len(work))

    def _run(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                self._changed.wait_for(lambda: self._waiting)
                self._idle -= 1
                work = self._waiting.popleft()
            work.do()


@functools.cache
def work_pool() -> WorkPool:
    """Shared by all queries of the process. Made at first use: a process that was forked has its own."""
    os.register_at_fork(after_in_child=work_pool.cache_clear)
    return WorkPool(cores())
