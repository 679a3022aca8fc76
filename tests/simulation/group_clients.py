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
from millstream.logcore.clients.assignors import range_assignment
from millstream.logcore.group_messages import (
    Answer,
    CheckCommit,
    CommittedOffset,
    ConsumerBeat,
    ConsumerHeartbeat,
    GroupFault,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Leaving,
    Protocol,
    Sync,
    Synced,
)
from millstream.logcore.replication.controller_messages import CreateTopic
from millstream.logcore.replication.coordination_messages import GROUPS_TOPIC, ForGroup, place_of
from millstream.logcore.replication.group_requests import AskCommitted, CommitOffsets, GroupCommits
from millstream.logcore.replication.machine import BROKER, CONTROLLER
from millstream.logcore.replication.replica_messages import Problem, Refused
from millstream.logcore.subscriptions import (
    CONSUMER,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

from .group_checks import GroupChecks
from .kernel import MILLISECOND

if TYPE_CHECKING:
    from .cluster_world import ClusterWorld
    from .host import Host

FIRST_GROUP_REQUEST: Final = 1 << 50
_TOPIC: Final = "events"
_SHARDS: Final = 2
_SESSION_MS: Final = 3_000
_REBALANCE_MS: Final = 2_000
_TIMEOUT_MS: Final = 1_500
_JOIN_TIMEOUT_MS: Final = 5_000
_ASLEEP_MS: Final = 6_000
_AGAIN: Final = (Problem.COORDINATOR_LOADING, Problem.COORDINATOR_NOT_AVAILABLE)
_GONE: Final = (GroupFault.UNKNOWN_MEMBER, GroupFault.FENCED_EPOCH)
_OLD: Final = (GroupFault.ILLEGAL_GENERATION, GroupFault.STALE_EPOCH, *_GONE)


class _Asked(NamedTuple):
    group: str
    body: Any
    answered: Callable[[Any], None]
    floors: dict[TopicPartition, int]  # what the group had committed for sure when it was asked
    node: int


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
        self._interrupted: dict[str, int] = {}  # groups that rebalanced at this node when it stopped answering
        self._members: list[Member] = [
            kind(self, f"{kind.__name__}s", number)
            for number in range(members)
            for kind in (ClassicMember, AssignedMember)
        ]

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
        self._asked[number] = _Asked(group, body, answered, self.checks.floors(group), node or 0)
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
        asked = self._asked.get(number)
        if asked is None:
            return
        self._check(host, asked, response)
        random = self.random
        if random.random() > 0.02:
            delay = int(random.expovariate(1.0) * 2 * MILLISECOND)
            self.kernel.schedule(delay, self._answer, number, response)

    def _answer(self, number: int, response: Any) -> None:
        asked = self._asked.pop(number, None)
        if asked is None:
            return
        if response is None and isinstance(asked.body, Join | Sync):
            self._interrupted[asked.group] = asked.node
        asked.answered(response)

    def _check(self, host: Host, asked: _Asked, response: Any) -> None:
        match asked.body, response:
            case Sync(_, generation, member_id), Synced(GroupFault.NONE, _, _, assignment):
                goes_on = self._interrupted.pop(asked.group, host.id) != host.id
                self.kernel.counters["rebalances that go on at another coordinator"] += goes_on
                self.checks.owns(asked.group, generation, member_id, decode_assignment(assignment))
            case ConsumerHeartbeat(), ConsumerBeat(GroupFault.NONE, member_id, epoch, _, assignment) if assignment:
                self.checks.owns(asked.group, epoch, member_id, assignment)
            case CommitOffsets(check, offsets), Answer(GroupFault.NONE):
                self.kernel.counters["offsets committed"] += 1
                committed = {place: found.offset for place, found in offsets.items()}
                self.checks.committed(asked.group, check, committed, asked.floors)
            case CommitOffsets(), Answer(fault) if fault in _OLD:
                self.kernel.counters["commits of an old generation refused"] += 1
            case AskCommitted(), GroupCommits(offsets, _):
                found = {place: each.offset for place, each in offsets.items()}
                self.checks.found(asked.group, found, asked.floors)
            case Join() | Sync(), Refused(Problem.NOT_COORDINATOR, _):
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
            if sorted(owned) != [TopicPartition(_TOPIC, number) for number in range(self.partition_count)]:
                return f"the members of {group} read {sorted(owned)}"
        return None


class Member:
    """A client in a group, one request at a time."""

    def __init__(self, traffic: GroupTraffic, group: str, number: int) -> None:
        self.group = group
        self.name = f"{group}-{number}"
        self.owned: tuple[TopicPartition, ...] = ()
        self.is_well = False  # reads and commits, since the healing
        self.state = "not joined"
        self._traffic = traffic
        self._kernel = traffic.kernel
        self._lives = 0
        self._member_id = ""
        self._generation = -1
        self._positions: dict[TopicPartition, int] = {}

    def begin(self) -> None:
        self._later(self._act)

    def _later(self, action: Callable[..., object], *arguments: Any, mean_ms: float = 150.0) -> None:
        delay = self._traffic.random.expovariate(1.0) * mean_ms
        self._kernel.schedule(int(delay * MILLISECOND), action, *arguments)

    def _ask(self, body: Any, answered: Callable[[Any], None], timeout_ms: int = _TIMEOUT_MS) -> None:
        """Again soon, where nobody coordinates now."""

        def heard(response: Any) -> None:
            if isinstance(response, Refused) and response.problem in _AGAIN:
                self._later(self._ask, body, answered, timeout_ms, mean_ms=40)
            else:
                answered(response)

        self._traffic.send(self.group, body, heard, timeout_ms)

    def _act(self) -> None:
        chance = self._traffic.random.random()
        if not self._traffic.healed and chance < 0.08:
            self._misbehave(chance)
        elif not self.is_member:
            self._join()
        elif chance < 0.2:
            self._fetch()
        elif chance < 0.6 and self.owned:
            self._commit()
        else:
            self._beat()

    def _misbehave(self, chance: float) -> None:
        if chance < 0.02 and self.is_member:
            self._leave()
        elif chance < 0.04:
            self._forget()
            self._later(self._act, mean_ms=500)
        elif chance < 0.05:
            self._kernel.schedule(_ASLEEP_MS * MILLISECOND, self._wake)
        else:
            self._later(self._act)

    def _wake(self) -> None:
        """It does not know that others may have taken it for dead."""
        if self.is_member and self.owned:
            self._commit()
        else:
            self._act()

    def _forget(self) -> None:
        """The process ends; another one begins."""
        self._member_id, self._generation, self.owned = "", -1, ()
        self._positions = {}
        self.state = "not joined"
        self._lives += 1

    @property
    def is_member(self) -> bool:
        return self._generation >= 0

    def _join(self) -> None:
        raise NotImplementedError

    def _beat(self) -> None:
        raise NotImplementedError

    def _leave(self) -> None:
        raise NotImplementedError

    def _refused(self, fault: GroupFault) -> None:
        """By the coordinator: the member is out, or has to join anew."""
        raise NotImplementedError

    def _own(self, places: tuple[TopicPartition, ...]) -> None:
        """Where another one may have read meanwhile, the offset is asked for."""
        self._positions = {
            place: at for place, at in self._positions.items() if place in self.owned and place in places
        }
        self.owned = places

    def _fetch(self) -> None:
        self._ask(AskCommitted(), self._fetched)

    def _fetched(self, response: Any) -> None:
        if isinstance(response, GroupCommits):
            for place in self.owned:
                found = response.offsets.get(place)
                self._positions.setdefault(place, found.offset if found is not None else 0)
        self._later(self._act)

    def _commit(self) -> None:
        """It reads on whether its commit is answered or not: its position never goes back."""
        if any(place not in self._positions for place in self.owned):
            self._fetch()
            return
        steps = self._traffic.random.choice([0, 1, 3])
        for place in self.owned:
            self._positions[place] += steps
        offsets = {place: CommittedOffset(at) for place, at in self._positions.items()}
        check = CheckCommit(self.group, self._generation, self._member_id)
        self._ask(CommitOffsets(check, offsets), self._committed)

    def _committed(self, response: Any) -> None:
        if isinstance(response, Answer) and response.fault is not GroupFault.NONE:
            self._refused(response.fault)
            return
        self.is_well |= isinstance(response, Answer)
        self._later(self._act)


class ClassicMember(Member):
    """Members assign: it joins, and syncs; if it leads, it says who reads what."""

    _assigned_count: int | None = None  # of partitions, if it leads

    @property
    def _subscription(self) -> bytes:
        return encode_subscription(Subscription((_TOPIC,)))

    def _join(self) -> None:
        self.state = "joined nothing"
        join = Join(
            self.group,
            self._member_id,
            None,
            self.name,
            "host",
            _SESSION_MS,
            _REBALANCE_MS,
            CONSUMER,
            (Protocol("range", self._subscription),),
            f"{self.name}.{self._lives}.{self._traffic.next_id()}",
            asks_twice=True,
        )
        self._ask(join, self._joined, _JOIN_TIMEOUT_MS)

    def _joined(self, response: Any) -> None:
        if not isinstance(response, Joined):
            self._later(self._act)
        elif response.fault is GroupFault.MEMBER_ID_REQUIRED:
            self._member_id = response.member_id
            self._join()
        elif response.fault is not GroupFault.NONE:
            self._refused(response.fault)
        else:
            self._member_id, self._generation = response.member_id, response.generation
            self._own(())
            self._sync(self._assignments(response))

    def _assignments(self, joined: Joined) -> dict[str, bytes]:
        self._assigned_count = self._traffic.partition_count if joined.members else None
        if not joined.members:
            return {}
        members = {member.member_id: decode_subscription(member.metadata) for member in joined.members}
        assignment = range_assignment(members, {_TOPIC: self._traffic.partition_count})
        return {member_id: encode_assignment(places) for member_id, places in assignment.items()}

    def _sync(self, assignments: dict[str, bytes]) -> None:
        self.state = "synced nothing"
        sync = Sync(self.group, self._generation, self._member_id, assignments=assignments)
        self._ask(sync, lambda response: self._synced(assignments, response), _JOIN_TIMEOUT_MS)

    def _synced(self, assignments: dict[str, bytes], response: Any) -> None:
        if not isinstance(response, Synced):
            self._later(self._sync, assignments)
        elif response.fault is not GroupFault.NONE:
            self._refused(response.fault)
        else:
            self._kernel.counters["members that assign"] += 1
            self.state = "committed nothing"
            self._own(tuple(decode_assignment(response.assignment)))
            self._later(self._act)

    def _beat(self) -> None:
        """Who leads looks after the topic: for more partitions it has the group assign anew."""
        if self._assigned_count not in (None, self._traffic.partition_count):
            self._join()
        else:
            self._ask(Heartbeat(self.group, self._generation, self._member_id), self._beaten)

    def _beaten(self, response: Any) -> None:
        if isinstance(response, Answer) and response.fault is not GroupFault.NONE:
            self._refused(response.fault)
            return
        self.is_well |= isinstance(response, Answer) and not self.owned
        self._later(self._act)

    def _refused(self, fault: GroupFault) -> None:
        if fault in _GONE:
            self._member_id = ""
        self._generation = -1
        self._own(())
        self.is_well, self.state = False, f"been told {fault}"
        self._later(self._act)

    def _leave(self) -> None:
        leaving = Leave(self.group, (Leaving(self._member_id),))
        self._forget()
        self._ask(leaving, lambda _: self._later(self._act))


class AssignedMember(Member):
    """The coordinator assigns (KIP-848): all is said and heard by heartbeats."""

    _is_unsure = False

    def _join(self) -> None:
        self.state = "joined nothing"
        self._member_id = self._member_id or f"{self.name}.{self._lives}.{self._traffic.next_id()}"
        self._say(0, (_TOPIC,), frozenset())

    def _beat(self) -> None:
        """After an answer that was lost it says all there is, so that it is told all."""
        self._say(self._generation, (_TOPIC,) if self._is_unsure else None, frozenset(self.owned))

    def _leave(self) -> None:
        leaving = self._heartbeat(-1, None, None)
        self._forget()
        self._ask(leaving, lambda _: self._later(self._act))

    def _say(self, epoch: int, topics: tuple[str, ...] | None, owned: frozenset[TopicPartition]) -> None:
        self._ask(self._heartbeat(epoch, topics, owned), self._beaten)

    def _heartbeat(
        self, epoch: int, topics: tuple[str, ...] | None, owned: frozenset[TopicPartition] | None
    ) -> ConsumerHeartbeat:
        return ConsumerHeartbeat(
            self.group, self._member_id, epoch, None, self.name, "host", _REBALANCE_MS, topics, None, owned
        )

    def _beaten(self, response: Any) -> None:
        self._is_unsure = not isinstance(response, ConsumerBeat)
        if isinstance(response, ConsumerBeat):
            if response.fault is not GroupFault.NONE:
                self._refused(response.fault)
                return
            self._generation = response.epoch
            if response.assignment is not None:
                self._kernel.counters["members whose coordinator assigns"] += 1
                self._own(response.assignment)
            self.state = "committed nothing"
            self.is_well |= not self.owned
        self._later(self._act)

    def _refused(self, fault: GroupFault) -> None:
        """With another epoch only it says what it has, and hears the newest."""
        if fault is GroupFault.STALE_EPOCH:
            self._later(self._beat)
            return
        self._generation = -1
        self._own(())
        self.is_well, self.state = False, f"been told {fault}"
        self._later(self._act)
