"""What operators do with a cluster: look at it, move replicas, elect leaders, add and remove nodes."""

from __future__ import annotations

import pytest

from millstream.logcore.cluster.operations import NoController, OperationRefused, Operations
from millstream.logcore.cluster.status import PartitionStatus
from millstream.logcore.replication.machine import NodeId
from tests.logcore.cluster.hand_cluster import HandCluster

ONE, TWO, THREE, FOUR = NodeId(1), NodeId(2), NodeId(3), NodeId(4)


def operations(cluster: HandCluster, node: int = 1) -> Operations:
    return Operations(cluster.port(node), "test")


def partition(cluster: HandCluster, topic: str, number: int = 0) -> PartitionStatus:
    found = operations(cluster, min(cluster.nodes)).status().partitions
    return next(each for each in found if (each.topic, each.partition) == (topic, number))


def with_node_4(cluster: HandCluster) -> None:
    operations(cluster).add_node(FOUR, "host:9004")
    cluster.start(4)
    cluster.until(lambda: cluster.image.is_live(FOUR))


# Looking


def test_every_node_tells_the_same_of_a_cluster_that_is_well() -> None:
    cluster = HandCluster(racks=("a", "b", "c"))
    cluster.create_topic("clicks", 2)
    cluster.produce("clicks", count=3)
    cluster.pass_time(1_000)
    told = [operations(cluster, node).status() for node in (1, 2, 3)]
    status = told[0]
    assert [(node.id, node.state, node.role, node.rack) for node in status.nodes] == [
        (1, "up", "voter", "a"),
        (2, "up", "voter", "b"),
        (3, "up", "voter", "c"),
    ]
    assert [node.id for node in status.nodes if node.controller] == [status.controller]
    assert {node.metadata_lag for node in status.nodes} == {0}
    assert [node.address for node in status.nodes] == ["host:9001", "host:9002", "host:9003"]
    clicks = status.partitions[0]
    assert (clicks.topic, clicks.records, clicks.under_replicated, clicks.offline) == ("clicks", 3, False, False)
    assert [(follower.missing, follower.behind_ms) for follower in clicks.followers] == [(0, 0), (0, 0)]
    assert {each.partitions == status.partitions for each in told} == {True}


def test_a_node_that_is_gone_is_seen_and_so_are_the_partitions_that_lack_it() -> None:
    cluster = HandCluster()
    cluster.create_topic("clicks", 3, configs={"min.insync.replicas": "2"})
    gone = next(node for node in (3, 2, 1) if not cluster.nodes[NodeId(node)].controller.active)
    cluster.stop(gone)
    cluster.until(lambda: not cluster.image.is_live(NodeId(gone)))
    asked = min(cluster.nodes)
    status = operations(cluster, asked).status()
    assert [node.state for node in status.nodes if node.id == gone] == ["fenced"]
    assert all(each.under_replicated and not each.offline for each in status.partitions)
    assert not any(each.under_min_in_sync for each in status.partitions)


def test_where_nobody_decides_a_node_tells_what_it_knew_last() -> None:
    cluster = HandCluster()
    cluster.create_topic("clicks")
    cluster.stop(2)
    cluster.stop(3)
    cluster.pass_time(5_000)
    status = operations(cluster).status()
    assert status.controller is None
    assert [node.id for node in status.nodes] == [1, 2, 3]
    assert [each.topic for each in status.partitions] == ["clicks"]
    with pytest.raises(NoController, match="no node decides") as caught:
        operations(cluster).throttle(1)
    assert "majority" in str(caught.value.hint)


# Replicas


def test_a_partition_moves_to_a_node_that_was_added_and_the_old_replica_goes() -> None:
    cluster = HandCluster()
    cluster.create_topic("clicks")
    cluster.produce("clicks", count=10)
    with_node_4(cluster)
    operations(cluster).reassign("clicks", 0, [FOUR, ONE, TWO])
    cluster.until(lambda: not partition(cluster, "clicks").moving)
    moved = partition(cluster, "clicks")
    assert (moved.replicas, moved.under_replicated, moved.records) == ((4, 1, 2), False, 10)


def test_a_throttle_holds_what_moves_back_and_can_be_lifted() -> None:
    cluster = HandCluster()
    cluster.create_topic("clicks")
    cluster.produce("clicks", count=50, size=100_000)
    with_node_4(cluster)
    operations(cluster).throttle(200_000)
    operations(cluster).reassign("clicks", 0, [FOUR, ONE, TWO])
    cluster.pass_time(5_000)
    under_way = partition(cluster, "clicks")
    assert under_way.moving
    missing = next(follower.missing for follower in under_way.followers if follower.node == FOUR)
    assert missing is not None and 50 - missing <= 10 + 10 + 10  # five seconds, one saved up, one fetch ahead
    assert operations(cluster).status().throttle == 200_000
    operations(cluster).throttle(None)
    cluster.until(lambda: not partition(cluster, "clicks").moving, seconds=5)


def test_a_reassignment_can_be_called_off() -> None:
    cluster = HandCluster()
    cluster.create_topic("clicks")
    cluster.produce("clicks", count=50, size=100_000)
    before = partition(cluster, "clicks").replicas
    with_node_4(cluster)
    operations(cluster).throttle(1_000)
    operations(cluster).reassign("clicks", 0, [FOUR, ONE, TWO])
    cluster.pass_time(500)
    assert partition(cluster, "clicks").moving
    assert operations(cluster).call_off_all() == 1
    cluster.pass_time(500)
    assert sorted(partition(cluster, "clicks").replicas) == sorted(before)
    assert not partition(cluster, "clicks").moving


def test_a_plan_that_empties_a_node_moves_its_replicas_and_says_how_much_that_is() -> None:
    cluster = HandCluster()
    cluster.create_topic("clicks", 2)
    cluster.produce("clicks", 0, count=5)
    with_node_4(cluster)
    moves = operations(cluster).plan_to_empty(THREE)
    assert [(move.partition, FOUR in move.after, THREE in move.after) for move in moves] == [
        (0, True, False),
        (1, True, False),
    ]
    assert moves[0].bytes is not None and moves[0].bytes > 5_000
    assert moves[1].bytes == 0


@pytest.mark.parametrize(
    ("topic", "number", "replicas", "message"),
    [
        ("nothing", 0, [1], 'there is no topic "nothing"'),
        ("clicks", 7, [1], 'topic "clicks" has no partition 7: it has 1'),
        ("clicks", 0, [1, 9], "there is no node 9 in this cluster: its nodes are 1, 2, 3"),
        ("clicks", 0, [1, 1], "node 1 is named twice: a node has at most one replica of a partition"),
    ],
)
def test_moves_that_cannot_be_are_refused(topic: str, number: int, replicas: list[int], message: str) -> None:
    cluster = HandCluster()
    cluster.create_topic("clicks")
    with pytest.raises(OperationRefused, match=message):
        operations(cluster).reassign(topic, number, [NodeId(node) for node in replicas])


# Leaders


def test_preferred_replicas_lead_again_when_they_are_elected() -> None:
    cluster = HandCluster()
    cluster.create_topic("clicks")
    preferred = partition(cluster, "clicks").replicas[0]
    cluster.stop(preferred)
    cluster.until(lambda: cluster.nodes and partition(cluster, "clicks").leader not in (None, preferred))
    cluster.start(preferred)
    cluster.until(lambda: not partition(cluster, "clicks").under_replicated)
    assert operations(cluster).elect("clicks", None) == [0]
    assert partition(cluster, "clicks").leader == preferred
    assert operations(cluster).elect("clicks", 0) == []


def test_an_unclean_election_is_needed_where_nobody_who_has_everything_is_up() -> None:
    cluster = HandCluster(5)
    cluster.create_topic("clicks", 1, 2)
    state = partition(cluster, "clicks")
    other = next(node for node in state.replicas if node != state.leader)
    cluster.stop(other)
    cluster.until(lambda: partition(cluster, "clicks").under_replicated)
    cluster.produce("clicks")
    assert state.leader is not None
    cluster.stop(state.leader)
    cluster.start(other)
    cluster.until(lambda: cluster.image.is_live(other) and partition(cluster, "clicks").offline)
    admin = operations(cluster, min(cluster.nodes))
    with pytest.raises(OperationRefused, match="no replica that may lead is up"):
        admin.elect("clicks", 0)
    assert admin.elect("clicks", 0, unclean=True) == [0]
    assert partition(cluster, "clicks").unclean
    assert cluster.nodes[other].watch.noticed.unclean_elections == 1


# Nodes


def test_a_node_is_added_as_a_learner_and_promoted_and_then_decides_with_the_others() -> None:
    cluster = HandCluster()
    with_node_4(cluster)
    roles = {node.id: node.role for node in operations(cluster).status().nodes}
    assert roles == {1: "voter", 2: "voter", 3: "voter", 4: "learner"}
    cluster.pass_time(1_000)
    operations(cluster).promote(FOUR)
    assert {node.role for node in operations(cluster).status().nodes} == {"voter"}


def test_a_node_that_was_added_and_never_started_is_told_so() -> None:
    cluster = HandCluster()
    operations(cluster).add_node(FOUR, "host:9004")
    added = operations(cluster).status().nodes[-1]
    assert (added.id, added.state, added.role, added.address) == (4, "added", "learner", "host:9004")
    operations(cluster).remove_node(FOUR)
    assert [node.id for node in operations(cluster).status().nodes] == [1, 2, 3]


def test_a_node_is_removed_when_it_is_stopped_and_empty() -> None:
    cluster = HandCluster()
    cluster.create_topic("clicks")
    with_node_4(cluster)
    operations(cluster).reassign("clicks", 0, [FOUR, ONE, TWO])
    cluster.until(lambda: not partition(cluster, "clicks").moving)
    with pytest.raises(OperationRefused, match="node 4 has replicas of 1 partitions") as caught:
        operations(cluster).remove_node(FOUR)
    assert caught.value.hint == "Move them first: millstream cluster reassign --empty 4"
    (move,) = operations(cluster).plan_to_empty(FOUR)
    operations(cluster).reassign(move.topic, move.partition, move.after)
    cluster.until(lambda: not partition(cluster, "clicks").moving)
    with pytest.raises(OperationRefused, match="node 4 is up"):
        operations(cluster).remove_node(FOUR)
    cluster.stop(4)
    cluster.until(lambda: not cluster.image.is_live(FOUR))
    operations(cluster).remove_node(FOUR)
    assert [node.id for node in operations(cluster).status().nodes] == [1, 2, 3]
    assert cluster.image.addresses[FOUR] is None


def test_a_stopped_voter_is_taken_out_of_the_voters_when_it_is_removed() -> None:
    cluster = HandCluster()
    with_node_4(cluster)
    cluster.pass_time(1_000)
    operations(cluster).promote(FOUR)
    cluster.stop(4)
    cluster.until(lambda: not cluster.image.is_live(FOUR))
    operations(cluster).remove_node(FOUR)
    assert cluster.active.controller.quorum.log.voters.members() == (1, 2, 3)


@pytest.mark.parametrize(
    ("node", "address", "message"),
    [
        (4, "host", '"host" is no address of a node'),
        (4, "host:0", '"host:0" is no address of a node'),
        (4, "host:99999", '"host:99999" is no address of a node'),
        (4, "ho st:1", '"ho st:1" is no address of a node'),
        (0, "host:9004", "0 is no number of a node"),
        (4, "host:9002", "host:9002 is the address of node 2"),
        (2, "host:9999", "node 2 is up, at host:9002"),
    ],
)
def test_nodes_that_cannot_be_added_are_refused(node: int, address: str, message: str) -> None:
    with pytest.raises(OperationRefused, match=message):
        operations(HandCluster()).add_node(NodeId(node), address)


def test_nodes_that_there_are_not_are_named_with_those_that_there_are() -> None:
    for act in ("remove_node", "plan_to_empty", "promote"):
        with pytest.raises(OperationRefused, match="there is no node 9") as caught:
            getattr(operations(HandCluster()), act)(NodeId(9))
        assert caught.value.hint == "Its nodes are 1, 2, 3."
