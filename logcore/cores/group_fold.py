"""Converts classic groups to records and back: the part of a group that survives its coordinator."""

from __future__ import annotations

from .group_members import Group, Member
from .group_messages import GroupState, Protocol
from .group_records import ClassicGroup, ClassicMember


def record_of(group: Group) -> ClassicGroup:
    """In: a group that is stable or empty, because a rebalance in progress is not recorded."""
    return ClassicGroup(
        group.protocol_type or "",
        group.generation,
        group.protocol,
        group.leader_id if group.members else None,
        tuple(
            ClassicMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata_for(group.protocol),
                member.assignment,
            )
            for member in group.members.values()
        ),
    )


def group_of(name: str, record: ClassicGroup) -> Group:
    """The group of this record. The caller must set the members' deadlines before the first tick."""
    group = Group(name, generation=record.generation, protocol_type=record.protocol_type or None, recorded=True)
    for known in record.members:
        protocols = (Protocol(record.protocol, known.subscription),) if record.protocol is not None else ()
        member = Member(
            known.member_id,
            known.instance_id,
            known.client_id,
            known.client_host,
            known.session_timeout_ms,
            known.rebalance_timeout_ms,
            protocols,
            deadline_ms=0,
            assignment=known.assignment,
        )
        group.add(member)
    if group.members:
        group.state, group.protocol, group.leader_id = GroupState.STABLE, record.protocol, record.leader_id
    return group
