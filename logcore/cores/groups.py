"""Classic groups as a pure state machine: messages and the time go in, answers come out. `group_shard.py` acts.

In the classic protocol, members join, one of them (the leader) assigns partitions, all members fetch the assignment
by syncing, and then they send heartbeats. The coordinator does not interpret subscriptions and assignments: to it both
are bytes. An answer may come later than its request, so each message has a ticket, and its answer has the same ticket.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, assert_never

from .group_fold import group_of, record_of
from .group_members import Group, Member
from .group_messages import (
    MEMBERS_MAX,
    Answered,
    CheckCommit,
    GroupAnswer,
    GroupDescription,
    GroupFault,
    GroupState,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    Leaving,
    Left,
    Message,
    Sync,
    Synced,
    is_session_timeout,
)
from .group_records import ClassicGroup, GroupKey, GroupRecord, Kind

GATHERING_MS: Final = 100
"""How long an empty group waits for more members after one joined: a service often starts several at once."""


class Groups:
    """State: the groups that have members, had some, or expect one. Times are milliseconds of any monotonic clock.

    The durable part of the state is the fold of the records: call `apply` for each record, then `begin`, and only then
    `step`. `take_records` returns the records to write; answers may be sent once those are durable.
    Invariant: a group's generation increases with each rebalance and never decreases, until the group is forgotten.
    """

    def __init__(self, gathering_ms: int = GATHERING_MS) -> None:
        self._groups: dict[str, Group] = {}
        self._gathering_ms = gathering_ms
        self._answers: list[Answered] = []
        self._records: list[GroupRecord] = []

    def apply(self, record: GroupRecord) -> None:
        """Applies a record of this kind of groups."""
        name = record.key.group
        if record.value is None:
            self._groups.pop(name, None)
        elif isinstance(record.value, ClassicGroup):
            self._groups[name] = group_of(name, record.value)

    def begin(self, now_ms: int) -> None:
        """Call it after the last record: from now on each member has a whole session timeout to send something. A group
        without a leader has to assign again."""
        for group in self._groups.values():
            for member in group.members.values():
                member.renew(now_ms)
            if group.members and group.leader_id is None:
                self._rebalance(group, now_ms)

    def take_records(self) -> list[GroupRecord]:
        """The records to write now, in this order."""
        records, self._records = self._records, []
        return records

    def rewrite(self) -> None:
        """The records of `take_records` were lost, so all stable or empty groups are written again."""
        self._records = []
        for group in self._groups.values():
            if group.recorded and group.state in (GroupState.STABLE, GroupState.EMPTY):
                self._record(group)

    def find(self, name: str) -> Group | None:
        return self._groups.get(name)

    def give_up(self, name: str, now_ms: int) -> None:
        """Gives up a group whose coordinator assigns from now on. Waiting members are told to join again."""
        group = self._groups.pop(name)
        for member in group.members.values():
            self._refuse_waiting(member, GroupFault.REBALANCING, now_ms)
        if group.recorded:
            self._records.append(GroupRecord(GroupKey(Kind.CLASSIC, name), None))

    def take_over(self, group: Group, now_ms: int) -> None:
        """Takes a group whose coordinator assigned until now; from now on its members assign."""
        self._groups[group.name] = group
        self._record(group)
        self._rebalance(group, now_ms)

    def forget(self, name: str) -> bool:
        """Removes a group without members; False if the group is in use."""
        if self.is_in_use(name):
            return False
        group = self._groups.pop(name, None)
        if group is not None and group.recorded:
            self._records.append(GroupRecord(GroupKey(Kind.CLASSIC, name), None))
        return True

    def _record(self, group: Group) -> None:
        group.recorded = True
        self._records.append(GroupRecord(GroupKey(Kind.CLASSIC, group.name), record_of(group)))

    def step(self, message: Message, ticket: int, now_ms: int) -> list[Answered]:
        """The answers that can be sent now: possibly to this message, and to older ones."""
        match message:
            case JoinGroup():
                self._join(message, ticket, now_ms)
            case Sync():
                self._sync(message, ticket, now_ms)
            case Heartbeat():
                self._answers.append(Answered(ticket, GroupAnswer(self._heartbeat(message, now_ms))))
            case LeaveGroup():
                self._answers.append(Answered(ticket, self._leave(message, now_ms)))
            case CheckCommit():
                self._answers.append(Answered(ticket, GroupAnswer(self._check_commit(message, now_ms))))
            case _:
                assert_never(message)
        return self.take_answers()

    def tick(self, now_ms: int) -> list[Answered]:
        """Handles timeouts. There are none before `next_deadline_ms`."""
        for group in list(self._groups.values()):
            self._expire(group, now_ms)
        return self.take_answers()

    def next_deadline_ms(self) -> int | None:
        """The earliest time at which `tick` has something to do."""
        deadlines = [deadline for group in self._groups.values() for deadline in _deadlines(group)]
        return min(deadlines, default=None)

    def describe(self, group: str) -> GroupDescription:
        known = self._groups.get(group)
        return known.description() if known else GroupDescription(group, GroupState.DEAD)

    def names(self) -> list[str]:
        return list(self._groups)

    def has(self, group: str) -> bool:
        return group in self._groups

    def is_in_use(self, group: str) -> bool:
        known = self._groups.get(group)
        return known is not None and bool(known.members or known.expected)

    def take_answers(self) -> list[Answered]:
        """The answers that can be sent now."""
        answers, self._answers = self._answers, []
        return answers

    # Joining

    def _join(self, join: JoinGroup, ticket: int, now_ms: int) -> None:
        group = self._groups.get(join.group)
        fault = self._join_fault(group, join)
        if fault is not GroupFault.NONE:
            self._answers.append(Answered(ticket, Joined(fault, join.member_id)))
            return
        group = group or self._groups.setdefault(join.group, Group(join.group))
        if join.member_id in group.members:
            self._join_again(group, group.members[join.member_id], join, ticket, now_ms)
        elif join.instance_id is not None and join.instance_id in group.instances:
            self._replace_static(group, join, ticket, now_ms)
        elif not join.member_id and join.asks_twice and join.instance_id is None:
            group.expected[join.new_member_id] = now_ms + join.session_timeout_ms
            self._answers.append(Answered(ticket, Joined(GroupFault.MEMBER_ID_REQUIRED, join.new_member_id)))
        else:
            self._let_in(group, join, ticket, now_ms)

    def _join_fault(self, group: Group | None, join: JoinGroup) -> GroupFault:
        if not join.group:
            return GroupFault.INVALID_GROUP
        if not is_session_timeout(join.session_timeout_ms):
            return GroupFault.INVALID_SESSION_TIMEOUT
        group = group or Group(join.group)
        fault = GroupFault.NONE
        if join.member_id and join.member_id not in group.expected:
            fault = _member_fault(group, join.member_id, join.instance_id)
        if fault is GroupFault.NONE and not group.supports(join):
            fault = GroupFault.INCONSISTENT_PROTOCOL
        is_new = join.member_id not in group.members and join.instance_id not in group.instances
        if fault is GroupFault.NONE and is_new and len(group.members) >= MEMBERS_MAX:
            fault = GroupFault.GROUP_FULL
        return fault

    def _let_in(self, group: Group, join: JoinGroup, ticket: int, now_ms: int) -> None:
        member = Member(
            join.member_id or join.new_member_id,
            join.instance_id,
            join.client_id,
            join.client_host,
            join.session_timeout_ms,
            join.rebalance_timeout_ms,
            join.protocols,
            now_ms + join.session_timeout_ms,
            join_ticket=ticket,
            knows_skipping=join.knows_skipping,
        )
        group.protocol_type = join.protocol_type
        group.add(member)
        group.newcomers = True
        self._rebalance(group, now_ms)

    def _join_again(self, group: Group, member: Member, join: JoinGroup, ticket: int, now_ms: int) -> None:
        changed = member.protocols != join.protocols
        self._refuse_waiting(member, GroupFault.REBALANCING, now_ms)  # the client has abandoned its earlier request
        member.update(join, now_ms)
        if group.state is GroupState.STABLE:
            rejoins = changed or group.leader_id == member.member_id
        else:
            rejoins = changed or group.state is not GroupState.COMPLETING
        if not rejoins:
            self._answers.append(Answered(ticket, _joined(group, member)))
            return
        member.join_ticket = ticket
        self._rebalance(group, now_ms)

    def _replace_static(self, group: Group, join: JoinGroup, ticket: int, now_ms: int) -> None:
        """A static member was restarted. If its subscription is unchanged, the other members need not rejoin."""
        assert join.instance_id is not None
        old_id = group.instances[join.instance_id]
        old = group.members[old_id]
        self._refuse_waiting(old, GroupFault.FENCED_INSTANCE, now_ms)
        led = group.leader_id == old_id
        before = old.metadata_for(group.protocol)
        member = group.replace(old_id, join.new_member_id)
        member.update(join, now_ms)
        group.protocol_type = join.protocol_type
        unchanged = group.elected_protocol() == group.protocol and before == member.metadata_for(group.protocol)
        if group.state is not GroupState.STABLE or not unchanged:
            member.join_ticket = ticket
            self._rebalance(group, now_ms)
            return
        answer = _joined(group, member)
        if led:  # it must not assign again; an old client cannot be told so, and is told that its old id leads
            knows = member.knows_skipping
            answer = _joined(group, member, skip_assignment=True) if knows else _follower_of(answer, old_id)
        self._record(group)
        self._answers.append(Answered(ticket, answer))

    def _rebalance(self, group: Group, now_ms: int) -> None:
        """Begins a rebalance, unless one is collecting members already. Completes the join if all members are there."""
        if group.state is not GroupState.PREPARING:
            for member in group.members.values():
                if member.sync_ticket is not None:
                    self._refuse_waiting(member, GroupFault.REBALANCING, now_ms)
            first = group.state is GroupState.EMPTY
            group.first_join_until_ms = now_ms + group.rebalance_timeout_ms if first else None
            wait_ms = min(self._gathering_ms, group.rebalance_timeout_ms) if first else group.rebalance_timeout_ms
            group.deadline_ms = now_ms + wait_ms
            group.state, group.newcomers = GroupState.PREPARING, False
        self._complete_join_if_all_are_there(group, now_ms)

    def _complete_join_if_all_are_there(self, group: Group, now_ms: int) -> None:
        if group.state is not GroupState.PREPARING or group.first_join_until_ms is not None:
            return
        if not group.expected and all(member.join_ticket is not None for member in group.members.values()):
            self._complete_join(group, now_ms)

    def _complete_join(self, group: Group, now_ms: int) -> None:
        """Removes the members that did not join, except static members, which have until their session times out."""
        for member in list(group.members.values()):
            if member.join_ticket is None and member.instance_id is None:
                group.remove(member.member_id)
        group.first_join_until_ms = None
        if not group.members:
            self._empty(group)
            return
        joined = [member for member in group.members.values() if member.join_ticket is not None]
        if not joined:  # all members are static and absent, so none could lead
            group.deadline_ms = now_ms + group.rebalance_timeout_ms
            return
        if group.leader_id not in {member.member_id for member in joined}:
            group.leader_id = joined[0].member_id
        group.generation += 1
        group.protocol = group.elected_protocol()
        group.state, group.deadline_ms = GroupState.COMPLETING, now_ms + group.rebalance_timeout_ms
        for member in joined:
            assert member.join_ticket is not None
            self._answers.append(Answered(member.join_ticket, _joined(group, member)))
            member.join_ticket, member.owes_sync = None, True
            member.renew(now_ms)

    def _empty(self, group: Group) -> None:
        was_empty = group.state is GroupState.EMPTY
        group.state, group.deadline_ms, group.protocol = GroupState.EMPTY, None, None
        group.first_join_until_ms = None
        if not group.recorded and not group.expected:
            del self._groups[group.name]
        elif not was_empty:
            group.generation += 1
            if group.recorded:
                self._record(group)

    # Syncing

    def _sync(self, sync: Sync, ticket: int, now_ms: int) -> None:
        group = self._groups.get(sync.group)
        fault = _sync_fault(group, sync)
        if fault is not GroupFault.NONE:
            self._answers.append(Answered(ticket, Synced(fault)))
            return
        assert group is not None
        member = group.members[sync.member_id]
        self._refuse_waiting(member, GroupFault.REBALANCING, now_ms)
        member.renew(now_ms)
        member.owes_sync, member.sync_ticket = False, ticket
        if group.state is GroupState.COMPLETING and group.leader_id == member.member_id:
            for other in group.members.values():
                other.assignment = sync.assignments.get(other.member_id, b"")
            group.state = GroupState.STABLE
            self._record(group)
        if group.state is GroupState.STABLE:
            self._hand_out(group, now_ms)

    def _hand_out(self, group: Group, now_ms: int) -> None:
        for member in group.members.values():
            if member.sync_ticket is not None:
                reply = Synced(GroupFault.NONE, group.protocol_type, group.protocol, member.assignment)
                self._answers.append(Answered(member.sync_ticket, reply))
                member.sync_ticket = None
                member.renew(now_ms)

    # Staying and leaving

    def _heartbeat(self, heartbeat: Heartbeat, now_ms: int) -> GroupFault:
        group = self._groups.get(heartbeat.group)
        fault = _generation_fault(group, heartbeat.generation, heartbeat.member_id, heartbeat.instance_id)
        if fault is not GroupFault.NONE or group is None:
            return fault
        group.members[heartbeat.member_id].renew(now_ms)
        return GroupFault.REBALANCING if group.state is GroupState.PREPARING else GroupFault.NONE

    def _leave(self, leave: LeaveGroup, now_ms: int) -> Left:
        group = self._groups.get(leave.group)
        if not leave.group:
            return Left(GroupFault.INVALID_GROUP)
        outcome = tuple((leaving, self._leave_one(group, leaving, now_ms)) for leaving in leave.members)
        if group is not None and any(fault is GroupFault.NONE for _, fault in outcome):
            self._after_removal(group, now_ms)
        return Left(GroupFault.NONE, outcome)

    def _leave_one(self, group: Group | None, leaving: Leaving, now_ms: int) -> GroupFault:
        if group is None:
            return GroupFault.UNKNOWN_MEMBER
        member_id = leaving.member_id
        if member_id in group.expected:
            del group.expected[member_id]
            return GroupFault.NONE
        if not member_id and leaving.instance_id is not None:
            member_id = group.instances.get(leaving.instance_id, "")
        fault = _member_fault(group, member_id, leaving.instance_id)
        if fault is GroupFault.NONE:
            self._drop(group, member_id, now_ms)
        return fault

    def _drop(self, group: Group, member_id: str, now_ms: int) -> None:
        self._refuse_waiting(group.members[member_id], GroupFault.UNKNOWN_MEMBER, now_ms)
        group.remove(member_id)

    def _after_removal(self, group: Group, now_ms: int) -> None:
        if not group.members and group.first_join_until_ms is None:
            self._empty(group)
        elif group.state in (GroupState.STABLE, GroupState.COMPLETING):
            self._rebalance(group, now_ms)
        else:
            self._complete_join_if_all_are_there(group, now_ms)

    def _check_commit(self, check: CheckCommit, now_ms: int) -> GroupFault:
        """Clients outside the group may commit if it has no members. Transactions of older clients name no member."""
        group = self._groups.get(check.group)
        if check.generation < 0 and (group is None or not group.members):
            return GroupFault.NONE
        if check.transactional and check.generation < 0 and not check.member_id:
            return GroupFault.NONE
        if group is None:
            return GroupFault.ILLEGAL_GENERATION
        fault = _generation_fault(group, check.generation, check.member_id, check.instance_id)
        if fault is GroupFault.NONE and not check.transactional:
            group.members[check.member_id].renew(now_ms)
            if group.state is GroupState.COMPLETING:
                fault = GroupFault.REBALANCING
        return fault

    # Time

    def _expire(self, group: Group, now_ms: int) -> None:
        late_ids = [member_id for member_id, until_ms in group.expected.items() if until_ms <= now_ms]
        for member_id in late_ids:
            del group.expected[member_id]
        late = [member for member in group.members.values() if member.deadline_ms <= now_ms and not member.waits]
        for member in late:
            self._drop(group, member.member_id, now_ms)
        if late or late_ids:
            self._after_removal(group, now_ms)
        if group.deadline_ms is not None and group.deadline_ms <= now_ms:
            self._deadline(group, now_ms)

    def _deadline(self, group: Group, now_ms: int) -> None:
        match group.state:
            case GroupState.PREPARING:
                until_ms = group.first_join_until_ms
                if group.newcomers and until_ms is not None and now_ms < until_ms:
                    group.newcomers = False
                    group.deadline_ms = min(now_ms + self._gathering_ms, until_ms)
                else:
                    self._complete_join(group, now_ms)
            case GroupState.COMPLETING | GroupState.STABLE:
                group.deadline_ms = None
                self._drop_silent(group, now_ms)
            case GroupState.EMPTY | GroupState.DEAD | GroupState.RECONCILING:  # no deadlines of this kind
                group.deadline_ms = None

    def _drop_silent(self, group: Group, now_ms: int) -> None:
        """Removes members that joined but did not ask for their assignment in time."""
        silent = [member.member_id for member in group.members.values() if member.owes_sync]
        for member_id in silent:
            self._drop(group, member_id, now_ms)
        if silent:
            self._after_removal(group, now_ms)

    def _refuse_waiting(self, member: Member, fault: GroupFault, now_ms: int) -> None:
        if member.waits:
            member.renew(now_ms)  # the time in which it waited for us does not count
        if member.join_ticket is not None:
            self._answers.append(Answered(member.join_ticket, Joined(fault, member.member_id)))
        if member.sync_ticket is not None:
            self._answers.append(Answered(member.sync_ticket, Synced(fault)))
        member.join_ticket = member.sync_ticket = None


def _deadlines(group: Group) -> Iterable[int]:
    yield from group.expected.values()
    if group.deadline_ms is not None:
        yield group.deadline_ms
    for member in group.members.values():
        if not member.waits:
            yield member.deadline_ms


def _member_fault(group: Group | None, member_id: str, instance_id: str | None) -> GroupFault:
    if group is None:
        return GroupFault.UNKNOWN_MEMBER
    if instance_id is not None and group.instances.get(instance_id, member_id) != member_id:
        return GroupFault.FENCED_INSTANCE
    member = group.members.get(member_id)
    if member is None or (instance_id is not None and member.instance_id != instance_id):
        return GroupFault.UNKNOWN_MEMBER
    return GroupFault.NONE


def _generation_fault(group: Group | None, generation: int, member_id: str, instance_id: str | None) -> GroupFault:
    fault = _member_fault(group, member_id, instance_id)
    if fault is GroupFault.NONE and group is not None and group.generation != generation:
        return GroupFault.ILLEGAL_GENERATION
    return fault


def _sync_fault(group: Group | None, sync: Sync) -> GroupFault:
    fault = _generation_fault(group, sync.generation, sync.member_id, sync.instance_id)
    if fault is not GroupFault.NONE or group is None:
        return fault
    said = (sync.protocol_type or group.protocol_type, sync.protocol or group.protocol)
    if said != (group.protocol_type, group.protocol):
        return GroupFault.INCONSISTENT_PROTOCOL
    return GroupFault.REBALANCING if group.state is GroupState.PREPARING else GroupFault.NONE


def _joined(group: Group, member: Member, *, skip_assignment: bool = False) -> Joined:
    leads = group.leader_id == member.member_id
    return Joined(
        GroupFault.NONE,
        member.member_id,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader_id or "",
        group.joined_members() if leads else (),
        skip_assignment,
    )


def _follower_of(joined: Joined, leader_id: str) -> Joined:
    return Joined(joined.fault, joined.member_id, joined.generation, joined.protocol_type, joined.protocol, leader_id)
