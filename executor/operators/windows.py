"""Which windows a row falls into, which of those it is too late for, and when windows close."""

from __future__ import annotations

import numpy as np
from numba import njit

from ...planner.specs import WindowSpec
from ...sql.functions.aggregate_kernels import COMPILED_FROM
from ..window_times import DAY_MS, day_starts, days_of, first_day, window_ends
from .columns import Ints

_PLACES_MAX = 10_000_000  # pairs of a row and a window in one batch; a smaller batch is tried then


def assign(window: WindowSpec, times: Ints, stream_times: Ints) -> tuple[Ints, Ints]:
    """(row, window start) of every window of every row that is still open at the row, windows ascending within a row.

    A window is closed at a row when the row's stream time, itself included, has reached its end plus grace. Windows
    start at multiples of the advance, never below 0; those of a time zone at the begin of its days, counted from the
    day in which time 0 lies.
    """
    if window.timezone is None:
        rows, starts = _places(times, window.size_ms, window.advance_ms or window.size_ms)
    else:
        advance, first = (window.advance_ms or window.size_ms) // DAY_MS, first_day(window.timezone)
        rows, days = _places(days_of(times, window.timezone) - first, window.size_ms // DAY_MS, advance)
        starts = day_starts(days + first, window.timezone)
    if not len(rows):
        return rows, starts
    earliest = window_ends(starts.min(keepdims=True), window.size_ms, window.timezone)
    if earliest[0] + window.grace_ms > stream_times.max():
        return rows, starts
    is_open = window_ends(starts, window.size_ms, window.timezone) + window.grace_ms > stream_times[rows]
    return rows[is_open], starts[is_open]


def latest_closed(window: WindowSpec, time: int) -> int:
    """The largest start of a window that is closed at this stream time."""
    if window.timezone is None or time < 0:
        return time - window.size_ms - window.grace_ms
    today = days_of(np.array([max(0, time - window.grace_ms)], dtype=np.int64), window.timezone)
    day = int(today[0]) - window.size_ms // DAY_MS
    return int(day_starts(np.array([day]), window.timezone)[0]) if day >= first_day(window.timezone) else -1


def _multiples_below(values: Ints, shift: int, step: int) -> Ints:
    """The multiple of `step` at or below each value less `shift`, at least 0."""
    if len(values) < COMPILED_FROM:
        return np.maximum(values - shift, 0) // step * step
    out = np.empty(len(values), dtype=np.int64)
    _write_multiples_below(values, shift, step, out)
    return out


@njit(cache=True, nogil=True)
def _write_multiples_below(values: Ints, shift: int, step: int, out: Ints):
    """Neighbours mostly have the same one: looking is cheaper than dividing (2 ns a row instead of 15)."""
    low = high = np.int64(0)
    for i in range(len(values)):
        value = values[i] - shift
        if value < low or value >= high:
            low = max(value, 0) // step * step
            high = low + step
        out[i] = low


def _places(times: Ints, size: int, advance: int) -> tuple[Ints, Ints]:
    """(row, start) of the windows of this size that hold each time; they start at multiples of `advance` from 0 on."""
    rows = np.arange(len(times), dtype=np.int64)
    starts = _multiples_below(times, size - advance, advance)
    if advance == size:
        return rows, starts
    counts = (times - starts) // advance + 1
    if counts.sum() > _PLACES_MAX:
        raise MemoryError(f"{len(times)} rows fall into {counts.sum()} windows")
    rows = np.repeat(rows, counts)
    within = np.arange(len(rows), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
    return rows, starts[rows] + within * advance
