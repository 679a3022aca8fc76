"""Directed scenarios of the metadata quorum: who deposes whom, what is committed when, members that come and go."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from millstream.logcore.replication.controller.metadata_records import ConfigChanged
from millstream.logcore.replication.machine import CONTROLLER, NodeId
from millstream.logcore.replication.raft.quorum import Quorum
from millstream.logcore.replication.raft.quorum_messages import Append, Vote, VotersChanged
from millstream.logcore.replication.raft.quorum_state import Role
from tests.logcore.replication.test_quorum_slow_disks import (
    test_a_leader_goes_on_leading_while_the_disks_of_all_take_longer_than_an_election,
    test_nothing_is_committed_before_a_majority_has_written_it,
)

from ..host import Host
from ..options import Options
from ..quorum_world import Proposer, QuorumWorld, carry_out
from ..simulation import Simulation
from .by_hand import ByHand, NotElected

_QUIET: Final = {"propose_ms": 1e9, "snapshot_every": 1 << 20, "voters": 3}


def a_node_that_was_cut_off_deposes_nobody() -> None:
    """R4: it comes back with the term with which it went."""
    simulation, leader = _with_a_leader()
    lost = _others(simulation, leader)[0]
    simulation.do("cut", lost.id, lasts_ms=10_000)
    simulation.run_for(13_000)
    _still_leads(simulation, leader)


def a_node_that_does_not_hear_the_leader_deposes_nobody() -> None:
    """R4: it hears and reaches the others, who hear the leader well."""
    simulation, leader = _with_a_leader()
    deaf = _others(simulation, leader)[0]
    simulation.network.cut([leader.id], [deaf.id])
    simulation.run_for(10_000)
    _still_leads(simulation, leader)


def a_leader_that_hears_nobody_gives_up() -> None:
    """R4: its signs of life still arrive, so only it can end this."""
    simulation, leader = _with_a_leader()
    simulation.network.cut([host.id for host in _others(simulation, leader)], [leader.id])
    simulation.run_for(10_000)
    assert leader.role is not Role.LEADER, "it still leads"
    now = _world(simulation).leader()
    assert now is not None and now.id != leader.id, "nobody leads who is heard"


def another_cluster_is_not_heard() -> None:
    """R20: its nodes may have our addresses."""
    simulation, leader = _with_a_leader()
    follower = _others(simulation, leader)[0]
    term = leader.term
    for message in (Vote("another", term + 5, 9, 9), Append("another", term + 5, 0, 0, (), 0)):
        simulation.send(leader.id, follower.id, CONTROLLER, message)
    simulation.run_for(2_000)
    assert quorum_of(follower).term == term, "a node took the term of another cluster"


def who_is_no_member_forgets_a_leader_that_is_silent() -> None:
    """Else a node that is to be let in asks for ever one that leads no more."""
    stranger = ByHand(3, others=1)[4]
    stranger.tick(0)
    stranger.receive(NodeId(1), Append("by hand", 1, 0, 0, (), 0))
    assert stranger.leader == 1
    for now_ms in range(0, 10_000, 100):
        stranger.tick(now_ms)
    assert stranger.leader is None


def a_leader_counts_only_what_its_disk_has() -> None:
    """T-L8: what its memory and one follower have is no majority of three disks."""
    simulation, leader = _with_a_leader()
    first, second = _others(simulation, leader)
    _cut_off(simulation, second)
    _write_slowly(simulation, leader)
    simulation.hosts[leader.id].ask(CONTROLLER, 1, ConfigChanged("", "1", "x"))
    simulation.run_for(500)
    _lose_all_that_is_unsynced(simulation, leader)
    _cut_off(simulation, first)
    simulation.network.mend([second.id], [host.id for host in simulation.hosts.values()])
    simulation.network.mend([host.id for host in simulation.hosts.values()], [second.id])
    simulation.run_for(8_000)
    assert _world(simulation).leader() is not None


def a_voter_that_is_to_leave_stands() -> None:
    """T-L25: only it knows that it is to leave, for the leader that said so lost it; so nobody else can be elected."""
    simulation, leader = _with_a_leader(nodes=2, voters=2)
    _write_slowly(simulation, leader)
    assert leader.change_voters(VotersChanged((leader.id,), (_others(simulation, leader)[0].id,))) is None
    carry_out(simulation, leader)
    simulation.run_for(500)
    _lose_all_that_is_unsynced(simulation, leader)
    simulation.run_for(10_000)
    assert _world(simulation).leader() is not None, "nobody leads"


def an_exchanged_disk_does_not_count() -> None:
    """R1: it has forgotten its vote and the entries that it acknowledged; with it and a node that is behind there is no
    majority."""
    simulation, leader = _with_a_leader()
    first, second = _others(simulation, leader)
    simulation.run_for(1_000)  # by now the disks are known by name
    _cut_off(simulation, second)
    simulation.hosts[leader.id].ask(CONTROLLER, 1, ConfigChanged("", "1", "x"))
    simulation.run_for(500)
    assert leader.commit == leader.log.last_index, "two of three have it"
    simulation.hosts[leader.id].kill()
    _exchange_disk(simulation, first)
    simulation.network.mend([second.id], [host.id for host in simulation.hosts.values()])
    simulation.network.mend([host.id for host in simulation.hosts.values()], [second.id])
    simulation.run_for(15_000)
    assert _world(simulation).leader() is None, "a majority that lost an entry leads"
    simulation.hosts[leader.id].start()
    simulation.run_for(5_000)
    assert _world(simulation).leader() is not None


def an_exchanged_disk_counts_once_it_was_let_in_anew() -> None:
    """Taken out of the voters, caught up as a learner, promoted: then the cluster may lose another node."""
    simulation, leader = _with_a_leader()
    node, other = _others(simulation, leader)
    simulation.run_for(1_000)
    _exchange_disk(simulation, node)
    simulation.run_for(2_000)
    for voters, learners in (((leader.id, other.id), ()), ((leader.id, other.id), (node.id,))):
        assert leader.change_voters(VotersChanged(voters, learners)) is None
        carry_out(simulation, leader)
        simulation.run_for(1_000)
    assert leader.change_voters(VotersChanged((leader.id, other.id, node.id))) is None
    carry_out(simulation, leader)
    simulation.run_for(1_000)
    other.kill()
    simulation.run_for(5_000)
    assert leader.leads and leader.commit == leader.log.last_index


def a_cluster_begins_with_all_its_voters() -> None:
    """R1: before disks are known by name an empty one may be an exchanged one, so a majority is not enough."""
    simulation = Simulation(QuorumWorld, 1, options=Options(nodes=3, world=dict(_QUIET)), faults=())
    simulation.begin()
    simulation.hosts[3].kill()
    simulation.run_for(10_000)
    assert _world(simulation).leader() is None
    simulation.hosts[3].start()
    simulation.run_for(5_000)
    leader = _world(simulation).leader()
    assert leader is not None and all(leader.log.voters.disks)


def _exchange_disk(simulation: Simulation, host: Host) -> None:
    host.kill()
    host.disk.wipe()
    _world(simulation).checks.forget(host.id)
    host.start()


def _write_slowly(simulation: Simulation, quorum: Quorum) -> None:
    simulation.hosts[quorum.id].disk.slowness = 1e6


def _lose_all_that_is_unsynced(simulation: Simulation, quorum: Quorum) -> None:
    host = simulation.hosts[quorum.id]
    host.cut_power(None)
    host.disk.slowness = 1.0
    host.start()


def _cut_off(simulation: Simulation, host: Host) -> None:
    everybody = [each.id for each in simulation.hosts.values()]
    simulation.network.cut([host.id], everybody)
    simulation.network.cut(everybody, [host.id])


def an_old_entry_is_committed_by_a_new_one_only() -> None:
    """R2, figure 8 of the Raft paper: a majority has an entry of term 1, and another leader may still replace it."""
    hand = ByHand(5)
    hand.elect(1, range(1, 6))
    hand[1].propose(ConfigChanged("", "old", "1"))
    hand.settle([1, 2])
    hand.elect(5, [3, 4, 5], then=_lost)
    old = hand[1].log.last_index
    hand.elect(1, [1, 2, 3], then=_lost)
    hand[1]._replicate()
    hand.settle([1, 2])
    hand[1]._replicate()
    hand.settle([1, 3], delivers=lambda message: not _brings(message, old + 1))
    assert hand[3].log.last_index == old, "a majority has the entry"
    hand.elect(5, [3, 4, 5])


def voters_change_behind_a_record_of_the_own_term() -> None:
    """T-L25: two leaders change the voters at the same time, and their majorities need not meet."""
    hand = ByHand(4, others=1)
    hand.elect(1, range(1, 5))
    four = hand[1].log.voters
    hand[1].change_voters(four._replace(learners=(NodeId(5),)))
    hand.settle(range(1, 6))
    hand[1].change_voters(VotersChanged((*four.voters, NodeId(5))))
    hand.settle([1, 5])
    hand.elect(2, [2, 3, 4], then=_lost)
    hand[2].change_voters(VotersChanged((NodeId(2), NodeId(3), NodeId(4)), (NodeId(5),)))
    hand[2]._replicate()
    hand.settle([2, 3])
    hand[2]._replicate()
    hand.settle([2, 3])
    with suppress(NotElected):
        hand.elect(1, [1, 4, 5])


def one_voter_changes_at_a_time() -> None:
    """T-L25: two at once, and the majorities of before and after need not meet."""
    hand = ByHand(3, others=2)
    hand.elect(1, range(1, 4))
    three = hand[1].log.voters
    hand[1].change_voters(three._replace(learners=(NodeId(4), NodeId(5))))
    hand.settle(range(1, 6))
    hand[1].change_voters(VotersChanged((*three.voters, NodeId(4), NodeId(5))))
    hand.settle([1, 4, 5])
    hand[1].propose(ConfigChanged("", "new", "1"))
    hand.settle([1, 4, 5])
    with suppress(NotElected):
        hand.elect(2, [2, 3])


def _lost(message: Any) -> bool:
    return False


def _brings(message: Any, index: int) -> bool:
    """Whether this entry is in the message, for a node that has not yet got what is before it."""
    return isinstance(message, Append) and message.previous_index < index <= message.previous_index + len(
        message.entries
    )


def quorum_of(host: Host) -> Quorum:
    machine = host.running[CONTROLLER].machine
    assert isinstance(machine, Proposer)
    return machine.quorum


def _with_a_leader(nodes: int = 3, **world: Any) -> tuple[Simulation, Quorum]:
    simulation = Simulation(QuorumWorld, 1, options=Options(nodes=nodes, world={**_QUIET, **world}), faults=())
    simulation.begin()
    simulation.run_for(5_000)
    leader = _world(simulation).leader()
    assert leader is not None
    return simulation, leader


def _world(simulation: Simulation) -> QuorumWorld:
    assert isinstance(simulation.world, QuorumWorld)
    return simulation.world


def _others(simulation: Simulation, leader: Quorum) -> list[Host]:
    return [host for host in simulation.hosts.values() if host.id != leader.id]


def _still_leads(simulation: Simulation, leader: Quorum) -> None:
    term = leader.term
    now = _world(simulation).leader()
    assert now is leader and leader.term == term == 1, f"the leader of term 1 was deposed; term {leader.term}"


CASES: Final = [
    test_a_leader_goes_on_leading_while_the_disks_of_all_take_longer_than_an_election,
    test_nothing_is_committed_before_a_majority_has_written_it,
    a_node_that_was_cut_off_deposes_nobody,
    a_node_that_does_not_hear_the_leader_deposes_nobody,
    a_leader_that_hears_nobody_gives_up,
    another_cluster_is_not_heard,
    who_is_no_member_forgets_a_leader_that_is_silent,
    a_leader_counts_only_what_its_disk_has,
    a_voter_that_is_to_leave_stands,
    an_exchanged_disk_does_not_count,
    an_exchanged_disk_counts_once_it_was_let_in_anew,
    a_cluster_begins_with_all_its_voters,
    an_old_entry_is_committed_by_a_new_one_only,
    voters_change_behind_a_record_of_the_own_term,
    one_voter_changes_at_a_time,
]
