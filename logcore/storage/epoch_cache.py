"""Where each leader epoch of a partition's log begins. Two replicas compare this to find where their logs diverge.

The rule is that of KIP-101 and KIP-279: truncate by epoch and end offset, never by high watermark. The log of a single
node has one epoch, 0.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

NO_EPOCH: Final = -1


class EpochStart(NamedTuple):
    epoch: int
    offset: int


class EpochBoundary(NamedTuple):
    """`end_offset` is the offset after the last record of the epoch."""

    epoch: int
    end_offset: int


class EpochCache:
    """State: one entry per epoch that wrote to the log. Invariant: epochs and offsets increase.

    One thread at a time may change it; others may read it meanwhile."""

    def __init__(self, starts: Iterable[tuple[int, int]] = ()) -> None:
        self._starts = [EpochStart(*start) for start in starts]

    @property
    def last(self) -> int:
        """The epoch of the last batch; `NO_EPOCH` for a log without batches."""
        return self._starts[-1].epoch if self._starts else NO_EPOCH

    @property
    def starts(self) -> tuple[EpochStart, ...]:
        return tuple(self._starts)

    def note(self, epoch: int, offset: int) -> None:
        """Records a batch of this epoch at this offset, the end of the log.

        An earlier epoch changes nothing: a replica does not accept such a batch.
        """
        if epoch > self.last:
            self._starts.append(EpochStart(epoch, offset))

    def at(self, offset: int) -> int:
        """The epoch of the batch at this offset. Offsets before the log's start belong to its first epoch."""
        starts = self._starts
        if not starts:
            return NO_EPOCH
        if offset >= starts[-1].offset:
            return starts[-1].epoch
        found = bisect_right(starts, offset, key=lambda start: start.offset)
        return starts[max(found - 1, 0)].epoch

    def split(self, first_offset: int, end_offset: int) -> Iterator[EpochStart]:
        """Splits a range of offsets into parts of one epoch each: the epoch and the first offset of each part."""
        yield EpochStart(self.at(first_offset), first_offset)
        yield from (start for start in self._starts if first_offset < start.offset < end_offset)

    def end_of(self, epoch: int, log_end_offset: int, log_start_offset: int) -> EpochBoundary:
        """The end of the newest epoch up to `epoch`; `NO_EPOCH` at the log's start if the log has no such epoch."""
        starts = self._starts
        found = bisect_right(starts, epoch, key=lambda start: start.epoch)
        if found == 0:
            return EpochBoundary(NO_EPOCH, min(log_start_offset, log_end_offset))
        end = starts[found].offset if found < len(starts) else log_end_offset
        return EpochBoundary(starts[found - 1].epoch, end)

    def truncate(self, offset: int) -> None:
        """The log ends at this offset now."""
        while self._starts and self._starts[-1].offset >= offset:
            self._starts.pop()

    def start_at(self, offset: int) -> None:
        """The log begins at this offset now. A thread that reads meanwhile sees the cache before or after this."""
        starts = self._starts[max(bisect_right(self._starts, offset, key=lambda start: start.offset) - 1, 0) :]
        if starts and starts[0].offset < offset:
            starts[0] = EpochStart(starts[0].epoch, offset)
        self._starts = starts

    def copy(self) -> EpochCache:
        return EpochCache(self._starts)

    def to_json(self) -> list[EpochStart]:
        return list(self._starts)
