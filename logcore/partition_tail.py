"""The end of a partition that is written to: appends in order, made durable together. Reading: `partition.py`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from millstream.errors import LogError

from .damage import DamagedRange
from .errors import LogClosed, LogWriteFailed, RecordsTooLarge, UnknownTopic, write_error
from .failpoints import fp
from .open_files import OpenFiles
from .partition_state import PartitionState
from .records.batch import BatchHeader, EncodedBatch, place, stamp
from .records.control import MARKER_SIZE, encode_marker
from .recovery import Checkpoint, create_segment, read_checkpoint, recover, replay, write_checkpoint
from .segment import Segment, file_name
from .topic_settings import TopicSettings
from .traffic import Traffic
from .transaction_index import OpenTransaction

_LEADER_EPOCH: Final = 0
_CHECKPOINT_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PartitionContext:
    """What partitions of one log share. `now_ms` is the log's clock; `found_durable`: what was in the files when the
    log was opened was made durable then."""

    files: OpenFiles
    now_ms: Callable[[], int]
    on_advance: Callable[[], None]
    durable: bool
    found_durable: bool = False


class Mark(NamedTuple):
    """Where an append ended, and in which life of the tail: a failed sync drops the tail and begins another."""

    generation: int
    end_offset: int


class Appended(NamedTuple):
    first_offset: int
    mark: Mark


class ActiveProducer(NamedTuple):
    """`transaction_offset` is where its open transaction begins; -1 where none is open."""

    producer_id: int
    epoch: int
    last_sequence: int
    transaction_offset: int


class _Marker(NamedTuple):
    """The end of a transaction that is decided, but whose bytes may not be durable."""

    offset: int
    producer_id: int
    epoch: int
    committed: bool
    timestamp_ms: int


class PartitionTail:
    """State: segments, the meaning of what is written, and how much of it is durable.

    Invariant: log_start_offset <= last stable offset <= high watermark <= end offset, and everything below the high
    watermark is durable, or is a marker that recovery would write again at the same offset.
    """

    def __init__(self, name: str, folder: Path, settings: TopicSettings, context: PartitionContext):
        recovered = recover(folder, context.files, context.now_ms(), durable=context.durable)
        self.name = name
        self.settings = settings
        self.traffic = Traffic()
        self.damage: tuple[DamagedRange, ...] = tuple(recovered.damage)  # found when it was opened
        self._folder = folder
        self._files_open = context.files
        self._sync_needed = context.durable
        self._now_ms = context.now_ms
        self._on_advance = context.on_advance
        self._segments = recovered.segments
        self._active.allocated_max = settings.segment_bytes if context.durable else 0
        self._state = recovered.state
        self._log_start_offset = recovered.log_start_offset
        self._cleaning = recovered.cleaning
        self._began_ms = context.now_ms() if recovered.began_ms is None else recovered.began_ms
        if recovered.scanned and context.durable and not context.found_durable:
            self._active.file.sync()
        self._durable_offset = self._high_watermark = self._state.end_offset
        self._durable_size = self._checkpointed_size = self._active.size
        self._checkpointed = recovered.checkpoint_exact
        self._markers: list[_Marker] = []  # not durable yet, in order
        self._generation = 0
        self._drops: list[Mark] = []  # per life of the tail that ended: where it was cut
        self._failure: LogError | None = None
        self._deleted = self._closed = False
        self._syncing = False
        self._lock = threading.Condition(threading.RLock())

    def configure(self, settings: TopicSettings) -> None:
        """From now on these hold."""
        with self._lock:
            self.settings = settings
            if self._active.allocated_max:
                self._active.allocated_max = settings.segment_bytes

    @property
    def _active(self) -> Segment:
        return self._segments[-1]

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
            repeated = self._state.producers.check(batches[0].header)
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

    def check_size(self, header: BatchHeader) -> None:
        """Raises `RecordsTooLarge` for a batch that clients may not send. Columnar ones hold many rows, and may."""
        if header.size > self.settings.message_bytes_max and not header.columnar:
            raise RecordsTooLarge(
                f"a record batch of {header.size} bytes is too large for {self.name}:"
                f" max.message.bytes is {self.settings.message_bytes_max}",
                hint="Send smaller batches, or raise max.message.bytes of the topic.",
            )

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

    def next_sequence(self, producer_id: int, epoch: int) -> int:
        with self._lock:
            return self._state.producers.next_sequence(producer_id, epoch)

    def active_producers(self) -> list[ActiveProducer]:
        """Who has written here with a producer id."""
        with self._lock:
            open_from = {found.producer_id: found.first_offset for found in self._state.transactions.open}
            return [ActiveProducer(*known, open_from.get(known[0], -1)) for known in self._state.producers.active()]

    def open_transactions(self) -> list[OpenTransaction]:
        with self._lock:
            return self._state.transactions.open

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
        self._on_advance()

    def _make_room(self, size: int) -> None:
        """Starts a new segment where so many bytes do not fit. Other writers may come in between: look at the state
        after this, not before. Raises what an append would raise."""
        self.check_usable()
        while self._active.size and (self._active.size + size > self.settings.segment_bytes or self._is_old()):
            self._roll()

    def _is_old(self) -> bool:
        """True when the active segment has had its time."""
        settings = self.settings
        age_max = (
            min(settings.segment_ms, settings.compaction_lag_ms_max) if settings.compacted else settings.segment_ms
        )
        return self._now_ms() - self._began_ms >= age_max

    def _write(self, batches: list[EncodedBatch]) -> int:
        self._checkpointed = False
        first_offset = offset = self._state.end_offset
        size_before, now_ms = self._active.size, self._now_ms()
        if not size_before:
            self._began_ms = now_ms
        placed: list[EncodedBatch] = []
        for batch in batches:
            placed.append(place(batch, offset, _LEADER_EPOCH))
            offset += batch.header.last_offset_delta + 1
        try:
            self._active.append(placed, now_ms)
            for batch in placed:
                self._state.note(batch.header, lambda batch=batch: memoryview(batch.buffers[0]), now_ms)
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

    @property
    def waits_for_disk(self) -> bool:
        return self._sync_needed

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
        self._durable_offset, self._durable_size = offset, size
        self._markers = [marker for marker in self._markers if marker.offset >= offset]
        if offset > self._high_watermark:
            self._high_watermark = offset
            self._on_advance()
        # A checkpoint may be lost: it saves time when the log is opened, and tells damage from torn writes.
        if size - self._checkpointed_size >= _CHECKPOINT_BYTES and offset == self._state.end_offset:
            self._checkpoint()

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
                self._state = self._state_at(size)
                if self._state.end_offset != end_offset:
                    self._fail(self._active.corrupt(size, "batches before it cannot be read any more"))
        except OSError as error:
            self._fail(write_error(error, f"to {self.name}"))
        self._lock.notify_all()

    def _state_at(self, size: int) -> PartitionState:
        """What the log means with the active segment cut to this size: read again from the last checkpoint."""
        checkpoint = read_checkpoint(self._folder)
        state = checkpoint.state if checkpoint else PartitionState.beginning_at(self._segments[0].base_offset)
        first = checkpoint.segment if checkpoint else self._segments[0].base_offset
        for segment in self._segments:
            if segment.base_offset >= first:
                start = checkpoint.position if checkpoint and segment.base_offset == first else 0
                replay(state, segment, start, size if segment is self._active else segment.size, self._now_ms())
        return state

    def _fail(self, error: LogError) -> None:
        self._failure = LogWriteFailed(
            f"{self.name} takes no more records: {error.message}",
            hint="Check the disk, then open the log again. Acknowledged records can still be read.",
        )

    def check_usable(self) -> None:
        """Raises what an append would raise."""
        if self._deleted:
            raise UnknownTopic(f"{self.name} was deleted")
        if self._closed:
            raise LogClosed("the log is closed")
        if self._failure is not None:
            raise LogWriteFailed(self._failure.message, hint=self._failure.hint)

    def _checkpoint(self, *, durable: bool = False) -> bool:
        """Notes the durable end; False where that failed. Call it only where the state covers no more than that."""
        assert self._state.end_offset == self._durable_offset
        checkpoint = Checkpoint(
            self._log_start_offset,
            self._active.base_offset,
            self._durable_size,
            self._sync_needed,
            self._state,
            self._cleaning,
            self._began_ms,
        )
        try:
            write_checkpoint(self._folder, checkpoint, durable=durable)
        except OSError:
            return False
        self._checkpointed_size = self._durable_size
        return True
