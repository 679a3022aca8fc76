"""CUMULATE: a row is in the full-size window around it, and in the smaller windows that start with it and end after the
row.

The end identifies a window: full-size windows are adjacent, so a window belongs to the full-size window that contains
the time just before its end. A day of a time zone that is longer or shorter than 24 hours has more or fewer steps.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...planner.specs import WindowSpec
from ...sql.windows.cumulate import Cumulate
from .placing import Ints, Placing, places, repeated
from .tumbling import TumblingWindows


@places(Cumulate.name)
class CumulateWindows(Placing):
    def __init__(self, window: WindowSpec) -> None:
        super().__init__(window)
        assert window.advance_ms is not None, "the grammar asks for a STEP"
        self._step_ms = window.advance_ms
        self._largest = TumblingWindows(replace(window, advance_ms=None))

    def places(self, times: Ints) -> tuple[Ints, Ints]:
        _, starts = self._largest.places(times)
        sizes = self._largest.ends(starts) - starts
        passed = (times - starts) // self._step_ms  # steps that ended before the row, or at its time
        rows, within = repeated(-(-sizes // self._step_ms) - passed)
        grown = (passed[rows] + within + 1) * self._step_ms
        return rows, starts[rows] + np.minimum(grown, sizes[rows])

    def starts(self, marks: Ints) -> Ints:
        return self._largest.places(marks - 1)[1]

    def ends(self, marks: Ints) -> Ints:
        return marks

    def latest_closed(self, time: int) -> int:
        return time - self.window.grace_ms

    def latest_starts(self, times: Ints) -> Ints:
        return self._largest.latest_starts(times)
