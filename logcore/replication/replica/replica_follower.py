"""A replica that follows: it fetches the next batches from the leader, and truncates what the leader does not have."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.errors import LogError

from ...records.batch import BatchHeader, EncodedBatch
from ...storage.epoch_cache import NO_EPOCH
from ..machine import NodeId, Send
from .replica_core import ReplicaCore
from .replica_log import ReplicaLog
from .replica_messages import Diverging, FetchedBatches, FetchRefused, FetchRequest, Problem

Response = FetchedBatches | Diverging | FetchRefused

_NOTHING = -1


class Follower:
    """State of one leader epoch: the fetch under way, and what earlier fetches have acknowledged.

    R9: one fetch at a time, matched by its correlation; its response counts once. R10: the log is truncated only where
    the leader says that an epoch ends, and never below what was acknowledged in this leader epoch (I4).
    """

    def __init__(self, core: ReplicaCore, leader: NodeId, first_correlation: int) -> None:
        self._core = core
        self._leader = leader
        self.correlation = first_correlation
        self._deadline_ms: int | None = None  # of the fetch under way, or of a pause after a refusal
        self._waits = False  # for the response to a fetch
        self._acknowledged = _NOTHING
        self._behind = False  # below the high watermark in the leader's last response

    def fetch(self) -> None:
        """Fetches the next batches once everything before them is durable: the request acknowledges that."""
        core = self._core
        if not core.all_durable or core.stopped is not None:
            return
        if self._deadline_ms is not None and core.now_ms < self._deadline_ms:
            return
        if self._has_to_wait():
            return
        self.correlation += 1
        self._waits = True
        self._deadline_ms = core.now_ms + core.settings.fetch_timeout_ms
        request = FetchRequest(
            core.partition,
            core.leader_epoch,
            core.broker_epoch,
            self.correlation,
            core.durable_offset,
            core.log.epochs.last,
            core.settings.fetch_bytes,
        )
        core.emit(Send(self._leader, request))

    @property
    def due_ms(self) -> int:
        """Like `Replica.due_ms`. Without a deadline it waits for the disk or for the throttle, and only an attempt
        shows whether it can continue."""
        return self._core.now_ms if self._deadline_ms is None else self._deadline_ms

    def take(self, response: Response) -> None:
        if not self._is_current(response):
            return
        self._waits, self._deadline_ms = False, None
        match response:
            case Diverging(_, _, _, epoch, end_offset):
                self._part(epoch, end_offset)
            case FetchedBatches():
                self._append(response)
            case FetchRefused(_, _, _, Problem.OFFSET_OUT_OF_RANGE, log_start_offset):
                self._begin_at(log_start_offset)
            case FetchRefused():
                self._pause()
        self.fetch()

    def _is_current(self, response: Response) -> bool:
        return (
            self._waits
            and response.leader_epoch == self._core.leader_epoch
            and response.correlation == self.correlation
        )

    def _has_to_wait(self) -> bool:
        """Whether the throttle delays the next fetch. A follower that has reached the high watermark is not delayed:
        it may already be in the leader's maximal ISR (R11)."""
        core = self._core
        return self._behind and self._is_throttled() and not core.throttle.following.allows(core.partition, core.now_ms)

    def _is_throttled(self) -> bool:
        view = self._core.view
        return view is not None and self._core.node not in view.isr

    def _pause(self) -> None:
        self._deadline_ms = self._core.now_ms + self._core.settings.backoff_ms

    def _part(self, epoch: int, end_offset: int) -> None:
        core, log = self._core, self._core.log
        own = log.epochs.end_of(epoch, log.end_offset, log.log_start_offset)
        target = max(min(end_offset, own.end_offset), log.log_start_offset)
        if target < self._acknowledged:
            core.panic(f"told to truncate to {target}, but {self._acknowledged} was acknowledged in this leader epoch")
        elif epoch == NO_EPOCH and log.log_start_offset == log.end_offset:
            core.restart_at(max(end_offset, log.end_offset))  # empty here, but the last epoch is still known
        elif target >= log.end_offset:
            core.panic(f"told that the logs part, but epoch {own.epoch} ends at {own.end_offset} in both")
        else:
            core.truncate(target)

    def _begin_at(self, offset: int) -> None:
        """The leader's log does not contain the end of this log. If it begins later, or this log has no epoch yet, this
        log restarts where the leader's begins. Otherwise the follower asks again later."""
        log = self._core.log
        if offset > log.end_offset or (log.epochs.last == NO_EPOCH and offset != log.end_offset):
            self._core.restart_at(offset)
        else:
            self._pause()

    def _begin_with(self, first: BatchHeader) -> None:
        """Records can be deleted up to the middle of a batch, and batches are never split. So the first batch for an
        empty log may begin before the log's start, and end after it. Then the log restarts at the batch; once the batch
        is appended, `move_start` sets the start to the leader's."""
        log = self._core.log
        if log.log_start_offset == log.end_offset and first.base_offset < log.end_offset <= first.last_offset:
            self._core.restart_at(first.base_offset)

    def _append(self, response: FetchedBatches) -> None:
        core = self._core
        self._acknowledged = max(self._acknowledged, response.offset)
        if response.batches:
            self._begin_with(response.batches[0].header)
            problem = _what_is_wrong(response.batches, core.log)
            if problem is not None:
                core.panic(f"the leader sent {problem}")
                return
            try:
                core.append(response.batches)
            except LogError:
                self._pause()  # no space: the log stays readable, and missing batches are fetched again
        if self._is_throttled():
            core.throttle.following.take(sum(batch.header.size for batch in response.batches), core.now_ms)
        self._behind = core.log.end_offset < response.high_watermark
        core.raise_high_watermark(min(response.high_watermark, core.log.end_offset))
        core.move_start(response.log_start_offset)


def _what_is_wrong(batches: Sequence[EncodedBatch], log: ReplicaLog) -> str | None:
    offset, epoch = log.end_offset, log.epochs.last
    for batch in batches:
        header = batch.header
        if header.base_offset != offset:
            return f"a batch at offset {header.base_offset} where {offset} comes next"
        if header.leader_epoch < epoch:
            return f"a batch of epoch {header.leader_epoch} after one of epoch {epoch}"
        offset, epoch = header.last_offset + 1, header.leader_epoch
    return None
