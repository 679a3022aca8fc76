"""Who has nothing due is not told of the time."""

from __future__ import annotations

from collections import Counter

from millstream.logcore.replication.broker.alarms import Alarms
from millstream.logcore.replication.broker.broker import ReplicaBroker
from millstream.logcore.replication.broker.registration import BrokerIdentity
from millstream.logcore.replication.controller.controller_messages import BrokerAccepted
from millstream.logcore.replication.controller.metadata_records import (
    BrokerRegistered,
    PartitionState,
    Together,
    TopicCreated,
)
from millstream.logcore.replication.machine import Committed, NodeId, Panic, Received, Tick
from millstream.logcore.replication.replica.replica import ReplicaInput
from millstream.logcore.replication.replica.replica_core import NEVER_MS
from millstream.logcore.replication.replica.replica_messages import PartitionId
from tests.simulation.cluster_logs import SimReplicaLogs
from tests.simulation.disk import SimDisk

P, Q = PartitionId("t", 0), PartitionId("t", 1)
NODE = NodeId(1)


def test_alarms_come_in_the_order_of_their_times() -> None:
    alarms = Alarms()
    alarms.set(P, 20)
    alarms.set(Q, 10)
    assert alarms.take(9) == []
    assert alarms.take(20) == [Q, P]
    assert alarms.take(1_000) == [], "each is set anew"


def test_an_alarm_that_is_put_off_comes_once_and_then() -> None:
    alarms = Alarms()
    alarms.set(P, 10)
    alarms.set(P, 30)
    assert alarms.take(29) == []
    assert alarms.take(30) == [P]


def test_an_alarm_that_is_brought_forward_comes_once() -> None:
    alarms = Alarms()
    for at_ms in (30, 10, 20):
        alarms.set(P, at_ms)
    assert (alarms.take(10), alarms.take(20), alarms.take(40)) == ([], [P], [])
    alarms.set(P, 50)
    assert (alarms.take(49), alarms.take(50)) == ([], [P])


def test_an_alarm_that_is_taken_back_does_not_come() -> None:
    alarms = Alarms()
    alarms.set(P, 10)
    alarms.set(P, NEVER_MS)
    assert alarms.take(1_000) == []
    alarms.set(P, 10)
    assert alarms.take(1_000) == [P]


class _Leading:
    """A broker that leads partition 0 with nobody else in sync, and partition 1 with a follower that is silent. State:
    what the replicas were stepped with."""

    def __init__(self) -> None:
        self.logs = SimReplicaLogs(SimDisk(), lambda *_: None, Counter())
        endpoints = (("kafka", "node1:9092"),)
        self.broker = ReplicaBroker(BrokerIdentity("c", NODE, self.logs.incarnation, endpoints), self.logs)
        self.broker.step(Tick(1_000))
        self.broker.step(Received(NODE, BrokerAccepted("c", self.logs.incarnation, 1)))
        both = (NODE, NodeId(2))
        states = [PartitionState("t", n, NODE, 0, 0, both, in_sync, (), 1) for n, in_sync in enumerate(((NODE,), both))]
        lives = [BrokerRegistered(node, self.logs.incarnation, True, endpoints, None) for node in both]
        self.broker.step(Committed(1, (*lives, Together((TopicCreated("t", "t"), *states)))))
        self.heard: dict[int, list[ReplicaInput]] = {0: [], 1: []}
        for partition, replica in self.broker.replicas.items():
            heard, step = self.heard[partition.number], replica.step
            replica.step = lambda given, heard=heard, step=step: (heard.append(given), step(given))[1]  # pyrefly: ignore[method-assign]


def test_a_leader_alone_in_sync_rests_and_one_with_a_follower_hears_when_it_is_late() -> None:
    leading = _Leading()
    for now_ms in range(2_000, 10_900, 100):
        leading.broker.step(Tick(now_ms))
    assert leading.heard == {0: [], 1: []}
    for now_ms in range(11_000, 11_200, 100):
        leading.broker.step(Tick(now_ms))
    assert leading.heard[0] == [] and leading.heard[1] == [Tick(11_100)]


def test_a_replica_that_rests_hears_that_a_disk_failed_its_log() -> None:
    leading = _Leading()
    log = leading.logs.open(P)
    log.usable, leading.logs.failed = False, True
    effects = leading.broker.step(Tick(2_000))
    assert [type(effect) for effect in effects if isinstance(effect, Panic)] == [Panic]
