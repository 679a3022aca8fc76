"""Retention, compaction, deletion and closing of a partition. `housekeeping.py` calls it, from its own thread."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..compaction.cleaning_state import CleaningState
from ..compaction.segment_swap import swap
from ..errors import LogWriteFailed
from ..failpoints import fp
from .epoch_cache import EpochCache
from .partition_reading import ReadablePartition
from .segment import Segment
from .transaction_index import AbortedRanges


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """`segments`: oldest first; the last one is being written. `last_batches`: base offset of the last batch of each
    known producer."""

    segments: Sequence[Segment]
    log_start_offset: int
    last_stable_offset: int
    aborted: AbortedRanges
    last_batches: frozenset[int]
    cleaning: CleaningState
    epochs: EpochCache


class KeptPartition(ReadablePartition, ABC):
    """Adds nothing to the state."""

    @abstractmethod
    def drop_before(self, offset: int) -> int:
        """Moves the log start offset to `offset` and removes the segments before it. Returns the new log start offset.

        Records of an open transaction are kept. Raises `LogError`.
        """

    def _sync_everything(self) -> None:
        """In: the lock is held. Other threads may append while a sync waits for another one, so it repeats until
        nothing is left. Raises `LogError`."""
        self.sync_all()
        while self._state.end_offset != self._durable_offset:
            self.sync_all()

    def _remove_before(self, offset: int) -> bool:
        """Removes the segments that end at or before `offset`. True if there were any. In: everything that the next
        start needs from them is durable elsewhere."""
        with self._lock:
            segments = self._segments
            gone = [old for old, following in pairwise(segments) if following.base_offset <= offset]
            self._segments = segments[len(gone) :]
        for segment in gone:
            fp("retention.removed")
            _remove(segment)
        return bool(gone)

    # Housekeeping

    def roll_if_old(self, age_ms_max: int | None = None) -> None:
        """Closes the active segment if it is old, so that retention and compaction can process it."""
        with self._lock:
            now_ms = self._now_ms()
            old = age_ms_max is not None and now_ms - self._active.written_ms > age_ms_max
            if self._active.size and (old or self._is_old(now_ms)):
                self._roll()

    def snapshot(self) -> PartitionSnapshot:
        """What compaction needs to know, as of one moment."""
        with self._lock:
            offsets = self.offsets()
            return PartitionSnapshot(
                self._segments,
                offsets.log_start_offset,
                offsets.last_stable_offset,
                self._state.transactions.aborted,
                self._state.producers.last_offsets(),
                self._cleaning,
                self._state.epochs.copy(),
            )

    def replace(self, old: Sequence[Segment]) -> bool:
        """Replaces all these segments by the cleaned file of the first one. False if one of them is already gone.

        Raises `LogError`, OSError.
        """
        with self._lock:
            self.check_usable()
            self._sync_everything()
            first = self._segments.index(old[0]) if old[0] in self._segments else -1
            if first < 0 or list(self._segments[first : first + len(old)]) != list(old):
                return False
            if not self._checkpoint(durable=self._sync_needed):  # the one on disk may name a segment removed below
                raise LogWriteFailed(f"the checkpoint of {self.name} could not be written", hint="Check the disk.")
            swap(self._folder, [segment.base_offset for segment in old], durable=self._sync_needed)
            for segment in old:
                self._files_open.forget(segment)
                segment.let_go()
            cleaned = Segment(self._folder, old[0].base_offset, self._files_open)
            self._segments = [*self._segments[:first], cleaned, *self._segments[first + len(old) :]]
            return True

    def note_cleaned(self, cleaning: CleaningState) -> None:
        """Records a finished pass of compaction, whose segments are all in place."""
        with self._lock:
            self._cleaning = cleaning
            self._state.transactions.forget_cleaned(cleaning.cleaned_to)
            self._checkpointed = False

    def expire_producers(self, age_ms_max: int) -> None:
        """Forgets producers that have not written for `age_ms_max`."""
        with self._lock:
            keep = {transaction.producer_id for transaction in self._state.transactions.open}
            if self._state.producers.expire(self._now_ms() - age_ms_max, keep):
                self._checkpointed = False

    def mark_deleted(self) -> None:
        with self._lock:
            self._deleted = True
            self._forget_files()
            self._changed.notify_all()

    def close(self) -> None:
        """Makes everything durable and writes a checkpoint, so that the next start reads no segments."""
        with self._lock:
            if self._deleted or self._closed or self._failure is not None:
                return
            try:
                self._sync_everything()
                self._trim()
                if not self._checkpointed:
                    self._checkpoint(durable=self._sync_needed)
            finally:
                self._closed = True
                self._active.seal()
                self._forget_files()
                self._changed.notify_all()

    def _trim(self) -> None:
        try:
            self._active.trim()
        except OSError:
            return  # the next start recognizes the zeros at the end as preallocated space


def _remove(segment: Segment) -> None:
    """If the removal fails, the next start repeats it, because the segment lies below the log start offset."""
    with contextlib.suppress(OSError):
        segment.remove()
