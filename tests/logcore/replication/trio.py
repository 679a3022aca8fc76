"""Three replicas of one partition, on simulated disks, with every message and every sync in the hands of the test."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, cast

from millstream.logcore.records.batch import HEADER_SIZE, NOBODY, BatchProducer, EncodedBatch, seal
from millstream.logcore.replication.controller.metadata_records import PartitionState
from millstream.logcore.replication.machine import (
    Asked,
    Effect,
    NodeId,
    Panic,
    Persist,
    Persisted,
    Received,
    Reply,
    RequestId,
    Send,
    Tick,
)
from millstream.logcore.replication.replica.replica import Replica, ReplicaInput, ReplicaSettings
from millstream.logcore.replication.replica.replica_messages import (
    ACTIVE_CONTROLLER,
    AlterPartition,
    MetadataChanged,
    PartitionId,
    Produce,
    Read,
    ReadBatches,
)
from millstream.logcore.replication.shards.transaction_messages import ReplicaMessage
from tests.simulation.disk import SimDisk
from tests.simulation.replica_log import SimReplicaLog

PARTITION = PartitionId("topic", 0)


def batch(value: bytes = b"value", rows: int = 1, producer: BatchProducer = NOBODY) -> EncodedBatch:
    """A record batch of so many rows; nobody looks into its records."""
    return seal(
        [bytearray(HEADER_SIZE) + value],
        attributes=0,
        last_offset_delta=rows - 1,
        base_timestamp_ms=0,
        max_timestamp_ms=0,
        record_count=rows,
        producer=producer,
    )


def value_of(batch: EncodedBatch) -> bytes:
    return b"".join(batch.buffers)[HEADER_SIZE:]


class Trio:
    """State: the replicas that run, what is on the wire, syncs that are not done, and all that was answered."""

    def __init__(self, nodes: int = 3, *, min_in_sync: int = 2) -> None:
        self.disks = {NodeId(node): SimDisk() for node in range(1, nodes + 1)}
        self.replicas: dict[NodeId, Replica] = {}
        self.wire: list[tuple[NodeId, Send]] = []
        self.syncs: list[tuple[NodeId, Persist]] = []
        self.replies: dict[int, Any] = {}
        self.panics: dict[NodeId, str] = {}
        self.proposals: list[AlterPartition] = []
        self.now_ms = 0
        self.held: Callable[[NodeId, Send], bool] = lambda sender, send: False
        self.no_syncs: set[int] = set()  # nodes whose disks never finish
        self._requests = 0
        self._life = 0
        members = tuple(self.disks)
        self.view = PartitionState(*PARTITION, None, 0, 0, members, members, (), min_in_sync)
        for node in self.disks:
            self.start(node)

    # What happens to nodes

    def start(self, node: int) -> None:
        self._life += 1
        log = SimReplicaLog(self.disks[NodeId(node)], "log")
        self.replicas[NodeId(node)] = Replica(
            NodeId(node), PARTITION, log, ReplicaSettings(), broker_epoch=self._life, registered_at=0
        )
        self.step(node, Tick(self.now_ms))

    def power_off(self, node: int) -> None:
        """What was not synced is gone: all of it."""
        del self.replicas[NodeId(node)]
        self.syncs = [(owner, persist) for owner, persist in self.syncs if owner != node]
        self.disks[NodeId(node)].crash(KeepNothing())

    def log(self, node: int) -> SimReplicaLog:
        log = self.replicas[NodeId(node)].core.log
        assert isinstance(log, SimReplicaLog)
        return log

    def values(self, node: int) -> list[bytes]:
        """Of the data batches in this node's log."""
        return [value_of(stored.batch) for stored in self.log(node).stored if not stored.batch.header.control]

    # What the controller says

    def change(self, *nodes: int, **changes: Any) -> None:
        """New committed metadata reaches these nodes, or all. A new leader is a new leader epoch."""
        epochs: dict[str, Any] = {"partition_epoch": self.view.partition_epoch + 1}
        if "leader" in changes:
            epochs["leader_epoch"] = self.view.leader_epoch + 1
        self.view = self.view._replace(**{**epochs, **changes})
        self.tell(*(nodes or self.replicas))

    def tell(self, *nodes: int) -> None:
        for node in nodes:
            if NodeId(node) in self.replicas:
                changed = MetadataChanged(self.view, self.view.partition_epoch)
                self.step(node, Received(NodeId(node), changed))

    # Inputs

    def step(self, node: int, given: ReplicaInput) -> None:
        """Every tick comes here, and one that is not due does nothing: so a broker may leave it out. What others have
        done to the log is another matter: who moves its start from outside also makes that durable."""
        replica = self.replicas[NodeId(node)]
        core, log = replica.core, replica.core.log
        untouched = log.usable and core.durable_start == log.log_start_offset
        rests = isinstance(given, Tick) and given.now_ms < replica.due_ms and untouched
        effects = replica.step(given)
        assert not (rests and effects), f"{effects} of a tick that was not due"
        for effect in effects:
            self._carry_out(NodeId(node), effect)

    def _carry_out(self, node: NodeId, effect: Effect) -> None:
        match effect:
            case Send(to, message):
                if to == ACTIVE_CONTROLLER:
                    assert isinstance(message, AlterPartition)
                    self.proposals.append(message)
                else:
                    self.wire.append((node, effect))
            case Persist():
                self.syncs.append((node, effect))
            case Reply(request, response):
                assert request not in self.replies, "answered twice"
                self.replies[request] = response
            case Panic(reason):
                self.panics[node] = reason
            case _:
                raise AssertionError(effect)

    def ask(self, node: int, body: Any) -> int:
        """The number of the request; the answer, if there is one by now, is in `replies`."""
        self._requests += 1
        self.step(node, Asked(RequestId(self._requests), body))
        return self._requests

    def produce(self, node: int, value: bytes, rows: int = 1, **options: Any) -> int:
        producer = options.pop("producer", NOBODY)
        return self.ask(node, Produce([batch(value, rows, producer)], **options))

    def read(self, node: int, offset: int = 0, *, committed_only: bool = False) -> Any:
        answer = self.replies[self.ask(node, Read(offset, 1 << 20, committed_only))]
        return (
            [value_of(found) for found in answer.batches if not found.header.control]
            if isinstance(answer, ReadBatches)
            else answer
        )

    def finish_syncs(self) -> bool:
        """Does all syncs but those of `no_syncs`; False where there was none to do."""
        due = [entry for entry in self.syncs if entry[0] not in self.no_syncs]
        self.syncs = [entry for entry in self.syncs if entry[0] in self.no_syncs]
        for node, persist in due:
            self.log(node).sync()
            self.step(node, Persisted(persist.operation))
        return bool(due)

    def deliver(self) -> bool:
        """Delivers what is on the wire and not held; False where there was nothing."""
        due = [entry for entry in self.wire if not self.held(*entry)]
        self.wire = [entry for entry in self.wire if self.held(*entry)]
        for sender, send in due:
            if send.to in self.replicas:
                self.step(send.to, Received(sender, cast("ReplicaMessage", send.message)))
        return bool(due)

    def settle(self) -> None:
        """Until nothing happens any more without time going on."""
        while self.finish_syncs() or self.deliver():
            pass

    def pass_time(self, milliseconds: int, step_ms: int = 100) -> None:
        for _ in range(0, milliseconds, step_ms):
            self.now_ms += step_ms
            for node in list(self.replicas):
                self.step(node, Tick(self.now_ms))
            self.settle()

    def cut(self, *nodes: int) -> None:
        """These nodes get and send nothing any more, until `heal`: what is on the wire for them is lost."""
        self.wire = [(sender, send) for sender, send in self.wire if sender not in nodes and send.to not in nodes]
        self.held = lambda sender, send: sender in nodes or send.to in nodes

    def heal(self) -> None:
        self.held = lambda sender, send: False
        self.wire = []


class KeepNothing(Random):
    """Chance that always draws the lowest: no unsynced write survives a crash."""

    def getrandbits(self, k: int, /) -> int:
        return 0
