"""How large a batch may be, in records and bytes. After a batch that was too large for memory, the next one has fewer
records. Samples show how many bytes records have: the driver plans batches, and must not read all their records."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from ...logcore.client import FetchedRows, LogClient, TopicPartition
from ...logcore.errors import LogError
from ...logcore.storage.reader import UNPACKED_TIMES
from ..queries.query import MAX_BATCH_BYTES

SAMPLE_BYTES = 16 * 1024
LANES_MAX = 8  # how many lanes are sampled: those with the most waiting records
_LONG = 1_000  # records; in longer ranges, samples are taken at more places than the beginning

GROWS_AFTER = 8
"""How many batches of one size are done before a larger one is tried: a batch that is too large loses executors."""


class BatchSize:
    """The batch size of one query; only the query's thread uses it. State: `records`: the current maximum of records in
    a batch, counted in offsets."""

    def __init__(self, records_max: int) -> None:
        self._records_max = records_max
        self._planned = 0
        self._done = 0  # batches of this size
        self.records = records_max

    def bytes_max(self, parallelism: int) -> int:
        """The maximum of unpacked bytes: if few tasks read, what a reader fetches at once; else 16 MiB per task."""
        return MAX_BATCH_BYTES * max(UNPACKED_TIMES, parallelism)

    def planned(self, record_count: int) -> None:
        """Notes the number of records in the next batch; 0: there is none yet."""
        self._planned = record_count

    def shrink(self, smallest: int) -> bool:
        """Makes batches smaller, because the last planned batch was too large. False if it had the minimal size."""
        if self._planned <= smallest or self.records <= smallest:
            return False
        self.records, self._done = max(smallest, min(self.records, self._planned) // 2), 0
        return True

    def done(self) -> None:
        """Notes that a batch is done; after `GROWS_AFTER` of them, batches may become larger again."""
        self._done += 1
        if self.records < self._records_max and self._done >= GROWS_AFTER:
            self.records, self._done = min(self._records_max, 2 * self.records), 0


def bytes_per_record(
    log: LogClient, start: Mapping[TopicPartition, int], waiting: Mapping[TopicPartition, int]
) -> dict[TopicPartition, float]:
    """Unpacked bytes per record of each lane with waiting records. Lanes without a sample get the largest value of the
    others. In: `start`: offsets; `waiting`: how many records follow."""
    lanes = sorted((lane for lane, count in waiting.items() if count), key=lambda lane: -waiting[lane])
    sizes = {lane: _sampled(log, lane, start[lane], waiting[lane]) for lane in lanes[:LANES_MAX]}
    others = max(sizes.values(), default=0.0)
    return {lane: sizes.get(lane, others) for lane in lanes}


def _sampled(log: LogClient, lane: TopicPartition, start: int, count: int) -> float:
    """The largest of the samples, because they are small and few."""
    places = [start] if count <= _LONG else [start, start + count // 2, start + count * 7 // 8]
    return max(_size_at(log, lane, place) for place in places)


def _size_at(log: LogClient, lane: TopicPartition, offset: int) -> float:
    with contextlib.suppress(LogError):  # the reader of the lane reports the error
        fetched = log.fetch(*lane, offset, max_bytes=SAMPLE_BYTES)
        tables = [run.table if isinstance(run, FetchedRows) else run.batch for run in fetched.runs]
        rows = sum(table.num_rows for table in tables)
        return sum(table.nbytes for table in tables) / max(1, rows)
    return 0.0
