"""The state of a replica in any role: its log, how far it is durable, and how far it is committed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from millstream.errors import LogError

from ...records.batch import EncodedBatch
from ...storage.epoch_cache import NO_EPOCH
from ..controller.metadata_records import PartitionState
from ..machine import Effect, NodeId, Operation, Panic, Persist
from .replica_log import ReplicaLog
from .replica_messages import PartitionId
from .throttle import Throttle

NEVER_MS: Final = 1 << 62


@dataclass(slots=True)
class NodeTime:
    """The monotonic time of a node, in milliseconds. All its replicas share it, because a replica gets no tick while
    it has nothing due."""

    now_ms: int = 0


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """Times in milliseconds. `lag_ms`: replica.lag.time.max.ms, after which a follower that lags is no longer in sync.
    `fetch_wait_ms`: how long the leader keeps a fetch for which it has nothing new. `fetch_timeout_ms`: after this
    time, which is longer, a follower asks again."""

    lag_ms: int = 10_000
    fetch_wait_ms: int = 500
    fetch_timeout_ms: int = 2_000
    backoff_ms: int = 100
    ask_again_ms: int = 1_000
    fetch_bytes: int = 1024 * 1024
    waiting_max: int = 10_000  # requests that wait for the high watermark
    verify_again_ms: int = 500  # how often a coordinator that does not answer is asked again
    verify_ms: int = 10_000  # for how long it is asked


@dataclass(frozen=True, slots=True)
class SyncLog:
    """Makes everything durable that is now in the partition's log. A failed sync is never retried (R17)."""

    partition: PartitionId
    end_offset: int


class _Syncing(NamedTuple):
    operation: Operation
    end_offset: int
    start_offset: int


class EndedTransaction(NamedTuple):
    """A transaction whose marker is in the log, but perhaps not committed."""

    first_offset: int
    marker_offset: int


class ReplicaCore:
    """State: as above. Invariant: log start <= last stable <= visible <= end offset; high watermark <= visible.

    `broker_epoch` and `registered_at` (the metadata offset of the registration) belong to this process of the broker.
    """

    def __init__(
        self,
        node: NodeId,
        partition: PartitionId,
        log: ReplicaLog,
        settings: ReplicaSettings,
        broker_epoch: int,
        registered_at: int,
        throttle: Throttle | None = None,
        time: NodeTime | None = None,
        *,
        node_alone: bool = False,
    ) -> None:
        """In: `node_alone`: there are no other nodes."""
        self.node = node
        self._node_alone = node_alone
        self.partition = partition
        self.log = log
        self.settings = settings
        self.broker_epoch = broker_epoch
        self.registered_at = registered_at
        self.throttle = throttle or Throttle()  # shared by all replicas of the node
        self.view: PartitionState | None = None
        self.high_watermark = log.log_start_offset
        self.visible_offset = log.log_start_offset  # see `_show_decided`
        self.durable_offset = log.end_offset
        self.durable_start = log.log_start_offset
        self.time = time or NodeTime()
        self.stopped: str | None = None  # the reason, after a Panic
        self._recovered_end = log.end_offset
        self._stable_offset = log.log_start_offset
        self._ended: list[EndedTransaction] = []
        self._decided: deque[int] = deque()  # offsets of markers that readers may see before they are committed
        self._next_operation = 0
        self._syncing: deque[_Syncing] = deque()  # requested syncs that are not known to be done
        self._out: list[Effect] = []

    @property
    def leader_epoch(self) -> int:
        return self.view.leader_epoch if self.view is not None else NO_EPOCH

    @property
    def alone(self) -> bool:
        """Whether no other node has this log, or decides about its contents.

        Then readers see the outcome of a decided transaction as soon as its marker is in the log, before the marker is
        durable: see `visible_offset`. In a cluster, clients could read from another leader that does not know the
        decision yet, so there the marker is committed first.
        """
        return self._node_alone and self.view is not None and self.view.replicas == (self.node,)

    @property
    def now_ms(self) -> int:
        return self.time.now_ms

    # Effects

    def emit(self, effect: Effect) -> None:
        self._out.append(effect)

    def take_effects(self) -> list[Effect]:
        effects, self._out = self._out, []
        return effects

    def panic(self, reason: str) -> None:
        self.stopped = f"{self.partition.topic}-{self.partition.number}: {reason}"
        self._out.append(Panic(self.stopped))

    # The log

    def append(self, batches: Sequence[EncodedBatch], *, decided: bool = False) -> None:
        """In: `decided`: a coordinator has decided the markers in it, and would send them again after a crash. Raises
        `LogError` if there is no space; batches that were appended before stay."""
        if decided and self.alone:
            self.log.append(batches)
            return
        for batch in batches:
            if batch.header.control:
                self._append_markers(batches)
                return
        self.log.append(batches)

    def _append_markers(self, batches: Sequence[EncodedBatch]) -> None:
        for batch in batches:
            header = batch.header
            transaction = self.log.state.transactions.open_of(header.producer_id) if header.control else None
            self.log.append((batch,))
            if transaction is not None:
                self._ended.append(EndedTransaction(transaction.first_offset, header.base_offset))

    def show_marker(self, offset: int) -> None:
        """Shows readers the marker of a decided transaction, once everything before it is committed. In: `offset`: of
        the marker, which is in the log; this node is `alone`."""
        self._decided.append(offset)
        self._show_decided()
        self.publish()

    def truncate(self, offset: int) -> None:
        """Truncates the log. No fetch goes to the leader before the shorter log is durable."""
        try:
            self.log.truncate(offset)
        except (OSError, LogError) as error:
            self.panic(f"the disk did not truncate the log: {error}")
            return
        self._ended = [ended for ended in self._ended if ended.marker_offset < offset]
        self._decided = deque(marker for marker in self._decided if marker < offset)
        self._cut_to(offset)

    def restart_at(self, offset: int) -> None:
        try:
            self.log.restart_at(offset)
        except (OSError, LogError) as error:
            self.panic(f"the disk did not begin the log anew: {error}")
            return
        self._ended = []
        self._decided.clear()
        self.high_watermark = self.visible_offset = self._stable_offset = self._recovered_end = offset
        self._cut_to(offset)

    def _cut_to(self, offset: int) -> None:
        self.high_watermark = self.visible_offset = min(self.high_watermark, offset)
        self._show_decided()
        self._stable_offset = min(self._stable_offset, offset)
        self._recovered_end = min(self._recovered_end, offset)
        self.durable_offset = min(self.durable_offset, offset)
        self.log.publish(self.visible_offset, self._stable_offset)
        self._syncing.clear()
        self._persist()

    # Commits

    def raise_high_watermark(self, offset: int) -> bool:
        """True if it moved. Only a truncation moves it back."""
        if offset <= self.high_watermark:
            return False
        self.high_watermark = self.visible_offset = offset
        if self._ended:
            self._ended = [ended for ended in self._ended if ended.marker_offset >= offset]
        if self._decided:
            self._show_decided()
        self.publish()
        return True

    def _show_decided(self) -> None:
        """Sets `visible_offset`, up to which readers may see the log: the high watermark, or the end of the decided
        markers that follow it directly.

        A durable record of the coordinator determines such a marker. If a crash loses the marker, it is written again
        at the same offset, because nothing else is appended before it (`Settling.owes`). So a client that has read up
        to it misses nothing. Without this, readers would first reach the end of a transaction's records, and later its
        marker: a client that waits until everything is read would wait twice.
        """
        while self._decided and self._decided[0] < self.high_watermark:
            self._decided.popleft()
        self.visible_offset = self.high_watermark
        for marker in self._decided:
            if marker != self.visible_offset:
                break
            self.visible_offset += 1

    def publish(self) -> None:
        """Shows readers the log as far as they may see it now."""
        self.log.publish(self.visible_offset, self.last_stable_offset)

    def move_start(self, offset: int) -> None:
        """Moves the start of the log to this offset, or to the stable offset if that is lower."""
        if self.log.log_start_offset < offset:
            self.log.move_start(offset)

    @property
    def last_stable_offset(self) -> int:
        """Below this offset every transaction has ended, and readers may see its marker.

        It is unknown where the markers of transactions are that ended before this process started. So the offset does
        not move until everything that recovery found is committed.
        """
        if self.high_watermark >= self._recovered_end:
            open_from = self.log.state.transactions.first_open_offset(self.visible_offset)
            self._stable_offset = max(self._stable_offset, min(open_from, self._uncommitted_ends_from()))
        return self._stable_offset

    def _uncommitted_ends_from(self) -> int:
        if not self._ended:
            return self.visible_offset
        return min(ended.first_offset for ended in self._ended)

    # Durability: one sync at a time covers everything that was appended meanwhile. A node that is alone begins a sync
    # only when a caller waits for it, so a requested sync that has not begun must not hold back a new request.

    @property
    def all_durable(self) -> bool:
        return not self._syncing and self.durable_offset == self.log.end_offset

    def sync(self) -> None:
        if self.stopped is not None or (self._syncing and not self.alone):
            return
        end, start = self._syncing[-1][1:] if self._syncing else (self.durable_offset, self.durable_start)
        if max(end, self.durable_offset) < self.log.end_offset or start < self.log.log_start_offset:
            self._persist()

    def _persist(self) -> None:
        operation = Operation(self._next_operation)
        self._next_operation += 1
        self._syncing.append(_Syncing(operation, self.log.end_offset, self.log.log_start_offset))
        self.emit(Persist(operation, SyncLog(self.partition, self.log.end_offset)))

    def persisted(self, operation: Operation, failed: str | None) -> bool:
        """True if more is durable than before."""
        if failed is not None:
            self.panic(f"the disk failed a sync: {failed}")  # R17
            return False
        if not self._syncing or not self._syncing[0].operation <= operation <= self._syncing[-1].operation:
            return False  # the log was truncated since
        while self._syncing and self._syncing[0].operation <= operation:
            _, end_offset, self.durable_start = self._syncing.popleft()
            self.durable_offset = max(self.durable_offset, end_offset)  # `synced` may have reported more already
        return True

    def synced(self, end_offset: int, failed: str | None) -> bool:
        """Like `persisted`, for a sync that a waiting caller has carried out itself. In: this node is `alone`, so
        nobody has truncated the log meanwhile."""
        if failed is not None:
            self.panic(f"the disk failed a sync: {failed}")  # R17
            return False
        if end_offset <= self.durable_offset:
            return False
        self.durable_offset = end_offset
        return True
