"""What readers see of a partition at one moment. Any thread may read."""

from __future__ import annotations

from abc import ABC
from bisect import bisect_right
from typing import Final

from ..client import Isolation
from ..errors import CorruptLog, OffsetOutOfRange, UnknownTopic
from .damage import DamagedRange
from .partition_files import PartitionFiles
from .read_view import ReadableFile, ReadView
from .segment import file_name
from .transaction_index import AbortedRanges

_WAYS_OUT: Final = (
    "Restore its files from a backup; or stop the server and give the lost records up: millstream log accept-loss."
)


class ReadablePartition(PartitionFiles, ABC):
    """Adds nothing to the state."""

    def check_whole(self) -> None:
        """Raises `CorruptLog` if records are known to be lost."""
        for lost in self.lost:
            raise self._lost_error(lost)

    def _lost_error(self, lost: DamagedRange) -> CorruptLog:
        return CorruptLog(f"{self.name} has lost {lost}", hint=_WAYS_OUT)

    def unreadable(self, offset: int, error: CorruptLog) -> CorruptLog:
        """The error for a reader that found damage at this offset."""
        return CorruptLog(f"{self.name} cannot be read from offset {offset} on: {error.message}", hint=_WAYS_OUT)

    def _limit_at_loss(self, offset: int, limit: int) -> int:
        """The end of what can be read from this offset without a gap. Raises `CorruptLog` if nothing can be read."""
        for lost in self.lost:
            if lost.first_offset <= offset < lost.end_offset:
                raise self._lost_error(lost)
            if offset < lost.first_offset:
                limit = min(limit, lost.first_offset)
        return limit

    def written(self) -> ReadView:
        """The whole log, durable or not; used for the log's own topics. Raises `CorruptLog` if records are lost."""
        with self._lock:
            self.check_whole()
            offsets = self.offsets()
            start = offsets.log_start_offset
            files = self._files(start, 1 << 62) if start < offsets.log_end_offset else []
            return ReadView(files, offsets.log_end_offset, self._state.transactions.aborted, offsets)

    def view(self, offset: int, max_bytes: int, isolation: Isolation) -> ReadView:
        """The files that hold the visible records from `offset` on, enough for `max_bytes`.

        Raises `OffsetOutOfRange`, or `CorruptLog` if the records at `offset` are lost.
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
            limit = self._limit_at_loss(offset, limit)
            files = self._files(offset, max_bytes) if offset < limit else []
            return ReadView(files, limit, aborted, offsets)

    def view_from_time(self, timestamp_ms: int) -> ReadView:
        """What every reader sees, starting at or before the first record with this timestamp or a later one."""
        with self._lock:
            offsets = self.offsets()
            first = next((each for each in self._segments if each.newest_ms >= timestamp_ms), None)
            files: list[ReadableFile] = []
            if first is not None:
                position, offset = first.entry_of_time(timestamp_ms)
                files = self._files_from(self._segments.index(first), position, offset, 1 << 62)
            return ReadView(files, offsets.high_watermark, AbortedRanges({}), offsets)

    def newest_ms(self) -> int:
        """The largest timestamp; -1 if there is no record."""
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
