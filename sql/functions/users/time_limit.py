"""User-defined functions, row by row, each within its time limit.

Nothing in Python reliably ends a function from outside. So rows are computed in a separate thread. When a row takes too
long, the waiting thread abandons that thread: the row fails, and another thread computes the next rows. The abandoned
thread gets an exception, which ends loops; if it sleeps or waits for a network, it ends later, and its result is
ignored. While too many abandoned threads exist, the function is not called at all. Code in a C extension that holds the
GIL cannot be abandoned.

An aggregate computes each row from the previous one. The thread stores each row's result, unless it was abandoned: then
the next thread continues from the previous row, and the first thread's results are ignored.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any

from ..bounds import FUNCTION_SECONDS, BoundExceeded, bounded_by, current_bounds, out_of_time

_LEFT_MAX = 16
_PAUSE_S = 0.05

Outcome = tuple[Any, BaseException | None]
"""A result, or the error in its place."""


class _Left(BaseException):
    """Raised inside a call that nobody waits for any more."""


def within_time(
    function: Callable[..., Any], rows: Sequence[Sequence[Any]], keep: Callable[[int, Any], None] | None = None
) -> list[Outcome]:
    """What the function gives for each row; `BoundExceeded` is the error of one that took too long.

    In: `keep` is called with a row's position and its result before the next row is computed, and must be quick.
    """
    outcomes: list[Outcome] = []
    while len(outcomes) < len(rows):
        if current_bounds().over:  # nobody waits for the rest: each row would leave a thread behind
            return [*outcomes, *[(None, out_of_time())] * (len(rows) - len(outcomes))]
        run = _Run(function, rows[len(outcomes) :], _from(len(outcomes), keep))
        outcomes += run.outcomes_in_time()
    return outcomes


def _from(first: int, keep: Callable[[int, Any], None] | None) -> Callable[[int, Any], None]:
    if keep is None:
        return lambda position, result: None
    return lambda position, result: keep(first + position, result)


@dataclass(slots=True)
class _Run:
    """Rows in one thread. `began`: when the row under way did, on the monotonic clock."""

    function: Callable[..., Any]
    rows: Sequence[Sequence[Any]]
    keep: Callable[[int, Any], None]
    outcomes: list[Outcome] = field(default_factory=list)
    began: float = 0.0
    is_left: bool = False
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _done: threading.Event = field(default_factory=threading.Event)

    def outcomes_in_time(self) -> list[Outcome]:
        """Of all rows, or of those up to the first one that takes too long."""
        if _left.count() >= _LEFT_MAX:
            message = f"{_LEFT_MAX} calls of users' functions have not ended, long after {FUNCTION_SECONDS}"
            return [(None, BoundExceeded(message, FUNCTION_SECONDS)) for _ in self.rows]
        bounds, context = current_bounds(), copy_context()
        self.began = time.monotonic()

        def compute() -> None:
            with bounded_by(bounds):
                context.run(self._compute)

        thread = threading.Thread(target=compute, name="user-function", daemon=True)
        thread.start()
        while not self._done.wait(min(_PAUSE_S, bounds.seconds)):
            with self._guard:
                self.is_left = bounds.over or time.monotonic() - self.began > bounds.seconds
                if self.is_left:
                    _left.add(thread)
                    return [*self.outcomes, (None, out_of_time())]
        return self.outcomes

    def _compute(self) -> None:
        try:
            for row in self.rows:
                self.began = time.monotonic()
                try:
                    outcome: Outcome = (self.function(*row), None)
                except _Left:
                    return
                except BaseException as error:
                    outcome = (None, error)
                with self._guard:
                    if self.is_left:
                        return
                    if outcome[1] is None:
                        self.keep(len(self.outcomes), outcome[0])
                    self.outcomes.append(outcome)
            self._done.set()
        except _Left:  # between two steps of this loop
            return


class _LeftThreads:
    """Threads whose call nobody waits for. Each is told to end, again and again, as it may catch what it is told."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._teller: threading.Thread | None = None

    def count(self) -> int:
        return len(self._threads)

    def add(self, thread: threading.Thread) -> None:
        with self._guard:
            self._threads.append(thread)
            if self._teller is None:
                self._teller = threading.Thread(target=self._tell, name="user-function-ends", daemon=True)
                self._teller.start()

    def _tell(self) -> None:
        while True:
            with self._guard:
                self._threads = [thread for thread in self._threads if thread.is_alive()]
                if not self._threads:
                    self._teller = None
                    return
                for thread in self._threads:
                    assert thread.ident is not None
                    _raise_in(thread.ident, _Left)
            time.sleep(_PAUSE_S)


_left = _LeftThreads()


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    told = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), told)
