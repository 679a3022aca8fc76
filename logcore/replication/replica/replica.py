"""One replica of one partition: how it handles messages, ticks and finished syncs.

`replica_leader.py` and `replica_follower.py` are its roles; `replica_core.py` is the state that outlives them. The
rules R5 to R20 and the invariants I4 to I24 are listed, with their sources, in `docs/replication-rules.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from ...records.batch import EncodedBatch
from ..controller.metadata_records import PartitionState
from ..machine import Asked, Effect, NodeId, Persisted, Received, Reply, RequestId, Send, Tick
from ..shards.transaction_messages import ReplicaMessage, TransactionGoesOn, TransactionVerified, WriteMarker
from .replica_core import NEVER_MS, NodeTime, ReplicaCore, ReplicaSettings, SyncLog
from .replica_follower import Follower
from .replica_leader import Leader
from .replica_log import ReplicaLog
from .replica_messages import (
    AlterRefused,
    Diverging,
    EndOrphan,
    FetchedBatches,
    FetchRefused,
    FetchRequest,
    MetadataChanged,
    PartitionId,
    Problem,
    Produced,
    Read,
    Refused,
    ReplicaRequest,
)
from .replica_reading import read_committed_log
from .throttle import Throttle

__all__ = ["Replica", "ReplicaInput", "ReplicaSettings", "SyncLog"]

ReplicaInput = Received[ReplicaMessage] | Asked[ReplicaRequest] | Persisted | Tick
"""Metadata arrive as `MetadataChanged`, from the broker."""


class Replica:
    """State: what is known in any role, and its role in the leader epoch, if the partition has a leader."""

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
        self.core = ReplicaCore(
            node, partition, log, settings, broker_epoch, registered_at, throttle, time, node_alone=node_alone
        )
        self.leader: Leader | None = None
        self.follower: Follower | None = None
        self._correlation = 0

    def step(self, given: ReplicaInput) -> list[Effect]:
        """After a `Panic` it ignores all inputs."""
        core = self.core
        if core.stopped is not None:
            return []
        match given:
            case Received(sender, message):
                if message.partition == core.partition:  # R20
                    self._receive(sender, message)
            case Asked(request, body):
                self._ask(request, body)
            case Persisted(operation, failed):
                if core.persisted(operation, failed):
                    self._go_on()
            case Tick(now_ms):
                core.time.now_ms = now_ms
                if not core.log.usable:
                    core.panic("the disk failed a sync of housekeeping")  # R17: nothing else reports it
                elif self.leader is not None:
                    self.leader.tick()
                elif self.follower is not None:
                    self.follower.fetch()
            case _:
                assert_never(given)
        return self.flush()

    @property
    def due_ms(self) -> int:
        """When it needs its next tick, possibly in the past; `NEVER_MS` if time changes nothing for it.

        Without ticks it does not notice that its log is no longer usable: the caller has to check that.
        """
        if self.core.stopped is not None:
            return NEVER_MS
        if self.leader is not None:
            return self.leader.due_ms
        return self.follower.due_ms if self.follower is not None else NEVER_MS

    def append_own(self, batches: Sequence[EncodedBatch]) -> Produced | Refused:
        """Appends records of this node itself; `flush` returns the effects."""
        if self.leader is None or self.core.stopped is not None:
            return Refused(Problem.NOT_LEADER, f"node {self.core.node} does not lead this partition")
        return self.leader.append_own(batches)

    def synced(self, end_offset: int, failed: str | None) -> list[Effect]:
        """The log is durable up to `end_offset`, or never will be (`failed`). Call it only if no other node has this
        log (`ReplicaCore.alone`)."""
        if self.core.stopped is None and self.core.synced(end_offset, failed):
            self._go_on()
        return self.core.take_effects()

    def flush(self) -> list[Effect]:
        """Starts a sync of appended batches, and sends them to the followers that wait."""
        self.core.sync()
        if self.leader is not None:
            self.leader.answer_fetches()
        return self.core.take_effects()

    def resign(self) -> list[Effect]:
        """This node no longer has the partition."""
        if self.leader is not None:
            self.leader.resign()
        self.leader = self.follower = None
        return self.core.take_effects()

    def _go_on(self) -> None:
        if self.leader is not None:
            self.leader.advance()
        elif self.follower is not None:
            self.follower.fetch()

    def _receive(self, sender: NodeId, message: ReplicaMessage) -> None:
        match message:
            case FetchRequest():
                if self.leader is not None:
                    self.leader.fetch(sender, message)
                else:
                    self._refuse(sender, message)
            case FetchedBatches() | Diverging() | FetchRefused():
                if self.follower is not None:
                    self.follower.take(message)
            case MetadataChanged(state, as_of):
                self._change(state, as_of)
            case WriteMarker():
                if self.leader is not None:
                    self.leader.write_marker(sender, message)
            case TransactionVerified():
                if self.leader is not None:
                    self.leader.verified(message)
            case TransactionGoesOn(_, leader_epoch, producer_id):
                if self.leader is not None and leader_epoch == self.core.leader_epoch:
                    self.leader.settling.settled(producer_id)
            case EndOrphan(_, leader_epoch, marker):
                if self.leader is not None and leader_epoch == self.core.leader_epoch:
                    self.leader.end_orphan(marker)
            case AlterRefused():
                if self.leader is not None:
                    self.leader.alter_refused(message)
            case _:
                assert_never(message)

    def _refuse(self, sender: NodeId, request: FetchRequest) -> None:
        core = self.core
        refused = FetchRefused(
            core.partition, request.leader_epoch, request.correlation, Problem.NOT_LEADER, core.log.log_start_offset
        )
        core.emit(Send(sender, refused))

    def _ask(self, request: RequestId, body: ReplicaRequest) -> None:
        if self.leader is not None:
            self.leader.ask(request, body)
            return
        answer = Refused(Problem.NOT_LEADER, f"node {self.core.node} does not lead this partition")
        if isinstance(body, Read) and self.follower is not None:
            answer = read_committed_log(self.core, body)
        self.core.emit(Reply(request, answer))

    def _change(self, view: PartitionState, as_of: int) -> None:
        """Takes committed metadata. No role begins with a truncation: the leader reports where logs diverge (R10)."""
        core = self.core
        if self._is_stale(view, as_of):
            return
        before, core.view = core.view, view
        if before is not None and (before.leader, before.leader_epoch) == (view.leader, view.leader_epoch):
            if self.leader is not None:
                self.leader.adopt(view)
            return
        if self.leader is not None:
            self.leader.resign()
        if self.follower is not None:
            self._correlation = self.follower.correlation
        self.leader = self.follower = None
        if view.leader == core.node:
            self.leader = Leader(core, view)
        elif view.leader is not None and core.node in view.replicas:
            self.follower = Follower(core, view.leader, self._correlation)
            self.follower.fetch()

    def _is_stale(self, view: PartitionState, as_of: int) -> bool:
        """R5, R7: metadata from before the broker's current registration, or older than the known ones, is ignored."""
        if as_of < self.core.registered_at:
            return True
        known = self.core.view
        return known is not None and view.partition_epoch <= known.partition_epoch
