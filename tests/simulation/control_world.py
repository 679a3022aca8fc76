"""The controller with brokers that hold no records: topics, lives of brokers, ISRs, elections, reassignments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar

from millstream.logcore.replication.controller.controller import UNCLEAN_ELECTION, Controller, ControllerSettings
from millstream.logcore.replication.controller.controller_messages import (
    AddPartitions,
    BrokerHeartbeat,
    ChangeConfig,
    ChangeVoters,
    CreateTopic,
    DeleteTopic,
    Done,
    ElectLeader,
    NotController,
    Reassign,
)
from millstream.logcore.replication.controller.controller_requests import MIN_ISR
from millstream.logcore.replication.controller.metadata_image import ImageCodec, MetadataImage
from millstream.logcore.replication.controller.metadata_records import PartitionState
from millstream.logcore.replication.machine import BROKER, CONTROLLER, Committed, Effect, Input, NodeId, Send
from millstream.logcore.replication.raft.quorum import Quorum
from millstream.logcore.replication.raft.quorum_files import QuorumDamaged, QuorumFiles
from millstream.logcore.replication.raft.quorum_messages import Entry, VotersChanged
from millstream.logcore.replication.replica.replica_messages import AlterPartition, PartitionId

from .control_checks import ControlChecks
from .host import CannotStart, Host, Running
from .kernel import MILLISECOND, InvariantViolated
from .quorum_checks import CheckedQuorum, QuorumChecks
from .stand_in_broker import StandInBroker
from .world import World

if TYPE_CHECKING:
    from .faults import Fault
    from .simulation import Simulation

CLUSTER = "simulated"
_INCARNATION = "incarnation"
_TOPICS = ("red", "green", "blue")


class _Checks(QuorumChecks):
    """The quorum's, and on each newly committed entry the controller's."""

    control: ControlChecks

    def commits(self, quorum: Quorum, index: int, entry: Entry) -> None:
        is_new = index == len(self.committed)
        super().commits(quorum, index, entry)
        if is_new:
            self.control.commits(index, entry)


class ControlWorld(World):
    """Operators act through any node; what was answered with `Done` is in the metadata for ever."""

    name = "control"
    node_counts: ClassVar[tuple[int, ...]] = (3, 3, 5)
    must_happen = (
        "elections",
        "done",
        "registrations",
        "leaders elected",
        "moved with a life",
        "elected from the ELR",
        "ISR grew",
        "unclean elections",
        "reassigned",
        "topics created",
        "producer ids",
        "images installed",
        "farewells",
    )

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation)
        self.control = ControlChecks(self.kernel)
        self.checks = _Checks(self.kernel)
        self.checks.control = self.control
        self._requests: dict[int, Any] = {}
        self._producer_ids: dict[int, NodeId] = {}  # by the first of each block

    @classmethod
    def draw(cls, random: Random) -> dict[str, Any]:
        return {
            "act_ms": random.choice([50.0, 200.0, 1_000.0]),
            "snapshot_every": random.choice([10, 50, 2_000]),
            "session_ms": random.choice([900, 2_000, 6_000]),
            "balance_ms": random.choice([0, 1_000, 10_000]),
            "unclean_start_share": random.choice([0.0, 0.0, 0.1]),
            "unclean_election_share": random.choice([0.0, 0.05]),
            "racks": random.choice([0, 2, 3]),
            "farewells": random.choice([False, False, True]),
        }

    @classmethod
    def acts(cls) -> Mapping[str, Callable[[Simulation, Fault], None]]:
        return {"change_voters": _change_voters}

    @property
    def drawn(self) -> dict[str, Any]:
        return self.simulation.options.world

    # Nodes

    def start(self, host: Host) -> Mapping[str, Running]:
        voters = tuple(NodeId(node) for node in list(self.simulation.hosts)[:3])
        try:
            files = QuorumFiles(host.disk, voters, ImageCodec(), disk=host.disk_name)
        except QuorumDamaged as error:
            raise CannotStart(str(error)) from error
        self.checks.started(host.id, files.recovered)
        random = self.kernel.randoms.schedule
        quorum = CheckedQuorum(host.id, CLUSTER, files.recovered, seed=random.getrandbits(32))
        quorum.checks = self.checks
        settings = ControllerSettings(
            session_ms=self.drawn["session_ms"],
            balance_ms=self.drawn["balance_ms"],
            snapshot_every=self.drawn["snapshot_every"],
        )
        return {
            CONTROLLER: Running(Controller(quorum, settings), files),
            BROKER: Running(self.broker(host)),
        }

    def broker(self, host: Host) -> StandInBroker:
        """The next life of the node's broker."""
        incarnation = _next_incarnation(host)
        clean = incarnation == 1 or self.kernel.randoms.disk.random() >= self.drawn["unclean_start_share"]
        racks = self.drawn["racks"]
        rack = f"rack{host.id % racks}" if racks else None
        broker = StandInBroker(host.id, CLUSTER, incarnation, clean=clean, rack=rack, disk=host.disk_name)
        broker.farewells = self.drawn["farewells"] and not self.simulation.healing
        return broker

    def controller(self, host: Host) -> Controller:
        machine = host.running[CONTROLLER].machine
        assert isinstance(machine, Controller)
        return machine

    def active(self) -> Controller | None:
        """Of the controllers that believe to decide, the one of the latest term."""
        running = [self.controller(host) for host in self.simulation.hosts.values() if host.running]
        active = [controller for controller in running if controller.active]
        return max(active, key=lambda controller: controller.quorum.term) if active else None

    # Checks

    def stepped(self, host: Host, machine: str, given: Input, effects: Sequence[Effect]) -> None:
        if machine == CONTROLLER:
            controller = self.controller(host)
            self.checks.stepped(controller.quorum, effects)
            for effect in effects:
                if effect.__class__ is Committed:
                    self._check_image(controller, effect)
            return
        for effect in effects:
            if effect.__class__ is Send and effect.message.__class__ is AlterPartition:
                self.control.asked(effect.message)
        self._check_producer_ids(host)

    def _check_image(self, controller: Controller, committed: Committed) -> None:
        """I20."""
        if committed.image is not None:
            self.kernel.counters["images installed"] += 1
            if committed.image != self.control.images[committed.first_index - 1]:
                raise InvariantViolated("I20", f"the image before {committed.first_index} is not the fold of the log")
        if controller.image.index < len(self.control.images):
            if controller.image != self.control.images[controller.image.index]:
                raise InvariantViolated("I20", f"node {controller.quorum.id} folded something else")

    def _check_producer_ids(self, host: Host) -> None:
        broker = host.running[BROKER].machine
        if not isinstance(broker, StandInBroker):
            return
        if broker.leaving:
            self.kernel.counters["farewells"] += 1
        for first, _ in broker.producer_ids:
            if self._producer_ids.setdefault(first, host.id) != host.id:
                raise InvariantViolated("producer ids", f"{first} belongs to two brokers")
            self.kernel.counters["producer ids"] += 1
        broker.producer_ids.clear()

    # Operators

    def begin(self) -> None:
        self.kernel.schedule(500 * MILLISECOND, self._act)

    def _act(self) -> None:
        random = self.kernel.randoms.workload
        active = self.active()
        node = active.quorum.id if active and random.random() < 0.9 else random.choice(list(self.simulation.hosts))
        self.ask(node, self._draw_request(random, active.image if active else MetadataImage()))
        if not self.simulation.healing:
            self.kernel.schedule(int(random.expovariate(1.0) * self.drawn["act_ms"] * MILLISECOND), self._act)

    def ask(self, node: int, body: Any) -> None:
        request = len(self._requests) + 1
        self._requests[request] = body
        if isinstance(body, ElectLeader) and body.unclean:
            self.control.allows_unclean(body.partition)
        self.simulation.hosts[node].ask(CONTROLLER, request, body)

    def _draw_request(self, random: Random, image: MetadataImage) -> Any:
        name = random.choice(_TOPICS)
        nodes = [NodeId(node) for node in self.simulation.hosts]
        states = list(image.partitions())
        if name not in image.topic_ids or not states:
            configs = ((MIN_ISR, str(random.randint(1, 3))),) if random.random() < 0.7 else ()
            return CreateTopic(name, random.randint(1, 3), random.randint(1, min(4, len(nodes))), configs=configs)
        state = random.choice(states)
        partition = PartitionId(state.topic_id, state.partition)
        kind = random.random()
        if kind < 0.03:
            return DeleteTopic(name)
        if kind < 0.06:
            return AddPartitions(name, random.randint(1, 5))
        if kind < 0.2:
            if random.random() < self.drawn["unclean_election_share"]:
                return ChangeConfig(name, UNCLEAN_ELECTION, random.choice(["true", None]))
            return ChangeConfig(random.choice([name, None]), MIN_ISR, random.choice(["1", "2", "3", None]))
        if kind < 0.5:
            replicas = tuple(random.sample(nodes, random.randint(1, min(3, len(nodes)))))
            return Reassign(partition, replicas if random.random() < 0.8 else None)
        unclean = state.leader is None and random.random() < self.drawn["unclean_election_share"]
        return ElectLeader(partition, unclean=unclean)

    def replied(self, host: Host, request: int, response: Any) -> None:
        body = self._requests[request]
        if isinstance(response, Done):
            self.kernel.counters["done"] += 1
            self._check_done(body, response)
        elif not isinstance(response, NotController):
            self.kernel.counters[f"refused {response.trouble.name}"] += 1

    def _check_done(self, body: Any, done: Done) -> None:
        """What was answered is committed, and says what was asked."""
        if done.index >= len(self.control.images):
            raise InvariantViolated("R5", f"{body} was done at {done.index}, which is not committed")
        image = self.control.images[done.index]
        if isinstance(body, CreateTopic):
            self.kernel.counters["topics created"] += 1
            if image.topic_ids.get(body.name) != done.topic_id:
                raise InvariantViolated("R5", f"{body} is done, and not in the metadata")
        elif isinstance(body, Reassign) and body.replicas is not None:
            self.kernel.counters["reassigned"] += 1

    # The end

    def healed(self) -> None:
        for host in self.simulation.hosts.values():
            broker = host.running[BROKER].machine if host.running else None
            if isinstance(broker, StandInBroker):
                broker.farewells = False

    def missing(self) -> str | None:
        active = self.active()
        if active is None:
            return "no controller is active"
        image = active.image
        fenced = [node for node in self.simulation.hosts if not image.is_live(NodeId(node))]
        if fenced:
            return f"brokers {fenced} are fenced"
        unwell = [state for state in image.partitions() if not _is_well(state)]
        if unwell:
            return f"partitions are not well: {unwell[:3]}"
        behind = [
            host.id
            for host in self.simulation.hosts.values()
            if host.id in active.quorum.log.voters.members() and self.controller(host).image.index < image.index
        ]
        return f"nodes {behind} are behind" if behind else None

    def line(self, host: Host) -> str:
        if not host.running:
            return host.broken or ""
        controller = self.controller(host)
        quorum = controller.quorum
        broker = host.running[BROKER].machine
        epoch = f"epoch {broker.epoch} start {broker.incarnation}" if isinstance(broker, StandInBroker) else ""
        return (
            f"{quorum.role.value:<9} term {quorum.term:<4} commit {quorum.commit:<5} last {quorum.log.last_index:<5}"
            f" {'active' if controller.active else ''} broker {epoch} voters {quorum.log.voters.voters}"
        )


def _is_well(state: PartitionState) -> bool:
    """A leader and a full ISR; or nobody left who may lead, for an operator to decide."""
    if not state.isr and not state.elr:
        return True
    return state.leader is not None and set(state.isr) == set(state.replicas) and not state.removing


def _next_incarnation(host: Host) -> int:
    """Counted on the disk, and safe before anybody hears of it. Raises OSError."""
    file = host.disk.get(_INCARNATION)
    incarnation = int(file.read() or b"0") + 1 if file is not None else 1
    temporary = host.disk.create(_INCARNATION + ".tmp")
    temporary.append(str(incarnation).encode())
    temporary.sync()
    host.disk.rename(_INCARNATION + ".tmp", _INCARNATION)
    host.disk.sync_folder()
    return incarnation


def _change_voters(simulation: Simulation, fault: Fault) -> None:
    """An operator adds a node as a learner, promotes it, or takes a voter out."""
    world = simulation.world
    assert isinstance(world, ControlWorld)
    active = world.active()
    if active is None:
        return
    node = simulation.hosts[fault.nodes[0]].id
    now = active.quorum.log.voters
    learners = tuple(each for each in now.learners if each != node)
    if node in now.voters:
        wanted = VotersChanged(tuple(each for each in now.voters if each != node), (*learners, node))
    elif node in now.learners:
        wanted = VotersChanged((*now.voters, node), learners)
    else:
        wanted = VotersChanged(now.voters, (*learners, node))
    if len(wanted.voters) >= 2:
        world.ask(active.quorum.id, ChangeVoters(wanted))


__all__ = ["BrokerHeartbeat", "ControlWorld"]
