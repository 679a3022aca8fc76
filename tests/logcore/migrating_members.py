"""Members of both protocols in one group, as clients are, beside the pure coordinator: what they read at any moment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

from millstream.logcore.client import TopicPartition
from millstream.logcore.clients.assignors import ASSIGNORS
from millstream.logcore.coordination.group_topic import GroupTopic
from millstream.logcore.cores.all_groups import AllGroups
from millstream.logcore.cores.group_messages import (
    ConsumerHeartbeat,
    GroupAnswer,
    GroupDescription,
    GroupFault,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    Leaving,
    Protocol,
    Reply,
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

GROUP = "g"
SESSION_MS, REBALANCE_MS = 10_000, 20_000
LOST = (
    GroupFault.UNKNOWN_MEMBER, GroupFault.ILLEGAL_GENERATION, GroupFault.FENCED_EPOCH, GroupFault.FENCED_INSTANCE,
)  # fmt: skip

_Answer = Callable[[Reply], None]


class _Ids:
    """`TopicIds` of topics whose names are their ids."""

    def id_of(self, name: str) -> bytes | None:
        return name.encode().ljust(16)

    def name_of(self, id: bytes) -> str | None:
        return id.rstrip().decode()


class World:
    """The coordinator of a group, its log, the clock, and the members."""

    def __init__(self, partitions: int = 6) -> None:
        self.counts = {"t": partitions}
        self.now_ms = 0
        self.groups = AllGroups()
        self.entries: dict[bytes, bytes] = {}
        self.members: list[Client] = []
        self._waiting: dict[int, _Answer] = {}
        self._tickets = 0

    def ask(self, message: JoinGroup | Sync | Heartbeat | LeaveGroup, answer: _Answer) -> None:
        self._tickets += 1
        self._waiting[self._tickets] = answer
        self.groups.step(message, self._tickets, self.counts, self.now_ms)
        self.settle()

    def settle(self) -> None:
        """Writes what there is to write, then answers."""
        topic = GroupTopic(_Ids(), lambda: 0)
        for key, value in topic.encode(self.groups.take_records()):
            if value is None:
                self.entries.pop(key, None)
            else:
                self.entries[key] = value
        for answered in self.groups.take_answers():
            waiting = self._waiting.pop(answered.ticket)
            waiting(answered.reply)

    def pass_time(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        due_ms = self.groups.next_deadline_ms()
        if due_ms is not None and due_ms <= self.now_ms:
            self.groups.tick(self.now_ms)
        self.settle()

    def restart(self) -> None:
        """Another coordinator has the records; who waited for an answer asks again."""
        self.groups = AllGroups()
        for record in GroupTopic(_Ids(), lambda: 0).decode(self.entries):
            self.groups.apply(record)
        self.groups.begin(self.now_ms)
        self._waiting.clear()
        for member in self.members:
            member.interrupted()
        self.settle()

    def describe(self) -> GroupDescription:
        return self.groups.describe(GROUP)

    def everywhere(self) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for topic, count in self.counts.items() for number in range(count)]

    def reads(self) -> list[TopicPartition]:
        return sorted(place for member in self.members for place in member.reads)

    def is_at_rest(self) -> bool:
        return self.reads() == self.everywhere() and all(member.is_well for member in self.members)

    def run(self, rounds: int = 40, step_ms: int = 500) -> None:
        """Until all partitions are read and nobody has anything to do."""
        for _ in range(rounds):
            if self.is_at_rest():
                return
            for member in list(self.members):
                member.act()
                self.check()
            self.pass_time(step_ms)
        raise AssertionError(f"no rest: {[(member.name, sorted(member.reads)) for member in self.members]}")

    def check(self) -> None:
        """No partition is read by two, but for members who have not heard yet that they are none."""
        known = {member.member_id for member in self.describe().members}
        held = [place for member in self.members if member.member_id in known for place in member.reads]
        assert len(held) == len(set(held)), [(member.name, sorted(member.reads)) for member in self.members]


@dataclass
class Client(ABC):
    world: World
    name: str
    instance: str | None = None
    member_id: str = ""
    epoch: int = 0
    reads: set[TopicPartition] = field(default_factory=set)
    is_well: bool = False

    def __post_init__(self) -> None:
        self.world.members.append(self)

    @abstractmethod
    def act(self) -> None:
        """Does what is next."""

    @abstractmethod
    def leave(self) -> None: ...

    @abstractmethod
    def interrupted(self) -> None:
        """No answer will come to what it asked."""

    def lose(self) -> None:
        self.reads, self.epoch, self.is_well = set(), 0, False

    def vanish(self) -> None:
        """Without a word."""
        self.world.members.remove(self)


@dataclass
class ClassicClient(Client):
    """It joins and syncs. Eager ones (`range`) read nothing meanwhile, cooperative ones go on."""

    assignor: str = "range"
    _generation: int = -1
    _waits: bool = False
    _joins: bool = True
    _sync: Sync | None = None  # what it says next: it has joined
    _led: dict[str, int] | None = None  # the partitions that it assigned, if it leads

    def act(self) -> None:
        """Who leads looks after the topic: for more partitions it has the group assign anew."""
        if self._waits:
            return
        if self._sync is not None:
            sync, self._sync, self._waits = self._sync, None, True
            self.world.ask(sync, self._synced)
        elif self._joins or self._led not in (None, self.world.counts):
            self._join()
        else:
            self.world.ask(Heartbeat(GROUP, self._generation, self.member_id, self.instance), self._beaten)

    def interrupted(self) -> None:
        if self._waits:
            self._waits, self._joins, self.is_well, self._sync = False, True, False, None

    def leave(self) -> None:
        self.world.members.remove(self)
        self.reads = set()
        self.world.ask(LeaveGroup(GROUP, (Leaving(self.member_id, self.instance),)), lambda _: None)

    def _join(self) -> None:
        if self.assignor == "range":
            self.reads = set()
        self._waits, self.is_well = True, False
        metadata = encode_subscription(Subscription(("t",), tuple(sorted(self.reads))))
        join = JoinGroup(
            GROUP, self.member_id, self.instance, self.name, "host", SESSION_MS, REBALANCE_MS, CONSUMER,
            (Protocol(self.assignor, metadata),), f"{self.name}-{self.world.now_ms}", asks_twice=True,
        )  # fmt: skip
        self.world.ask(join, self._joined)

    def _joined(self, reply: Reply) -> None:
        assert isinstance(reply, Joined)
        self._waits = False
        if reply.fault is GroupFault.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
            self._join()
        elif reply.fault is GroupFault.NONE:
            self.member_id, self._generation = reply.member_id, reply.generation
            self._joins = False
            leads = reply.leader_id == reply.member_id
            self._led = self.world.counts if leads else None
            assignments = self._assign(reply) if leads else {}
            self._sync = Sync(
                GROUP, self._generation, self.member_id, self.instance, CONSUMER, reply.protocol, assignments
            )
        else:
            self._refused(reply.fault)

    def _assign(self, joined: Joined) -> dict[str, bytes]:
        members = {each.member_id: decode_subscription(each.metadata) for each in joined.members}
        shared = ASSIGNORS[self.assignor](members, self.world.counts)
        return {member_id: encode_assignment(places) for member_id, places in shared.items()}

    def _synced(self, reply: Reply) -> None:
        assert isinstance(reply, Synced)
        self._waits = False
        if reply.fault is not GroupFault.NONE:
            self._refused(reply.fault)
            return
        assigned = set(decode_assignment(reply.assignment))
        self._joins = bool(self.reads - assigned)  # a cooperative member joins again when it has given up
        self.reads = assigned
        self.is_well = not self._joins

    def _beaten(self, reply: Reply) -> None:
        assert isinstance(reply, GroupAnswer)
        self.is_well = reply.fault is GroupFault.NONE
        if not self.is_well:
            self._refused(reply.fault)

    def _refused(self, fault: GroupFault) -> None:
        assert fault is GroupFault.REBALANCING or fault in LOST, fault
        self._joins, self._waits, self.is_well, self._sync = True, False, False, None
        if fault in LOST:
            self.lose()
            self.member_id = ""


@dataclass
class AssignedClient(Client):
    """It says in heartbeats what it reads."""

    def act(self) -> None:
        joins = self.epoch == 0
        self.member_id = self.member_id or f"{self.name}-{self.world.now_ms}"
        answer = self.world.groups.beat(self._beat_of(self.epoch, joins=joins), self.world.counts, self.world.now_ms)
        self.world.settle()
        if answer.fault is not GroupFault.NONE:
            assert answer.fault in LOST, answer.fault
            self.lose()
            return
        self.is_well = self.epoch == answer.epoch and answer.assignment is None
        self.epoch = answer.epoch
        if answer.assignment is not None:
            self.reads = set(answer.assignment)

    def interrupted(self) -> None:
        """It is answered at once, always."""

    def leave(self, epoch: int = -1) -> None:
        self.world.members.remove(self)
        self.reads = set()
        self.world.groups.beat(self._beat_of(epoch, joins=False), self.world.counts, self.world.now_ms)
        self.world.settle()

    def _beat_of(self, epoch: int, *, joins: bool) -> ConsumerHeartbeat:
        return ConsumerHeartbeat(
            GROUP, self.member_id, epoch, self.instance, self.name, "host", REBALANCE_MS,
            ("t",) if joins else None, None, frozenset(self.reads), session_ms=SESSION_MS,
        )  # fmt: skip
