"""Classic members (which join and sync) in a group whose coordinator assigns. They let an application move from one
protocol to the other, one instance after the other, and back (the online migration of KIP-848).

A classic member sees a group in which another member leads. The answer to a join has an epoch as its generation, the
answer to a sync has its assignment, and the answer to a heartbeat tells it to join again. No member waits for others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, assert_never

from ..client import TopicPartition
from .coordinated_group import CoordinatedGroup, CoordinatedMember
from .group_members import Group, Member
from .group_messages import (
    MEMBERS_MAX,
    GroupAnswer,
    GroupFault,
    GroupState,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    Leaving,
    Protocol,
    Sync,
    Synced,
    is_session_timeout,
)
from .group_records import ClassicMetadata
from .subscriptions import (
    CONSUMER,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    user_data_of,
)

ClassicMessage = JoinGroup | Sync | Heartbeat | LeaveGroup

_KNOWN_ASSIGNORS: Final = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
"""The user data of these assignors matters only to themselves. Members depend on the user data of other assignors (in
Kafka Streams: which task runs where), so the coordinator cannot assign for such members."""


# Joining


def join(group: CoordinatedGroup, join: JoinGroup, partition_counts: Mapping[str, int], now_ms: int) -> Joined:
    """In: `partition_counts`: of all existing topics."""
    subscription = _subscription(join)
    fault = _join_fault(group, join)
    if fault is GroupFault.NONE and subscription is None:
        fault = GroupFault.INCONSISTENT_PROTOCOL
    if fault is not GroupFault.NONE or subscription is None:
        return Joined(fault, join.member_id)
    if not join.member_id and join.asks_twice and join.instance_id is None:
        return Joined(GroupFault.MEMBER_ID_REQUIRED, join.new_member_id)
    former = group.members.get(join.member_id) or group.instance(join.instance_id)
    before = None if former is None else former.named
    member = _member(group, join, former)
    _take_in(member, join, subscription, now_ms)
    news = before != member.named or group.counts_of(partition_counts) != group.counts
    if news and not group.is_classic:  # otherwise the members assign from now on
        group.assign(partition_counts)
    _reconcile(group, member, frozenset(subscription.owned), now_ms)
    return Joined(GroupFault.NONE, member.member_id, member.epoch, CONSUMER, join.protocols[0].name)


def _subscription(join: JoinGroup) -> Subscription | None:
    """The member's subscription, which is the same for all its protocols. None: it is no consumer, or it has an
    assignor of its own."""
    if join.protocol_type != CONSUMER or not join.protocols:
        return None
    try:
        subscription = decode_subscription(join.protocols[0].metadata)
    except ValueError:
        return None
    return None if subscription.user_data and not _knows(join.protocols) else subscription


def _knows(protocols: Sequence[Protocol]) -> bool:
    return any(protocol.name in _KNOWN_ASSIGNORS for protocol in protocols)


def _join_fault(group: CoordinatedGroup, join: JoinGroup) -> GroupFault:
    """Why the member may not join. An unknown member id is allowed: the member may have got it before this group became
    one whose coordinator assigns."""
    if not is_session_timeout(join.session_timeout_ms):
        return GroupFault.INVALID_SESSION_TIMEOUT
    known, holder = group.members.get(join.member_id), group.instance(join.instance_id)
    if join.member_id and join.instance_id is not None:
        if holder is None:
            return GroupFault.UNKNOWN_MEMBER
        if holder is not known:
            return GroupFault.FENCED_INSTANCE
    names = {protocol.name for protocol in join.protocols}
    for member in group.members.values():
        if member.classic is not None and member is not known and member is not holder:
            names &= {protocol.name for protocol in member.classic.protocols}
    if not names:
        return GroupFault.INCONSISTENT_PROTOCOL
    full = known is None and holder is None and len(group.members) >= MEMBERS_MAX
    return GroupFault.GROUP_FULL if full else GroupFault.NONE


def _member(group: CoordinatedGroup, join: JoinGroup, former: CoordinatedMember | None) -> CoordinatedMember:
    if former is not None and former.member_id == join.member_id:
        return former
    member = CoordinatedMember(join.member_id or join.new_member_id, join.instance_id, "", "", 0, 0)
    member.classic = ClassicMetadata(join.session_timeout_ms, join.protocols)
    group.add(member, former)
    return member


def _take_in(member: CoordinatedMember, join: JoinGroup, subscription: Subscription, now_ms: int) -> None:
    member.client_id, member.client_host = join.client_id, join.client_host
    member.rebalance_timeout_ms, member.session_ms = join.rebalance_timeout_ms, join.session_timeout_ms
    member.classic = ClassicMetadata(join.session_timeout_ms, join.protocols)
    member.name(subscription.topics)
    member.pattern, member.readable = None, None
    member.deadline_ms = now_ms + member.session_ms


def _reconcile(
    group: CoordinatedGroup, member: CoordinatedMember, owned: frozenset[TopicPartition], now_ms: int
) -> None:
    """Moves the member towards its target. After that it has to sync in time."""
    if not owned:  # eager members give up all partitions before they join
        member.lets_go, member.revoking, member.told = False, set(), None
    if not _gives_up(member):
        member.acts_until_ms = None
    group.reconcile(member, owned, now_ms)
    member.acts_until_ms = member.acts_until_ms or now_ms + member.patience_ms


# Syncing, staying and leaving


def answer(group: CoordinatedGroup, message: Sync | Heartbeat, now_ms: int) -> Synced | GroupAnswer:
    match message:
        case Sync():
            return _synced(group, message, now_ms)
        case Heartbeat():
            return GroupAnswer(_heartbeat(group, message, now_ms))
        case _:
            assert_never(message)


def _synced(group: CoordinatedGroup, sync: Sync, now_ms: int) -> Synced:
    fault, member = _found(group, sync)
    if member is None or member.classic is None:
        return Synced(fault)
    protocol = member.classic.protocols[0].name
    if (sync.protocol_type or CONSUMER, sync.protocol or protocol) != (CONSUMER, protocol):
        return Synced(GroupFault.INCONSISTENT_PROTOCOL)
    member.deadline_ms = now_ms + member.session_ms
    if member.epoch < group.epoch and not _gives_up(member):
        return Synced(GroupFault.REBALANCING)
    if not _gives_up(member):
        member.acts_until_ms = None
    member.told = frozenset(member.assigned)
    return Synced(GroupFault.NONE, CONSUMER, protocol, encode_assignment(sorted(member.assigned)))


def _heartbeat(group: CoordinatedGroup, heartbeat: Heartbeat, now_ms: int) -> GroupFault:
    """A member that has to join again has as much time for it as for a rebalance."""
    fault, member = _found(group, heartbeat)
    if member is None:
        return fault
    member.deadline_ms = now_ms + member.session_ms
    wanted = group.target.get(member.member_id, set())
    can_have_all = member.assigned != wanted and group.free_for(member) == wanted
    if member.epoch == group.epoch and not _gives_up(member) and not can_have_all:
        return GroupFault.NONE
    member.acts_until_ms = member.acts_until_ms or now_ms + member.patience_ms
    return GroupFault.REBALANCING


def _gives_up(member: CoordinatedMember) -> bool:
    return bool(member.revoking) or member.lets_go


def _found(group: CoordinatedGroup, message: Sync | Heartbeat) -> tuple[GroupFault, CoordinatedMember | None]:
    """The member that sent this, or the reason why it is refused."""
    holder = group.instance(message.instance_id)
    if holder is not None and holder.member_id != message.member_id:
        return GroupFault.FENCED_INSTANCE, None
    member = group.members.get(message.member_id)
    if member is None or member.classic is None or (message.instance_id is not None and holder is None):
        return GroupFault.UNKNOWN_MEMBER, None
    if message.generation != member.epoch:
        return GroupFault.ILLEGAL_GENERATION, None
    return GroupFault.NONE, member


def leaving(group: CoordinatedGroup, leave: LeaveGroup) -> list[tuple[Leaving, str, GroupFault]]:
    """For each named member: its member id, and why it may not leave, if so. An administrator may name any static
    member by its instance id alone. A member named by its member id has to be a classic one."""
    outcome: list[tuple[Leaving, str, GroupFault]] = []
    going: set[str] = set()
    for each in leave.members:
        holder = group.instance(each.instance_id)
        member = group.members.get(each.member_id) if each.member_id else holder
        fault = GroupFault.NONE
        if each.member_id and holder is not None and holder is not member:
            fault = GroupFault.FENCED_INSTANCE
        elif each.instance_id is not None and holder is None:
            fault = GroupFault.UNKNOWN_MEMBER
        elif member is None or member.member_id in going or (each.member_id and member.classic is None):
            fault = GroupFault.UNKNOWN_MEMBER
        else:
            going.add(member.member_id)
        outcome.append((each, member.member_id if member else "", fault))
    return outcome


# From one protocol to the other


def from_classic(group: Group, now_ms: int) -> CoordinatedGroup | None:
    """The same members with the same assignments, in the same generation. None: they are no consumers, or they have an
    assignor of their own."""
    if group.protocol_type not in (None, CONSUMER):
        return None
    taken = CoordinatedGroup(epoch=group.generation)
    for member in group.members.values():
        try:
            subscription = decode_subscription(member.metadata_for(group.protocol) or member.protocols[0].metadata)
            assigned = set(decode_assignment(member.assignment)) - set(taken.holders())
            own_way = bool(user_data_of(member.assignment)) and not _knows(member.protocols)
        except ValueError:
            return None
        if own_way:
            return None
        same = CoordinatedMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            now_ms + member.session_timeout_ms,
            member.session_timeout_ms,
            classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
            epoch=group.generation,
            previous_epoch=group.generation,
            assigned=assigned,
            told=frozenset(assigned),
        )
        same.name(subscription.topics)
        taken.members[member.member_id] = same
        taken.target[member.member_id] = set(assigned)
    return taken


def to_classic(name: str, group: CoordinatedGroup) -> Group:
    """The same members with the same assignments, in the same generation. It has no leader, so that the members assign
    again. In: a group of classic members only."""
    same = Group(name, GroupState.STABLE, group.epoch, CONSUMER)
    for member in group.members.values():
        assert member.classic is not None
        same.add(
            Member(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.session_ms,
                member.rebalance_timeout_ms,
                member.classic.protocols,
                member.deadline_ms,
                encode_assignment(sorted(member.assigned | member.revoking)),
            )
        )
    same.protocol, same.leader_id = same.elected_protocol(), None
    return same
