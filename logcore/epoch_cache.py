"""Where each leader epoch of a partition's log begins: what two replicas compare to find where they part.

The rule is that of KIP-101 and KIP-279: truncation by epoch and end offset, never by high watermark.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

NO_EPOCH: Final = -1


class EpochStart(NamedTuple):
    epoch: int
    offset: int


class EpochEnd(NamedTuple):
    """`end_offset` is the offset after the last record of the epoch."""

    epoch: int
    end_offset: int


class EpochCache:
    """State: one entry per epoch that wrote to the log. Invariant: epochs and offsets grow."""

    def __init__(self, starts: Iterable[tuple[int, int]] = ()) -> None:
        self._starts = [EpochStart(*start) for start in starts]

    @property
    def last(self) -> int:
        """The epoch of the last batch, `NO_EPOCH` for a log that has none."""
        return self._starts[-1].epoch if self._starts else NO_EPOCH

    @property
    def starts(self) -> tuple[EpochStart, ...]:
        return tuple(self._starts)

    def note(self, epoch: int, offset: int) -> None:
        """Takes in a batch of this epoch at this offset, the end of the log. Raises ValueError for an epoch gone by."""
        if epoch < self.last:
            raise ValueError(f"a batch of leader epoch {epoch} after one of epoch {self.last}")
        if epoch > self.last:
            self._starts.append(EpochStart(epoch, offset))

    def end_of(self, epoch: int, log_end_offset: int, log_start_offset: int) -> EpochEnd:
        """The end of the newest epoch up to `epoch`; `NO_EPOCH` at the log's start where the log has none of them."""
        found = bisect_right(self._starts, epoch, key=lambda start: start.epoch)
        if found == 0:
            return EpochEnd(NO_EPOCH, min(log_start_offset, log_end_offset))
        end = self._starts[found].offset if found < len(self._starts) else log_end_offset
        return EpochEnd(self._starts[found - 1].epoch, end)

    def truncate(self, offset: int) -> None:
        """The log ends at this offset now."""
        while self._starts and self._starts[-1].offset >= offset:
            self._starts.pop()

    def start_at(self, offset: int) -> None:
        """The log begins at this offset now."""
        while len(self._starts) > 1 and self._starts[1].offset <= offset:
            del self._starts[0]
        if self._starts and self._starts[0].offset < offset:
            self._starts[0] = EpochStart(self._starts[0].epoch, offset)

    def clear(self) -> None:
        self._starts.clear()
