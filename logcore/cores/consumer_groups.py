"""Groups whose coordinator decides who reads what (KIP-848), as a pure state machine. `groups.py` has the classic ones.

There is no rebalance that all take part in: each heartbeat says what a member reads and gets what it should read. A
partition goes to its new reader only when the old one has said that it does not read it any more. The group's epoch
rises when members or topics change; a member takes it on as soon as it has given up what it must.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ..client import TopicPartition
from ..clients.assignors import balanced_assignment
from .group_messages import (
    SESSION_MS,
    CheckCommit,
    ConsumerBeat,
    ConsumerHeartbeat,
    GroupDescription,
    GroupFault,
    GroupState,
    MemberDescription,
)
from .group_records import Current, Epoch, GroupKey, GroupRecord, GroupValue, Kind, MemberRecord, ReadTopics, Target
from .group_table import GroupTable
from .patterns import InvalidPattern, NamePattern
from .subscriptions import CONSUMER, Subscription, encode_assignment, encode_subscription

ASSIGNOR: Final = "uniform"
LEAVES: Final = -1
LEAVES_FOR_A_WHILE: Final = -2  # a static member that comes back

_JOINS: Final = 0
_ASSIGNORS: Final = (None, "", ASSIGNOR, "range")
_Places = set[TopicPartition]


@dataclass(slots=True)
class _Member:
    """Invariant: `assigned` and `revoking` have nothing in common. `epoch` is below the group's while it gives up."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    deadline_ms: int
    session_ms: int = SESSION_MS
    topics: tuple[str, ...] = ()
    named: frozenset[str] = frozenset()  # the same: there may be very many of them
    pattern: NamePattern | None = None
    readable: frozenset[str] | None = None  # as it said last; None: all, or it was not heard since a restart
    epoch: int = 0
    previous_epoch: int = 0
    assigned: _Places = field(default_factory=set)
    revoking: _Places = field(default_factory=set)  # was told to give these up, and has not said that it did
    revoke_until_ms: int | None = None
    told: frozenset[TopicPartition] | None = None
    lets_go: bool = False  # of topics that were deleted: it gets no others before it has said that it did
    away: bool = False
    unsure: bool = False  # whether it was told of what it has: the coordinator was another one then

    def name(self, topics: tuple[str, ...]) -> None:
        self.topics, self.named = topics, frozenset(topics)

    def wants(self, topic: str) -> bool:
        if topic in self.named:
            return True
        readable = self.readable is None or topic in self.readable
        return readable and self.pattern is not None and self.pattern.fits(topic)


@dataclass(slots=True)
class _Group:
    """Invariant: no partition is held (assigned or being revoked) by two members."""

    epoch: int = 0
    members: dict[str, _Member] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)  # partitions of the topics that are read
    target: dict[str, _Places] = field(default_factory=dict)
    saved: dict[GroupKey, GroupValue] = field(default_factory=dict)  # what its records say

    def holders(self) -> dict[TopicPartition, str]:
        return {place: m.member_id for m in self.members.values() for place in (*m.assigned, *m.revoking)}

    def instance(self, instance_id: str | None) -> _Member | None:
        found = (m for m in self.members.values() if instance_id is not None and m.instance_id == instance_id)
        return next(found, None)


class ConsumerGroups(GroupTable[_Group]):
    """State: the table of groups. Times are milliseconds of a clock that never goes back.

    What outlives the coordinator is the fold of its records: `apply` takes them in before the first beat, and `begin`
    ends that.
    """

    def apply(self, record: GroupRecord) -> None:
        """Takes in a record of this kind of groups."""
        name = record.key.group
        group = self._groups.setdefault(name, _Group())
        if record.value is not None:
            group.saved[record.key] = record.value
            _take_in(group, record.key.member, record.value)
            return
        group.saved.pop(record.key, None)
        if record.key.kind is Kind.MEMBER:
            group.members.pop(record.key.member, None)
        elif record.key.kind is Kind.TARGET:
            group.target.pop(record.key.member, None)
        if not group.saved:
            del self._groups[name]

    def begin(self, now_ms: int) -> None:
        """All records are there: each member has a whole session to be heard of."""
        for group in self._groups.values():
            for member in group.members.values():
                member.deadline_ms = now_ms + SESSION_MS
                if member.revoking:
                    member.revoke_until_ms = now_ms + max(member.rebalance_timeout_ms, SESSION_MS)

    def rewrite(self) -> None:
        """What was to be written is lost: everything is written once more."""
        self._records = []
        for name, group in self._groups.items():
            group.saved = {}
            self._note(name, group, group.members)

    def forget_topics(self, gone: Collection[str]) -> None:
        """These were deleted: nobody reads them any more. Topics that have such names now, however alike they are, are
        read in a new epoch, by members who have said that they do not read the old ones. Clients that know topics by
        their names alone would keep their position otherwise, and skip what the new topic has before it."""
        for group in self._groups.values():
            group.counts = {topic: count for topic, count in group.counts.items() if topic not in gone}
            for member in group.members.values():
                _forget(member, gone)

    def _note(self, name: str, group: _Group, member_ids: Iterable[str]) -> None:
        """Writes what has changed: about these members, or of the whole group where its epoch is new."""
        epoch = GroupKey(Kind.EPOCH, name)
        now = dict(_records_of_members(name, group, member_ids))
        if group.saved.get(epoch) != Epoch(group.epoch):
            now = dict(_records_of_members(name, group, group.members))
            now |= {GroupKey(Kind.TOPICS, name): ReadTopics(tuple(sorted(group.counts.items())))}
            now |= {epoch: Epoch(group.epoch), GroupKey(Kind.TARGET_EPOCH, name): Epoch(group.epoch)}
            self._records += [GroupRecord(key, None) for key in group.saved if key not in now]
            group.saved = {key: value for key, value in group.saved.items() if key in now}
        self._records += [GroupRecord(key, value) for key, value in now.items() if group.saved.get(key) != value]
        group.saved |= now

    def beat(self, beat: ConsumerHeartbeat, partition_counts: Mapping[str, int], now_ms: int) -> ConsumerBeat:
        """In: `partition_counts`: of all topics that there are."""
        group = self._groups.get(beat.group)
        if not beat.group:
            return ConsumerBeat(GroupFault.INVALID_GROUP)
        if beat.epoch < _JOINS:
            return self._leave(group, beat, now_ms)
        fault = _fault(group, beat)
        if fault is not GroupFault.NONE:
            return ConsumerBeat(fault, beat.member_id)
        group = group or self._groups.setdefault(beat.group, _Group())
        member = _joined(group, beat, now_ms) if beat.epoch == _JOINS else group.members[beat.member_id]
        member.session_ms = beat.session_ms
        member.deadline_ms = now_ms + member.session_ms
        changed = beat.epoch == _JOINS
        if beat.topics is not None or beat.pattern is not None:
            changed |= _subscribe(member, beat)
        changed |= _may_read(member, beat.readable, group)
        if changed or _counts(group, partition_counts) != group.counts:
            _assign(group, partition_counts)
        _reconcile(group, member, beat.owned, now_ms)
        self._note(beat.group, group, [member.member_id])
        return _answer(member, beat)

    def _leave(self, group: _Group | None, beat: ConsumerHeartbeat, now_ms: int) -> ConsumerBeat:
        member = group.members.get(beat.member_id) if group else None
        if group is None or member is None:
            return ConsumerBeat(GroupFault.UNKNOWN_MEMBER, beat.member_id)
        if beat.epoch == LEAVES_FOR_A_WHILE and member.instance_id is not None:
            member.away, member.deadline_ms = True, now_ms + member.session_ms
            self._note(beat.group, group, [member.member_id])
        else:
            self._remove(beat.group, group, [member.member_id])
        return ConsumerBeat(GroupFault.NONE, beat.member_id, beat.epoch)

    def tick(self, now_ms: int) -> None:
        """Members that nobody heard of, or that do not give up what they must, are out."""
        for name, group in list(self._groups.items()):
            late = [
                member.member_id
                for member in group.members.values()
                if member.deadline_ms <= now_ms or (member.revoke_until_ms or now_ms + 1) <= now_ms
            ]
            if late:
                self._remove(name, group, late)

    def next_deadline_ms(self) -> int | None:
        deadlines = (
            min(member.deadline_ms, member.revoke_until_ms or member.deadline_ms)
            for group in self._groups.values()
            for member in group.members.values()
        )
        return min(deadlines, default=None)

    def _remove(self, name: str, group: _Group, member_ids: Iterable[str]) -> None:
        for member_id in member_ids:
            del group.members[member_id]
        _assign(group, group.counts)
        self._note(name, group, group.members)

    def check_commit(self, check: CheckCommit) -> GroupFault:
        member = self._groups[check.group].members.get(check.member_id)
        if member is None:
            return GroupFault.UNKNOWN_MEMBER
        return GroupFault.NONE if check.generation == member.epoch else GroupFault.STALE_EPOCH

    def describe(self, name: str) -> GroupDescription:
        group = self._groups[name]
        settled = all(
            member.epoch == group.epoch and member.assigned == group.target.get(member.member_id, set())
            for member in group.members.values()
        )
        return GroupDescription(
            name,
            _state(group, settled=settled),
            CONSUMER,
            ASSIGNOR,
            group.epoch,
            tuple(
                MemberDescription(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    encode_subscription(Subscription(_topics_of(member, group))),
                    encode_assignment(sorted(member.assigned)),
                    member.epoch,
                    encode_assignment(sorted(group.target.get(member.member_id, ()))),
                )
                for member in group.members.values()
            ),
            kind="consumer",
        )


def _state(group: _Group, *, settled: bool) -> GroupState:
    if not group.members:
        return GroupState.EMPTY
    return GroupState.STABLE if settled else GroupState.RECONCILING


def _topics_of(member: _Member, group: _Group) -> tuple[str, ...]:
    """Those that it names, and those that there are of its pattern."""
    return tuple(dict.fromkeys([*member.topics, *(topic for topic in group.counts if member.wants(topic))]))


def _fault(group: _Group | None, beat: ConsumerHeartbeat) -> GroupFault:
    """Why the member may not join, or not go on."""
    if beat.assignor not in _ASSIGNORS:
        return GroupFault.UNSUPPORTED_ASSIGNOR
    if beat.pattern and not _is_pattern(beat.pattern):
        return GroupFault.INVALID_PATTERN
    if beat.epoch == _JOINS:
        if not beat.member_id or (beat.topics is None and beat.pattern is None):
            return GroupFault.INVALID_REQUEST
        other = group.instance(beat.instance_id) if group else None
        taken = other is not None and other.member_id != beat.member_id and not other.away
        return GroupFault.UNRELEASED_INSTANCE if taken else GroupFault.NONE
    member = group.members.get(beat.member_id) if group else None
    if member is None:
        return GroupFault.UNKNOWN_MEMBER
    if beat.instance_id is not None and beat.instance_id != member.instance_id:
        return GroupFault.FENCED_INSTANCE
    answer_was_lost = beat.epoch == member.previous_epoch and (beat.owned is None or beat.owned <= member.assigned)
    return GroupFault.NONE if beat.epoch == member.epoch or answer_was_lost else GroupFault.FENCED_EPOCH


def _is_pattern(text: str) -> bool:
    try:
        NamePattern(text)
    except InvalidPattern:
        return False
    return True


def _joined(group: _Group, beat: ConsumerHeartbeat, now_ms: int) -> _Member:
    """A static member that was away goes on with what it had, under its new id."""
    former = group.instance(beat.instance_id) or group.members.get(beat.member_id)
    member = _Member(
        beat.member_id, beat.instance_id, beat.client_id, beat.client_host, beat.rebalance_timeout_ms, now_ms
    )
    if former is not None:
        del group.members[former.member_id]
        if former.away:
            member.assigned = former.assigned
            group.target[beat.member_id] = group.target.pop(former.member_id, set())
    group.members[beat.member_id] = member
    return member


def _subscribe(member: _Member, beat: ConsumerHeartbeat) -> bool:
    """Whether that changed anything."""
    topics = member.topics if beat.topics is None else beat.topics
    changed = topics != member.topics
    if beat.pattern is not None and beat.pattern != (member.pattern.text if member.pattern else ""):
        member.pattern = NamePattern(beat.pattern) if beat.pattern else None
        changed = True
    if topics != member.topics:
        member.name(topics)
    return changed


def _forget(member: _Member, gone: Collection[str]) -> None:
    if not any(place.topic in gone for place in (*member.assigned, *member.revoking)):
        return
    member.assigned = {place for place in member.assigned if place.topic not in gone}
    member.revoking = {place for place in member.revoking if place.topic not in gone}
    member.lets_go, member.told = True, None


def _may_read(member: _Member, readable: frozenset[str] | None, group: _Group) -> bool:
    """Takes in what the member may read, before anything that its pattern matches is told to it. Whether that changes
    which of the group's topics it reads; of topics that nobody reads, `_counts` tells."""
    if member.pattern is None or member.readable == readable:
        member.readable = readable
        return False
    before = {topic for topic in group.counts if member.wants(topic)}
    member.readable = readable
    return before != {topic for topic in group.counts if member.wants(topic)}


def _counts(group: _Group, partition_counts: Mapping[str, int]) -> dict[str, int]:
    """Of the topics that somebody reads."""
    patterns = any(member.pattern for member in group.members.values())
    named = frozenset[str]().union(*(member.named for member in group.members.values()))
    candidates = partition_counts if patterns else named
    return {
        topic: partition_counts[topic]
        for topic in candidates
        if topic in partition_counts and any(member.wants(topic) for member in group.members.values())
    }


def _assign(group: _Group, partition_counts: Mapping[str, int]) -> None:
    """A new epoch, with a target that leaves as much as possible where it is."""
    group.counts = _counts(group, partition_counts)
    group.epoch += 1
    subscriptions = {
        member.member_id: Subscription(
            tuple(topic for topic in group.counts if member.wants(topic)), tuple(sorted(member.assigned))
        )
        for member in group.members.values()
    }
    target = balanced_assignment(subscriptions, group.counts)
    group.target = {member_id: set(places) for member_id, places in target.items()}


def _reconcile(group: _Group, member: _Member, owned: frozenset[TopicPartition] | None, now_ms: int) -> None:
    """One step of this member towards the target."""
    member.away = False
    revoke_until_ms = now_ms + max(member.rebalance_timeout_ms, member.session_ms)
    if member.lets_go and member.told is None:  # this answer is the first to tell it
        member.revoke_until_ms = revoke_until_ms
        return
    if member.lets_go or member.revoking:
        if owned is None or owned & member.revoking:
            return
        member.lets_go, member.revoking, member.revoke_until_ms = False, set(), None
    wanted = group.target.get(member.member_id, set())
    lost = member.assigned - wanted
    if lost and member.told is not None:
        member.assigned -= lost
        member.revoking, member.revoke_until_ms = lost, revoke_until_ms
        return
    member.assigned -= lost  # it was never told of these
    if member.epoch != group.epoch:
        member.previous_epoch, member.epoch = member.epoch, group.epoch
    holders = group.holders()
    member.assigned |= {place for place in wanted if holders.get(place, member.member_id) == member.member_id}


def _answer(member: _Member, beat: ConsumerHeartbeat) -> ConsumerBeat:
    """The assignment is sent when it is new, or when the member seems to have missed it."""
    assigned = frozenset(member.assigned)
    stale = assigned != member.told or beat.epoch == _JOINS or (beat.owned is not None and beat.topics is not None)
    stale |= member.unsure
    member.told, member.unsure = assigned, False
    return ConsumerBeat(
        GroupFault.NONE, member.member_id, member.epoch, beat.heartbeat_ms, tuple(sorted(assigned)) if stale else None
    )


# Records


def _records_of_members(name: str, group: _Group, member_ids: Iterable[str]) -> Iterable[tuple[GroupKey, GroupValue]]:
    for member_id in member_ids:
        member = group.members[member_id]
        yield (
            GroupKey(Kind.MEMBER, name, member_id),
            MemberRecord(
                member.instance_id,
                member.client_id,
                member.client_host,
                member.topics,
                member.pattern.text if member.pattern else None,
                member.rebalance_timeout_ms,
            ),
        )
        target = group.target.get(member_id)
        if target is not None:
            yield GroupKey(Kind.TARGET, name, member_id), Target(frozenset(target))
        epoch = LEAVES_FOR_A_WHILE if member.away else member.epoch
        places = frozenset(member.assigned), frozenset(member.revoking)
        yield GroupKey(Kind.CURRENT, name, member_id), Current(epoch, member.previous_epoch, *places)


def _take_in(group: _Group, member_id: str, value: GroupValue) -> None:
    match value:
        case Epoch(epoch):
            group.epoch = epoch
        case ReadTopics(counts):
            group.counts = dict(counts)
        case MemberRecord():
            member = group.members.setdefault(member_id, _Member(member_id, None, "", "", 0, 0, unsure=True))
            member.instance_id, member.client_id, member.client_host = (
                value.instance_id,
                value.client_id,
                value.client_host,
            )
            member.name(value.topics)
            member.rebalance_timeout_ms = value.rebalance_timeout_ms
            member.pattern = NamePattern(value.pattern) if value.pattern else None
        case Target(places):
            group.target[member_id] = set(places)
        case Current():
            member = group.members.get(member_id)
            if member is not None:
                member.away = value.epoch == LEAVES_FOR_A_WHILE
                member.epoch, member.previous_epoch = max(value.epoch, 0), value.previous_epoch
                member.assigned, member.revoking = set(value.assigned), set(value.revoking)
                member.told = value.assigned
        case _:  # of another kind of group
            pass
