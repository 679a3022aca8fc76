"""Groups whose coordinator assigns partitions (KIP-848), as a pure state machine. `groups.py` has the classic groups.

There is no common rebalance: each heartbeat reports what a member reads, and its answer says what it should read. A
partition goes to its new reader only after the old reader has reported that it no longer reads it. The group's epoch
increases when members or topics change. A member takes the new epoch once it has given up what it must give up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from . import classic_members
from .classic_members import ClassicMessage
from .coordinated_group import ASSIGNOR, LEAVES_FOR_A_WHILE, CoordinatedGroup, CoordinatedMember
from .group_messages import (
    MEMBERS_MAX,
    CheckCommit,
    ConsumerBeat,
    ConsumerHeartbeat,
    GroupDescription,
    GroupFault,
    JoinGroup,
    LeaveGroup,
    Left,
    Reply,
)
from .group_records import GroupRecord
from .group_table import GroupTable
from .patterns import InvalidPattern, NamePattern

JOINS: Final = 0
LEAVES: Final = -1

_ASSIGNORS: Final = (None, "", ASSIGNOR, "range")


class ConsumerGroups(GroupTable[CoordinatedGroup]):
    """State: the table of groups. Times are milliseconds of a monotonic clock.

    The durable part of the state is the fold of the records: call `apply` for each record, then `begin`, and only then
    `beat`.
    """

    def apply(self, record: GroupRecord) -> None:
        """Applies a record of this kind of groups."""
        name = record.key.group
        group = self._groups.setdefault(name, CoordinatedGroup())
        group.apply(record)
        if not group.saved:
            del self._groups[name]

    def begin(self, now_ms: int) -> None:
        """Call it after the last record: from now on each member has a whole session timeout to send something."""
        for group in self._groups.values():
            for member in group.members.values():
                member.deadline_ms = now_ms + member.session_ms
                if member.revoking:
                    member.acts_until_ms = now_ms + member.patience_ms

    def rewrite(self) -> None:
        """The records of `take_records` were lost, so all groups are written again."""
        self._records = []
        for name, group in self._groups.items():
            group.saved = {}
            self._note(name, group, group.members)

    def forget_topics(self, gone: Collection[str]) -> None:
        """These topics were deleted, so no member reads them. New topics with the same names are read in a new epoch,
        by members that have reported that they no longer read the old ones. Otherwise clients that know topics only by
        name would keep their position and skip the records of the new topic before it."""
        for group in self._groups.values():
            group.counts = {topic: count for topic, count in group.counts.items() if topic not in gone}
            for member in group.members.values():
                member.forget(gone)

    def _note(self, name: str, group: CoordinatedGroup, member_ids: Iterable[str]) -> None:
        self._records += group.changes(name, member_ids)

    # Members that send consumer heartbeats (KIP-848)

    def beat(self, beat: ConsumerHeartbeat, partition_counts: Mapping[str, int], now_ms: int) -> ConsumerBeat:
        """In: `partition_counts`: of all existing topics."""
        group = self._groups.get(beat.group)
        if not beat.group:
            return ConsumerBeat(GroupFault.INVALID_GROUP)
        if beat.epoch < JOINS:
            return self._leave(group, beat, now_ms)
        fault = self.fault(beat)
        if fault is not GroupFault.NONE:
            return ConsumerBeat(fault, beat.member_id)
        group = group or self._groups.setdefault(beat.group, CoordinatedGroup())
        member = _joined(group, beat, now_ms) if beat.epoch == JOINS else group.members[beat.member_id]
        member.session_ms = beat.session_ms
        member.deadline_ms = now_ms + member.session_ms
        changed = beat.epoch == JOINS
        if beat.topics is not None or beat.pattern is not None:
            changed |= member.subscribe(beat)
        changed |= group.may_read(member, beat.readable)
        if changed or group.counts_of(partition_counts) != group.counts:
            group.assign(partition_counts)
        group.reconcile(member, beat.owned, now_ms)
        self._note(beat.group, group, [member.member_id])
        return _answer(member, beat)

    def fault(self, beat: ConsumerHeartbeat) -> GroupFault:
        """Why the member may not join or stay."""
        group = self._groups.get(beat.group)
        if beat.assignor not in _ASSIGNORS:
            return GroupFault.UNSUPPORTED_ASSIGNOR
        if beat.pattern and not _is_pattern(beat.pattern):
            return GroupFault.INVALID_PATTERN
        return _joins_fault(group, beat) if beat.epoch == JOINS else _stays_fault(group, beat)

    def _leave(self, group: CoordinatedGroup | None, beat: ConsumerHeartbeat, now_ms: int) -> ConsumerBeat:
        member = group.members.get(beat.member_id) if group else None
        if group is None or member is None:
            return ConsumerBeat(GroupFault.UNKNOWN_MEMBER, beat.member_id)
        if beat.epoch == LEAVES_FOR_A_WHILE and member.instance_id is not None:
            member.away, member.deadline_ms = True, now_ms + member.session_ms
            self._note(beat.group, group, [member.member_id])
        else:
            self._remove(beat.group, group, [member.member_id])
        return ConsumerBeat(GroupFault.NONE, beat.member_id, beat.epoch)

    # Classic members, which join and sync

    def step(self, message: ClassicMessage, partition_counts: Mapping[str, int], now_ms: int) -> Reply:
        """The answer to a classic member of a group in use. It never waits for other members."""
        group = self._groups[message.group]
        if isinstance(message, LeaveGroup):
            outcome = classic_members.leaving(group, message)
            left = [member_id for _, member_id, fault in outcome if fault is GroupFault.NONE]
            if left:
                self._remove(message.group, group, left)
            return Left(GroupFault.NONE, tuple((leaving, fault) for leaving, _, fault in outcome))
        if isinstance(message, JoinGroup):
            reply = classic_members.join(group, message, partition_counts, now_ms)
            self._note(message.group, group, [reply.member_id] if reply.member_id in group.members else [])
            return reply
        return classic_members.answer(group, message, now_ms)

    def take_over(self, name: str, group: CoordinatedGroup) -> None:
        """Takes a group whose members assigned until now, because a member is about to join that does not."""
        self._groups[name] = group
        self._note(name, group, group.members)

    def give_up(self, name: str) -> CoordinatedGroup:
        """Gives up a group whose members assign from now on."""
        group = self._groups.pop(name)
        self._records += [GroupRecord(key, None) for key in group.saved]
        return group

    def classic_ones(self) -> list[str]:
        """The groups of classic members only: their members may assign again."""
        return [name for name, group in self._groups.items() if group.is_classic]

    def is_classic(self, group: str) -> bool:
        return self.has(group) and self._groups[group].is_classic

    # Timeouts, and operations on all groups

    def tick(self, now_ms: int) -> None:
        """Removes members whose session timed out, or that did not give up partitions (or join, or sync) in time."""
        for name, group in list(self._groups.items()):
            late = [member.member_id for member in group.members.values() if member.is_late(now_ms)]
            if late:
                self._remove(name, group, late)

    def next_deadline_ms(self) -> int | None:
        deadlines = (
            min(member.deadline_ms, member.acts_until_ms or member.deadline_ms)
            for group in self._groups.values()
            for member in group.members.values()
        )
        return min(deadlines, default=None)

    def _remove(self, name: str, group: CoordinatedGroup, member_ids: Iterable[str]) -> None:
        for member_id in member_ids:
            del group.members[member_id]
        if not group.is_classic:  # otherwise the members assign from now on, in the same generation
            group.assign(group.counts)
        self._note(name, group, group.members)

    def check_commit(self, check: CheckCommit, now_ms: int) -> GroupFault:
        """Whether this member may commit. Transactions of older clients name no member, and are allowed."""
        if check.transactional and check.generation < 0 and not check.member_id:
            return GroupFault.NONE
        member = self._groups[check.group].members.get(check.member_id)
        if member is None:
            return GroupFault.UNKNOWN_MEMBER
        if member.classic is not None:
            member.deadline_ms = now_ms + member.session_ms
        if check.generation == member.epoch:
            return GroupFault.NONE
        return GroupFault.STALE_EPOCH if member.classic is None else GroupFault.ILLEGAL_GENERATION

    def describe(self, name: str) -> GroupDescription:
        return self._groups[name].describe(name)


def _joins_fault(group: CoordinatedGroup | None, beat: ConsumerHeartbeat) -> GroupFault:
    if not beat.member_id or (beat.topics is None and beat.pattern is None):
        return GroupFault.INVALID_REQUEST
    other = group.instance(beat.instance_id) if group else None
    if group and other is None and beat.member_id not in group.members and len(group.members) >= MEMBERS_MAX:
        return GroupFault.GROUP_FULL
    if other is None or other.member_id == beat.member_id or other.away or other.classic:
        return GroupFault.NONE
    return GroupFault.UNRELEASED_INSTANCE


def _stays_fault(group: CoordinatedGroup | None, beat: ConsumerHeartbeat) -> GroupFault:
    member = group.members.get(beat.member_id) if group else None
    if member is None or member.classic:
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


def _joined(group: CoordinatedGroup, beat: ConsumerHeartbeat, now_ms: int) -> CoordinatedMember:
    """The new member. A static member that was away keeps its partitions, under its new id."""
    member = CoordinatedMember(
        beat.member_id, beat.instance_id, beat.client_id, beat.client_host, beat.rebalance_timeout_ms, now_ms
    )
    group.add(member, group.instance(beat.instance_id) or group.members.get(beat.member_id))
    return member


def _answer(member: CoordinatedMember, beat: ConsumerHeartbeat) -> ConsumerBeat:
    """The answer has the assignment if it is new, or if the member may have missed it."""
    assigned = frozenset(member.assigned)
    stale = assigned != member.told or beat.epoch == JOINS or (beat.owned is not None and beat.topics is not None)
    stale |= member.unsure
    member.told, member.unsure = assigned, False
    return ConsumerBeat(
        GroupFault.NONE, member.member_id, member.epoch, beat.heartbeat_ms, tuple(sorted(assigned)) if stale else None
    )
