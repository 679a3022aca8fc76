"""Directed scenarios of the controller: lives of brokers, and who may lead what."""

from __future__ import annotations

from typing import Any, Final

from millstream.logcore.replication.controller.controller import Controller
from millstream.logcore.replication.controller.controller_messages import (
    AddPartitions,
    BrokerHeartbeat,
    CreateTopic,
    ElectLeader,
    Reassign,
    RegisterBroker,
    RemoveBroker,
)
from millstream.logcore.replication.controller.controller_requests import MIN_ISR
from millstream.logcore.replication.controller.metadata_records import PartitionState
from millstream.logcore.replication.machine import CONTROLLER, NodeId
from millstream.logcore.replication.replica.replica_messages import AlterPartition, InSync, PartitionId
from millstream.logcore.topic_rules import GROUPS_TOPIC
from tests.logcore.replication.test_broker_logs import (
    test_an_answer_for_the_disk_of_before_is_not_taken_for_ones_own,
)

from ..control_world import CLUSTER, ControlWorld
from ..options import Options
from ..simulation import Simulation

_QUIET: Final = {
    "act_ms": 1e9,
    "snapshot_every": 2_000,
    "session_ms": 2_000,
    "balance_ms": 0,
    "unclean_start_share": 0.0,
    "unclean_election_share": 0.0,
    "racks": 0,
    "farewells": False,
}


def an_old_sign_of_life_unfences_nobody() -> None:
    """R8: a copy of a sign of life of before a restart arrives after it."""
    simulation = _cluster()
    active = _active(simulation)
    node = _others(active)[0]
    old = active.image.brokers[node].epoch
    simulation.do("kill", node, lasts_ms=60_000)
    simulation.run_for(4_000)
    assert not active.image.is_live(node)
    simulation.hosts[node].start()
    _until(simulation, lambda: active.image.brokers[node].epoch != old)
    simulation.hosts[node].kill()  # before it could say that it lives
    for number in range(1_000, 1_003):
        beat = BrokerHeartbeat(CLUSTER, node, old, number, 1 << 40)
        simulation.send(node, active.quorum.id, CONTROLLER, beat)
        simulation.run_for(500)
        assert not active.image.is_live(node), "a sign of an earlier life unfenced a broker"


def a_broker_that_is_behind_stays_fenced() -> None:
    """R7: it says that it lives, and has not applied its own registration yet."""
    simulation = _cluster()
    active = _active(simulation)
    node = _others(active)[0]
    old = active.image.brokers[node].epoch
    simulation.do("kill", node, lasts_ms=60_000)
    simulation.run_for(4_000)
    simulation.hosts[node].start()
    _until(simulation, lambda: active.image.brokers[node].epoch != old)
    simulation.hosts[node].kill()
    epoch = active.image.brokers[node].epoch
    beat = BrokerHeartbeat(CLUSTER, node, epoch, 1_000, epoch - 1)
    simulation.send(node, active.quorum.id, CONTROLLER, beat)
    simulation.run_for(300)
    assert not active.image.is_live(node), "a broker was unfenced that knows nothing of its own registration"


def who_lost_records_leads_nothing() -> None:
    """R14: the last replica of a partition comes back without its records, and says so."""
    simulation = _cluster()
    state = _create(simulation, replicas=2)
    first, second = state.replicas
    simulation.do("kill", second, lasts_ms=100_000)
    simulation.run_for(4_000)
    simulation.options.world["unclean_start_share"] = 1.0
    simulation.do("kill", first, lasts_ms=500)
    simulation.run_for(12_000)
    state = _partition(simulation)
    assert state.leader is None and first not in (*state.isr, *state.elr), f"it lost records and may lead: {state}"


def a_silent_leader_is_replaced() -> None:
    """T-L4: the process is stopped, nobody says that it ended."""
    simulation = _cluster()
    state = _create(simulation, replicas=3)
    leader = state.leader
    assert leader is not None
    simulation.do("pause", leader, lasts_ms=60_000)
    simulation.run_for(10_000)
    state = _partition(simulation)
    assert state.leader not in (None, leader) and leader not in state.isr, f"a silent broker still leads: {state}"


def a_shrunk_isr_names_who_is_eligible() -> None:
    """R14, T-L7: with one replica left of two that are asked for, the other one stays eligible, and leads when it is
    alone."""
    simulation = _cluster()
    state = _create(simulation, replicas=2, min_isr=2)
    first, second = state.replicas
    simulation.do("kill", second, lasts_ms=8_000)
    simulation.run_for(5_000)
    assert _partition(simulation).elr == (second,)
    simulation.do("kill", first, lasts_ms=60_000)
    simulation.run_for(14_000)
    state = _partition(simulation)
    assert state.leader == second, f"nobody leads though {second} has every record: {state}"


def a_leader_without_room_gives_way() -> None:
    """R5, R8: it asks for an ISR without itself, and another one leads if `min.insync.replicas` of them remain."""
    for min_isr in (2, 3):
        simulation = _cluster()
        state = _create(simulation, replicas=3, min_isr=min_isr)
        active, leader = _active(simulation), state.leader
        assert leader is not None
        epochs = {node: broker.epoch for node, broker in active.image.brokers.items()}
        others = tuple(InSync(node, epochs[node]) for node in state.replicas if node != leader)
        where = PartitionId(state.topic_id, state.partition)
        asked = AlterPartition(where, leader, epochs[leader], state.leader_epoch, state.partition_epoch, others)
        simulation.send(leader, active.quorum.id, CONTROLLER, asked)
        simulation.run_for(30)  # soon the leader of the stand-in asks for all of them again
        after = _partition(simulation)
        assert after.leader in after.isr, f"it leads out of sync: {after}"
        assert (after.leader == leader) is (min_isr == 3), f"{min_isr=}: {after}"


def who_says_that_it_leaves_hands_over_first() -> None:
    """A broker that is about to end leads nothing when it is fenced, and everything has a leader all the time."""
    simulation = _cluster()
    state = _create(simulation, replicas=3)
    leader = state.leader
    assert leader is not None
    active = _active(simulation)
    epoch = active.image.brokers[leader].epoch
    simulation.hosts[leader].pause()  # its own signs of life do not come in between
    for number in range(1_000, 1_010):
        simulation.run_for(100)
        beat = BrokerHeartbeat(CLUSTER, leader, epoch, number, active.image.index, leaving=True)
        simulation.send(leader, active.quorum.id, CONTROLLER, beat)
        assert _partition(simulation).leader is not None
    assert _partition(simulation).leader != leader and not active.image.is_live(leader)


def brokers_that_leave_at_the_same_time_do_not_wait_for_each_other() -> None:
    """They would hand what they lead to each other, in turns."""
    simulation = _cluster()
    _create(simulation, replicas=2)
    active = _active(simulation)
    leaving = _partition(simulation).replicas
    for node in leaving:
        simulation.hosts[node].pause()
    for number in range(1_000, 1_010):
        for node in leaving:
            simulation.run_for(50)
            epoch = active.image.brokers[node].epoch
            beat = BrokerHeartbeat(CLUSTER, node, epoch, number, active.image.index, leaving=True)
            simulation.send(node, active.quorum.id, CONTROLLER, beat)
    simulation.run_for(50)
    assert not any(active.image.is_live(node) for node in leaving)


def a_broker_that_is_gone_for_good_is_forgotten() -> None:
    """It is fenced and has no replicas; then it is no member of the quorum any more, either."""
    simulation = _cluster()
    active = _active(simulation)
    world = _world(simulation)
    node = _others(active)[0]
    world.ask(active.quorum.id, RemoveBroker(node))
    simulation.run_for(500)
    assert node in active.image.brokers, "it is up"
    simulation.do("kill", node, lasts_ms=100_000)
    simulation.run_for(4_000)
    world.ask(active.quorum.id, RemoveBroker(node))
    simulation.run_for(1_000)
    assert node not in active.image.brokers and node not in active.quorum.log.voters.members()
    simulation.hosts[node].start()
    simulation.run_for(4_000)
    assert active.image.is_live(node), "it may come again, as a new one"


def a_node_with_an_exchanged_disk_is_refused_until_it_is_removed() -> None:
    """R8: it counts its starts from one again. It must not take up a life whose records it does not have."""
    simulation = _cluster()
    active = _active(simulation)
    world = _world(simulation)
    node = _others(active)[0]
    simulation.do("kill", node, lasts_ms=500)
    simulation.run_for(4_000)
    before = active.image.brokers[node]
    host = simulation.hosts[node]
    host.kill()
    host.disk.wipe()
    world.checks.forget(node)
    host.start()
    simulation.run_for(5_000)
    assert active.image.brokers[node].epoch == before.epoch and not active.image.is_live(node)
    world.ask(active.quorum.id, RemoveBroker(node))
    simulation.run_for(4_000)
    assert active.image.is_live(node) and active.image.brokers[node].incarnation == 1


def a_new_disk_does_not_become_an_old_one_by_being_started_as_often() -> None:
    """R8: who is refused is started again and again, until its count of starts is that of the life before, and more."""
    simulation = _cluster()
    active = _active(simulation)
    node = _others(active)[0]
    before = active.image.brokers[node]
    host = simulation.hosts[node]
    host.kill()
    host.disk.wipe()
    _world(simulation).checks.forget(node)
    for _ in range(4):
        host.start()
        simulation.run_for(4_000)
        known = active.image.brokers[node]
        assert known.epoch == before.epoch and not active.image.is_live(node), f"an empty disk goes on with {before}"
        host.kill()


def an_earlier_life_does_not_register_again() -> None:
    """R8: a copy of a registration arrives when the next life of the broker has registered, and has ended."""
    simulation = _cluster()
    active = _active(simulation)
    node = _others(active)[0]
    simulation.do("kill", node, lasts_ms=500)
    simulation.run_for(4_000)
    now = active.image.brokers[node]
    old = RegisterBroker(CLUSTER, node, now.incarnation - 1, True, now.endpoints, now.rack, now.disk)
    simulation.hosts[node].kill()
    simulation.run_for(1_000)
    simulation.send(node, active.quorum.id, CONTROLLER, old)
    simulation.run_for(1_000)
    assert active.image.brokers[node].epoch == now.epoch, "an earlier life took the place of a later one"


def a_copy_of_a_disk_does_not_take_the_place_of_a_process_that_lives() -> None:
    """R8: the next life on a copy of the disk asks again and again. It gets the place when the process is silent."""
    simulation = _cluster()
    active = _active(simulation)
    node = _others(active)[0]
    now = active.image.brokers[node]
    copy = RegisterBroker(CLUSTER, node, now.incarnation + 1, True, now.endpoints, now.rack, now.disk)
    for _ in range(20):
        simulation.send(node, active.quorum.id, CONTROLLER, copy)
        simulation.run_for(500)
        assert active.image.brokers[node] == now, "a process on a copy of the disk took the place of one that lives"
    simulation.hosts[node].kill()
    simulation.run_for(1_000)
    simulation.send(node, active.quorum.id, CONTROLLER, copy)
    simulation.run_for(500)
    assert active.image.brokers[node].incarnation == copy.incarnation, "nobody else was the node any more"


def a_reassignment_ends_when_who_stays_is_elected() -> None:
    """All replicas are down when the partition is to move to one of them. It comes back, and has to go on alone."""
    simulation = _cluster()
    state = _create(simulation, replicas=2, min_isr=2)
    first, second = state.replicas
    for node in (second, first):
        simulation.do("kill", node, lasts_ms=200_000)
    simulation.run_for(8_000)
    assert _partition(simulation).leader is None
    _world(simulation).ask(_active(simulation).quorum.id, Reassign(PartitionId(state.topic_id, 0), (first,)))
    simulation.run_for(500)
    simulation.hosts[first].start()
    simulation.run_for(8_000)
    state = _partition(simulation)
    assert (state.leader, state.replicas, state.removing) == (first, (first,), ()), f"it waits for {second}: {state}"


def a_reassignment_ends_when_an_operator_elects_who_stays() -> None:
    """The replica that stays has lost records, and the other one never comes back. Once it is elected all the same,
    nothing else happens that could end the reassignment."""
    simulation = _cluster()
    state = _create(simulation, replicas=2, min_isr=2)
    first, second = state.replicas
    partition = PartitionId(state.topic_id, 0)
    for node in (second, first):
        simulation.do("kill", node, lasts_ms=200_000)
    simulation.run_for(8_000)
    _world(simulation).ask(_active(simulation).quorum.id, Reassign(partition, (first,)))
    simulation.run_for(500)
    simulation.options.world["unclean_start_share"] = 1.0
    simulation.hosts[first].start()
    simulation.run_for(8_000)
    assert _partition(simulation).leader is None
    _world(simulation).ask(_active(simulation).quorum.id, ElectLeader(partition, unclean=True))
    simulation.run_for(8_000)
    state = _partition(simulation)
    assert (state.leader, state.replicas, state.removing) == (first, (first,), ()), f"it waits for {second}: {state}"


def coordinators_topics_keep_their_partitions() -> None:
    """With another number of them each group would have another coordinator, which knows nothing of it."""
    simulation = _cluster()
    active, world = _active(simulation), _world(simulation)
    world.ask(active.quorum.id, CreateTopic(GROUPS_TOPIC, 2, 3))
    simulation.run_for(2_000)
    world.ask(active.quorum.id, AddPartitions(GROUPS_TOPIC, 4))
    simulation.run_for(2_000)
    assert len(list(active.image.partitions())) == 2


def partitions_are_added_where_the_operator_places_them() -> None:
    """As many as asked for, with as many replicas as the others have; else nothing is added."""
    simulation = _cluster()
    active, world = _active(simulation), _world(simulation)
    here, there, nowhere = (NodeId(1), NodeId(2), NodeId(3)), (NodeId(3), NodeId(1), NodeId(2)), (NodeId(77),) * 3
    world.ask(active.quorum.id, CreateTopic("t", 1, 3))
    simulation.run_for(2_000)
    for wrong in ((here,), (here, here, here), (here, nowhere), (here, here[:2]), (here, (NodeId(1),) * 3)):
        world.ask(active.quorum.id, AddPartitions("t", 3, wrong))
        simulation.run_for(500)
    world.ask(active.quorum.id, AddPartitions("t", 2, (there,)))
    simulation.run_for(500)
    assert [state.replicas for state in active.image.partitions()][1:] == [there]


def _cluster() -> Simulation:
    simulation = Simulation(ControlWorld, 1, options=Options(nodes=5, world=dict(_QUIET)), faults=())
    simulation.begin()
    _until(simulation, lambda: _all_live(simulation))
    return simulation


def _create(simulation: Simulation, *, replicas: int, min_isr: int = 1) -> PartitionState:
    """A topic of one partition on nodes that are not the controller's, as far as there are so many."""
    active = _active(simulation)
    assignment = (tuple([*_others(active), active.quorum.id][:replicas]),)
    configs = ((MIN_ISR, str(min_isr)),)
    _world(simulation).ask(active.quorum.id, CreateTopic("red", 0, 0, assignment, configs))
    simulation.run_for(2_000)
    return _partition(simulation)


def _partition(simulation: Simulation) -> PartitionState:
    (state,) = _active(simulation).image.partitions()
    return state


def _active(simulation: Simulation) -> Controller:
    active = _world(simulation).active()
    assert active is not None
    return active


def _others(active: Controller) -> list[NodeId]:
    """Voters last: the cluster goes on without the others."""
    voters = active.quorum.log.voters.voters
    nodes = [node for node in active.image.brokers if node != active.quorum.id]
    return sorted(nodes, key=lambda node: (node in voters, node))


def _all_live(simulation: Simulation) -> bool:
    active = _world(simulation).active()
    return active is not None and all(active.image.is_live(NodeId(node)) for node in simulation.hosts)


def _until(simulation: Simulation, is_so: Any) -> None:
    for _ in range(2_000):
        if is_so():
            return
        simulation.run_for(5)
    raise AssertionError("it never came to this")


def _world(simulation: Simulation) -> ControlWorld:
    assert isinstance(simulation.world, ControlWorld)
    return simulation.world


CASES: Final = [
    test_an_answer_for_the_disk_of_before_is_not_taken_for_ones_own,
    an_old_sign_of_life_unfences_nobody,
    a_broker_that_is_behind_stays_fenced,
    who_lost_records_leads_nothing,
    a_silent_leader_is_replaced,
    a_shrunk_isr_names_who_is_eligible,
    a_leader_without_room_gives_way,
    who_says_that_it_leaves_hands_over_first,
    brokers_that_leave_at_the_same_time_do_not_wait_for_each_other,
    a_broker_that_is_gone_for_good_is_forgotten,
    a_node_with_an_exchanged_disk_is_refused_until_it_is_removed,
    a_new_disk_does_not_become_an_old_one_by_being_started_as_often,
    an_earlier_life_does_not_register_again,
    a_copy_of_a_disk_does_not_take_the_place_of_a_process_that_lives,
    a_reassignment_ends_when_who_stays_is_elected,
    a_reassignment_ends_when_an_operator_elects_who_stays,
    coordinators_topics_keep_their_partitions,
    partitions_are_added_where_the_operator_places_them,
]
