"""How large a batch may be: so many records and bytes, and fewer records after one for which memory did not suffice.
How many bytes records have is known by samples: who plans batches must not read them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from ...logcore.client import FetchedRows, LogClient, TopicPartition
from ...logcore.errors import LogError
from ...logcore.storage.reader import UNPACKED_TIMES
from ..queries.query import MAX_BATCH_BYTES

SAMPLE_BYTES = 16 * 1024
LANES_MAX = 8  # of which samples are taken: those in which most is waiting
_LONG = 1_000  # records; of a longer stretch more than the beginning is looked at

GROWS_AFTER = 8
"""So many batches of one size are done before a larger one is tried: if that is too large, executors are lost again."""


class BatchSize:
    """Of one query, for its thread. State: `records`, the most that a batch may have now, as offsets are counted."""

    def __init__(self, records_max: int) -> None:
        self._records_max = records_max
        self._planned = 0
        self._done = 0  # of this size
        self.records = records_max

    def bytes_max(self, parallelism: int) -> int:
        """As they are unpacked: what a reader fetches at once if few tasks read, else 16 MiB for each of them."""
        return MAX_BATCH_BYTES * max(UNPACKED_TIMES, parallelism)

    def planned(self, record_count: int) -> None:
        """The next batch has so many records; 0: there is none yet."""
        self._planned = record_count

    def shrink(self, smallest: int) -> bool:
        """The batch that was planned last was too large. False where it was as small as one may get."""
        if self._planned <= smallest or self.records <= smallest:
            return False
        self.records, self._done = max(smallest, min(self.records, self._planned) // 2), 0
        return True

    def done(self) -> None:
        """A batch is done."""
        self._done += 1
        if self.records < self._records_max and self._done >= GROWS_AFTER:
            self.records, self._done = min(self._records_max, 2 * self.records), 0


def bytes_per_record(
    log: LogClient, start: Mapping[TopicPartition, int], waiting: Mapping[TopicPartition, int]
) -> dict[TopicPartition, float]:
    """Of each lane in which something waits, unpacked; of those that were not looked at, as of the others. In: offsets,
    and how many follow."""
    lanes = sorted((lane for lane, count in waiting.items() if count), key=lambda lane: -waiting[lane])
    sizes = {lane: _sampled(log, lane, start[lane], waiting[lane]) for lane in lanes[:LANES_MAX]}
    others = max(sizes.values(), default=0.0)
    return {lane: sizes.get(lane, others) for lane in lanes}


def _sampled(log: LogClient, lane: TopicPartition, start: int, count: int) -> float:
    """The largest of the samples: they are small and far between."""
    places = [start] if count <= _LONG else [start, start + count // 2, start + count * 7 // 8]
    return max(_size_at(log, lane, place) for place in places)


def _size_at(log: LogClient, lane: TopicPartition, offset: int) -> float:
    with contextlib.suppress(LogError):  # whoever reads it finds out
        fetched = log.fetch(*lane, offset, max_bytes=SAMPLE_BYTES)
        tables = [run.table if isinstance(run, FetchedRows) else run.batch for run in fetched.runs]
        rows = sum(table.num_rows for table in tables)
        return sum(table.nbytes for table in tables) / max(1, rows)
    return 0.0
