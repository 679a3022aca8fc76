"""What members of a simulated group do, in both protocols: join, commit, leave, crash, sleep and come back late."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from millstream.logcore.client import TopicPartition
from millstream.logcore.clients.assignors import range_assignment
from millstream.logcore.cores.group_messages import (
    CheckCommit,
    CommittedOffset,
    ConsumerBeat,
    ConsumerHeartbeat,
    GroupAnswer,
    GroupFault,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    Leaving,
    Protocol,
    Sync,
    Synced,
)
from millstream.logcore.cores.subscriptions import (
    CONSUMER,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from millstream.logcore.replication.replica.replica_messages import Problem, Refused
from millstream.logcore.replication.shards.shard_group_requests import AskCommitted, CommitOffsets, GroupCommits

from .kernel import MILLISECOND

if TYPE_CHECKING:
    from .group_clients import GroupTraffic

GROUP_TOPIC: Final = "events"
_SESSION_MS: Final = 3_000
_REBALANCE_MS: Final = 2_000
PATIENCE_MS: Final = min(_SESSION_MS, _REBALANCE_MS)  # a coordinator's with a member that says nothing, or not enough
_TIMEOUT_MS: Final = 1_500
_JOIN_TIMEOUT_MS: Final = 5_000
_ASLEEP_MS: Final = 6_000
_AGAIN: Final = (Problem.COORDINATOR_LOADING, Problem.COORDINATOR_NOT_AVAILABLE)
GONE: Final = (GroupFault.UNKNOWN_MEMBER, GroupFault.FENCED_EPOCH)


class Member(ABC):
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

    @abstractmethod
    def _join(self) -> None: ...

    @abstractmethod
    def _beat(self) -> None: ...

    @abstractmethod
    def _leave(self) -> None: ...

    @abstractmethod
    def _refused(self, fault: GroupFault) -> None:
        """By the coordinator: the member is out, or has to join anew."""

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
        if isinstance(response, GroupAnswer) and response.fault is not GroupFault.NONE:
            self._refused(response.fault)
            return
        self.is_well |= isinstance(response, GroupAnswer)
        self._later(self._act)


class ClassicMember(Member):
    """Members assign: it joins, and syncs; if it leads, it says who reads what."""

    _assigned_count: int | None = None  # of partitions, if it leads

    @property
    def _subscription(self) -> bytes:
        return encode_subscription(Subscription((GROUP_TOPIC,)))

    def _join(self) -> None:
        self.state = "joined nothing"
        join = JoinGroup(
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
        assignment = range_assignment(members, {GROUP_TOPIC: self._traffic.partition_count})
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
        if isinstance(response, GroupAnswer) and response.fault is not GroupFault.NONE:
            self._refused(response.fault)
            return
        self.is_well |= isinstance(response, GroupAnswer) and not self.owned
        self._later(self._act)

    def _refused(self, fault: GroupFault) -> None:
        if fault in GONE:
            self._member_id = ""
        self._generation = -1
        self._own(())
        self.is_well, self.state = False, f"been told {fault}"
        self._later(self._act)

    def _leave(self) -> None:
        leaving = LeaveGroup(self.group, (Leaving(self._member_id),))
        self._forget()
        self._ask(leaving, lambda _: self._later(self._act))


class AssignedMember(Member):
    """The coordinator assigns (KIP-848): all is said and heard by heartbeats."""

    _is_unsure = False

    def _join(self) -> None:
        self.state = "joined nothing"
        self._member_id = self._member_id or f"{self.name}.{self._lives}.{self._traffic.next_id()}"
        self._say(0, (GROUP_TOPIC,), frozenset())

    def _beat(self) -> None:
        """After an answer that was lost it says all there is, so that it is told all."""
        self._say(self._generation, (GROUP_TOPIC,) if self._is_unsure else None, frozenset(self.owned))

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
