"""The log of a replica in files: what the machine appends and truncates, how syncs make it durable, what readers see.

The machine (in the node's thread) appends; the node's storage thread syncs; readers and housekeeping use threads of
their own. Readers see only what the machine has published.
"""

from __future__ import annotations

import contextlib
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from millstream.errors import LogError

from ...compaction.cleaning_state import CleaningState
from ...errors import FULL, CorruptLog, LogFull, write_error
from ...failpoints import fp
from ...records.batch import EncodedBatch
from ...storage.damage import DamagedRange
from ...storage.disk import LogFile, sync_folder
from ...storage.durable_point import DurablePoint
from ...storage.epoch_cache import EpochCache
from ...storage.partition_files import CHECKPOINT_BYTES, PartitionContext
from ...storage.partition_keeping import KeptPartition
from ...storage.partition_state import LogState
from ...storage.read_view import ReadableFile
from ...storage.recovery import CHECKPOINT, Checkpoint, create_segment, read_checkpoint
from ...storage.segment import Segment, file_name
from ...topic_settings import TopicSettings
from .disk_checkpoint import EARLIER, Noted, ReplicaCheckpoint
from .disk_reading import from_offset, read_batches
from .disk_recovery import RESCAN, recover_replica
from .disk_room import DiskRoom

_Result = TypeVar("_Result")


class _Unsynced(NamedTuple):
    """What one sync makes durable, as of its start."""

    rolled: list[Segment]
    active: LogFile
    end_offset: int
    log_start_offset: int
    bytes: int
    names: bool  # there are new file names
    checkpoint: Noted | None  # to be written once the rest is durable


class DiskLog(KeptPartition):
    """A `ReplicaLog`, and a partition for readers and housekeeping.

    State: the segments that ended since the last sync, and how much was written since the last checkpoint. Appending
    makes nothing durable; `sync_all` does. After a failed sync the log accepts nothing more (R17).
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        settings: TopicSettings,
        context: PartitionContext,
        room: DiskRoom | None = None,
        *,
        alone: bool = False,
    ) -> None:
        """In: `room`: reports a full disk; `alone`: no other node has a copy, or ever will. Raises OSError,
        `CorruptLog`."""
        self._point = DurablePoint(folder, context.files)
        found = recover_replica(
            folder, context.files, context.now_ms(), self._point, durable=context.durable, alone=alone
        )
        super().__init__(name, folder, settings, context, found.recovered)
        self.clean = found.clean
        self._alone = alone
        self._published_stable = self._high_watermark = self._log_start_offset
        self._rolled: list[Segment] = []
        self._on_cut = context.on_cut
        self._room = room or DiskRoom()
        noted_segment = found.recovered.noted_segment
        self._noted = ReplicaCheckpoint(
            folder, self._room, noted_segment, self._log_start_offset, durable=context.durable
        )
        self._named = self._noted.exists
        self._unnoted_bytes = 0
        self._syncs_begun = self._synced = 0  # the number of syncs, and the number of the last successful one
        if self.whole:
            self._note_recovered()

    def _note_recovered(self) -> None:
        """Notes that what recovery has found is durable from now on: readers and leaders rely on it, so it would be
        damage if the next start did not find it. A full disk keeps no log from being opened. Raises OSError."""
        if self._state.end_offset > self._point.noted_end_offset:
            try:
                self._point.note_synced(self._state.end_offset, self._log_start_offset)
            except OSError as error:
                if error.errno not in FULL:
                    raise

    def note_loss(self) -> None:
        """Accepts the log as it is, although more was durable once. A cluster remembers that it was not clean; on a
        node that is alone, the checkpoint records the loss from now on. Raises OSError."""
        with self._lock:
            self._write_checkpoint(self._current_checkpoint(), durable=True)
            self._point.note(self._state.end_offset, durably=True)
            (self._folder / RESCAN).unlink(missing_ok=True)
            sync_folder(self._folder)

    # For the machine

    @property
    def end_offset(self) -> int:
        return self._state.end_offset

    @property
    def whole(self) -> bool:
        """See `ReplicaLog`."""
        return self.clean and not self.damage

    @property
    def lost(self) -> tuple[DamagedRange, ...]:
        """In a cluster nothing: the log was truncated before the loss, and what it has there was written since."""
        return super().lost if self._alone else ()

    @property
    def state(self) -> LogState:
        return self._state

    @property
    def epochs(self) -> EpochCache:
        return self._state.epochs

    def append(self, batches: Sequence[EncodedBatch]) -> None:
        """See `ReplicaLog`. Raises `LogFull`, `LogWriteFailed`."""
        size = 0
        for batch in batches:
            size += batch.header.size
        with self._lock:
            self.check_usable()
            first_offset = self._state.end_offset
            try:
                self._append(batches, size)
            except LogFull as error:
                self._room.records_refused(self._folder, self.name, size, error.message)
                raise
            self._room.records_taken(self._folder, size)
            self._unnoted_bytes += size
            self.traffic.note_appended(self._state.end_offset - first_offset, size)

    def _append(self, batches: Sequence[EncodedBatch], size: int) -> None:
        now_ms = self._now_ms()
        if not self._fits(size, now_ms):
            self._roll()
        try:
            if self._sync_needed:
                self._point.reserve()
            self._store(batches, now_ms)
        except OSError as error:
            self._active.take_back()
            raise write_error(error, f"to {self.name}") from error

    def read(self, offset: int, limit: int, max_bytes: int) -> Sequence[EncodedBatch]:
        """See `ReplicaLog`; it reads from one segment at a time. Raises `CorruptLog`, OSError: then the next start
        reads the whole log."""
        with self._lock:
            place = max(bisect_right(self._segments, offset, key=lambda each: each.base_offset) - 1, 0)
            segment = self._segments[place]
            limit = self._limit_at_loss(offset, min(limit, self._end_of(place)))
            position, first_offset = segment.position_before(offset)
            file = ReadableFile(segment, segment.file, position, segment.size, first_offset)
            epochs = None if self._alone else self._state.epochs
        try:
            return from_offset(read_batches(file, offset, limit, max_bytes, epochs), offset)
        except (LogError, OSError) as error:
            with contextlib.suppress(OSError):
                (self._folder / RESCAN).touch()
                sync_folder(self._folder)
            if isinstance(error, CorruptLog):
                raise self.unreadable(offset, error) from error
            raise

    def _end_of(self, place: int) -> int:
        """The end offset of the segment at this position. It comes from the next segment, because the segment's own
        end may be lost."""
        following = self._segments[place + 1 : place + 2]
        return following[0].base_offset if following else self._state.end_offset

    def publish(self, high_watermark: int, last_stable_offset: int) -> None:
        """Readers see the log up to these offsets from now on."""
        with self._lock:
            assert self._log_start_offset <= last_stable_offset <= high_watermark <= self._state.end_offset
            if (high_watermark, last_stable_offset) == (self._high_watermark, self._published_stable):
                return
            self._high_watermark, self._published_stable = high_watermark, last_stable_offset
            if high_watermark > self._durable_offset and self._point.reserved:
                with contextlib.suppress(OSError):  # if it fails, only less is known after damage
                    self._point.note_seen(high_watermark)
        self._on_advance()

    def _stable_offset(self) -> int:
        return self._published_stable

    def at_rest(self, look: Callable[[Mapping[str, int]], _Result]) -> _Result:
        """Calls `look` with the sizes of the segments' files by name, while no thread changes a file of the log. In:
        the node is held (`hold`), so that no machine appends either."""
        with self._lock:
            self._wait_for_sync()
            return look({file_name(segment.base_offset): segment.size for segment in self._segments})

    # A shorter log

    def truncate(self, offset: int) -> None:
        """See `ReplicaLog`; durable on return. Raises OSError, `LogError`."""
        with self._lock:
            self._wait_for_sync()
            self.check_usable()
            self._on_cut()
            try:
                if offset == self._log_start_offset:
                    self._truncate_at_start(offset)
                else:
                    self._truncate(offset)
            except BaseException:
                self._fail(write_error(OSError("a truncation did not end"), f"to {self.name}"))
                raise

    def _truncate_at_start(self, offset: int) -> None:
        """Records may be deleted up to the middle of a batch. Then the whole batch is truncated first, so that a crash
        leaves a log that ends before it; after that the empty log restarts at `offset`."""
        segment, position = self._place_of(offset)
        start, _ = segment.position_before(offset)
        around = [each for _, each in segment.headers(start, position) if each.last_offset >= offset]
        if not around:
            self._truncate(offset)
            return
        self._log_start_offset = around[0].base_offset
        self._truncate(around[0].base_offset)
        self._restart_at(offset)

    def _truncate(self, offset: int) -> None:
        """A crash in between leaves the log longer, or truncated; no file claims more than the log has."""
        last, position = self._place_of(offset)
        kept = [segment for segment in self._segments if segment.base_offset <= last.base_offset]
        gone = self._segments[len(kept) :]
        older = self._checkpoint_below(offset)
        state = self._state_at(last, position, older)
        if state.end_offset != offset:
            raise last.corrupt(position, f"the log ends at {state.end_offset} there, and should at {offset}")
        for segment in kept:
            if segment is last or segment in self._rolled:
                segment.file.sync()
        self._noted.replace(Noted.of(self._checkpoint_at(last, position, state)), older)
        self._point.note(offset, durably=True)
        fp("replica.before_truncate")
        for segment in reversed(gone):
            segment.remove()
            fp("replica.truncating")
        last.truncate(position)
        last.file.sync()
        sync_folder(self._folder)
        fp("replica.truncated")
        self._begin_with(kept, state)
        self._high_watermark = min(self._high_watermark, offset)
        self._published_stable = min(self._published_stable, offset)

    def restart_at(self, offset: int) -> None:
        """See `ReplicaLog`; durable on return. In: an offset after the end, or any offset if the log is empty.

        Raises OSError, `LogError`.
        """
        with self._lock:
            self._wait_for_sync()
            self.check_usable()
            self._on_cut()
            try:
                self._restart_at(offset)
            except BaseException:
                self._fail(write_error(OSError("a new beginning did not end"), f"to {self.name}"))
                raise

    def _restart_at(self, offset: int) -> None:
        """The checkpoint decides: segments before its start that remain after a crash are removed at the next start."""
        if offset < self._state.end_offset:
            self._point.note(offset, durably=True)  # before the log gets shorter, or a crash would look like a loss
        old = [segment for segment in self._segments if segment.base_offset != offset]
        first = create_segment(self._folder, offset, self._files_open, durable=True)
        fp("replica.before_restart")
        state = LogState.beginning_at(offset)
        self._log_start_offset, self._cleaning = offset, CleaningState()
        self._write_checkpoint(self._checkpoint_at(first, 0, state), durable=True)
        self._point.note(offset, durably=True)
        fp("replica.restarting")
        for segment in old:
            segment.remove()
            fp("replica.restart_removed")
        sync_folder(self._folder)
        self._begin_with([first], state)
        self._high_watermark = self._published_stable = offset

    def _begin_with(self, segments: list[Segment], state: LogState) -> None:
        self._segments, self._state = segments, state
        self._active.allocated_max = self.settings.segment_bytes if self._sync_needed else 0
        self._rolled = []
        self._durable_offset = state.end_offset
        self._unnoted_bytes = 0
        self._checkpointed = True

    def _place_of(self, offset: int) -> tuple[Segment, int]:
        """The segment that contains this offset or ends at it, and the position in it."""
        last = self._segments[max(bisect_right(self._segments, offset, key=lambda each: each.base_offset) - 1, 0)]
        start, _ = last.position_before(offset)
        for position, header in last.headers(start, last.size):
            if header.base_offset >= offset:
                return last, position
        return last, last.size

    def _checkpoint_below(self, offset: int) -> Checkpoint | None:
        for name in (CHECKPOINT, EARLIER):
            checkpoint = read_checkpoint(self._folder, name)
            if checkpoint is not None and checkpoint.state.end_offset <= offset:
                if any(segment.base_offset == checkpoint.segment for segment in self._segments):
                    return checkpoint
        return None

    def _checkpoint_at(self, segment: Segment, position: int, state: LogState) -> Checkpoint:
        return Checkpoint(
            self._log_start_offset, segment.base_offset, position, True, state, self._cleaning, self._began_ms
        )

    # Segments

    def _roll(self) -> None:
        """Starts a new segment. The next sync makes the ended one durable, together with the new one."""
        active, end_offset = self._active, self._state.end_offset
        if not active.size:
            return
        try:
            active.trim()
            fp("segment.roll")
            segment = create_segment(self._folder, end_offset, self._files_open, durable=False)
        except OSError as error:
            with contextlib.suppress(OSError):
                (self._folder / file_name(end_offset)).unlink(missing_ok=True)
            raise write_error(error, f"to {self.name}") from error
        segment.allocated_max = self.settings.segment_bytes if self._sync_needed else 0
        active.seal()
        self._rolled.append(active)
        self._segments = [*self._segments, segment]

    def move_start(self, offset: int) -> None:
        """Moves the start of the log to this offset, or to the stable offset if that is lower. The next sync makes it
        durable, and removes segments that are no longer needed."""
        with self._lock:
            start = min(offset, self._published_stable)
            if start > self._log_start_offset:
                self._log_start_offset = start
                self._state.transactions.forget_before(start)
                self._state.epochs.start_at(start)

    def drop_before(self, offset: int) -> int:
        self.move_start(offset)
        self.sync_all()
        return self._log_start_offset

    # Durability

    def sync_to(self, end_offset: int) -> int:
        """Makes the log durable at least up to this offset. Callers that arrive while a sync runs share the next one.
        Returns the offset up to which it is durable. Raises like `sync_all`."""
        with self._lock:
            while self._syncing and self._durable_offset < end_offset:
                self._changed.wait()
            if self._durable_offset >= end_offset:
                return self._durable_offset
            unsynced = self._begin_sync()
        self._end_sync(unsynced)
        return unsynced.end_offset

    def sync_all(self) -> None:
        """Makes durable what is now in the log, one sync at a time. Raises `LogError`; then the log accepts nothing
        more (R17)."""
        with self._lock:
            begun = self._syncs_begun
            while self._syncing and self._synced <= begun:
                self._changed.wait()
            if self._synced > begun:  # a sync that began later did it; waiting for a turn could take forever
                return
            unsynced = self._begin_sync()
        self._end_sync(unsynced)

    def _begin_sync(self) -> _Unsynced:
        self.check_usable()
        unsynced = self._unsynced()
        self._syncing = True
        self._syncs_begun += 1
        return unsynced

    def _end_sync(self, unsynced: _Unsynced) -> None:
        failure, noted = None, False
        try:
            noted = self._make_durable(unsynced)
        except BaseException as error:
            failure = error
        with self._lock:
            self._syncing = False
            self._changed.notify_all()
            if failure is None:
                self._synced = self._syncs_begun
                self._note_durable(unsynced, noted)
            else:
                reason = failure if isinstance(failure, OSError) else OSError(str(failure))
                self._fail(write_error(reason, f"to {self.name}"))
        if isinstance(failure, OSError):
            raise write_error(failure, f"to {self.name}") from failure
        if failure is not None:
            raise failure
        if len(self._segments) == 1:
            return
        removed = self._remove_before(min(unsynced.log_start_offset, self._noted.segment))
        if removed and self._noted.owed:
            self._noted.hurry()  # there is space now
            self.sync_all()

    def _forget_files(self) -> None:
        super()._forget_files()
        self._files_open.forget(self._point)
        self._point.let_go()

    def mark_deleted(self) -> None:
        """Returns when no sync is under way."""
        with self._lock:
            self._wait_for_sync()
            super().mark_deleted()
        self._room.forget(self._folder)

    @property
    def size_bytes(self) -> int:
        return self.size_on_disk

    @property
    def deleted(self) -> bool:
        return self._deleted

    def _wait_for_sync(self) -> None:
        while self._syncing:
            self._changed.wait()

    def _unsynced(self) -> _Unsynced:
        rolled, self._rolled = self._rolled, []
        noted = Noted.of(self._current_checkpoint()) if self._is_checkpoint_due(rolled) else None
        start, end_offset = self._log_start_offset, self._state.end_offset
        names = bool(rolled) or not self._named
        return _Unsynced(rolled, self._active.file, end_offset, start, self._unnoted_bytes, names, noted)

    def _is_checkpoint_due(self, rolled: list[Segment]) -> bool:
        noted = self._noted
        if self._log_start_offset > noted.start_offset:
            return True
        due = rolled or not noted.exists or noted.owed or self._unnoted_bytes >= CHECKPOINT_BYTES
        return bool(due) and not noted.rests

    def _make_durable(self, unsynced: _Unsynced) -> bool:
        """True if it also wrote a new checkpoint. Raises OSError: then the state of the log's end is unknown."""
        fp("replica.before_sync")
        began = time.perf_counter()
        if self._sync_needed:
            for segment in unsynced.rolled:
                segment.file.sync()
            unsynced.active.sync()
        self.traffic.note_sync(time.perf_counter() - began)
        if unsynced.names or unsynced.checkpoint is not None:
            self._noted.sync_names()  # first, because a checkpoint implies that its segment and the log exist
        noted = unsynced.checkpoint is not None and self._noted.try_to_replace(unsynced.checkpoint, self.name)
        fp("replica.after_sync")
        if self._point.reserved:  # otherwise nothing was appended since the log was opened
            with self._lock:
                self._point.note_synced(unsynced.end_offset, unsynced.log_start_offset)
        return noted

    def _note_durable(self, unsynced: _Unsynced, noted: bool) -> None:
        self._durable_offset = max(self._durable_offset, unsynced.end_offset)
        self._named = True
        if noted:
            self._unnoted_bytes -= unsynced.bytes

    def _write_checkpoint(self, checkpoint: Checkpoint, *, durable: bool) -> None:
        self._noted.replace(Noted.of(checkpoint))
