"""The batches of a run: where each ends, and what each task reads of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...logcore.client import LogClient
from .batch_ends import BatchEnds
from .lanes import LaneRange, Positions, ranges_between
from .stages import Stages

WAIT_S = 0.2  # how long planning a batch may wait for records: this often a query notices that it should stop


@dataclass(frozen=True, slots=True)
class Batch:
    """From `start` to `ends` in every lane. `tasks`: the ranges that each task reads; none is empty."""

    start: Positions
    ends: Positions
    tasks: Sequence[Sequence[LaneRange]]

    @property
    def record_count(self) -> int:
        """Offsets, so that control records and what compaction took away count as well."""
        return sum(lane_range.end - lane_range.start for task in self.tasks for lane_range in task)


class BatchPlanner:
    """Plans one batch after the other, in the process that drives Spark."""

    def __init__(self, stages: Stages, log: LogClient, records_max: int) -> None:
        self._stages = stages
        self._log = log
        self._ends = BatchEnds(stages.plan, log, records_max)

    def next(self, start: Positions, parallelism: int, until: Positions | None = None) -> Batch | None:
        """The batch that begins at `start`, in `parallelism` tasks at most; None where nothing is there to read.

        In: `until`: where reading ends; without it the batch may wait a little for records.
        """
        if until is None:
            self._log.wait(start, WAIT_S)
        ends = self._ends.next(start, until or self._ends.available(start))
        if ends == start:
            return None
        return Batch(start, ends, ranges_of_tasks(self._stages, ranges_between(start, ends), parallelism))

    def available(self, start: Positions) -> Positions:
        """Up to where each lane can be read now."""
        return self._ends.available(start)


def ranges_of_tasks(stages: Stages, ranges: Sequence[LaneRange], parallelism: int) -> list[list[LaneRange]]:
    """The ranges that each task reads; lanes of one bucket stay together where rows stay with the task that reads
    them."""
    together: dict[int, list[LaneRange]] = {}
    for number, lane_range in enumerate(ranges):
        key = number if stages.shuffled else stages.bucket_of(lane_range.lane.partition)
        together.setdefault(key, []).append(lane_range)
    tasks: list[list[LaneRange]] = [[] for _ in range(max(1, parallelism))]
    for lanes in sorted(together.values(), key=_size, reverse=True):
        min(tasks, key=_size).extend(lanes)
    return [task for task in tasks if task]


def _size(ranges: Sequence[LaneRange]) -> int:
    return sum(lane_range.end - lane_range.start for lane_range in ranges)
