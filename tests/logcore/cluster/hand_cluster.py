"""The machines of several nodes in one thread: all is delivered and durable at once, and time goes on by hand."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from millstream.logcore.cluster.watch import MetadataWatch
from millstream.logcore.errors import NotNow
from millstream.logcore.records.batch import HEADER_SIZE, NOBODY, EncodedBatch, seal
from millstream.logcore.replication.broker.broker import ReplicaBroker
from millstream.logcore.replication.broker.registration import BrokerIdentity
from millstream.logcore.replication.controller.controller import Controller
from millstream.logcore.replication.controller.controller_messages import CreateTopic, Done, NotController
from millstream.logcore.replication.controller.metadata_image import MetadataImage
from millstream.logcore.replication.machine import (
    BROKER,
    CONTROLLER,
    Asked,
    Committed,
    Effect,
    Input,
    Machine,
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
from millstream.logcore.replication.raft.quorum import Quorum
from millstream.logcore.replication.raft.quorum_messages import QuorumRecovered, nothing_recovered
from millstream.logcore.replication.replica.replica_messages import ForPartition, PartitionId, Produce
from tests.simulation.cluster_logs import SimReplicaLogs
from tests.simulation.disk import SimDisk

STEP_MS = 50


def batch(size: int) -> EncodedBatch:
    return seal(
        [bytearray(HEADER_SIZE + size)],
        attributes=0,
        last_offset_delta=0,
        base_timestamp_ms=0,
        max_timestamp_ms=0,
        record_count=1,
        producer=NOBODY,
    )


class HandNode:
    """One life of a node."""

    def __init__(self, node: NodeId, recovered: QuorumRecovered, rack: str | None, disk: SimDisk) -> None:
        self.controller = Controller(Quorum(node, "test", recovered, seed=node))
        self.logs = SimReplicaLogs(disk, lambda partition, offset: None, Counter[str]())
        where = (("kafka", f"host:{9100 + node}"), ("http", f"host:{8100 + node}"), ("node", f"host:{9000 + node}"))
        self.broker = ReplicaBroker(BrokerIdentity("test", node, self.logs.incarnation, where, rack), self.logs)
        self.watch = MetadataWatch(node, lambda: self.broker.active, lambda: self.broker.lease.until_ms)
        self.machines: Mapping[str, Machine] = {
            CONTROLLER: self.controller,
            BROKER: self.broker,
            "watch": self.watch,
        }


class HandCluster:
    """State: the nodes that run, what is on the wire, the answers."""

    def __init__(self, nodes: int = 3, racks: tuple[str | None, ...] = ()) -> None:
        self.nodes: dict[NodeId, HandNode] = {}
        self.disks: dict[NodeId, SimDisk] = {}
        self.quorums: dict[NodeId, QuorumRecovered] = {}
        self.voters = tuple(NodeId(node) for node in range(1, nodes + 1))
        self.now_ms = 0
        self.held: Callable[[NodeId, Send], bool] = lambda sender, send: False
        self._racks = racks
        self._wire: deque[tuple[NodeId, Send]] = deque()
        self._waiting: dict[RequestId, Future[Any]] = {}
        self._requests = 0
        for node in self.voters:
            self.start(node)
        self.until(lambda: all(self.image.is_live(node) for node in self.voters))

    # Nodes

    def start(self, number: int) -> None:
        node = NodeId(number)
        disk = self.disks.setdefault(node, SimDisk())
        rack = self._racks[number - 1] if number <= len(self._racks) else None
        new = nothing_recovered(self.voters, () if node in self.voters else (node,))._replace(disk=f"disk-{node}")
        self.nodes[node] = HandNode(node, self.quorums.get(node, new), rack, disk)

    def stop(self, number: int) -> None:
        """As by kill -9; what it has on its disk is there when it is started again."""
        quorum = self.nodes.pop(NodeId(number)).controller.quorum
        log = quorum.log
        entries = log.after(log.base, log.last_index - log.base)
        self.quorums[NodeId(number)] = QuorumRecovered(
            quorum.term, quorum.voted_for, log.snapshot, log.base, log.base_term, entries, quorum.disk
        )

    @property
    def image(self) -> MetadataImage:
        return max((node.watch.image for node in self.nodes.values()), key=lambda image: image.index)

    @property
    def active(self) -> HandNode:
        return next(node for node in self.nodes.values() if node.controller.active)

    # Time

    def until(self, holds: Callable[[], object], seconds: float = 60) -> None:
        end_ms = self.now_ms + seconds * 1000
        while not holds():
            assert self.now_ms < end_ms, "it never came true"
            self.pass_time(STEP_MS)

    def pass_time(self, milliseconds: int) -> None:
        for _ in range(0, milliseconds, STEP_MS):
            self.now_ms += STEP_MS
            for number in list(self.nodes):
                for machine in (CONTROLLER, BROKER, "watch"):
                    self._step(number, machine, Tick(self.now_ms, self.now_ms))
            self._deliver()

    def _deliver(self) -> None:
        while self._wire:
            sender, send = self._wire.popleft()
            if send.to in self.nodes and send.machine is not None and not self.held(sender, send):
                self._step(send.to, send.machine, Received(sender, send.message))

    def _step(self, node: NodeId, machine: str, given: Input) -> None:
        running = self.nodes.get(node)
        if running is None:
            return
        for effect in running.machines[machine].step(given):
            self._carry_out(node, machine, effect)

    def _carry_out(self, node: NodeId, machine: str, effect: Effect) -> None:
        match effect:
            case Send(to, message, other):
                self._wire.append((node, Send(to, message, other or machine)))
            case Persist(operation, change):
                if machine == BROKER:
                    self.nodes[node].logs.apply(change)
                    self.nodes[node].logs.sync()
                self._step(node, machine, Persisted(operation))
            case Reply(request, response):
                if (future := self._waiting.pop(request, None)) is not None:
                    future.set_result(response)
            case Committed():
                for other in (BROKER, "watch"):
                    self._step(node, other, effect)
            case Panic(reason):
                raise AssertionError(f"node {node} panics: {reason}")

    # Requests

    def ask(self, at: int, machine: str, body: Any) -> Future[Any]:
        """Answered by the time that this returns, or not at all."""
        self._requests += 1
        request, future = RequestId(self._requests), Future[Any]()
        self._waiting[request] = future
        self._step(NodeId(at), machine, Asked(request, body))
        for _ in range(40):
            self._deliver()
            if future.done():
                return future
            self.pass_time(STEP_MS)
        future.set_exception(TimeoutError())
        return future

    def create_topic(
        self, name: str, partitions: int = 1, replicas: int = 3, configs: Mapping[str, str] | None = None
    ) -> str:
        create = CreateTopic(name, partitions, replicas, configs=tuple((configs or {}).items()))
        answer = self.port().ask_controller(create, 10)
        assert isinstance(answer, Done), answer
        self.until(lambda: all(node.watch.image.index >= answer.index for node in self.nodes.values()))
        assert answer.topic_id is not None
        return answer.topic_id

    def produce(self, topic: str, partition: int = 0, *, count: int = 1, size: int = 1_000) -> None:
        id = PartitionId(self.image.topic_ids[topic], partition)
        for _ in range(count):
            state = self.image.partition(id)
            assert state is not None and state.leader is not None
            self.ask(state.leader, BROKER, ForPartition(id, Produce([batch(size)]))).result(0)

    def port(self, node: int = 1) -> HandPort:
        return HandPort(self, NodeId(node))


class HandPort:
    """`ClusterPort` of one of the nodes."""

    def __init__(self, cluster: HandCluster, node: NodeId) -> None:
        self._cluster = cluster
        self.id = node

    @property
    def image(self) -> MetadataImage:
        return self._cluster.nodes[self.id].watch.image

    def ask(self, machine: str, body: Any, *, at: NodeId | None = None) -> Future[Any]:
        return self._cluster.ask(self.id if at is None else at, machine, body)

    def ask_controller(self, body: Any, timeout_s: float) -> Any:
        end_ms = self._cluster.now_ms + timeout_s * 1000
        while self._cluster.now_ms < end_ms:
            for node in list(self._cluster.nodes):
                answer = self.ask(CONTROLLER, body, at=node).result(0)
                if not isinstance(answer, NotController):
                    return answer
            self._cluster.pass_time(100)
        raise NotNow(7, "no controller")
