"""Where nodes look for each other, as the metadata change."""

from __future__ import annotations

from millstream.logcore.cluster.peers import PeerFollower
from millstream.logcore.replication.controller.metadata_image import MetadataImage, fold
from millstream.logcore.replication.controller.metadata_records import BrokerRegistered, BrokerRemoved, NodeAdded
from millstream.logcore.replication.machine import NodeId
from millstream.logcore.replication.node.node_links import PeerAddress
from millstream.logcore.replication.raft.quorum_messages import LogRecord

TWO, THREE, FOUR = NodeId(2), NodeId(3), NodeId(4)
MEMBERS = {TWO: PeerAddress("two", 9093), THREE: PeerAddress("three", 9093)}


def told(*records: LogRecord, listed: bool = False) -> list[tuple[NodeId, PeerAddress | None]]:
    found: list[tuple[NodeId, PeerAddress | None]] = []
    follower = PeerFollower(MEMBERS, lambda node, address: found.append((node, address)), listed=listed)
    image = MetadataImage()
    for index, record in enumerate(records, 1):
        image = fold(image, index, record)
        follower(image)
    return found


def registered(node: NodeId, address: str, incarnation: int = 1) -> BrokerRegistered:
    return BrokerRegistered(node, incarnation, True, (("kafka", "k:9092"), ("node", address)), None)


def test_a_node_that_is_where_the_list_says_is_no_news() -> None:
    assert told(registered(TWO, "two:9093"), registered(THREE, "three:9093"), registered(TWO, "two:9093", 2)) == []


def test_a_node_that_was_added_is_a_peer_before_it_registers() -> None:
    assert told(NodeAdded(FOUR, "four:9093")) == [(FOUR, PeerAddress("four", 9093))]


def test_a_node_that_is_started_somewhere_else_is_found_there() -> None:
    moved = PeerAddress("new", 9999)
    assert told(registered(TWO, "two:9093"), registered(TWO, "new:9999", 2)) == [(TWO, moved)]


def test_a_node_that_is_removed_is_no_peer_until_it_is_added_again() -> None:
    records = (registered(TWO, "two:9093"), BrokerRemoved(TWO), NodeAdded(TWO, "two:9093"))
    assert told(*records) == [(TWO, None), (TWO, PeerAddress("two", 9093))]


def test_behind_proxies_members_stay_where_the_list_says_and_others_are_found() -> None:
    records = (registered(TWO, "real:1"), NodeAdded(FOUR, "four:9093"), BrokerRemoved(THREE))
    assert told(*records, listed=True) == [(FOUR, PeerAddress("four", 9093)), (THREE, None)]
