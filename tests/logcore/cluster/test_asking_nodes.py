"""Requests from node to node: answered, refused or given up, never left."""

from __future__ import annotations

import pytest
from waiting import eventually

from millstream.errors import LogError
from millstream.logcore.errors import NotNow
from millstream.logcore.records.codec import encode
from millstream.logcore.replication.controller.controller_messages import CreateTopic, Done, NotController
from millstream.logcore.replication.controller.operations_messages import DescribeQuorumHere
from millstream.logcore.replication.machine import BROKER, CONTROLLER, NodeId
from millstream.logcore.replication.node.node_runtime import NodeStopped
from millstream.logcore.replication.replica.replica_messages import ForPartition, Produce

from ..log_records import rows
from .nodes import PATIENCE_S, Cluster


def test_another_nodes_machine_answers(cluster: Cluster) -> None:
    asker = cluster.running[1].node
    topic = CreateTopic("t", 1, 1)
    answers = [asker.ask(CONTROLLER, topic, at=node).result(PATIENCE_S) for node in cluster.settings]
    assert sum(isinstance(answer, NotController) for answer in answers) == 2


def test_the_controller_is_found_from_any_node_and_what_it_did_is_known_there(cluster: Cluster) -> None:
    for number, served in cluster.running.items():
        assert isinstance(served.node.decide(CreateTopic(f"t{number}", 1, 3)), Done)
        assert f"t{number}" in served.node.image.topic_ids


def test_who_asks_while_nobody_decides_is_told_so(cluster: Cluster) -> None:
    cluster.kill(2)
    cluster.kill(3)
    with pytest.raises(NotNow, match="no controller of the cluster has answered in time"):
        cluster.running[1].node.decide(CreateTopic("t", 1, 1), timeout_s=1)


def test_who_asks_a_node_that_has_ended_is_told_so(cluster: Cluster) -> None:
    node = cluster.running[1].node
    cluster.kill(1)
    with pytest.raises(LogError):
        node.decide(CreateTopic("t", 1, 1))


def test_who_waits_for_an_answer_when_its_node_ends_is_told_so(cluster: Cluster) -> None:
    node = cluster.running[1].node
    waiting = [node.ask(CONTROLLER, DescribeQuorumHere(), at=NodeId(9), timeout_s=600) for _ in range(3)]
    assert not any(asked.cancel() for asked in waiting)  # else it could be settled in the same moment, by the node
    node.end()
    assert all(isinstance(asked.exception(), NodeStopped) for asked in waiting)


def test_who_tells_without_waiting_for_answers_can_wait_until_the_node_has_caught_up(cluster: Cluster) -> None:
    node = cluster.running[1].node
    assert isinstance(node.decide(CreateTopic("t", 1, 3)), Done)
    leading = cluster.running[cluster.leader_of("t")].node
    where = leading.partition_id("t", 0)
    assert where is not None
    replica = leading.replica(where)
    assert replica is not None
    for value in range(50):
        leading.tell(BROKER, ForPartition(where, Produce(encode(rows(b"%d" % value)), 0)))
    leading.caught_up().result(PATIENCE_S)
    assert replica.core.log.end_offset == 50
    leading.end()
    assert leading.caught_up().result(PATIENCE_S) is None


def test_the_last_node_does_not_wait_for_somebody_to_take_over(cluster: Cluster) -> None:
    cluster.kill(2)
    cluster.kill(3)
    cluster.running[1].node.leave(timeout_s=600)


def test_a_node_that_panics_says_why_and_answers_nothing_more(cluster: Cluster) -> None:
    node = cluster.running[1].node
    node.ask(BROKER, DescribeQuorumHere())  # which no broker is asked
    assert eventually(lambda: node.failure) is not None
    assert not node.serving
    with pytest.raises(LogError):
        node.decide(CreateTopic("t", 1, 1))
