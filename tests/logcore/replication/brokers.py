"""Three brokers with coordinators on simulated disks. The test plays the controller: it says who leads."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from millstream.logcore.replication.broker.broker import ReplicaBroker, ReplicaBrokerSettings
from millstream.logcore.replication.broker.registration import BrokerIdentity
from millstream.logcore.replication.controller.controller_messages import (
    BrokerAccepted,
    BrokerHeartbeat,
    HeartbeatAnswer,
    RegisterBroker,
)
from millstream.logcore.replication.controller.metadata_image import MetadataImage, fold
from millstream.logcore.replication.controller.metadata_records import (
    BrokerRegistered,
    PartitionState,
    Together,
    TopicCreated,
    TopicDeleted,
)
from millstream.logcore.replication.machine import (
    CONTROLLER,
    Asked,
    Committed,
    Effect,
    Input,
    NodeId,
    Persist,
    Persisted,
    Received,
    Reply,
    RequestId,
    Send,
    Tick,
)
from millstream.logcore.replication.replica.replica_messages import AlterPartition, PartitionId
from millstream.logcore.replication.shards.coordination import CoordinationSettings
from millstream.logcore.replication.shards.coordination_messages import ForGroup
from millstream.logcore.replication.shards.coordinators import default_makers
from millstream.logcore.replication.shards.led_log import ShardMaker
from millstream.logcore.topic_rules import GROUPS_TOPIC
from tests.simulation.cluster_logs import SimReplicaLogs
from tests.simulation.disk import SimDisk

from .trio import KeepNothing

WALL_MS: Final = 1_700_000_000_000
SESSION_MS: Final = 3_000
_IDS: Final = {GROUPS_TOPIC: "groups-id"}


class Brokers:
    """State: the brokers that run, the metadata, what is on the wire, and all that was answered."""

    def __init__(
        self,
        makers: Mapping[str, ShardMaker] | None = None,
        *,
        shards: int = 1,
        coordination: CoordinationSettings | None = None,
    ) -> None:
        self.disks = {NodeId(node): SimDisk() for node in (1, 2, 3)}
        self.brokers: dict[NodeId, ReplicaBroker] = {}
        self.records: list[Any] = []
        self.image = MetadataImage()
        self.now_ms = 0
        self.wall_ms = WALL_MS
        self.replies: dict[int, Any] = {}
        self.cut: set[int] = set()  # nodes that get and send nothing, and hear nothing of the controller
        self.held: Callable[[NodeId, Any], bool] = lambda sender, message: False
        self.watched: Callable[[NodeId, Input], object] = lambda to, given: None  # is shown what arrives where
        self._settings = ReplicaBrokerSettings(coordination=coordination or CoordinationSettings())
        self._makers = makers if makers is not None else default_makers()
        self._todo: deque[tuple[NodeId, Input]] = deque()
        self._requests = 0
        for node in self.disks:
            self.start(node)
        self.create_topic(GROUPS_TOPIC, shards)
        self.create_topic("orders", 4)
        self.pass_time(1_000)

    # Nodes

    def start(self, node: int) -> None:
        disk = self.disks[NodeId(node)]
        logs = SimReplicaLogs(disk, lambda *_: None, Counter())
        identity = BrokerIdentity("test", NodeId(node), logs.incarnation, (("kafka", f"node{node}:9092"),))
        self.brokers[NodeId(node)] = ReplicaBroker(identity, logs, self._settings, coordinators=self._makers)
        self._storage = {**getattr(self, "_storage", {}), node: logs}
        self._give(NodeId(node), Committed(1, tuple(self.records)))
        self.pass_time(50)

    def kill(self, node: int) -> None:
        """The power of the node goes: what was not synced is lost."""
        del self.brokers[NodeId(node)]
        self.disks[NodeId(node)].crash(KeepNothing())

    # The controller

    def decide(self, record: Any) -> None:
        self.records.append(record)
        self.image = fold(self.image, len(self.records), record)
        for node in list(self.brokers):
            if node not in self.cut:
                self._give(node, Committed(len(self.records), (record,)))

    def create_topic(self, name: str, partitions: int) -> None:
        topic_id = _IDS.get(name, f"{name}-{len(self.records)}")
        nodes = tuple(self.disks)
        states = [PartitionState(topic_id, n, nodes[0], 1, 1, nodes, nodes, (), 2) for n in range(partitions)]
        self.decide(Together((TopicCreated(topic_id, name), *states)))

    def delete_topic(self, name: str) -> None:
        self.decide(TopicDeleted(self.image.topic_ids[name]))

    def elect(self, node: int, *, shard: int = 0, topic: str = GROUPS_TOPIC) -> None:
        state = self.image.partition(PartitionId(self.image.topic_ids[topic], shard))
        assert state is not None
        epochs = {"leader_epoch": state.leader_epoch + 1, "partition_epoch": state.partition_epoch + 1}
        isr = tuple(each for each in state.isr if each in self.brokers and each not in self.cut)
        self.decide(state._replace(leader=NodeId(node), isr=isr, **epochs))

    def _control(self, sender: NodeId, message: Any) -> None:
        match message:
            case RegisterBroker():
                self.records.append(
                    record := BrokerRegistered(sender, message.incarnation, True, message.endpoints, None)
                )
                self.image = fold(self.image, len(self.records), record)
                self._give(
                    sender,
                    Received(sender, BrokerAccepted("test", message.incarnation, len(self.records), message.disk)),
                )
                for node in list(self.brokers):
                    self._give(node, Committed(len(self.records), (record,)))
            case BrokerHeartbeat(cluster, _, epoch, number):
                answer = HeartbeatAnswer(cluster, epoch, number, True, False, len(self.records), SESSION_MS)
                self._give(sender, Received(sender, answer))
            case AlterPartition(partition, _, _, leader_epoch, partition_epoch, in_sync):
                state = self.image.partition(partition)
                assert state is not None
                if (state.leader_epoch, state.partition_epoch) == (leader_epoch, partition_epoch):
                    isr = tuple(each.node for each in in_sync)
                    self.decide(state._replace(isr=isr, partition_epoch=partition_epoch + 1))
            case _:
                pass

    # Inputs

    def pass_time(self, milliseconds: int, step_ms: int = 50) -> None:
        for _ in range(0, milliseconds, step_ms):
            self.now_ms += step_ms
            self.wall_ms += step_ms
            for node in list(self.brokers):
                self._give(node, Tick(self.now_ms, self.wall_ms))

    def ask(self, node: int, body: Any) -> int:
        """The number of the request; the answer, if there is one by now, is in `replies`."""
        self._requests += 1
        self._give(NodeId(node), Asked(RequestId(self._requests), body))
        return self._requests

    def group(self, node: int, group: str, body: Any) -> Any:
        """The answer; None where there is none yet."""
        return self.replies.get(self.ask(node, ForGroup(group, body)))

    def send(self, sender: int, to: int, message: Any) -> None:
        self._give(NodeId(to), Received(NodeId(sender), message))

    def _give(self, node: NodeId, given: Input) -> None:
        """And all that follows from it."""
        self._todo.append((node, given))
        if len(self._todo) > 1:
            return
        while self._todo:
            to, now = self._todo[0]
            self.watched(to, now)
            if to in self.brokers:
                for effect in self.brokers[to].step(now):
                    self._carry_out(to, effect)
            self._todo.popleft()

    def _carry_out(self, node: NodeId, effect: Effect) -> None:
        match effect:
            case Send(to, message, machine):
                if node in self.cut or to in self.cut or self.held(node, message):
                    return
                if machine == CONTROLLER:
                    self._control(node, message)
                else:
                    self._give(to, Received(node, message))
            case Persist(operation, change):
                logs = self._storage[node]
                logs.apply(change)
                logs.sync()
                self._give(node, Persisted(operation))
            case Reply(request, response):
                assert request not in self.replies, "answered twice"
                self.replies[request] = response
            case _:
                raise AssertionError(effect)
