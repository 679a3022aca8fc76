"""One group whose coordinator assigns: its members, the target assignment, and each member's steps towards it.

`consumer_groups.py` handles members that send consumer heartbeats (KIP-848), `classic_members.py` those that join and
sync, as clients do that have not been upgraded yet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ..client import TopicPartition
from ..clients.assignors import balanced_assignment
from .group_messages import SESSION_MS, ConsumerHeartbeat, GroupDescription, GroupState, MemberDescription
from .group_records import (
    ClassicMetadata,
    Current,
    Epoch,
    GroupKey,
    GroupRecord,
    GroupValue,
    Kind,
    MemberRecord,
    ReadTopics,
    Target,
)
from .patterns import NamePattern
from .subscriptions import CONSUMER, Subscription, encode_assignment, encode_subscription

ASSIGNOR: Final = "uniform"
LEAVES_FOR_A_WHILE: Final = -2  # a static member that will come back

_Places = set[TopicPartition]


@dataclass(slots=True)
class CoordinatedMember:
    """Invariant: `assigned` and `revoking` are disjoint. `epoch` is below the group's while the member gives up
    partitions."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    deadline_ms: int
    session_ms: int = SESSION_MS
    topics: tuple[str, ...] = ()
    named: frozenset[str] = frozenset()  # the same names, for fast look-ups: there may be very many
    pattern: NamePattern | None = None
    readable: frozenset[str] | None = None  # as last reported; None: all, or no report since a restart
    classic: ClassicMetadata | None = None  # of a member that joins and syncs
    epoch: int = 0
    previous_epoch: int = 0
    assigned: _Places = field(default_factory=set)
    revoking: _Places = field(default_factory=set)  # it was told to give these up and has not yet reported that it did
    acts_until_ms: int | None = None  # deadline to give up partitions, and for a classic member to join or sync
    told: frozenset[TopicPartition] | None = None
    lets_go: bool = False  # it must give up deleted topics, and gets no new partitions before it reports that it did
    away: bool = False
    unsure: bool = False  # a previous coordinator may not have sent it its assignment

    def name(self, topics: tuple[str, ...]) -> None:
        self.topics, self.named = topics, frozenset(topics)

    def wants(self, topic: str) -> bool:
        if topic in self.named:
            return True
        readable = self.readable is None or topic in self.readable
        return readable and self.pattern is not None and self.pattern.fits(topic)

    @property
    def patience_ms(self) -> int:
        """How long the member may take to give up partitions."""
        return max(self.rebalance_timeout_ms, self.session_ms)

    def is_late(self, now_ms: int) -> bool:
        return self.deadline_ms <= now_ms or (self.acts_until_ms is not None and self.acts_until_ms <= now_ms)

    def subscribe(self, beat: ConsumerHeartbeat) -> bool:
        """Updates the subscription. True if it changed."""
        topics = self.topics if beat.topics is None else beat.topics
        changed = topics != self.topics
        if beat.pattern is not None and beat.pattern != (self.pattern.text if self.pattern else ""):
            self.pattern = NamePattern(beat.pattern) if beat.pattern else None
            changed = True
        if topics != self.topics:
            self.name(topics)
        return changed

    def forget(self, gone: Collection[str]) -> None:
        """Topics of these names were deleted."""
        if not any(place.topic in gone for place in (*self.assigned, *self.revoking)):
            return
        self.assigned = {place for place in self.assigned if place.topic not in gone}
        self.revoking = {place for place in self.revoking if place.topic not in gone}
        self.lets_go, self.told = True, None


@dataclass(slots=True)
class CoordinatedGroup:
    """Invariant: no partition is held (assigned or being revoked) by two members."""

    epoch: int = 0
    members: dict[str, CoordinatedMember] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)  # partitions of the topics that are read
    target: dict[str, _Places] = field(default_factory=dict)
    saved: dict[GroupKey, GroupValue] = field(default_factory=dict)  # its records as written

    @property
    def is_classic(self) -> bool:
        """Whether it has members and all of them are classic: then the members can assign."""
        return bool(self.members) and all(member.classic for member in self.members.values())

    def holders(self) -> dict[TopicPartition, str]:
        return {place: m.member_id for m in self.members.values() for place in (*m.assigned, *m.revoking)}

    def instance(self, instance_id: str | None) -> CoordinatedMember | None:
        found = (m for m in self.members.values() if instance_id is not None and m.instance_id == instance_id)
        return next(found, None)

    def add(self, member: CoordinatedMember, former: CoordinatedMember | None) -> None:
        """In: `former`: the member that it replaces. The new member keeps the partitions of `former` if that is away,
        or if one of the two is classic: a classic static member does not announce that it leaves."""
        if former is not None:
            del self.members[former.member_id]
            if former.away or member.classic or former.classic:
                member.assigned = former.assigned
                self.target[member.member_id] = self.target.pop(former.member_id, set())
        self.members[member.member_id] = member

    def may_read(self, member: CoordinatedMember, readable: frozenset[str] | None) -> bool:
        """Updates which topics the member may read, before it is told any topic that its pattern matches. True if that
        changes which of the group's topics it reads; `counts_of` shows changes by topics that no member read before."""
        if member.pattern is None or member.readable == readable:
            member.readable = readable
            return False
        before = {topic for topic in self.counts if member.wants(topic)}
        member.readable = readable
        return before != {topic for topic in self.counts if member.wants(topic)}

    def counts_of(self, partition_counts: Mapping[str, int]) -> dict[str, int]:
        """The partition counts of the topics that some member reads."""
        patterns = any(member.pattern for member in self.members.values())
        named = frozenset[str]().union(*(member.named for member in self.members.values()))
        candidates = partition_counts if patterns else named
        return {
            topic: partition_counts[topic]
            for topic in candidates
            if topic in partition_counts and any(member.wants(topic) for member in self.members.values())
        }

    def assign(self, partition_counts: Mapping[str, int]) -> None:
        """Begins a new epoch, with a target assignment that moves as few partitions as possible."""
        self.counts = self.counts_of(partition_counts)
        self.epoch += 1
        subscriptions = {
            member.member_id: Subscription(
                tuple(topic for topic in self.counts if member.wants(topic)), tuple(sorted(member.assigned))
            )
            for member in self.members.values()
        }
        target = balanced_assignment(subscriptions, self.counts)
        self.target = {member_id: set(places) for member_id, places in target.items()}

    def reconcile(self, member: CoordinatedMember, owned: frozenset[TopicPartition] | None, now_ms: int) -> None:
        """One step of this member towards the target."""
        member.away = False
        acts_until_ms = now_ms + member.patience_ms
        if member.lets_go and member.told is None:  # this answer tells it for the first time
            member.acts_until_ms = acts_until_ms
            return
        if member.lets_go or member.revoking:
            if owned is None or owned & member.revoking:
                return
            member.lets_go, member.revoking, member.acts_until_ms = False, set(), None
        wanted = self.target.get(member.member_id, set())
        lost = member.assigned - wanted
        if lost and member.told is not None:
            member.assigned -= lost
            member.revoking, member.acts_until_ms = lost, acts_until_ms
            return
        member.assigned -= lost  # it was never told of these
        if member.epoch != self.epoch:
            member.previous_epoch, member.epoch = member.epoch, self.epoch
        member.assigned |= self.free_for(member)

    def free_for(self, member: CoordinatedMember) -> _Places:
        """The partitions of the member's target that no other member holds."""
        holders = self.holders()
        wanted = self.target.get(member.member_id, set())
        return {place for place in wanted if holders.get(place, member.member_id) == member.member_id}

    # Description

    def describe(self, name: str) -> GroupDescription:
        settled = all(
            member.epoch == self.epoch and member.assigned == self.target.get(member.member_id, set())
            for member in self.members.values()
        )
        return GroupDescription(
            name,
            self._state(settled=settled),
            CONSUMER,
            ASSIGNOR,
            self.epoch,
            tuple(
                MemberDescription(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    encode_subscription(Subscription(self._topics_of(member))),
                    encode_assignment(sorted(member.assigned)),
                    member.epoch,
                    encode_assignment(sorted(self.target.get(member.member_id, ()))),
                    is_classic=member.classic is not None,
                )
                for member in self.members.values()
            ),
            kind="consumer",
        )

    def _state(self, *, settled: bool) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        return GroupState.STABLE if settled else GroupState.RECONCILING

    def _topics_of(self, member: CoordinatedMember) -> tuple[str, ...]:
        """The topics that the member names, and the existing topics that match its pattern."""
        return tuple(dict.fromkeys([*member.topics, *(topic for topic in self.counts if member.wants(topic))]))

    # Records

    def changes(self, name: str, member_ids: Iterable[str]) -> list[GroupRecord]:
        """The records to write: about these members, or about the whole group if its epoch is new."""
        epoch = GroupKey(Kind.EPOCH, name)
        now = dict(self._of_members(name, member_ids))
        gone: list[GroupRecord] = []
        if self.saved.get(epoch) != Epoch(self.epoch):
            now = dict(self._of_members(name, self.members))
            now |= {GroupKey(Kind.TOPICS, name): ReadTopics(tuple(sorted(self.counts.items())))}
            now |= {epoch: Epoch(self.epoch), GroupKey(Kind.TARGET_EPOCH, name): Epoch(self.epoch)}
            gone = [GroupRecord(key, None) for key in self.saved if key not in now]
            self.saved = {key: value for key, value in self.saved.items() if key in now}
        changed = [GroupRecord(key, value) for key, value in now.items() if self.saved.get(key) != value]
        self.saved |= now
        return [*gone, *changed]

    def _of_members(self, name: str, member_ids: Iterable[str]) -> Iterable[tuple[GroupKey, GroupValue]]:
        for member_id in member_ids:
            member = self.members[member_id]
            yield (
                GroupKey(Kind.MEMBER, name, member_id),
                MemberRecord(
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.topics,
                    member.pattern.text if member.pattern else None,
                    member.rebalance_timeout_ms,
                    member.classic,
                ),
            )
            target = self.target.get(member_id)
            if target is not None:
                yield GroupKey(Kind.TARGET, name, member_id), Target(frozenset(target))
            epoch = LEAVES_FOR_A_WHILE if member.away else member.epoch
            places = frozenset(member.assigned), frozenset(member.revoking)
            yield GroupKey(Kind.CURRENT, name, member_id), Current(epoch, member.previous_epoch, *places)

    def apply(self, record: GroupRecord) -> None:
        """Applies a record. Members come before their assignments."""
        if record.value is not None:
            self.saved[record.key] = record.value
            self._take_in(record.key.member, record.value)
            return
        self.saved.pop(record.key, None)
        if record.key.kind is Kind.MEMBER:
            self.members.pop(record.key.member, None)
        elif record.key.kind is Kind.TARGET:
            self.target.pop(record.key.member, None)

    def _take_in(self, member_id: str, value: GroupValue) -> None:
        match value:
            case Epoch(epoch):
                self.epoch = epoch
            case ReadTopics(counts):
                self.counts = dict(counts)
            case MemberRecord():
                self.members.setdefault(member_id, CoordinatedMember(member_id, None, "", "", 0, 0, unsure=True))
                _describe_again(self.members[member_id], value)
            case Target(places):
                self.target[member_id] = set(places)
            case Current():
                member = self.members.get(member_id)
                if member is not None:
                    member.away = value.epoch == LEAVES_FOR_A_WHILE
                    member.epoch, member.previous_epoch = max(value.epoch, 0), value.previous_epoch
                    member.assigned, member.revoking = set(value.assigned), set(value.revoking)
                    member.told = value.assigned
            case _:  # of another kind of group
                pass


def _describe_again(member: CoordinatedMember, record: MemberRecord) -> None:
    member.instance_id, member.client_id, member.client_host = record.instance_id, record.client_id, record.client_host
    member.name(record.topics)
    member.rebalance_timeout_ms = record.rebalance_timeout_ms
    member.pattern = NamePattern(record.pattern) if record.pattern else None
    member.classic = record.classic
    member.session_ms = record.classic.session_timeout_ms if record.classic else SESSION_MS
