"""The order in which a query reads the records of several partitions. All executors use this one rule.

A query reads the available records, and does not wait for others:

1. The records of a partition keep their order.
2. Of the next records of all partitions, the one with the smallest time goes first.
3. At equal times, a table's record goes before a stream's, so that a stream's record joins the table row of its own
   time. Then the order of the sources in the statement decides, then the partition.

So a late record goes right after the previous record of its partition: its time counts as the largest time so far in
the partition. Records that cannot be read have no time, and do not affect the order.

*Catching up*: everything is available, and the rule alone decides. As long as a partition has more records than were
fetched, records later than its last fetched one wait, because its next records may be older. So the order does not
depend on where batches end or where a query restarts. *Live*: a record goes at once if no other is available; an older
record that arrives later does not change that. A Sandbox is live: the rows of a script arrive one by one
(`arrivals.py`).

DuckDB's reader (`source_reader.py`), the ends of Spark's batches (`batch_ends.py`) and the merging in Spark's tasks
(`merging.py`) all use the functions below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ...logcore.client import TopicPartition
from ...planner.steps.source import Source

Times = npt.NDArray[np.int64]

BEFORE_ALL = np.iinfo(np.int64).min


def tables_first(sources: Sequence[Source]) -> tuple[Source, ...]:
    """The sources in the order of their records at equal times."""
    return tuple(sorted(sources, key=lambda source: source.kind != "TABLE"))


def topics_in_order(sources: Sequence[Source]) -> list[str]:
    """The topics in the order of their records at equal times."""
    return list(dict.fromkeys(source.topic for source in tables_first(sources)))


def lane_ranks(sources: Sequence[Source], lanes: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
    """The rank of each lane at equal times."""
    topics = topics_in_order(sources)
    ordered = sorted(set(lanes), key=lambda lane: (topics.index(lane.topic), lane.partition))
    return {lane: rank for rank, lane in enumerate(ordered)}


def running_maximum(times: Times, before: int = BEFORE_ALL) -> Times:
    """The largest time up to and including each position, and at least `before`."""
    running = np.maximum.accumulate(times)
    return np.maximum(running, before) if before > BEFORE_ALL else running


def ready_counts(lanes: Sequence[Times], complete: Sequence[bool]) -> list[int]:
    """How many records of each lane can go now.

    In: for each lane, in the order that decides ties: the running maxima of its fetched records, and whether these are
    all available records. An incomplete lane without records holds back all others.
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
