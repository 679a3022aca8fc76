"""Computes where a query in a Sandbox must stop, so that it reads the rows of a script in the script's order.

A query reads available records in time order (`time_order.py`). So a Sandbox shows it only as many records at once as
that rule leaves in the order of arrival. A row that time order would put before an earlier one comes after the next
stop. Most scripts need only one stop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ...logcore.client import LogClient, TopicPartition
from ...planner.steps.source import Source
from .journal import RecordPlace
from .source_reader import SourceReader, times_only
from .time_order import BEFORE_ALL, lane_ranks

_READ_BYTES = 16 * 1024 * 1024

Ends = dict[TopicPartition, int]


def stops(
    log: LogClient, sources: Sequence[Source], start: Mapping[TopicPartition, int], script: Sequence[RecordPlace]
) -> list[Ends]:
    """The stops, in order: up to which offset the query reads in every partition of `start`. The last one is after all
    records of `script`. In: `script`: places from `start` on, in the order in which they were inserted."""
    if not script:
        return []
    end = dict(start) | {place.at: place.offset + 1 for place in script}
    if len({place.at for place in script}) == 1:
        return [end]
    ranks = lane_ranks(sources, start)
    found: list[Ends] = []
    at, running, last = dict(start), dict[TopicPartition, int](), (int(BEFORE_ALL), -1)
    for lane, offset, time in _in_order(script, _times(log, sources, start, end)):
        running[lane] = max(time, running.get(lane, time))
        if (running[lane], ranks[lane]) < last:
            found.append(dict(at))
            running = {lane: time}
        last = running[lane], ranks[lane]
        at[lane] = offset + 1
    return [*found, end]


def _in_order(
    script: Sequence[RecordPlace], times: Mapping[TopicPartition, deque[tuple[int, int]]]
) -> Iterator[tuple[TopicPartition, int, int]]:
    """Lane, offset and time of each record. Records before a row in its partition come with that row."""
    for place in script:
        waiting = times.get(place.at, deque())
        while waiting and waiting[0][0] <= place.offset:
            yield place.at, *waiting.popleft()


def _times(
    log: LogClient, sources: Sequence[Source], start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> dict[TopicPartition, deque[tuple[int, int]]]:
    """By lane: offset and time of each readable record between `start` and `end`."""
    found: dict[TopicPartition, dict[int, int]] = {}
    reader = SourceReader(log, [times_only(source) for source in sources], start)
    while any(offset < end[lane] for lane, offset in reader.fetch_positions.items()):
        batch = reader.read(_READ_BYTES, end)
        for source_id, changes in () if batch is None else batch.inputs.items():
            assert batch is not None
            rows = changes.rows
            times = batch.times[batch.place(rows["_seq"].to_numpy())]
            for partition in np.unique(rows["_rowpartition"].to_numpy()).tolist():
                mine = rows["_rowpartition"].to_numpy() == partition
                lane = found.setdefault(TopicPartition(batch.topics[source_id], partition), {})
                lane |= dict(zip(rows["_offset"].to_numpy()[mine].tolist(), times[mine].tolist(), strict=True))
    return {lane: deque(sorted(records.items())) for lane, records in found.items()}
