"""The parts of every partition: segments, the state that follows from their batches, and checkpoints of that state.

`replication/disk/disk_log.py` decides who may append and what is durable.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from millstream.errors import LogError

from ..client import Offsets
from ..errors import LogClosed, LogWriteFailed, RecordsTooLarge, UnknownTopic
from ..records.batch import BatchHeader, EncodedBatch
from ..topic_settings import TopicSettings
from .damage import DamagedRange
from .open_files import OpenFiles
from .partition_state import LogState
from .recovery import Checkpoint, RecoveredPartition, replay
from .segment import Segment
from .traffic import Traffic
from .transaction_index import OpenTransaction

CHECKPOINT_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PartitionContext:
    """What the partitions of one log share. `now_ms` is the log's clock. `found_durable`: everything in the files was
    made durable when the log was opened. Called on any thread: `on_failure`, when a partition becomes unusable;
    `on_cut`, before bytes of the log are removed from a segment."""

    files: OpenFiles
    now_ms: Callable[[], int]
    on_advance: Callable[[], None]
    durable: bool
    found_durable: bool = False
    on_failure: Callable[[], None] = lambda: None
    on_cut: Callable[[], None] = lambda: None


class ActiveProducer(NamedTuple):
    """`transaction_offset` is where its open transaction begins; -1 if none is open. `seen_ms`: when its last batch
    arrived, or later."""

    producer_id: int
    epoch: int
    last_sequence: int
    seen_ms: int
    transaction_offset: int


class PartitionFiles(ABC):
    """State: the segments, oldest first; the state that follows from their batches; how far the log is durable.

    `_lock` guards all of it. Invariant: log_start_offset <= last stable offset <= high watermark <= end offset.
    """

    def __init__(
        self, name: str, folder: Path, settings: TopicSettings, context: PartitionContext, recovered: RecoveredPartition
    ) -> None:
        self.name = name
        self.settings = settings
        self.traffic = Traffic()
        self._found_damage = tuple(recovered.damage)  # when it was opened
        self._folder = folder
        self._files_open = context.files
        self._sync_needed = context.durable
        self._now_ms = context.now_ms
        self._on_advance, self._on_failure = context.on_advance, context.on_failure
        self._segments = recovered.segments
        self._active.allocated_max = settings.segment_bytes if context.durable else 0
        self._state = recovered.state
        self._log_start_offset = recovered.log_start_offset
        self._cleaning = recovered.cleaning
        self._began_ms = context.now_ms() if recovered.began_ms is None else recovered.began_ms
        self._durable_offset = self._high_watermark = self._state.end_offset
        self._durable_size = self._checkpointed_size = self._active.size
        self._checkpointed = recovered.checkpoint_exact
        self._failure: LogError | None = None
        self._deleted = self._closed = False
        self._syncing = False
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)

    def configure(self, settings: TopicSettings) -> None:
        """Applies new settings of the topic."""
        with self._lock:
            self.settings = settings
            if self._active.allocated_max:
                self._active.allocated_max = settings.segment_bytes

    # Reading the state

    @property
    def damage(self) -> tuple[DamagedRange, ...]:
        """The known damage of this partition, except below the log start offset."""
        start = self._log_start_offset
        return tuple(lost for lost in self._found_damage if lost.is_empty or lost.end_offset > start)

    @property
    def lost(self) -> tuple[DamagedRange, ...]:
        """Ranges of offsets that were assigned, but whose records can no longer be read."""
        return tuple(lost for lost in self.damage if not lost.is_empty)

    def offsets(self) -> Offsets:
        with self._lock:
            return Offsets(self._log_start_offset, self._stable_offset(), self._high_watermark, self._state.end_offset)

    def _stable_offset(self) -> int:
        """The last stable offset: every transaction below it has ended."""
        return self._state.transactions.first_open_offset(self._high_watermark)

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self._log_start_offset

    @property
    def last_stable_offset(self) -> int:
        return self.offsets().last_stable_offset

    def next_sequence(self, producer_id: int, epoch: int) -> int:
        with self._lock:
            return self._state.producers.next_sequence(producer_id, epoch)

    def active_producers(self) -> list[ActiveProducer]:
        """The producers with a producer id that wrote here."""
        with self._lock:
            open_from = {found.producer_id: found.first_offset for found in self._state.transactions.open}
            return [ActiveProducer(*known, open_from.get(known[0], -1)) for known in self._state.producers.active()]

    def open_transactions(self) -> list[OpenTransaction]:
        with self._lock:
            return self._state.transactions.open

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def usable(self) -> bool:
        """False after the disk refused an operation that could not be undone."""
        return self._failure is None

    @property
    def is_idle(self) -> bool:
        """True if the partition is deleted, closed or failed."""
        return self._deleted or self._closed or self._failure is not None

    @property
    def waits_for_disk(self) -> bool:
        return self._sync_needed

    def segments(self) -> Sequence[Segment]:
        """Oldest first; the last one is being written."""
        with self._lock:
            return self._segments

    @property
    def size_on_disk(self) -> int:
        """Bytes of records."""
        with self._lock:
            return sum(segment.size for segment in self._segments)

    def check_size(self, header: BatchHeader) -> None:
        """Raises `RecordsTooLarge` for a batch that is too large for the topic. The limit does not apply to columnar
        batches, which hold many rows."""
        if header.size > self.settings.message_bytes_max and not header.columnar:
            raise RecordsTooLarge(
                f"a record batch of {header.size} bytes is too large for {self.name}:"
                f" max.message.bytes is {self.settings.message_bytes_max}",
                hint="Send smaller batches, or raise max.message.bytes of the topic.",
            )

    def check_usable(self) -> None:
        """Raises the error that an append would raise."""
        if self._deleted:
            raise UnknownTopic(f"{self.name} was deleted")
        if self._closed:
            raise LogClosed("the log is closed")
        if self._failure is not None:
            raise LogWriteFailed(self._failure.message, hint=self._failure.hint)

    # Writing

    @property
    def _active(self) -> Segment:
        return self._segments[-1]

    def _fits(self, size: int, now_ms: int) -> bool:
        """Whether `size` more bytes go into the active segment."""
        active = self._segments[-1]
        return not active.size or (active.size + size <= self.settings.segment_bytes and not self._is_old(now_ms))

    def _is_old(self, now_ms: int) -> bool:
        """True if the active segment is old enough to be closed."""
        settings = self.settings
        age_max = (
            min(settings.segment_ms, settings.compaction_lag_ms_max) if settings.compacted else settings.segment_ms
        )
        return now_ms - self._began_ms >= age_max

    def _store(self, placed: Sequence[EncodedBatch], now_ms: int) -> None:
        """Writes batches whose headers contain their offsets, and updates the state.

        Raises OSError; then the segment and the state are as before, but the file may be longer.
        """
        self._checkpointed = False
        active = self._segments[-1]
        if not active.size:
            self._began_ms = now_ms
        active.append(placed, now_ms)
        for batch in placed:
            self._state.note(batch.header, lambda batch=batch: memoryview(batch.buffers[0]), now_ms)

    def _state_at(self, last: Segment, size: int, checkpoint: Checkpoint | None) -> LogState:
        """The state of a log that ends in this segment, at this size. It is built by reading from the checkpoint on."""
        state = checkpoint.state if checkpoint else LogState.beginning_at(self._segments[0].base_offset)
        first = checkpoint.segment if checkpoint else self._segments[0].base_offset
        for segment in self._segments:
            if first <= segment.base_offset <= last.base_offset:
                start = checkpoint.position if checkpoint and segment.base_offset == first else 0
                replay(state, segment, start, size if segment is last else segment.size, self._now_ms())
        return state

    def _fail(self, error: LogError) -> None:
        self._failure = LogWriteFailed(
            f"{self.name} takes no more records: {error.message}",
            hint="Check the disk, then open the log again. Acknowledged records can still be read.",
        )
        self._on_failure()

    def _forget_files(self) -> None:
        for segment in self._segments:
            self._files_open.forget(segment)
            segment.let_go()

    # Durability

    @abstractmethod
    def sync_all(self) -> None:
        """Makes everything durable that has been written so far. Raises `LogError`."""

    @abstractmethod
    def _roll(self) -> None:
        """Closes the active segment, unless it is empty, and begins the next one. Raises `LogError`."""

    def _current_checkpoint(self) -> Checkpoint:
        """A checkpoint of the log's end. It is valid only once everything in the log is durable."""
        return Checkpoint(
            self._log_start_offset,
            self._active.base_offset,
            self._active.size,
            self._sync_needed,
            self._state,
            self._cleaning,
            self._began_ms,
            self.lost,
        )

    def _checkpoint(self, *, durable: bool = False) -> bool:
        """Writes a checkpoint of the durable end; False if that failed. The state must not go beyond that end."""
        assert self._state.end_offset == self._durable_offset
        try:
            self._write_checkpoint(self._current_checkpoint(), durable=durable)
        except OSError:
            return False
        self._checkpointed_size = self._durable_size
        return True

    @abstractmethod
    def _write_checkpoint(self, checkpoint: Checkpoint, *, durable: bool) -> None:
        """Raises OSError."""
