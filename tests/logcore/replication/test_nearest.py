"""Which replica a client of a rack is sent to."""

from __future__ import annotations

from millstream.logcore.replication.broker.nearest import nearest_replica
from millstream.logcore.replication.controller.metadata_image import BrokerImage, MetadataImage
from millstream.logcore.replication.controller.metadata_records import PartitionState
from millstream.logcore.replication.machine import NodeId

ONE, TWO, THREE, FOUR = map(NodeId, range(1, 5))
RACKS = {ONE: "a", TWO: "b", THREE: "b", FOUR: "c"}


def near(
    rack: str, offset: int = 10, *, isr: tuple[NodeId, ...] = (ONE, TWO, THREE), fenced: tuple[NodeId, ...] = ()
) -> int | None:
    brokers = {node: BrokerImage(node, node, 1, (), rack, node in fenced) for node, rack in RACKS.items()}
    state = PartitionState("t", 0, ONE, 1, 1, (ONE, TWO, THREE, FOUR), isr, (), 1)
    has = {TWO: 10, THREE: 12, FOUR: 12}
    return nearest_replica(MetadataImage(brokers=brokers), state, rack, offset, lambda node: has.get(node, -1))


def test_the_replica_on_the_clients_rack_that_has_most_is_chosen() -> None:
    assert near("b") == THREE


def test_on_the_leaders_own_rack_the_leader_is_read() -> None:
    assert near("a") is None


def test_who_names_no_rack_or_one_without_replicas_reads_from_the_leader() -> None:
    assert near("") is None
    assert near("nowhere") is None


def test_a_replica_that_is_not_in_sync_or_not_up_is_not_chosen() -> None:
    assert near("c") is None
    assert near("b", fenced=(THREE,)) == TWO
    assert near("b", isr=(ONE, TWO)) == TWO


def test_a_replica_that_lacks_what_the_client_wants_is_not_chosen() -> None:
    assert near("b", 11) == THREE
    assert near("b", 13) is None
