"""The batches of a run: the end of each batch, and what each task reads."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...logcore.client import LogClient
from .batch_ends import BatchEnds
from .batch_size import BatchSize
from .homes.known_homes import KnownHomes
from .lanes import LaneRange, Positions
from .markers import NOTHING_SENT, BatchId, SentRange
from .stages import Stages, Subplan

WAIT_S = 0.2  # how long planning a batch may wait for records: this often a query notices that it should stop


@dataclass(frozen=True, slots=True)
class Round:
    """One subplan's part of a batch, which is one Spark job. `tasks`: the ranges that each task reads; none is empty.
    `topics`: the topics of the batch, as in its `BatchRecord`. `homes`: those of the subplan's buckets."""

    batch: BatchId
    subplan: int
    tasks: Sequence[Sequence[LaneRange]]
    topics: Mapping[str, int]
    homes: KnownHomes

    @property
    def record_count(self) -> int:
        """The number of offsets, so it includes control records and records that compaction has removed."""
        return sum(lane_range.end - lane_range.start for task in self.tasks for lane_range in task)


class BatchPlanner:
    """Finds the end of one batch after the other, in the driver process."""

    def __init__(self, stages: Stages, log: LogClient, size: BatchSize, parallelism: Callable[[], int]) -> None:
        self._log = log
        self._ends = BatchEnds(stages.plan, log, size, parallelism)

    def next(self, start: Positions, until: Positions | None = None) -> Positions | None:
        """The end of the batch that begins at `start`; None if there is nothing to read.

        In: `until`: where reading ends. Without it, this waits up to `WAIT_S` for records.
        """
        if until is None:
            self._log.wait(start, WAIT_S)
        ends = self._ends.next(start, until or self._ends.available(start))
        return None if ends == start else ends

    def available(self, start: Positions) -> Positions:
        """The offset up to which each lane can be read now."""
        return self._ends.available(start)


def ranges_of_subplan(
    stages: Stages, subplan: Subplan, read: Sequence[LaneRange], sent: Mapping[int, SentRange]
) -> list[LaneRange]:
    """What the subplan reads of a batch: ranges of its topics, and the rows that the buckets of its feeders have sent
    in this batch."""
    topics = {chain.source.topic for chain in subplan.chains}
    ranges = [lane_range for lane_range in read if lane_range.lane.topic in topics]
    for bucket in (bucket for feeder in subplan.feeders for bucket in feeder.buckets):
        start, end = sent.get(bucket, NOTHING_SENT)
        if end > start:
            ranges.append(LaneRange(stages.lane_of(bucket), start, end))
    return ranges


def ranges_of_tasks(subplan: Subplan, ranges: Sequence[LaneRange], parallelism: int) -> list[list[LaneRange]]:
    """The ranges that each task reads. If rows stay in the task that reads them, one task reads all lanes of a
    bucket."""
    together: dict[int, list[LaneRange]] = {}
    for number, lane_range in enumerate(ranges):
        key = number if subplan.shuffled else subplan.bucket_of(lane_range.lane.partition)
        together.setdefault(key, []).append(lane_range)
    tasks: list[list[LaneRange]] = [[] for _ in range(max(1, parallelism))]
    least = [(0, number) for number in range(len(tasks))]
    for lanes in sorted(together.values(), key=_size, reverse=True):
        size, number = heapq.heappop(least)
        tasks[number].extend(lanes)
        heapq.heappush(least, (size + _size(lanes), number))
    return [task for task in tasks if task]


def _size(ranges: Sequence[LaneRange]) -> int:
    return sum(lane_range.end - lane_range.start for lane_range in ranges)
