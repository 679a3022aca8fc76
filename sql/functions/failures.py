"""Failures of expressions: recorded where they happen, read by the code that runs the query. They are the rows for
which an expression or a user-defined function failed, or a function would exceed its limits (`bounds.py`).

DuckDB calls functions from its own threads, and has no other way to return such an error: each call runs under the
`Failures` of its query, stored per thread.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator
from dataclasses import dataclass, field

from .bounds import VALUE_BYTES, BoundExceeded, CallBounds, CallTooLarge, bounded_by

KEPT_MAX = 100  # of a function that fails for every row, the first ones tell all there is to know


@dataclass(frozen=True, slots=True)
class CallFailure:
    """`message`: what failed, the error, and the line of a function's body. `arguments`: of the row, as text.
    `sequence`: the row's `_seq`, where it is known."""

    message: str
    arguments: str
    sequence: int | None = None


@dataclass(slots=True)
class Failures:
    """Filled from any thread. `left_out`: how many more there were than it keeps.

    `bounds`: what the functions of the query keep to; `exceeded`: the first time that one would have gone beyond;
    `too_large`: that the rows were too many for the memory.
    """

    kept: list[CallFailure] = field(default_factory=list)
    left_out: int = 0
    bounds: CallBounds = field(default_factory=CallBounds)
    exceeded: BoundExceeded | None = None
    too_large: CallTooLarge | None = None
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def add(self, failure: CallFailure) -> None:
        with self._guard:
            if len(self.kept) < KEPT_MAX:
                self.kept.append(failure)
            else:
                self.left_out += 1

    @property
    def room(self) -> int:
        """How many more are kept."""
        return max(0, KEPT_MAX - len(self.kept))

    def add_unexplained(self, count: int) -> None:
        """So many more, of which nothing is known but that they failed."""
        with self._guard:
            self.left_out += count

    def mark(self) -> tuple[int, int]:
        """What `back_to` goes back to."""
        with self._guard:
            return len(self.kept), self.left_out

    def back_to(self, mark: tuple[int, int]) -> None:
        """Forgets what came since then: the same rows are computed again."""
        with self._guard:
            del self.kept[mark[0] :]
            self.left_out = mark[1]

    @contextlib.contextmanager
    def unchanged(self) -> Generator[None]:
        """Forgets what comes meanwhile: the same rows are computed once more."""
        mark = self.mark()
        try:
            yield
        finally:
            self.back_to(mark)

    def note_too_large(self, count: int) -> None:
        """So many values were made that are larger than they may be; they are NULL now."""
        message = f"a value is larger than {VALUE_BYTES} = {self.bounds.value_bytes:,} bytes"
        self.exceeded = self.exceeded or BoundExceeded(message, VALUE_BYTES)
        for _ in range(count):
            self.add(CallFailure(message, ""))

    def check(self) -> None:
        """Raises `CallTooLarge` where something is NULL only because rows were computed together. To be called by who
        can compute fewer of them, or has to give up."""
        too_large, self.too_large = self.too_large, None
        if too_large is not None:
            raise too_large

    def take(self) -> list[CallFailure]:
        """All since the last call; the last one says how many were left out."""
        with self._guard:
            kept, left_out, self.kept, self.left_out = self.kept, self.left_out, [], 0
        if left_out:
            kept.append(CallFailure(f"{left_out} more rows for which an expression failed", ""))
        return kept

    def forget(self) -> None:
        """Forgets everything. An error holds the frames it passed, and with them the connection that these are of."""
        self.take()
        self.exceeded = self.too_large = None


class _Current(threading.local):
    failures: Failures | None = None


_current = _Current()


@contextlib.contextmanager
def collecting(failures: Failures) -> Generator[None]:
    """What fails in this thread meanwhile is noted there, and its bounds hold."""
    before = _current.failures
    _current.failures = failures
    try:
        with bounded_by(failures.bounds):
            yield
    finally:
        _current.failures = before


def note(message: str, arguments: str) -> None:
    """Notes a failure, if somebody collects them."""
    if _current.failures is not None:
        _current.failures.add(CallFailure(message, arguments))


def note_exceeded(error: BoundExceeded, function: str, arguments: str) -> None:
    """Notes a row for which a function would have gone beyond its bounds, if somebody collects them."""
    if _current.failures is None:
        return
    if isinstance(error, CallTooLarge):
        _current.failures.too_large = error
    else:
        _current.failures.exceeded = _current.failures.exceeded or error
        _current.failures.add(CallFailure(f"function {function} failed: {error.message}", arguments))
