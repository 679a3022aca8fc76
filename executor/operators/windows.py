"""Which windows a row falls into, and which of those it is too late for."""

from __future__ import annotations

import numpy as np

from ...planner.physical import WindowSpec
from .columns import Ints

_PLACES_MAX = 10_000_000  # pairs of a row and a window in one batch; a smaller batch is tried then


def assign(window: WindowSpec, times: Ints, stream_times: Ints) -> tuple[Ints, Ints]:
    """(row, window start) of every window of every row that is still open at the row, windows ascending within a row.

    A window is closed at a row when the row's stream time, itself included, has reached its end plus grace. Windows
    start at multiples of the advance, never below 0.
    """
    advance = window.advance_ms or window.size_ms
    rows = np.arange(len(times), dtype=np.int64)
    starts = np.maximum(times - window.size_ms + advance, 0) // advance * advance
    if advance < window.size_ms:
        counts = (times - starts) // advance + 1
        if counts.sum() > _PLACES_MAX:
            raise MemoryError(f"{len(times)} rows fall into {counts.sum()} windows")
        rows = np.repeat(rows, counts)
        within = np.arange(len(rows), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
        starts = starts[rows] + within * advance
    if not len(rows) or starts.min() + window.size_ms + window.grace_ms > stream_times.max():
        return rows, starts
    is_open = starts + window.size_ms + window.grace_ms > stream_times[rows]
    return rows[is_open], starts[is_open]
