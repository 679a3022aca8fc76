"""The metadata quorum alone: clients propose, operators change voters, nodes take snapshots."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, cast
from zlib import crc32

from millstream.logcore.replication.controller.metadata_codec import encode_record
from millstream.logcore.replication.controller.metadata_records import ConfigChanged
from millstream.logcore.replication.machine import (
    CONTROLLER,
    Asked,
    Committed,
    Effect,
    Input,
    NodeId,
    Persisted,
    Received,
    Reply,
    RequestId,
    Tick,
)
from millstream.logcore.replication.raft.quorum import Quorum
from millstream.logcore.replication.raft.quorum_files import QuorumDamaged, QuorumFiles
from millstream.logcore.replication.raft.quorum_frames import MAGIC
from millstream.logcore.replication.raft.quorum_messages import QuorumMessage, VotersChanged
from millstream.logcore.replication.raft.quorum_state import Role

from .host import CannotStart, Host, Running
from .kernel import MILLISECOND, InvariantViolated
from .quorum_checks import CheckedQuorum, QuorumChecks
from .world import World

if TYPE_CHECKING:
    from .faults import Fault
    from .simulation import Simulation

_COUNTED_TO = 1 << 20
_TRIES = 30
_TRY_AGAIN_MS = 40


class _Counted:
    """The image of the log's fold: how many records, and a checksum over them in their order."""

    def encode(self, image: Any) -> bytes:
        return json.dumps(image).encode()

    def decode(self, content: bytes) -> Any:
        return tuple(json.loads(content))

    @staticmethod
    def fold(image: tuple[int, int], record: Any) -> tuple[int, int]:
        return image[0] + 1, crc32(encode_record(record), image[1])


class Proposer:
    """A quorum with a client in front: a proposal is answered once it is committed, and snapshots are taken."""

    def __init__(self, quorum: Quorum, snapshot_every: int) -> None:
        self.quorum = quorum
        self.image: Any = (0, 0)  # in the place of the metadata's
        self._snapshot_every = snapshot_every
        self._asked: dict[int, tuple[int, RequestId]] = {}  # by index: term, request

    def step(self, given: Input) -> list[Effect]:
        quorum = self.quorum
        if isinstance(given, Asked):
            index = quorum.propose(cast("ConfigChanged", given.body))
            if index is not None:
                self._asked[index] = quorum.term, given.request
            effects = quorum.drain()
        else:
            effects = quorum.step(cast("Received[QuorumMessage] | Tick | Persisted", given))
        out = list(effects)
        for effect in effects:
            if effect.__class__ is Committed:
                self._apply(effect, out)
        if quorum.commit - quorum.log.snapshot.index >= self._snapshot_every:
            quorum.compact(quorum.commit, self.image)
            out += quorum.drain()
        return out

    def _apply(self, committed: Committed, out: list[Effect]) -> None:
        if committed.image is not None:
            self.image = committed.image
            self._asked.clear()
        for index, record in enumerate(committed.records, committed.first_index):
            self.image = _Counted.fold(self.image, record)
            term, request = self._asked.pop(index, (None, None))
            if request is not None and term == self.quorum.log.term_at(index):
                out.append(Reply(request, cast("Any", index)))


class QuorumWorld(World):
    """Proposals carry their request's number; an acknowledged one is in the log for ever, at its index."""

    name = "quorum"
    node_counts: ClassVar[tuple[int, ...]] = (3, 3, 4, 5)
    must_happen = (
        "elections",
        "acknowledged",
        "snapshots installed",
        "voters changed",
        "transfers",
        "panics",
        "conflicting entries",
        "refused to start",
        "disks exchanged",
    )

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(simulation)
        self.checks = QuorumChecks(self.kernel)
        self._folds: list[tuple[int, int]] = [(0, 0)]  # by index
        self._acknowledged: dict[int, int] = {}  # request: index
        self._request = 0
        self._led_by = 1  # the node that was the last to act as a leader
        self.damaged: NodeId | None = None  # at most one node's disk loses what was safe
        self._wanted = 0  # the first request made after the healing

    @classmethod
    def draw(cls, random: Random) -> dict[str, Any]:
        return {
            "propose_ms": random.choice([2.0, 10.0, 50.0]),
            "snapshot_every": random.choice([20, 100, 1_000, _COUNTED_TO]),
            "voters": random.choice([3, 3, 5]),
        }

    @classmethod
    def acts(cls) -> Mapping[str, Callable[[Simulation, Fault], None]]:
        return {"change_voters": _change_voters, "transfer": _transfer, "flip": _flip, "exchange_disk": _exchange_disk}

    def start(self, host: Host) -> Mapping[str, Running]:
        first = tuple(NodeId(node) for node in list(self.simulation.hosts)[: self._options["voters"]])
        try:
            files = QuorumFiles(host.disk, first, _Counted(), disk=host.disk_name)
        except QuorumDamaged as error:
            raise CannotStart(str(error)) from error
        self.checks.started(host.id, files.recovered)
        seed = self.kernel.randoms.schedule.getrandbits(32)
        quorum = CheckedQuorum(host.id, "simulated", files.recovered, seed=seed)
        quorum.checks = self.checks
        return {CONTROLLER: Running(Proposer(quorum, self._options["snapshot_every"]), files)}

    def begin(self) -> None:
        self._propose()

    def stepped(self, host: Host, machine: str, given: Input, effects: Sequence[Effect]) -> None:
        proposer = self._proposer(host)
        if proposer.quorum.role is Role.LEADER:
            self._led_by = host.id
        self.checks.stepped(proposer.quorum, effects)
        for effect in effects:
            if effect.__class__ is Committed:
                self._check_image(proposer, effect)

    def replied(self, host: Host, request: int, response: Any) -> None:
        self.kernel.counters["acknowledged"] += 1
        self._acknowledged[request] = response

    def healed(self) -> None:
        self._wanted = self._request + 1

    def missing(self) -> str | None:
        leader = self.leader()
        if leader is None:
            return "there is no leader"
        if self._request > self._wanted and max(self._acknowledged, default=0) < self._wanted:
            return "nothing is acknowledged any more"
        behind = [
            node
            for node in leader.log.voters.members()
            if (node != self.damaged and not self.simulation.hosts[node].alive)
            or (
                self.simulation.hosts[node].alive
                and self._proposer(self.simulation.hosts[node]).quorum.commit < leader.log.last_index - 20
            )
        ]
        return f"nodes {behind} are behind" if behind else None

    def finish(self) -> None:
        for request, index in self._acknowledged.items():
            record = self.checks.committed[index].record
            if not isinstance(record, ConfigChanged) or record.key != str(request):
                raise InvariantViolated("I5", f"request {request} was acknowledged at {index}, where {record} is")

    def line(self, host: Host) -> str:
        if not host.running:
            return host.broken or ""
        quorum = self._proposer(host).quorum
        log = quorum.log
        return (
            f"{quorum.role.value:<9} term {quorum.term:<4} leader {quorum.leader} commit {quorum.commit:<5}"
            f" log {log.base}..{log.last_index} durable {quorum.durable_index} snapshot {log.snapshot.index}"
            f" voters {log.voters.voters} learners {log.voters.learners}"
        )

    def goes_on_with(self, wanted: VotersChanged) -> bool:
        """Whether a majority of these voters is there without the node whose disk was damaged or exchanged."""
        lost = self.damaged in wanted.voters
        return not lost or len(wanted.voters) - 1 >= wanted.majority()

    def leader(self) -> Quorum | None:
        """Of those that believe to lead, the one of the latest term."""
        running = [self._proposer(host).quorum for host in self.simulation.hosts.values() if host.running]
        leading = [quorum for quorum in running if quorum.leads]
        return max(leading, key=lambda quorum: quorum.term) if leading else None

    @property
    def _options(self) -> dict[str, Any]:
        return self.simulation.options.world

    def _proposer(self, host: Host) -> Proposer:
        machine = host.running[CONTROLLER].machine
        assert isinstance(machine, Proposer)
        return machine

    def _propose(self) -> None:
        random = self.kernel.randoms.workload
        self._request += 1
        node = random.randint(1, len(self.simulation.hosts))
        if random.random() < 0.9:
            node = self._led_by
        record = ConfigChanged("", str(self._request), "é" * random.choice([1, 10, 350]))
        self.simulation.hosts[node].ask(CONTROLLER, self._request, record)
        self.kernel.schedule(int(random.expovariate(1.0) * self._options["propose_ms"] * MILLISECOND), self._propose)

    def _check_image(self, proposer: Proposer, committed: Committed) -> None:
        """A snapshot's image is what the records before it fold to (I20)."""
        folds = self._folds
        for entry in self.checks.committed[len(folds) :]:
            folds.append(_Counted.fold(folds[-1], entry.record))
        if committed.image is not None:
            self.kernel.counters["snapshots installed"] += 1
            if cast("Any", committed.image) != folds[committed.first_index - 1]:
                raise InvariantViolated("I20", f"the image before {committed.first_index} is not the fold of the log")
        last = committed.first_index + len(committed.records) - 1
        if proposer.image != folds[last]:
            raise InvariantViolated("I20", f"node {proposer.quorum.id} folded something else up to {last}")


def _world(simulation: Simulation) -> QuorumWorld:
    world = simulation.world
    assert isinstance(world, QuorumWorld)
    return world


def _leader(simulation: Simulation) -> Quorum | None:
    return _world(simulation).leader()


def _change_voters(simulation: Simulation, fault: Fault) -> None:
    """An operator adds a node as a learner, promotes it, or takes a voter out; tries again until it is done."""
    _insist(simulation, _ask_for_voters, fault, _TRIES)


def _ask_for_voters(simulation: Simulation, fault: Fault) -> bool:
    leader = _leader(simulation)
    if leader is None:
        return False
    node = simulation.hosts[fault.nodes[0]].id
    now = leader.log.voters
    learners = tuple(each for each in now.learners if each != node)
    if node in now.voters:
        if len(now.voters) <= (1, 2, 3, 3)[fault.seed // 2 % 4]:
            return True  # few leave it at that
        voters = tuple(each for each in now.voters if each != node)
        wanted = VotersChanged(voters, (*learners, node) if fault.seed % 2 else learners)
    elif node in now.learners:
        wanted = VotersChanged((*now.voters, node), learners)
    else:
        wanted = VotersChanged(now.voters, (*learners, node))
    if not _world(simulation).goes_on_with(wanted):
        return True  # no operator would do that
    refused = leader.change_voters(wanted)
    simulation.kernel.counters["voters changed"] += refused is None
    carry_out(simulation, leader)
    return refused is None


def _insist(simulation: Simulation, act: Callable[[Simulation, Fault], bool], fault: Fault, tries: int) -> None:
    """Operators try again: a moment with a leader that has nothing else under way is rare under faults."""
    if not act(simulation, fault) and tries and not simulation.healing:
        simulation.kernel.schedule(_TRY_AGAIN_MS * MILLISECOND, _insist, simulation, act, fault, tries - 1)


def _flip(simulation: Simulation, fault: Fault) -> None:
    """A bit of what was safe changes on one disk of the cluster. The node must notice, and lie about nothing."""
    world = _world(simulation)
    host = simulation.hosts[fault.nodes[0]]
    leader = world.leader()
    if world.damaged not in (None, host.id) or leader is None or len(leader.log.voters.voters) < 3:
        return
    if not all(leader.log.voters.disks or [""]):
        return
    file = host.disk.get(("quorum-log", "quorum-log", "quorum-log", "quorum-state", "quorum-snapshot")[fault.seed % 5])
    if file is None or not leader.log.voters_index <= leader.commit:
        return
    size = min(file.safe_size, file.read().rfind(MAGIC) if fault.seed % 5 < 3 else file.size)
    if size > 0:
        world.damaged = host.id
        file.flip(fault.seed // 5 % size, fault.seed % 8)


def _exchange_disk(simulation: Simulation, fault: Fault) -> None:
    """A node comes back with an empty disk. It promises nothing that it promised before, and nobody may count on it."""
    world = _world(simulation)
    host = simulation.hosts[fault.nodes[0]]
    leader = world.leader()
    if world.damaged is not None or leader is None or leader.log.voters_index > leader.commit:
        return
    voters = leader.log.voters
    others = [node for node in voters.voters if node != host.id and simulation.hosts[node].alive]
    if len(others) < voters.majority() or not all(voters.disks or [""]):
        return
    world.damaged = host.id
    host.kill()
    host.disk.wipe()
    world.checks.forget(host.id)
    simulation.kernel.counters["disks exchanged"] += 1
    simulation.kernel.schedule(fault.lasts_ms * MILLISECOND, host.start)


def _transfer(simulation: Simulation, fault: Fault) -> None:
    _insist(simulation, _hand_over, fault, _TRIES)


def _hand_over(simulation: Simulation, fault: Fault) -> bool:
    leader = _leader(simulation)
    if leader is None or not leader.transfer(simulation.hosts[fault.nodes[0]].id):
        return False
    simulation.kernel.counters["transfers"] += 1
    carry_out(simulation, leader)
    return True


def carry_out(simulation: Simulation, quorum: Quorum) -> None:
    """Lets the shell do what an operator's act has left in the quorum: with the next tick, at once."""
    simulation.hosts[quorum.id].step(CONTROLLER, Asked(RequestId(0), cast("Any", ConfigChanged("", "0", None))))
