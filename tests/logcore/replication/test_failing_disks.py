"""Disks that fail where no machine is looking, and logs that cannot be opened."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from millstream.errors import LogError
from millstream.logcore.replication.broker.broker import ReplicaBroker
from millstream.logcore.replication.broker.registration import BrokerIdentity
from millstream.logcore.replication.controller.controller_messages import BrokerAccepted, BrokerHeartbeat
from millstream.logcore.replication.controller.metadata_records import (
    BrokerRegistered,
    BrokerUnfenced,
    PartitionState,
    TopicCreated,
    TopicDeleted,
)
from millstream.logcore.replication.disk.disk_logs import DiskLogs
from millstream.logcore.replication.machine import Committed, Effect, NodeId, Received, Send, Tick
from millstream.logcore.replication.replica.replica_messages import PartitionId
from tests.simulation.cluster_logs import SimReplicaLogs
from tests.simulation.disk import SimDisk
from tests.simulation.replica_log import SimReplicaLog

from .replica_logs import append, open_disk_log
from .trio import Trio

_ENDPOINTS = (("kafka", "node:9092"),)


class FullDisk(SimReplicaLogs):
    """Nothing can be opened any more."""

    def open(self, partition: PartitionId) -> SimReplicaLog:
        raise OSError(28, "no space left on device")


class TiredDisk(SimReplicaLogs):
    """A log cannot be opened, though its file is there by then."""

    def open(self, partition: PartitionId) -> SimReplicaLog:
        super().open(partition)
        raise OSError(5, "input/output error")


def a_broker_that_leads_what_it_cannot_open(*others_in_sync: int) -> ReplicaBroker:
    """Node 1, with node 2 up."""
    logs = FullDisk(SimDisk(), lambda *_: None, Counter())
    broker = ReplicaBroker(BrokerIdentity("c", NodeId(1), logs.incarnation, _ENDPOINTS), logs)
    in_sync = (NodeId(1), *map(NodeId, others_in_sync))
    state = PartitionState("t-id", 0, NodeId(1), 0, 0, in_sync, in_sync, (), 1)
    lives = [BrokerRegistered(NodeId(node), logs.incarnation, True, _ENDPOINTS, None) for node in (1, 2)]
    unfenced = [BrokerUnfenced(NodeId(node), node) for node in (1, 2)]
    broker.step(Tick(1_000))
    broker.step(Received(NodeId(1), BrokerAccepted("c", logs.incarnation, 1)))
    broker.step(Committed(1, (*lives, *unfenced, TopicCreated("t-id", "t"), state)))
    return broker


def test_of_a_deleted_topic_nothing_stays_though_its_log_could_not_be_opened() -> None:
    logs = TiredDisk(SimDisk(), lambda *_: None, Counter())
    broker = ReplicaBroker(BrokerIdentity("c", NodeId(1), logs.incarnation, _ENDPOINTS), logs)
    broker.step(Received(NodeId(1), BrokerAccepted("c", logs.incarnation, 1)))
    alone = (NodeId(1),)
    state = PartitionState("t-id", 0, NodeId(1), 0, 0, alone, alone, (), 1)
    lives = BrokerRegistered(NodeId(1), logs.incarnation, True, _ENDPOINTS, None)
    broker.step(Committed(1, (lives, TopicCreated("t-id", "t"), state)))
    assert [*broker.unopened] == [*logs.stored()] == [PartitionId("t-id", 0)]
    broker.step(Committed(4, (TopicDeleted("t-id"),)))
    assert [*broker.unopened] == [*logs.stored()] == []


def signs_of_life(broker: ReplicaBroker, *, until_ms: int = 10_000) -> int:
    effects: list[Effect] = []
    for now_ms in range(2_000, until_ms, 100):
        effects += broker.step(Tick(now_ms))
    return sum(isinstance(each, Send) and isinstance(each.message, BrokerHeartbeat) for each in effects)


def test_a_leader_whose_log_does_not_open_is_silent_where_another_one_can_lead() -> None:
    assert signs_of_life(a_broker_that_leads_what_it_cannot_open(2)) == 0


def test_a_leader_whose_log_does_not_open_goes_on_with_all_else_where_nobody_can_take_its_place() -> None:
    assert signs_of_life(a_broker_that_leads_what_it_cannot_open()) > 5, "it would be fenced and come back for ever"


def _fails(*_: object) -> None:
    raise OSError(5, "input/output error")


def test_a_sync_of_housekeeping_that_fails_ends_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_disk_log(tmp_path / "log")
    append(log, 1, 1)
    assert log.usable
    monkeypatch.setattr(log, "_make_durable", _fails)
    with pytest.raises(LogError):
        log.drop_before(1)
    assert not log.usable


def test_logs_know_that_a_disk_failed_one_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = DiskLogs(tmp_path, 1, "c")
    log = logs.open(PartitionId("t", 0))
    assert not logs.failed
    monkeypatch.setattr(log, "_make_durable", _fails)
    with pytest.raises(LogError):
        log.sync_all()
    assert logs.failed
    logs.close()


@pytest.mark.parametrize("node", [1, 2], ids=["leader", "follower"])
def test_a_replica_whose_log_failed_by_other_hands_ends_its_process(node: int) -> None:
    trio = Trio()
    trio.change(leader=NodeId(1))
    trio.settle()
    trio.log(node).usable = False
    trio.pass_time(100)
    assert "disk" in trio.panics[NodeId(node)], "nothing is left to be synced, so the machine would never hear of it"
