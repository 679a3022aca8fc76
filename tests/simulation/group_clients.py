"""Members of consumer groups in a simulated cluster: they join, commit, leave, crash, fall asleep and come back late.

What they are told has to hold (I18): offsets that a group has committed never move back, each partition has one owner
per generation, and after the healing every member reads and commits again. It is checked where a coordinator answers,
so what is late on the network confuses nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from millstream.logcore.client import TopicPartition
from millstream.logcore.cores.consumer_groups import JOINS
from millstream.logcore.cores.group_messages import (
    ConsumerBeat,
    ConsumerHeartbeat,
    GroupAnswer,
    GroupFault,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Sync,
    Synced,
)
from millstream.logcore.cores.subscriptions import decode_assignment
from millstream.logcore.replication.controller.controller_messages import CreateTopic
from millstream.logcore.replication.machine import BROKER, CONTROLLER
from millstream.logcore.replication.replica.replica_messages import Problem, Refused
from millstream.logcore.replication.shards.coordination_messages import ForGroup, place_of
from millstream.logcore.replication.shards.shard_group_requests import AskCommitted, CommitOffsets, GroupCommits
from millstream.logcore.topic_rules import GROUPS_TOPIC

from .group_checks import GroupChecks
from .group_members import GONE, GROUP_TOPIC, AssignedMember, ClassicMember, Member
from .kernel import MILLISECOND
from .sightings import Sighting

if TYPE_CHECKING:
    from .cluster_world import ClusterWorld
    from .host import Host

FIRST_GROUP_REQUEST: Final = 1 << 50
_SHARDS: Final = 2
_OLD: Final = (GroupFault.ILLEGAL_GENERATION, GroupFault.STALE_EPOCH, *GONE)


class _Asked(NamedTuple):
    group: str
    body: Any
    answered: Callable[[Any], None]
    floors: dict[TopicPartition, int]  # what the group had committed for sure when it was asked
    node: int
    sighting: Sighting


class GroupTraffic:
    """The groups of a run, and the requests of their members. Nothing where the seed has no groups."""

    counters: ClassVar[tuple[str, ...]] = (
        "offsets committed",
        "commits of an old generation refused",
        "coordinators that load",
        "rebalances that go on at another coordinator",
        "members that assign",
        "members whose coordinator assigns",
    )

    def __init__(self, world: ClusterWorld, members: int) -> None:
        self.world = world
        self.kernel = world.kernel
        self.checks = GroupChecks(self.kernel)
        self.healed = False
        self.random = Random(f"{world.kernel.seed}/groups")  # no draw of others is shifted
        self._number = FIRST_GROUP_REQUEST
        self._asked: dict[int, _Asked] = {}
        self._given_up: dict[int, _Asked] = {}  # what is answered after all is as true, though nobody waits for it
        self._interrupted: dict[str, int] = {}  # groups that rebalanced at this node when it stopped answering
        kinds = (ClassicMember, AssignedMember)
        self._members: list[Member] = [
            kind(self, f"{kind.__name__}s", number) for number in range(members) for kind in kinds
        ]
        both = range(len(kinds) if members else 0)  # in one group: it changes its kind with who is there
        self._members += [kinds[number](self, "MixedMembers", number) for number in both]

    def begin(self) -> None:
        if self._members:
            self._create_topic()
        for member in self._members:
            member.begin()

    def _create_topic(self) -> None:
        """Until the metadata say that it is there."""
        if GROUPS_TOPIC in self.world.image().topic_ids:
            return
        self._number += 1
        node = self.random.choice(list(self.world.simulation.hosts))
        configs = (("min.insync.replicas", "2"),)
        create = CreateTopic(GROUPS_TOPIC, _SHARDS, 3, configs=configs)
        self.world.simulation.hosts[node].ask(CONTROLLER, self._number, create)
        self.kernel.schedule(300 * MILLISECOND, self._create_topic)

    @property
    def partition_count(self) -> int:
        """Of the topic, as the metadata have it now."""
        topic = self.world.image().topics.get(self.world.topic or "")
        return len(topic.partitions) if topic is not None else 0

    def next_id(self) -> int:
        """Never given before."""
        self._number += 1
        return self._number - FIRST_GROUP_REQUEST

    # Requests

    def send(self, group: str, body: Any, answered: Callable[[Any], None], timeout_ms: int) -> None:
        """To the coordinator, as a node picked by chance knows it; `answered(None)` after the time-out."""
        self._number += 1
        number, node = self._number, self._believed_coordinator(group)
        for member_id in _leaving(body):
            self.checks.leaves(member_id)
        floors, sighting = self.checks.floors(group), Sighting.now(self.kernel)
        self._asked[number] = _Asked(group, body, answered, floors, node or 0, sighting)
        random = self.random
        if node is not None and random.random() > 0.02:
            delay = int(random.expovariate(1.0) * 2 * MILLISECOND)
            self.kernel.schedule(delay, self.world.simulation.hosts[node].ask, BROKER, number, ForGroup(group, body))
        self.kernel.schedule(timeout_ms * MILLISECOND, self._answer, number, None)

    def _believed_coordinator(self, group: str) -> int | None:
        broker = self.world.broker(self.random.choice(list(self.world.simulation.hosts)))
        image = self.world.image() if broker is None or self.random.random() < 0.5 else broker.image
        place = place_of(image, GROUPS_TOPIC, group)
        state = image.partition(place) if place is not None else None
        return state.leader if state is not None else None

    def replied(self, host: Host, number: int, response: Any) -> None:
        """A coordinator has answered: from now on it is true."""
        asked = self._asked.get(number) or self._given_up.pop(number, None)
        if asked is None:
            return
        self._note_member(asked, response)
        self._check(host, asked, response)
        random = self.random
        if random.random() > 0.02:
            delay = int(random.expovariate(1.0) * 2 * MILLISECOND)
            self.kernel.schedule(delay, self._answer, number, response)

    def _answer(self, number: int, response: Any) -> None:
        asked = self._asked.pop(number, None)
        if asked is None:
            return
        if response is None:
            self._given_up[number] = asked
        if response is None and isinstance(asked.body, JoinGroup | Sync):
            self._interrupted[asked.group] = asked.node
        asked.answered(response)

    def _note_member(self, asked: _Asked, response: Any) -> None:
        """Whether the coordinator knows it now."""
        match asked.body, response:
            case Sync() | Heartbeat() | ConsumerHeartbeat(), Synced() | GroupAnswer() | ConsumerBeat():
                if response.fault in GONE:
                    self.checks.leaves(asked.body.member_id)
                elif response.fault is GroupFault.NONE and not _leaving(asked.body):
                    self.checks.knows(asked.body.member_id, asked.sighting)
            case _:
                pass

    def _check(self, host: Host, asked: _Asked, response: Any) -> None:
        match asked.body, response:
            case Sync(_, generation, member_id), Synced(GroupFault.NONE, _, _, assignment):
                goes_on = self._interrupted.pop(asked.group, host.id) != host.id
                self.kernel.counters["rebalances that go on at another coordinator"] += goes_on
                self.checks.owns(asked.group, generation, member_id, decode_assignment(assignment))
            case ConsumerHeartbeat(), ConsumerBeat(GroupFault.NONE, member_id, epoch, _, tuple(assignment)):
                self.checks.owns(asked.group, epoch, member_id, assignment)
            case CommitOffsets(check, offsets), GroupAnswer(GroupFault.NONE):
                self.kernel.counters["offsets committed"] += 1
                committed = {place: found.offset for place, found in offsets.items()}
                self.checks.committed(asked.group, check, committed, asked.floors)
            case CommitOffsets(), GroupAnswer(fault) if fault in _OLD:
                self.kernel.counters["commits of an old generation refused"] += 1
            case AskCommitted(), GroupCommits(offsets, _):
                found = {place: each.offset for place, each in offsets.items()}
                self.checks.found(asked.group, found, asked.floors)
            case JoinGroup() | Sync(), Refused(Problem.NOT_COORDINATOR, _):
                self._interrupted[asked.group] = host.id
            case _, Refused(Problem.COORDINATOR_LOADING, _):
                self.kernel.counters["coordinators that load"] += 1
            case _:
                pass

    # The end

    def heal(self) -> None:
        self.healed = True
        for member in self._members:
            member.is_well = False

    def missing(self) -> str | None:
        ill = [member for member in self._members if not member.is_well]
        if ill:
            return f"{ill[0].name} has {ill[0].state} since the healing"
        for group in {member.group: None for member in self._members}:
            owned = [place for member in self._members if member.group == group for place in member.owned]
            if sorted(owned) != [TopicPartition(GROUP_TOPIC, number) for number in range(self.partition_count)]:
                return f"the members of {group} read {sorted(owned)}"
        return None


def _leaving(body: Any) -> tuple[str, ...]:
    """The members that say that they leave."""
    match body:
        case LeaveGroup(_, members):
            return tuple(leaving.member_id for leaving in members)
        case ConsumerHeartbeat(_, member_id, epoch) if epoch < JOINS:
            return (member_id,)
        case _:
            return ()
