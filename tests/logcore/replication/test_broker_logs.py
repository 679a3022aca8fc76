"""What a broker does with the logs on its disk: it tells them the settings of topics, and that the controller knows of
lost records, and removes those that are not its own any more; and how it leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from millstream.logcore.replication.broker.broker import LeaveCluster, OpenReplica, ReplicaBroker
from millstream.logcore.replication.broker.registration import BrokerIdentity
from millstream.logcore.replication.controller.controller_messages import (
    BrokerAccepted,
    BrokerHeartbeat,
    BrokerRefused,
    HeartbeatAnswer,
)
from millstream.logcore.replication.controller.metadata_image import ALL
from millstream.logcore.replication.controller.metadata_records import (
    BrokerRegistered,
    ConfigChanged,
    PartitionState,
    Together,
    TopicCreated,
    TopicDeleted,
)
from millstream.logcore.replication.machine import Asked, Committed, NodeId, Received, Reply, RequestId, Send, Tick
from millstream.logcore.replication.replica.replica_messages import (
    AskOffsets,
    FetchRequest,
    ForPartition,
    PartitionId,
)
from tests.simulation.cluster_logs import SimReplicaLogs
from tests.simulation.disk import SimDisk

from .replica_logs import append

NODE = NodeId(1)
ENDPOINTS = (("kafka", "node1:9092"),)


class HeardLogs(SimReplicaLogs):
    """State: what they were told."""

    def __init__(self, disk: SimDisk) -> None:
        super().__init__(disk, lambda *_: None, Counter())
        self.registrations = 0
        self.configured: list[tuple[str, str, Mapping[str, str]]] = []

    def registered(self) -> None:
        self.registrations += 1
        super().registered()

    def configure(self, topic: str, name: str, config: Mapping[str, str]) -> None:
        self.configured.append((topic, name, config))


def a_broker(logs: SimReplicaLogs) -> ReplicaBroker:
    broker = ReplicaBroker(BrokerIdentity("c", NODE, logs.incarnation, ENDPOINTS), logs)
    broker.step(Tick(1_000))
    return broker


def test_lost_records_are_known_when_the_registration_is_decided_and_not_before() -> None:
    logs = HeardLogs(SimDisk())
    broker = a_broker(logs)
    broker.step(Received(NODE, BrokerAccepted("c", logs.incarnation + 1, 1)))  # of another life
    assert logs.registrations == 0
    broker.step(Received(NODE, BrokerAccepted("c", logs.incarnation, 1)))
    assert logs.registrations == 1


def test_a_node_that_dies_before_anybody_knows_of_lost_records_says_so_again() -> None:
    disk = SimDisk()
    logs = SimReplicaLogs(disk, lambda *_: None, Counter())
    log = logs.open(PartitionId("t", 0))
    for _ in range(8):
        append(log, 1)
        log.sync()
    file = disk.get(log.name)
    assert file is not None
    file.flip(80, 0)
    lost = [SimReplicaLogs(disk, lambda *_: None, Counter()) for _ in range(2)]
    assert [each.clean for each in lost] == [False, False]
    lost[-1].registered()
    assert SimReplicaLogs(disk, lambda *_: None, Counter()).clean


def test_settings_of_a_topic_reach_its_logs_before_they_are_opened_and_when_they_change() -> None:
    logs = HeardLogs(SimDisk())
    broker = a_broker(logs)
    state = PartitionState("t-id", 0, None, 0, 0, (NODE,), (NODE,), (), 1)
    created = Together((TopicCreated("t-id", "clicks"), ConfigChanged("t-id", "retention.ms", "5"), state))
    registered = BrokerRegistered(NODE, logs.incarnation, True, ENDPOINTS, None)
    broker.step(Received(NODE, BrokerAccepted("c", logs.incarnation, 1)))
    broker.step(Committed(1, (registered, created)))
    assert logs.configured == [("t-id", "clicks", {"retention.ms": "5"})]
    broker.step(Committed(3, (ConfigChanged(ALL, "segment.bytes", "2048"),)))
    assert logs.configured[-1] == ("t-id", "clicks", {"retention.ms": "5", "segment.bytes": "2048"})
    broker.step(Committed(4, (ConfigChanged("t-id", "segment.bytes", "4096"),)))
    assert logs.configured[-1][2]["segment.bytes"] == "4096"


def test_everybody_who_asks_a_node_to_leave_is_answered() -> None:
    logs = HeardLogs(SimDisk())
    broker = a_broker(logs)
    broker.step(Received(NODE, BrokerAccepted("c", logs.incarnation, 1)))
    for request in (RequestId(1), RequestId(2)):
        broker.step(Asked(request, LeaveCluster()))
    beats = [effect.message for effect in broker.step(Tick(2_000)) if isinstance(effect, Send)]
    assert [beat.leaving for beat in beats if isinstance(beat, BrokerHeartbeat)] == [True]
    answer = HeartbeatAnswer("c", 1, 1, known=True, fenced=True, index=1, session_ms=3_000)
    assert broker.step(Received(NODE, answer)) == [Reply(RequestId(1), None), Reply(RequestId(2), None)]
    assert broker.step(Received(NODE, answer)) == []


def test_an_answer_for_the_disk_of_before_is_not_taken_for_ones_own() -> None:
    """R8: a node with a new disk counts its starts from 1 again, and late answers may still be on their way."""
    logs = HeardLogs(SimDisk())
    broker = ReplicaBroker(BrokerIdentity("c", NODE, logs.incarnation, (), disk="new"), logs)
    broker.step(Received(NODE, BrokerAccepted("c", logs.incarnation, 1, "old")))
    assert broker.step(Received(NODE, BrokerRefused("c", logs.incarnation, "it was exchanged", "old"))) == []
    assert broker.epoch is None
    broker.step(Received(NODE, BrokerAccepted("c", logs.incarnation, 5, "new")))
    assert broker.epoch == 5


def test_what_nobody_else_waits_for_rests_until_it_is_asked_for() -> None:
    logs = HeardLogs(SimDisk())
    logs.opens_late = True
    broker = a_broker(logs)
    other = NodeId(NODE + 1)
    states = [PartitionState("t-id", number, NODE, 0, 0, (NODE,), (NODE,), (), 1) for number in range(3)]
    shared = PartitionState("t-id", 3, NODE, 0, 0, (NODE, other), (NODE,), (), 1)
    broker.step(Received(NODE, BrokerAccepted("c", logs.incarnation, 1)))
    registered = BrokerRegistered(NODE, logs.incarnation, True, ENDPOINTS, None)
    broker.step(Committed(1, (registered, Together((TopicCreated("t-id", "clicks"), *states, shared)))))
    assert [*broker.replicas] == [PartitionId("t-id", 3)]  # somebody else copies it
    broker.step(Asked(RequestId(1), ForPartition(PartitionId("t-id", 0), AskOffsets(-1))))
    broker.step(Asked(RequestId(2), OpenReplica(PartitionId("t-id", 1))))
    assert sorted(partition.number for partition in broker.replicas) == [0, 1, 3]
    assert all(replica.leader is not None for replica in broker.replicas.values())
    copied = states[2]._replace(replicas=(NODE, other), adding=(other,), partition_epoch=1)
    broker.step(Committed(3, (copied,)))
    assert PartitionId("t-id", 2) in broker.replicas
    broker.step(Committed(4, (TopicDeleted("t-id"),)))
    assert not broker.replicas and not [*logs.stored()]


def test_what_rests_goes_with_its_topic() -> None:
    disk = SimDisk()
    before = SimReplicaLogs(disk, lambda *_: None, Counter())
    before.open(PartitionId("t-id", 0))
    logs = HeardLogs(disk)
    logs.opens_late = True
    broker = a_broker(logs)
    state = PartitionState("t-id", 0, NODE, 0, 0, (NODE,), (NODE,), (), 1)
    broker.step(Received(NODE, BrokerAccepted("c", logs.incarnation, 1)))
    registered = BrokerRegistered(NODE, logs.incarnation, True, ENDPOINTS, None)
    broker.step(Committed(1, (registered, Together((TopicCreated("t-id", "clicks"), state)))))
    assert [*logs.stored()] == [PartitionId("t-id", 0)] and not broker.replicas
    broker.step(Committed(3, (TopicDeleted("t-id"),)))
    assert not [*logs.stored()]


def test_a_node_that_learns_at_once_that_it_left_a_partition_and_returned_keeps_its_log() -> None:
    """I8: else the fetches of the log that it removes tell the leader that the log that it begins has all of that."""
    disk = SimDisk()
    partition, other = PartitionId("t-id", 0), NodeId(NODE + 1)
    logs = HeardLogs(disk)
    log = logs.open(partition)
    append(log, 0, 0)
    log.sync()
    broker = a_broker(logs)
    both = PartitionState("t-id", 0, other, 0, 0, (NODE, other), (NODE, other), (), 1)
    registered = BrokerRegistered(NODE, logs.incarnation, True, ENDPOINTS, None)
    broker.step(Received(NODE, BrokerAccepted("c", logs.incarnation, 1)))
    broker.step(Committed(1, (registered, Together((TopicCreated("t-id", "clicks"), both)))))
    behind = both._replace(isr=(other,), partition_epoch=1)
    gone = behind._replace(replicas=(other,), leader_epoch=1, partition_epoch=2)
    back = gone._replace(replicas=(NODE, other), adding=(NODE,), partition_epoch=3)
    effects = broker.step(Committed(3, (behind, gone, back)))
    asked = [effect.message for effect in effects if isinstance(effect, Send)]
    fetches = [(each.leader_epoch, each.offset) for each in asked if isinstance(each, FetchRequest)]
    assert fetches == [(1, log.end_offset)]
    assert logs.open(partition) is log
    broker.step(Committed(6, (back._replace(replicas=(other,), adding=(), leader_epoch=2, partition_epoch=4),)))
    assert not broker.replicas and not [*logs.stored()]
