"""One partition of the log of a single node: appends in order, made durable together. Topics: `log.py`.

What readers see is in `partition_reading.py`, what is kept in `partition_keeping.py`.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from millstream.errors import LogError

from ..errors import LogWriteFailed, write_error
from ..failpoints import fp
from ..records.batch import EncodedBatch, place, stamp
from ..records.control import MARKER_SIZE, encode_marker
from ..topic_settings import TopicSettings
from .durable_point import DurablePoint
from .partition_checkpoint import PartitionCheckpoint
from .partition_files import CHECKPOINT_BYTES, ActiveProducer, PartitionContext
from .partition_keeping import KeptPartition, PartitionSnapshot
from .recovery import Checkpoint, create_segment, read_checkpoint, recover
from .segment import file_name
from .transaction_index import OpenTransaction

__all__ = ["ActiveProducer", "Appended", "Mark", "Partition", "PartitionContext", "PartitionSnapshot"]

_LEADER_EPOCH: Final = 0
_log = structlog.get_logger("millstream.logcore")


class Mark(NamedTuple):
    """Where an append ended, and in which life of the tail: a failed sync drops the tail and begins another."""

    generation: int
    end_offset: int


class Appended(NamedTuple):
    first_offset: int
    mark: Mark


class _Marker(NamedTuple):
    """The end of a transaction that is decided, but whose bytes may not be durable."""

    offset: int
    producer_id: int
    epoch: int
    committed: bool
    timestamp_ms: int


class Partition(KeptPartition):
    """A part of a topic. Any thread may call any method.

    State: which lives of the unsynced tail have ended. Invariant: everything below the high watermark is durable, or
    is a marker that recovery would write again at the same offset.
    """

    def __init__(self, name: str, folder: Path, settings: TopicSettings, context: PartitionContext) -> None:
        self._point = DurablePoint(folder, context.files)
        known = self._point.read()
        recovered = recover(folder, context.files, context.now_ms(), durable=context.durable, known=known)
        super().__init__(name, folder, settings, context, recovered)
        self._noted = PartitionCheckpoint(folder, recovered.noted_segment, recovered.log_start_offset)
        if recovered.scanned and context.durable and not context.found_durable:
            self._active.file.sync()
        if context.durable and known[:2] != (self._state.end_offset, self._log_start_offset):
            self._note_point(self._state.end_offset)
        self._markers: list[_Marker] = []  # not durable yet, in order
        self._generation = 0
        self._drops: list[Mark] = []  # per life of the tail that ended: where it was cut

    # Appending

    def append(self, batches: list[EncodedBatch], after: Mark | None = None) -> Appended:
        """Writes the batches, all or none; they become visible and durable with `sync`.

        A batch that its producer sent before is not written again: the first offset is then the stored one's.
        In: `after`: what must be in the log for these to make sense; raises `LogWriteFailed` where it was dropped.
        """
        with self._lock:
            self._make_room(sum(batch.header.size for batch in batches))
            if after is not None:
                self._check_held(after)
            repeated = self._state.check(batches[0].header)
            if repeated is not None:
                return Appended(repeated.base_offset, Mark(self._generation, repeated.last_offset + 1))
            if self.settings.append_time:
                batches = [stamp(batch, self._now_ms()) for batch in batches]
            first_offset = self._write(batches)
            self.traffic.note_appended(self._state.end_offset - first_offset, sum(b.header.size for b in batches))
            if not self._sync_needed:
                self._note_durable(self._state.end_offset, self._active.size)
            return Appended(first_offset, Mark(self._generation, self._state.end_offset))

    @contextmanager
    def unless_busy(self, size: int) -> Generator[bool]:
        """Whether, in the block, an append of so many bytes waits neither for others nor for a new segment."""
        if not self._lock.acquire(blocking=False):
            yield False
            return
        try:
            yield self._active.size + size <= self.settings.segment_bytes and not self._is_old()
        finally:
            self._lock.release()

    def end_transaction(
        self, producer_id: int, epoch: int, first_offset: int, *, committed: bool, timestamp_ms: int
    ) -> Mark | None:
        """Writes the marker that ends the transaction that began at `first_offset`; None where it is not open.

        The marker is visible at once. It may become durable later, because recovery would write it again.
        """
        with self._lock:
            self._make_room(MARKER_SIZE)
            self._state.producers.check_epoch(producer_id, epoch)
            transaction = self._state.transactions.open_of(producer_id)
            if transaction is None or transaction.first_offset != first_offset:
                return None
            marker = _Marker(self._state.end_offset, producer_id, epoch, committed, timestamp_ms)
            self._write_marker(marker)
            return Mark(self._generation, self._state.end_offset)

    def abort_orphan(self, transaction: OpenTransaction, timestamp_ms: int) -> None:
        """Aborts an open transaction that no coordinator knows. The marker carries the newest epoch that its producer
        has here: with an older one it would be refused, and the transaction would stay open forever."""
        producer_id, epoch, first_offset = transaction
        with self._lock:
            newest = max(epoch, self._state.producers.epoch_of(producer_id))
            self.end_transaction(producer_id, newest, first_offset, committed=False, timestamp_ms=timestamp_ms)

    def _write_marker(self, marker: _Marker) -> None:
        batch = encode_marker(
            marker.producer_id, marker.epoch, committed=marker.committed, timestamp_ms=marker.timestamp_ms
        )
        visible = self._high_watermark == marker.offset
        self._write([batch])
        self._markers.append(marker)
        if not self._sync_needed:
            self._note_durable(self._state.end_offset, self._active.size)
        elif visible:
            self._high_watermark = self._state.end_offset
            self._note_point(self._durable_offset)
        self._on_advance()

    def _make_room(self, size: int) -> None:
        """Starts a new segment where so many bytes do not fit. Other writers may come in between: look at the state
        after this, not before. Raises what an append would raise."""
        self.check_usable()
        while not self._fits(size):
            self._roll()

    def _write(self, batches: list[EncodedBatch]) -> int:
        first_offset = offset = self._state.end_offset
        size_before = self._active.size
        placed: list[EncodedBatch] = []
        for batch in batches:
            placed.append(place(batch, offset, _LEADER_EPOCH))
            offset += batch.header.last_offset_delta + 1
        try:
            self._store(placed)
        except BaseException as error:
            self._forget_from(size_before, first_offset, durably=False)
            if isinstance(error, OSError):
                raise write_error(error, f"to {self.name}") from error
            raise
        return first_offset

    def _roll(self) -> None:
        """Makes the active segment durable and starts the next one."""
        while self._syncing:
            self._lock.wait()
        self.check_usable()
        if not self._active.size:
            return  # somebody else did it meanwhile
        try:
            self._active.trim()  # before the sync: only the last segment may end in zeros
            if self._sync_needed:
                self._active.file.sync()
            self._note_durable(self._state.end_offset, self._active.size)
            fp("segment.roll")
            segment = create_segment(self._folder, self._state.end_offset, self._files_open, durable=self._sync_needed)
            segment.allocated_max = self._active.allocated_max
        except OSError as error:
            if self._state.end_offset != self._active.base_offset:
                (self._folder / file_name(self._state.end_offset)).unlink(missing_ok=True)
            self._drop_unsynced()
            raise write_error(error, f"to {self.name}") from error
        self._active.seal()
        self._segments = [*self._segments, segment]
        self._durable_size = 0
        self._checkpoint()

    def drop_before(self, offset: int) -> int:
        with self._lock:
            self.check_usable()
            self._sync_everything()
            self._log_start_offset = max(self._log_start_offset, min(offset, self.last_stable_offset))
            self._state.transactions.forget_before(self._log_start_offset)
            noted = self._note_start()
            # Durably: after a power cut an earlier point would say that the files removed below are lost.
            self._note_point(self._durable_offset, durably=self._sync_needed)
            fp("retention.noted")
            removed = self._remove_before(min(self._log_start_offset, self._noted.segment))
            if removed and not noted and self._checkpoint(durable=self._sync_needed):  # there is room now
                self._remove_before(self._log_start_offset)
            return self._log_start_offset

    def _note_start(self) -> bool:
        """Durable on return; False where there is no room for a checkpoint, so that only the log's start is.

        Raises `LogError`."""
        if self._checkpoint(durable=self._sync_needed):
            return True
        try:
            self._noted.mark_start(self._log_start_offset, durable=self._sync_needed)
        except OSError as error:
            raise write_error(error, f"where {self.name} begins") from error
        return False

    def _write_checkpoint(self, checkpoint: Checkpoint, *, durable: bool) -> None:
        """One that is written in passing may be torn by a power cut; not where it alone says that records are gone."""
        says_start = checkpoint.log_start_offset > self._segments[0].base_offset
        self._noted.replace(checkpoint, durable=durable or (self._sync_needed and says_start))

    # Durability

    def sync(self, mark: Mark) -> None:
        """Returns once everything up to the mark is durable; writers that come meanwhile share the next sync.

        Raises `LogFull` or `LogWriteFailed`; then what was appended up to the mark is not in the log.
        """
        with self._lock:
            while not self._settled(mark):
                if not self._syncing:
                    self._syncing = True
                    break
                self._lock.wait()
            else:
                return
            file, size, end_offset = self._active.file, self._active.size, self._state.end_offset
        failure: BaseException | None = None
        try:
            fp("append.before_sync")
            began = time.perf_counter()
            file.sync()
            self.traffic.note_sync(time.perf_counter() - began)
            fp("append.after_sync")
        except BaseException as error:
            failure = error
        with self._lock:
            self._syncing = False
            self._lock.notify_all()
            if failure is None:
                self._note_durable(end_offset, size)
            else:
                self._drop_unsynced()
        if isinstance(failure, OSError):
            raise write_error(failure, f"to {self.name}") from failure
        if failure is not None:
            raise failure

    def sync_all(self) -> None:
        """Makes everything durable that is written now."""
        with self._lock:
            mark = Mark(self._generation, self._state.end_offset)
        self.sync(mark)

    def _settled(self, mark: Mark) -> bool:
        """True when durable. Raises where a sync failed since, and took the records with it."""
        self._check_held(mark)
        if self._durable_offset >= mark.end_offset:
            return True
        self.check_usable()
        return False

    def holds(self, mark: Mark) -> bool:
        """False where a failed sync took what was appended up to the mark."""
        with self._lock:
            return not any(
                generation >= mark.generation and cut_offset < mark.end_offset for generation, cut_offset in self._drops
            )

    def is_durable(self, mark: Mark) -> bool:
        with self._lock:
            return self.holds(mark) and self._durable_offset >= mark.end_offset

    def _check_held(self, mark: Mark) -> None:
        if not self.holds(mark):
            raise LogWriteFailed(
                f"the disk refused to write to {self.name}, and the records were not stored",
                hint="Check the disk and the system's log, then append again.",
            )

    def _note_durable(self, offset: int, size: int) -> None:
        if self._sync_needed and offset != self._durable_offset:
            self._note_point(offset)
        self._durable_offset, self._durable_size = offset, size
        self._markers = [marker for marker in self._markers if marker.offset >= offset]
        if offset > self._high_watermark:
            self._high_watermark = offset
            self._on_advance()
        # A checkpoint may be lost: it saves time when the log is opened, and tells damage from torn writes.
        if size - self._checkpointed_size >= CHECKPOINT_BYTES and offset == self._state.end_offset:
            self._checkpoint()

    def _forget_files(self) -> None:
        super()._forget_files()
        self._files_open.forget(self._point)
        self._point.let_go()

    def _note_point(self, end_offset: int, *, durably: bool = False) -> None:
        """Before anybody is told that the records up to here are durable, and before a file with earlier ones goes."""
        try:
            seen_offset = max(end_offset, self._high_watermark)
            self._point.note(end_offset, self._log_start_offset, seen_offset, durably=durably)
        except OSError as error:  # they are durable all the same; only what is lost later may not be noticed
            _log.warning("the durable end is not noted", partition=self.name, error=str(error))

    def _drop_unsynced(self) -> None:
        """After a failed sync: the system may have forgotten the bytes and will not say so again, so they go.

        Markers of decided transactions are written again where their transaction is open once more.
        """
        markers, self._markers = self._markers, []
        self._forget_from(self._durable_size, self._durable_offset, durably=True)
        for marker in markers:
            transaction = self._state.transactions.open_of(marker.producer_id)
            if self._failure is None and transaction is not None:
                try:
                    self._write_marker(marker._replace(offset=self._state.end_offset))
                except LogError as error:
                    self._fail(error)
        self._high_watermark = min(self._high_watermark, self._state.end_offset)

    def _forget_from(self, size: int, end_offset: int, *, durably: bool) -> None:
        """Cuts the active segment and gives the state its meaning at that point."""
        self._drops.append(Mark(self._generation, end_offset))
        self._generation += 1
        try:
            self._active.truncate(size)
            if durably and self._sync_needed:
                self._active.file.sync()
            if self._state.end_offset != end_offset:
                self._state = self._state_at(self._active, size, read_checkpoint(self._folder))
                if self._state.end_offset != end_offset:
                    self._fail(self._active.corrupt(size, "batches before it cannot be read any more"))
        except OSError as error:
            self._fail(write_error(error, f"to {self.name}"))
        self._lock.notify_all()
