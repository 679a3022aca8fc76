"""The order in which a query sees the records of several partitions.

Each partition keeps its own order. Between partitions the smaller timestamp goes first, where a record counts as late
as the latest one before it in its partition: it waits for that one. Where timestamps are equal, tables go before
streams, so that a stream's record meets the table row of its own time; then the order of the sources decides, then the
partition. As long as a partition has more records than were fetched, records that are later than its last fetched one
wait: what is still to come may be older.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ...planner.steps.source import Source

Times = npt.NDArray[np.int64]

BEFORE_ALL = np.iinfo(np.int64).min


def tables_first(sources: Sequence[Source]) -> tuple[Source, ...]:
    """The sources in the order in which their records of one time go."""
    return tuple(sorted(sources, key=lambda source: source.kind != "TABLE"))


def running_maximum(times: Times, before: int = BEFORE_ALL) -> Times:
    """The largest time up to and including each position, and at least `before`."""
    running = np.maximum.accumulate(times)
    return np.maximum(running, before) if before > BEFORE_ALL else running


def ready_counts(lanes: Sequence[Times], complete: Sequence[bool]) -> list[int]:
    """How many records of each lane can go now.

    In: per lane, in the order of ties, the running maxima of its fetched records, and whether these are all there are.
    An incomplete lane without records holds back all others.
    """
    bound: tuple[int, int] | None = None
    for index, (times, done) in enumerate(zip(lanes, complete, strict=True)):
        if not done:
            last = (int(times[-1]) if len(times) else int(BEFORE_ALL), index)
            bound = last if bound is None else min(bound, last)
    if bound is None:
        return [len(times) for times in lanes]
    limit, limiting = bound
    return [
        int(np.searchsorted(times, limit, side="right" if index <= limiting else "left"))
        for index, times in enumerate(lanes)
    ]


def ranks(times: Times) -> npt.NDArray[np.int64]:
    """The place of each record in the merged order. In: running maxima, lane after lane in the order of ties."""
    order = np.argsort(times, kind="stable")
    result = np.empty(len(times), np.int64)
    result[order] = np.arange(len(times), dtype=np.int64)
    return result
