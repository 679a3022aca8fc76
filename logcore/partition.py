"""One partition: what readers may see, what is kept, and its life. Appending: `partition_tail.py`; topics: `log.py`."""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from .cleaning_state import CleaningState
from .client import Isolation, Offsets
from .errors import CorruptLog, LogWriteFailed, OffsetOutOfRange, UnknownTopic
from .failpoints import fp
from .partition_tail import Appended, Mark, PartitionContext, PartitionTail
from .read_view import ReadableFile, ReadView
from .segment import Segment, file_name
from .segment_swap import swap
from .transaction_index import AbortedRanges

__all__ = ["Appended", "Mark", "Partition", "PartitionContext", "Snapshot"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`segments`: oldest first, the last one is being written. `last_batches`: base offset of the last batch of each
    producer, as far as it is known."""

    segments: Sequence[Segment]
    log_start_offset: int
    last_stable_offset: int
    aborted: AbortedRanges
    last_batches: frozenset[int]
    cleaning: CleaningState


class Partition(PartitionTail):
    """A part of a topic. Any thread may call any method."""

    # Reading

    def offsets(self) -> Offsets:
        with self._lock:
            last_stable_offset = self._state.transactions.first_open_offset(self._high_watermark)
            return Offsets(self._log_start_offset, last_stable_offset, self._high_watermark, self._state.end_offset)

    @property
    def log_start_offset(self) -> int:
        """The first that can be read."""
        return self._log_start_offset

    @property
    def last_stable_offset(self) -> int:
        return self.offsets().last_stable_offset

    def written(self) -> ReadView:
        """All that is in the log, durable or not: for the log's own topics."""
        with self._lock:
            offsets = self.offsets()
            start = offsets.log_start_offset
            files = self._files(start, 1 << 62) if start < offsets.log_end_offset else []
            return ReadView(files, offsets.log_end_offset, self._state.transactions.aborted, offsets)

    def view(self, offset: int, max_bytes: int, isolation: Isolation) -> ReadView:
        """The files that hold what is visible from `offset` on, as many as `max_bytes` may need.

        Raises `OffsetOutOfRange`, or `CorruptLog` where the records at `offset` are lost.
        """
        with self._lock:
            if self._deleted:
                raise UnknownTopic(f"{self.name} was deleted")
            offsets = self.offsets()
            if not offsets.log_start_offset <= offset <= offsets.log_end_offset:
                raise OffsetOutOfRange(
                    f"offset {offset} of {self.name} is not in the log, which has"
                    f" {offsets.log_start_offset} to {offsets.log_end_offset}",
                    hint="Start at the log start offset, or at the end.",
                )
            limit, aborted = offsets.high_watermark, AbortedRanges({})
            if isolation == "read_committed":
                limit, aborted = offsets.last_stable_offset, self._state.transactions.aborted
            files = self._files(offset, max_bytes) if offset < limit else []
            return ReadView(files, limit, aborted, offsets)

    def view_from_time(self, timestamp_ms: int) -> ReadView:
        """What everybody sees from the first record on that has this timestamp or a later one, or some before it."""
        with self._lock:
            offsets = self.offsets()
            first = next((each for each in self._segments if each.newest_ms >= timestamp_ms), None)
            files: list[ReadableFile] = []
            if first is not None:
                position, offset = first.entry_of_time(timestamp_ms)
                files = self._files_from(self._segments.index(first), position, offset, 1 << 62)
            return ReadView(files, offsets.high_watermark, AbortedRanges({}), offsets)

    def newest_ms(self) -> int:
        """The largest timestamp; -1 where there is no record."""
        with self._lock:
            return max(segment.newest_ms for segment in self._segments)

    def _files(self, offset: int, max_bytes: int) -> list[ReadableFile]:
        first = bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1
        if first < 0:
            path = self._folder / file_name(offset)
            raise CorruptLog(f"{path} is missing", hint="Restore it from a backup, or go on behind it.")
        return self._files_from(first, *self._segments[first].position_before(offset), max_bytes)

    def _files_from(self, first: int, position: int, offset: int, max_bytes: int) -> list[ReadableFile]:
        files: list[ReadableFile] = []
        for segment in self._segments[first:]:
            files.append(ReadableFile(segment, segment.file, position, segment.size, offset))
            max_bytes -= segment.size - position
            position = 0
            offset = segment.base_offset
            if max_bytes <= 0:
                break
        return files

    # Life

    def start_segment(self) -> int:
        """Closes the active segment, so that what is before it can be dropped; returns the first offset of the next."""
        with self._lock:
            self.check_usable()
            if self._active.size:
                self._roll()
            return self._active.base_offset

    def drop_before(self, offset: int) -> int:
        """Removes the segments that end at or before `offset`, and lets the log start there; returns where it does.

        What belongs to an open transaction stays. Raises `LogError`.
        """
        with self._lock:
            self.check_usable()
            self.sync_all()
            self._log_start_offset = max(self._log_start_offset, min(offset, self.last_stable_offset))
            self._state.transactions.forget_before(self._log_start_offset)
            if not self._checkpoint(durable=self._sync_needed):
                return self._log_start_offset
            fp("retention.noted")
            segments = self._segments
            gone = [old for old, following in pairwise(segments) if following.base_offset <= self._log_start_offset]
            self._segments = segments[len(gone) :]
            for segment in gone:
                _remove(segment)
                fp("retention.removed")
            return self._log_start_offset

    # Housekeeping

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def is_idle(self) -> bool:
        """True where nothing can be done to it."""
        return self._deleted or self._closed or self._failure is not None

    def roll_if_old(self, age_ms_max: int | None = None) -> None:
        """Ends the active segment where it has had its time, so that retention and compaction come to it."""
        with self._lock:
            old = age_ms_max is not None and self._now_ms() - self._active.written_ms > age_ms_max
            if self._active.size and (old or self._is_old()):
                self._roll()

    def segments(self) -> Sequence[Segment]:
        """Oldest first; the last one is being written."""
        with self._lock:
            return self._segments

    @property
    def size_on_disk(self) -> int:
        """Bytes of records."""
        with self._lock:
            return sum(segment.size for segment in self._segments)

    def snapshot(self) -> Snapshot:
        """What compaction has to know, as of one moment."""
        with self._lock:
            offsets = self.offsets()
            return Snapshot(
                self._segments,
                offsets.log_start_offset,
                offsets.last_stable_offset,
                self._state.transactions.aborted,
                self._state.producers.last_offsets(),
                self._cleaning,
            )

    def replace(self, old: Sequence[Segment]) -> bool:
        """Puts the cleaned file of the first of these segments in the place of all; False where one is gone already.

        Raises `LogError`, OSError.
        """
        with self._lock:
            self.check_usable()
            self.sync_all()
            first = self._segments.index(old[0]) if old[0] in self._segments else -1
            if first < 0 or list(self._segments[first : first + len(old)]) != list(old):
                return False
            if not self._checkpoint(durable=self._sync_needed):  # the one on disk may name a segment that goes now
                raise LogWriteFailed(f"the checkpoint of {self.name} could not be written", hint="Check the disk.")
            swap(self._folder, [segment.base_offset for segment in old], durable=self._sync_needed)
            for segment in old:
                self._files_open.forget(segment)
                segment.let_go()
            cleaned = Segment(self._folder, old[0].base_offset, self._files_open)
            self._segments = [*self._segments[:first], cleaned, *self._segments[first + len(old) :]]
            return True

    def note_cleaned(self, cleaning: CleaningState) -> None:
        """Remembers a pass whose segments are all in place."""
        with self._lock:
            self._cleaning = cleaning
            self._state.transactions.forget_cleaned(cleaning.cleaned_to)
            self._checkpointed = False

    def expire_producers(self, age_ms_max: int) -> None:
        """Forgets producers that have not written for so long."""
        with self._lock:
            keep = {transaction.producer_id for transaction in self._state.transactions.open}
            if self._state.producers.expire(self._now_ms() - age_ms_max, keep):
                self._checkpointed = False

    def mark_deleted(self) -> None:
        with self._lock:
            self._deleted = True
            self._forget_files()
            self._lock.notify_all()

    def _forget_files(self) -> None:
        for segment in self._segments:
            self._files_open.forget(segment)
            segment.let_go()

    def close(self) -> None:
        """Makes everything durable and notes where the log ends, so that the next opening reads nothing."""
        with self._lock:
            if self._deleted or self._closed or self._failure is not None:
                return
            try:
                self.sync_all()
                self._trim()
                if not self._checkpointed:
                    self._checkpoint(durable=self._sync_needed)
            finally:
                self._closed = True
                self._active.seal()
                self._forget_files()
                self._lock.notify_all()

    def _trim(self) -> None:
        try:
            self._active.trim()
        except OSError:
            return  # the next opening finds zeros at the end, and knows what they are

    @property
    def usable(self) -> bool:
        """False once the disk refused something that could not be taken back."""
        return self._failure is None


def _remove(segment: Segment) -> None:
    """What cannot be removed now goes when the partition is opened next: the log start offset says so."""
    with contextlib.suppress(OSError):
        segment.remove()
