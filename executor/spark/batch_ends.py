"""Finds the end of a batch: the end of the available input, or the maximum of records and bytes of a batch.

If rows of several lanes meet, a limited batch must not run ahead in one lane while older records wait in another. In
that case the reader of the DuckDB executor finds the end; it reads only the columns that determine rowtimes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...logcore.client import LogClient, TopicPartition
from ...logcore.storage.reader import UNPACKED_TIMES
from ...planner.physical import PhysicalPlan
from ..sources.source_reader import SourceReader, times_only
from ..tasks import needs_time_order, partitions_share_tasks
from .batch_size import BatchSize, bytes_per_record
from .lanes import Positions

FEW = 64  # records: so few never exceed the bytes of a batch, even if each is as large as brokers accept
SMALL = 1_000  # records: up to this number, a batch is not sampled if the last sampled records were small enough
_BY_FAR = 16  # small enough: the batch would be this many times below the maximum of bytes


@dataclass(frozen=True, slots=True)
class _Step:
    """One read of the reader that merges lanes by time. `ends`: the position in each lane after it."""

    ends: Mapping[TopicPartition, int]
    record_count: int
    byte_count: int


class BatchEnds:
    """In: `parallelism`: how many tasks may read. State: the reader keeps what it fetched for one end for the next."""

    def __init__(
        self, plan: PhysicalPlan, log: LogClient, size: BatchSize, parallelism: Callable[[], int] = lambda: 1
    ) -> None:
        self._log = log
        self._plan = plan
        self._size = size
        self._parallelism = parallelism
        self._sources = [times_only(source) for source in plan.sources()]
        self._reader: SourceReader | None = None
        self._reader_at: Positions | None = None
        self._next_step: _Step | None = None  # the reader has passed it, but no batch contains it yet
        self._record_bytes: float | None = None  # bytes per record of the lane with the largest records, last sampled

    def available(self, lanes: Mapping[TopicPartition, int]) -> Positions:
        """The offset up to which each lane can be read now."""
        return {lane: max(at, self._log.offsets(*lane).last_stable_offset) for lane, at in lanes.items()}

    def next(self, start: Positions, until: Positions) -> Positions:
        """The end of the batch that begins at `start`; `start` itself if there is nothing to read up to `until`.

        Out: lanes in the order of `start`.
        """
        waiting = {lane: max(0, until[lane] - offset) for lane, offset in start.items()}
        most = self._most(start, waiting)
        if most is None:
            self._reader = None
            ends = {lane: offset + waiting[lane] for lane, offset in start.items()}
        elif len(start) > 1 and (needs_time_order(self._plan) or partitions_share_tasks(self._plan, start)):
            ends = self._by_time(start, until)
        else:
            ends = {lane: offset + most[lane] for lane, offset in start.items()}
        self._size.planned(sum(ends[lane] - offset for lane, offset in start.items()))
        return ends

    def _most(self, start: Positions, waiting: Mapping[TopicPartition, int]) -> dict[TopicPartition, int] | None:
        """The maximum of records of each lane; None if all records fit."""
        total, records_max = sum(waiting.values()), self._size.records
        bytes_max = self._size.bytes_max(self._parallelism())
        if total <= records_max and self._is_small(total, bytes_max):
            return None
        parts = shares(waiting, records_max)
        sizes = bytes_per_record(self._log, start, parts)
        self._record_bytes = max(sizes.values())
        byte_counts = {lane: int(parts[lane] * size) for lane, size in sizes.items()}
        if sum(byte_counts.values()) > bytes_max:
            room = shares(byte_counts, bytes_max)
            for lane, size in sizes.items():
                if room[lane] < byte_counts[lane]:
                    parts[lane] = max(1, int(room[lane] / size))
        return None if parts == waiting else parts

    def _is_small(self, record_count: int, bytes_max: int) -> bool:
        """Whether the records are certainly few bytes. It decides without samples, which take 1 ms for each lane."""
        if record_count <= FEW:
            return True
        known = self._record_bytes
        return known is not None and record_count <= SMALL and _BY_FAR * record_count * known <= bytes_max

    def _by_time(self, start: Positions, until: Positions) -> Positions:
        """The end of as many steps of the reader as fit into the batch. The first step that does not fit is kept for
        the next batch, because the reader cannot go back."""
        reader, kept = self._reader, self._next_step
        if reader is None or self._reader_at != start or (kept is not None and kept.record_count > self._size.records):
            reader, self._next_step = SourceReader(self._log, self._sources, start), None
        ends, bytes_left, records_left = start, self._size.bytes_max(self._parallelism()), self._size.records
        while records_left > 0:
            step = self._next_step or self._step(reader, until, records_left)
            if step is None and ends == start:  # there are only records that readers skip
                self._reader = None
                return {lane: until[lane] for lane in start}
            self._next_step = step
            if step is None or (ends != start and (step.record_count > records_left or step.byte_count > bytes_left)):
                break
            ends = {lane: step.ends[lane] for lane in start}
            bytes_left, records_left = bytes_left - step.byte_count, records_left - step.record_count
            self._next_step = None
        self._reader, self._reader_at = reader, ends
        return ends

    def _step(self, reader: SourceReader, until: Positions, records_max: int) -> _Step | None:
        """The next step; None if nothing is left to read."""
        fetched_max = self._size.bytes_max(self._parallelism()) // UNPACKED_TIMES
        while True:
            before = reader.fetch_positions
            batch = reader.read(fetched_max, until, max_records=records_max)
            if batch is not None:
                return _Step(batch.positions, batch.record_count, batch.byte_count)
            if reader.fetch_positions == before:
                return None


def shares(waiting: Mapping[TopicPartition, int], total: int) -> dict[TopicPartition, int]:
    """Divides `total` among the lanes, as equally as the number of waiting records allows."""
    parts: dict[TopicPartition, int] = {}
    left = total
    for number, (lane, count) in enumerate(sorted(waiting.items(), key=lambda item: item[1])):
        parts[lane] = min(count, left // (len(waiting) - number))
        left -= parts[lane]
    return parts
