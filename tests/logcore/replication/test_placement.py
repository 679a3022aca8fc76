"""Where replicas of new partitions go: racks first, then who has least."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from millstream.logcore.replication.controller.metadata_image import BrokerImage, MetadataImage, TopicImage
from millstream.logcore.replication.controller.partition_rows import PartitionRows
from millstream.logcore.replication.controller.partition_rules import with_leader, without_unclean
from millstream.logcore.replication.controller.placement import Placement, new_partition
from millstream.logcore.replication.machine import NodeId


def cluster(*racks: str | None, fenced: tuple[int, ...] = ()) -> MetadataImage:
    """Brokers 1, 2, … on these racks."""
    brokers = {
        NodeId(number): BrokerImage(NodeId(number), number, 1, (("kafka", "host:9093"),), rack, number in fenced)
        for number, rack in enumerate(racks, 1)
    }
    return MetadataImage(brokers=brokers)


def test_replicas_are_on_as_many_racks_as_there_are() -> None:
    image = cluster("a", "a", "b", "b", "c", "c")
    placement = Placement(image)
    for _ in range(12):
        replicas = placement.choose(3)
        assert sorted(image.brokers[node].rack or "" for node in replicas) == ["a", "b", "c"]


def test_brokers_get_about_as_many_replicas_and_lead_about_as_many() -> None:
    placement = Placement(cluster(None, None, None, None, None))
    chosen = [placement.choose(3) for _ in range(20)]
    replicas = Counter(node for each in chosen for node in each)
    assert max(replicas.values()) - min(replicas.values()) <= 1
    assert set(Counter(each[0] for each in chosen).values()) == {4}


def test_what_a_broker_leads_goes_to_all_others_when_it_is_gone() -> None:
    placement = Placement(cluster(None, None, None))
    chosen = [placement.choose(3) for _ in range(12)]
    assert set(Counter(each[:2] for each in chosen).values()) == {2}


def test_the_partitions_that_are_there_count() -> None:
    """Also those that share a row: four with the replicas 1 and 2, of which one leads, and two of 3 and 1."""
    image = cluster(None, None, None)
    kept = [(1, 2)] * 4 + [(3, 1)] * 2
    states = [
        new_partition("t", number, tuple(map(NodeId, nodes)), tuple(map(NodeId, nodes)), 1)
        for number, nodes in enumerate(kept)
    ]
    rows = PartitionRows.of(states)
    assert [row.of for row in rows.rows] == [4, 2]
    placement = Placement(replace(image, topics={"t": TopicImage("t", "t", rows)}))
    # Broker 2 leads none, then one; then as many as 3, which has fewer replicas, and whose partitions went to 1 twice.
    assert [placement.choose(2) for _ in range(4)] == [(2, 3), (2, 3), (3, 2), (2, 3)]


def test_replicas_of_one_partition_are_on_different_brokers() -> None:
    placement = Placement(cluster("a", "a", "a"))
    assert all(len(set(placement.choose(3))) == 3 for _ in range(5))


def test_nothing_new_goes_to_a_fenced_broker_while_enough_are_up() -> None:
    placement = Placement(cluster("a", "b", "c", fenced=(2,)))
    assert all(NodeId(2) not in placement.choose(2) for _ in range(5))


def test_a_fenced_broker_gets_a_replica_where_too_few_are_up_but_leads_nothing() -> None:
    placement = Placement(cluster("a", "b", "c", fenced=(2,)))
    assert placement.broker_count == 3
    chosen = [placement.choose(3) for _ in range(6)]
    assert all(set(replicas) == {1, 2, 3} and replicas[0] != 2 for replicas in chosen)


def test_nothing_is_placed_where_nobody_is_up() -> None:
    assert Placement(cluster("a", "b", fenced=(1, 2))).broker_count == 0


def test_who_is_not_up_is_eligible_for_an_empty_partition_that_commits_nothing_without_it() -> None:
    nodes = tuple(map(NodeId, (1, 2, 3)))
    alone = new_partition("id", 0, nodes, nodes[:1], 2)
    assert (alone.leader, alone.isr, alone.elr) == (1, (1,), (2, 3))
    lost = with_leader(without_unclean(alone, NodeId(1)), lambda node: node == 3)
    assert lost.leader == 3, "nothing was acknowledged: it need not wait for a disk that is gone"


def test_who_is_not_up_is_not_eligible_where_the_others_may_commit() -> None:
    nodes = tuple(map(NodeId, (1, 2, 3)))
    assert new_partition("id", 0, nodes, nodes[:2], 2).elr == ()
    assert new_partition("id", 0, nodes, nodes[:1], 1).elr == ()
