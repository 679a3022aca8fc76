"""How large a batch may be: so many records and bytes, and fewer records after one for which memory did not suffice."""

from __future__ import annotations

from ...logcore.storage.reader import UNPACKED_TIMES
from ..queries.query import MAX_BATCH_BYTES

GROWS_AFTER = 16
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

    def shrink(self) -> bool:
        """The batch that was planned last was too large. False where no smaller one can help."""
        if self._planned <= 1 or self.records <= 1:
            return False
        self.records, self._done = max(1, min(self.records, self._planned) // 2), 0
        return True

    def done(self) -> None:
        """A batch is done."""
        self._done += 1
        if self.records < self._records_max and self._done >= GROWS_AFTER:
            self.records, self._done = min(self._records_max, 2 * self.records), 0
