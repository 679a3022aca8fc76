"""Where a batch ends: all there is, or as many records as a batch may have.

Where rows of several lanes meet, a batch that is cut short must not run ahead in one lane while older records wait in
another. Then the reader that the DuckDB executor uses finds the place, with the columns that rowtimes need and no more.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...logcore.client import LogClient, TopicPartition
from ...planner.physical import PhysicalPlan
from ..sources.source_reader import SourceReader, times_only
from ..tasks import needs_time_order
from .lanes import Positions

_READ_BYTES = 64 * 1024 * 1024


class BatchEnds:
    """State: what was fetched to find one end is kept for the next."""

    def __init__(self, plan: PhysicalPlan, log: LogClient, records_max: int) -> None:
        self._log = log
        self._records_max = records_max
        self._sources = [times_only(source) for source in plan.sources()]
        self._time_order = needs_time_order(plan)
        self._reader: SourceReader | None = None
        self._reader_at: Positions | None = None

    def available(self, lanes: Mapping[TopicPartition, int]) -> Positions:
        """Up to where each lane can be read now."""
        return {lane: max(at, self._log.offsets(*lane).last_stable_offset) for lane, at in lanes.items()}

    def next(self, start: Positions, until: Positions) -> Positions:
        """The end of the batch that begins at `start`; `start` itself where there is nothing up to `until`.

        Out: lanes in the order of `start`: Spark compares offsets as text.
        """
        waiting = {lane: max(0, until[lane] - offset) for lane, offset in start.items()}
        if sum(waiting.values()) <= self._records_max:
            self._reader = None
            return {lane: offset + waiting[lane] for lane, offset in start.items()}
        if self._time_order and len(start) > 1:
            return self._by_time(start, until)
        parts = shares(waiting, self._records_max)
        return {lane: offset + parts[lane] for lane, offset in start.items()}

    def _by_time(self, start: Positions, until: Positions) -> Positions:
        reader = self._reader
        if reader is None or self._reader_at != start:
            reader = SourceReader(self._log, self._sources, start)
        while True:
            before = reader.fetch_positions
            batch = reader.read(_READ_BYTES, until, max_records=self._records_max)
            if batch is not None:
                self._reader, self._reader_at = reader, batch.positions
                return {lane: batch.positions[lane] for lane in start}
            if reader.fetch_positions == before:  # nothing but what readers skip
                self._reader = None
                return {lane: until[lane] for lane in start}


def shares(waiting: Mapping[TopicPartition, int], total: int) -> dict[TopicPartition, int]:
    """Parts of `total`, as equal as what is waiting allows."""
    parts: dict[TopicPartition, int] = {}
    left = total
    for number, (lane, count) in enumerate(sorted(waiting.items(), key=lambda item: item[1])):
        parts[lane] = min(count, left // (len(waiting) - number))
        left -= parts[lane]
    return parts
