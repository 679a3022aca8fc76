"""Where replicas of new partitions go: racks first, then who has least."""

from __future__ import annotations

from collections import Counter

from millstream.logcore.replication.machine import NodeId
from millstream.logcore.replication.metadata_image import Broker, MetadataImage
from millstream.logcore.replication.placement import Placement


def cluster(*racks: str | None, fenced: tuple[int, ...] = ()) -> MetadataImage:
    """Brokers 1, 2, … on these racks."""
    brokers = {
        NodeId(number): Broker(NodeId(number), number, 1, "host:9093", rack, number in fenced)
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


def test_replicas_of_one_partition_are_on_different_brokers() -> None:
    placement = Placement(cluster("a", "a", "a"))
    assert all(len(set(placement.choose(3))) == 3 for _ in range(5))


def test_nothing_new_goes_to_a_fenced_broker() -> None:
    placement = Placement(cluster("a", "b", "c", fenced=(2,)))
    assert placement.broker_count == 2
    assert all(NodeId(2) not in placement.choose(2) for _ in range(5))
