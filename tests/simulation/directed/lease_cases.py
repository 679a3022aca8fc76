"""Directed scenarios of leaders that were replaced and do not know it."""

from __future__ import annotations

from typing import Any, Final

from tests.logcore.replication.brokers import Brokers
from tests.logcore.replication.test_leader_lease import (
    test_a_leader_that_was_replaced_without_noticing_reads_out_nothing_old as replaced,
)
from tests.logcore.replication.test_leader_lease import (
    test_an_answer_counts_when_the_metadata_it_knew_of_are_known_here,
)

from ..cluster_world import ClusterWorld
from ..kernel import InvariantViolated
from ..options import Options
from ..simulation import Simulation

_BUSY: Final[dict[str, Any]] = {
    "partitions": 1,
    "min_isr": 2,
    "damage": False,
    "act_ms": 0.0,
    "producers": 2,
    "transactional": 0,
    "passing_ms": 0.0,
    "produce_ms": 10.0,
    "read_ms": 20.0,
    "snapshot_every": 1_000,
}


def a_leader_that_is_cut_off_reads_out_nothing_old() -> None:
    """I25: clients still reach it, and ask it."""
    simulation = Simulation(ClusterWorld, 1, options=Options(nodes=3, world=dict(_BUSY)), faults=())
    simulation.begin()
    simulation.run_for(5_000)
    world = simulation.world
    assert isinstance(world, ClusterWorld)
    (partition,) = world.partitions()
    before = world.image().partition(partition)
    assert before is not None and before.leader is not None
    simulation.do("cut", before.leader, lasts_ms=10_000)
    simulation.run_for(12_000)
    after = world.image().partition(partition)
    if after is None or after.leader == before.leader:
        raise InvariantViolated("I23", "nobody else leads")
    assert simulation.kernel.counters["leaders' offsets checked"] > 20
    simulation.converge()


def test_a_leader_that_was_replaced_without_noticing_reads_out_nothing_old() -> None:
    replaced(Brokers())


CASES: Final = (
    a_leader_that_is_cut_off_reads_out_nothing_old,
    test_a_leader_that_was_replaced_without_noticing_reads_out_nothing_old,
    test_an_answer_counts_when_the_metadata_it_knew_of_are_known_here,
)
