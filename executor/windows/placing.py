"""What the executor needs to know of a window type: the windows of a row, when they close, and their bounds.

One number, the mark, identifies a window among those of its key. It is the window's start or, if several windows start
together, its end (`WindowType.mark`). Windows close in the order of their marks, so state expires by its mark.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import numpy as np

from ...planner.specs import WindowSpec

_PLACES_MAX = 10_000_000  # pairs of a row and a window in one batch; if there are more, a smaller batch is tried

Ints = np.ndarray[Any, np.dtype[np.int64]]


class Placing:
    """The windows of an aggregate. `one_each`: no row is in more than one of them."""

    one_each: ClassVar[bool] = False

    def __init__(self, window: WindowSpec) -> None:
        self.window = window
        self.mark = window.type.mark

    def assign(self, times: Ints, stream_times: Ints) -> tuple[Ints, Ints]:
        """(row, mark) of every window of a row that is still open at the row. Windows are ascending within a row.

        A window is closed at a row if the stream time at the row, including the row, has reached its end plus grace.
        """
        rows, marks = self.places(times)
        if not len(rows):
            return rows, marks
        # Nothing is added to an end: it may be close to the largest number.
        closed = stream_times - self.window.grace_ms
        if self.ends(marks.min(keepdims=True))[0] > closed.max():
            return rows, marks
        is_open = self.ends(marks) > closed[rows]
        return rows[is_open], marks[is_open]

    def places(self, times: Ints) -> tuple[Ints, Ints]:
        """(row, mark) of every window of every row, open or not. Windows are ascending within a row."""
        raise AssertionError(f"{type(self).__name__} places nothing")

    def starts(self, marks: Ints) -> Ints:
        raise AssertionError(f"{type(self).__name__} has no starts")

    def ends(self, marks: Ints) -> Ints:
        raise AssertionError(f"{type(self).__name__} has no ends")

    def latest_closed(self, time: int) -> int:
        """The largest mark of a window that is closed at this stream time."""
        raise AssertionError(f"{type(self).__name__} closes nothing")

    def latest_starts(self, times: Ints) -> Ints:
        """For each time, the latest start of a window that contains it."""
        raise AssertionError(f"{type(self).__name__} has no latest start")


def repeated(counts: Ints) -> tuple[Ints, Ints]:
    """(row, number from 0) of each window. In: the number of windows of each row. Raises `MemoryError` if a batch has
    too many."""
    if counts.sum() > _PLACES_MAX:
        raise MemoryError(f"{len(counts)} rows fall into {counts.sum()} windows")
    rows = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    return rows, np.arange(len(rows), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)


P = TypeVar("P", bound=Placing)
_PLACINGS: dict[str, type[Placing]] = {}


def places(kind: str) -> Callable[[type[P]], type[P]]:
    """Registers the class that places rows into windows of this type."""

    def register(placing: type[P]) -> type[P]:
        assert kind not in _PLACINGS, f"two placings for {kind}"
        _PLACINGS[kind] = placing
        return placing

    return register


def placing_of(window: WindowSpec) -> Placing:
    return _PLACINGS[window.kind](window)


def placed_types() -> frozenset[str]:
    """The window types that a row's time determines."""
    return frozenset(_PLACINGS)
