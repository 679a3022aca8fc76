"""The members of share groups (KIP-932), as a pure state machine. `share_partition.py` has the records they acquire.

Several members may read one partition, so no member has to give it up before another one gets it. A change of members
or topics increases the group's epoch, and each member gets its new assignment with its next heartbeat.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ..client import TopicPartition
from .group_messages import ConsumerBeat, GroupDescription, GroupFault, GroupState, MemberDescription
from .group_records import Current, Epoch, GroupKey, GroupRecord, GroupValue, Kind, ShareMemberRecord
from .group_table import GroupTable
from .share_settings import DEFAULTS, HEARTBEAT_MS, SESSION_MS
from .subscriptions import Subscription, encode_assignment, encode_subscription

SHARE: Final = "share"
"""The protocol type and the kind of share groups."""
ASSIGNOR: Final = "simple"
LEAVES: Final = -1
SHARE_KINDS: Final = frozenset({Kind.SHARE_MEMBER, Kind.SHARE_EPOCH, Kind.SHARE_CURRENT})

_JOINS: Final = 0
MEMBERS_MAX: Final = 200
_SESSION_MS: Final = int(DEFAULTS[SESSION_MS])


@dataclass(frozen=True, slots=True)
class ShareHeartbeat:
    """`epoch`: 0 joins, -1 leaves. `topics`: None means unchanged since the member last sent them."""

    group: str
    member_id: str
    epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...] | None
    session_ms: int = _SESSION_MS
    heartbeat_ms: int = int(DEFAULTS[HEARTBEAT_MS])
    members_max: int = MEMBERS_MAX


class GoneMember(NamedTuple):
    """A member that left or timed out. The records that it had acquired become available to others."""

    group: str
    member_id: str


@dataclass(slots=True)
class _Member:
    member_id: str
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    epoch: int = 0
    previous_epoch: int = 0
    assigned: frozenset[TopicPartition] = frozenset()
    told: frozenset[TopicPartition] | None = None
    session_ms: int = _SESSION_MS
    deadline_ms: int = 0


@dataclass(slots=True)
class _Group:
    epoch: int = 0
    members: dict[str, _Member] = field(default_factory=dict)
    counts: dict[str, int] | None = None  # partitions of the topics that are read; None: not yet known after a start
    saved: dict[GroupKey, GroupValue] = field(default_factory=dict)  # its records as written


class ShareGroups(GroupTable[_Group]):
    """State: the table of groups, and the members that have gone. Times are milliseconds of a monotonic clock."""

    def __init__(self) -> None:
        super().__init__()
        self._gone: list[GoneMember] = []

    def apply(self, record: GroupRecord) -> None:
        """Applies a record of this kind of groups."""
        key, value = record
        group = self._groups.setdefault(key.group, _Group())
        if value is None:
            group.saved.pop(key, None)
            if key.kind is Kind.SHARE_MEMBER:
                group.members.pop(key.member, None)
            if not group.saved:
                del self._groups[key.group]
            return
        group.saved[key] = value
        member = group.members.get(key.member)
        match value:
            case Epoch(epoch):
                group.epoch = epoch
            case ShareMemberRecord(client_id, client_host, topics):
                group.members[key.member] = _Member(key.member, client_id, client_host, topics)
            case Current() if member is not None:
                member.epoch, member.previous_epoch = value.epoch, value.previous_epoch
                member.assigned = value.assigned
            case _:  # of another kind of group
                pass

    def begin(self, now_ms: int) -> None:
        """Call it after the last record: from now on each member has a whole session timeout to send something."""
        for group in self._groups.values():
            for member in group.members.values():
                member.deadline_ms = now_ms + member.session_ms

    def rewrite(self) -> None:
        """The records of `take_records` were lost, so all groups are written again."""
        self._records = []
        for name, group in self._groups.items():
            group.saved = {}
            self._note(name, group)

    def forget_topics(self, gone: Collection[str]) -> None:
        """These topics were deleted: see `ConsumerGroups.forget_topics`."""
        for group in self._groups.values():
            if group.counts is not None:
                group.counts = {topic: count for topic, count in group.counts.items() if topic not in gone}
            for member in group.members.values():
                member.assigned = frozenset(place for place in member.assigned if place.topic not in gone)
                if member.told is not None:
                    member.told = frozenset(place for place in member.told if place.topic not in gone)

    def take_gone(self) -> list[GoneMember]:
        """The members that have gone since the previous call."""
        gone, self._gone = self._gone, []
        return gone

    def _note(self, name: str, group: _Group) -> None:
        """Adds the records that have changed to those to be written."""
        now: dict[GroupKey, GroupValue] = {GroupKey(Kind.SHARE_EPOCH, name): Epoch(group.epoch)}
        for member in group.members.values():
            about = ShareMemberRecord(member.client_id, member.client_host, member.topics)
            current = Current(member.epoch, member.previous_epoch, member.assigned, frozenset())
            now[GroupKey(Kind.SHARE_MEMBER, name, member.member_id)] = about
            now[GroupKey(Kind.SHARE_CURRENT, name, member.member_id)] = current
        self._records += [GroupRecord(key, None) for key in group.saved if key not in now]
        self._records += [GroupRecord(key, value) for key, value in now.items() if group.saved.get(key) != value]
        group.saved = now

    def beat(self, beat: ShareHeartbeat, partition_counts: Mapping[str, int], now_ms: int) -> ConsumerBeat:
        """In: `partition_counts`: of all existing topics."""
        group = self._groups.get(beat.group)
        fault = _fault(group, beat)
        if fault is not GroupFault.NONE:
            return ConsumerBeat(fault, beat.member_id)
        if group is not None and beat.epoch == LEAVES:
            self._remove(beat.group, group, [beat.member_id])
            return ConsumerBeat(GroupFault.NONE, beat.member_id, beat.epoch)
        group = group or self._groups.setdefault(beat.group, _Group())
        member = group.members.get(beat.member_id)
        changed = member is None
        if member is None:
            member = group.members[beat.member_id] = _Member(beat.member_id)
        member.session_ms, member.deadline_ms = beat.session_ms, now_ms + beat.session_ms
        member.client_id, member.client_host = beat.client_id, beat.client_host
        if beat.epoch == _JOINS:
            member.told = None
        if beat.topics is not None and beat.topics != member.topics:
            member.topics, changed = beat.topics, True
        counts = _counts(group, partition_counts)
        if changed or counts != group.counts:
            _assign(group, counts)
        if member.epoch != group.epoch:
            member.previous_epoch, member.epoch = member.epoch, group.epoch
        self._note(beat.group, group)
        told, member.told = member.told, member.assigned
        new = tuple(sorted(member.assigned)) if told != member.assigned else None
        return ConsumerBeat(GroupFault.NONE, member.member_id, member.epoch, beat.heartbeat_ms, new)

    def tick(self, now_ms: int) -> None:
        """Removes members whose session timed out."""
        for name, group in list(self._groups.items()):
            late = [member.member_id for member in group.members.values() if member.deadline_ms <= now_ms]
            if late:
                self._remove(name, group, late)

    def next_deadline_ms(self) -> int | None:
        members = (member for group in self._groups.values() for member in group.members.values())
        return min((member.deadline_ms for member in members), default=None)

    def _remove(self, name: str, group: _Group, member_ids: Iterable[str]) -> None:
        for member_id in member_ids:
            del group.members[member_id]
            self._gone.append(GoneMember(name, member_id))
        _assign(group, _counts(group, group.counts or {}))
        self._note(name, group)

    def create(self, name: str) -> None:
        """Creates a group without members, because an administrator has set its offsets."""
        if name not in self._groups:
            self._groups[name] = _Group()
            self._note(name, self._groups[name])

    def describe(self, name: str) -> GroupDescription:
        group = self._groups[name]
        members = tuple(
            MemberDescription(
                member.member_id,
                None,
                member.client_id,
                member.client_host,
                encode_subscription(Subscription(member.topics)),
                encode_assignment(sorted(member.assigned)),
                member.epoch,
            )
            for member in group.members.values()
        )
        state = GroupState.STABLE if members else GroupState.EMPTY
        return GroupDescription(name, state, SHARE, ASSIGNOR, group.epoch, members, kind=SHARE)


def _fault(group: _Group | None, beat: ShareHeartbeat) -> GroupFault:
    """Why the member may not join or stay."""
    if not beat.group:
        return GroupFault.INVALID_GROUP
    member = group.members.get(beat.member_id) if group is not None else None
    if beat.epoch == _JOINS:
        if not beat.member_id or beat.topics is None:
            return GroupFault.INVALID_REQUEST
        full = group is not None and member is None and len(group.members) >= beat.members_max
        return GroupFault.GROUP_FULL if full else GroupFault.NONE
    if member is None:
        return GroupFault.UNKNOWN_MEMBER
    if beat.epoch == LEAVES:
        return GroupFault.NONE
    if beat.epoch < LEAVES:
        return GroupFault.INVALID_REQUEST
    known = beat.epoch in (member.epoch, member.previous_epoch)  # the previous one if an answer was lost
    return GroupFault.NONE if known else GroupFault.FENCED_EPOCH


def _counts(group: _Group, partition_counts: Mapping[str, int]) -> dict[str, int]:
    """The partition counts of the topics that some member reads."""
    named = sorted({topic for member in group.members.values() for topic in member.topics})
    return {topic: partition_counts[topic] for topic in named if topic in partition_counts}


def _assign(group: _Group, counts: dict[str, int]) -> None:
    """Begins a new epoch. Each partition gets a member, and each member gets a partition of its topics: if there are
    more members than partitions, several members read the same one."""
    group.counts, group.epoch = counts, group.epoch + 1
    assigned: dict[str, set[TopicPartition]] = {member_id: set() for member_id in group.members}
    for topic, count in counts.items():
        readers = sorted(
            (member_id for member_id, member in group.members.items() if topic in member.topics),
            key=lambda member_id: (len(assigned[member_id]), member_id),
        )
        for turn in range(max(count, len(readers))):
            assigned[readers[turn % len(readers)]].add(TopicPartition(topic, turn % count))
    for member_id, places in assigned.items():
        group.members[member_id].assigned = frozenset(places)
