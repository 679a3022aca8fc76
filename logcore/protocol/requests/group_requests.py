"""Answers about consumer groups: requests of members and of administrators."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from millstream.errors import LogError

from ...client import TopicPartition
from ...cores.group_messages import (
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
    MemberDescription,
    Message,
    Protocol,
    Reply,
    Sync,
    Synced,
)
from ...cores.share_groups import SHARE
from ...cores.subscriptions import CONSUMER, topics_assigned, topics_of
from ...error_codes import ErrorCode
from ..kafka_service import Desk
from ..security.access import may_see_all
from ..security.accesses import DELETE_GROUP, DESCRIBE_CLUSTER, DESCRIBE_GROUP, READ_TOPIC
from ..security.acl_bindings import CLUSTER_NAME
from ..security.authorized_operations import group_bits
from ..security.peer import Peer
from ..wire.faults import code_of, message_of, sayable
from ..wire.messages import Fields

if TYPE_CHECKING:
    from .request_shapes import (
        DeleteGroupsRequest,
        DescribeGroupsRequest,
        HeartbeatRequest,
        JoinGroupRequest,
        LeaveGroupRequest,
        ListGroupsRequest,
        OffsetDeleteRequest,
        SyncGroupRequest,
        Versioned,
    )

_ASKS_TWICE_FROM: Final = 4
_KNOWS_SKIPPING_FROM: Final = 9
_BATCHED_LEAVING_FROM: Final = 3
_NO_GROUP_FROM: Final = 6
_REBALANCE_TIMEOUT_FROM: Final = 1
_NAME_CHARACTERS_MAX: Final = 249  # for the start of a member id; fields have space for 32767 bytes
_ANSWER_S: Final = 5.0  # for requests that wait only for the coordinator
_GRACE_S: Final = 5.0  # after the time that a member waits for the others; clients give up at about that time
_SYNC_S: Final = 300.0  # for the leader's assignment, which may take as long as a rebalance

_Reply = TypeVar("_Reply", bound=Reply)


def code_of_fault(fault: GroupFault) -> ErrorCode:
    return ErrorCode[fault.value]


# Requests of members


async def join_group(broker: Desk, request: JoinGroupRequest, peer: Peer) -> Fields:
    """Answers when all members have joined."""
    version = request.__version__
    if broker.refuses(peer, request.group_id):
        return {"error_code": ErrorCode.group_authorization_failed, "protocol_name": _no_name(version)}
    session_ms = _milliseconds(request.session_timeout)
    rebalance_ms = _milliseconds(request.rebalance_timeout) if version >= _REBALANCE_TIMEOUT_FROM else session_ms
    join = JoinGroup(
        request.group_id,
        request.member_id,
        getattr(request, "group_instance_id", None),
        peer.client_id,
        peer.remote[0],
        session_ms,
        rebalance_ms if rebalance_ms >= 0 else session_ms,
        request.protocol_type,
        tuple(Protocol(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        _new_member_id(getattr(request, "group_instance_id", None) or peer.client_id),
        asks_twice=version >= _ASKS_TWICE_FROM,
        knows_skipping=version >= _KNOWS_SKIPPING_FROM,
    )
    limit_s = max(session_ms, join.rebalance_timeout_ms) / 1000 + _GRACE_S
    joined = await _asked(broker, join, Joined, limit_s)
    return {
        "error_code": code_of_fault(joined.fault),
        "generation_id": joined.generation,
        "protocol_type": joined.protocol_type,
        "protocol_name": joined.protocol if joined.protocol is not None else _no_name(version),
        "leader": joined.leader_id,
        "skip_assignment": joined.skip_assignment,
        "member_id": joined.member_id,
        "members": [
            {"member_id": member.member_id, "group_instance_id": member.instance_id, "metadata": member.metadata}
            for member in joined.members
        ],
    }


def _new_member_id(name: str) -> str:
    """Begins with the name, cut if it is long: ids must fit into answers and records."""
    return f"{name[:_NAME_CHARACTERS_MAX]}-{uuid.uuid4()}"


def _no_name(version: int) -> str | None:
    """The value for "no protocol": only newer clients understand None."""
    return None if version >= 7 else ""


async def sync_group(broker: Desk, request: SyncGroupRequest, peer: Peer) -> Fields:
    """Answers when the leader has assigned."""
    if broker.refuses(peer, request.group_id):
        return {"error_code": ErrorCode.group_authorization_failed, "assignment": b""}
    sync = Sync(
        request.group_id,
        request.generation_id,
        request.member_id,
        getattr(request, "group_instance_id", None),
        getattr(request, "protocol_type", None),
        getattr(request, "protocol_name", None),
        {entry.member_id: bytes(entry.assignment) for entry in request.assignments},
    )
    synced = await _asked(broker, sync, Synced, _SYNC_S)
    return {
        "error_code": code_of_fault(synced.fault),
        "protocol_type": synced.protocol_type,
        "protocol_name": synced.protocol,
        "assignment": synced.assignment,
    }


async def _asked(broker: Desk, message: Message, kind: type[_Reply], limit_s: float) -> _Reply:
    """The coordinator may answer on any thread, even after our loop has ended; or never, if a node is cut off."""
    loop = asyncio.get_running_loop()
    given: asyncio.Future[Reply] = loop.create_future()
    try:
        asked = await broker.blocking(lambda: broker.log.groups.ask(message))
    except LogError:
        return kind(GroupFault.SHUTTING_DOWN)

    def pass_on(done: Future[Reply]) -> None:  # not `asked`: a future keeps its callbacks, and would refer to itself
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_settle, given, done.exception(), done)

    asked.add_done_callback(pass_on)
    try:
        reply = await asyncio.wait_for(given, limit_s)
    except (LogError, TimeoutError):
        return kind(GroupFault.SHUTTING_DOWN)
    assert isinstance(reply, kind)
    return reply


def _settle(given: asyncio.Future[Reply], error: BaseException | None, asked: Future[Reply]) -> None:
    if given.cancelled():
        return
    if error is not None:
        given.set_exception(error)
    else:
        given.set_result(asked.result())


def _answered(broker: Desk, message: Message, kind: type[_Reply]) -> _Reply:
    """The same for messages that wait for no other member."""
    try:
        reply = broker.log.groups.ask(message).result(_ANSWER_S)
    except (LogError, TimeoutError):
        return kind(GroupFault.SHUTTING_DOWN)
    assert isinstance(reply, kind)
    return reply


def heartbeat(broker: Desk, request: HeartbeatRequest, peer: Peer) -> Fields:
    if broker.refuses(peer, request.group_id):
        return {"error_code": ErrorCode.group_authorization_failed}
    beat = Heartbeat(
        request.group_id, request.generation_id, request.member_id, getattr(request, "group_instance_id", None)
    )
    return {"error_code": code_of_fault(_answered(broker, beat, GroupAnswer).fault)}


def leave_group(broker: Desk, request: LeaveGroupRequest, peer: Peer) -> Fields:
    if broker.refuses(peer, request.group_id):
        return {"error_code": ErrorCode.group_authorization_failed, "members": []}
    batched = request.__version__ >= _BATCHED_LEAVING_FROM
    members = (
        tuple(Leaving(member.member_id, member.group_instance_id) for member in request.members)
        if batched
        else (Leaving(request.member_id),)
    )
    left = _answered(broker, LeaveGroup(request.group_id, members), Left)
    faults = [fault for _, fault in left.members]
    single = faults[0] if faults and not batched else left.fault
    return {
        "error_code": code_of_fault(single),
        "members": [
            {
                "member_id": leaving.member_id,
                "group_instance_id": leaving.instance_id,
                "error_code": code_of_fault(fault),
            }
            for leaving, fault in left.members
        ],
    }


# Requests of administrators


def describe_groups(broker: Desk, request: DescribeGroupsRequest, peer: Peer) -> Fields:
    return {
        "groups": [
            _described_or_not(broker, peer, group, request)
            if peer.may(DESCRIBE_GROUP, group)
            else {"group_id": group, "error_code": ErrorCode.group_authorization_failed}
            for group in request.groups
        ]
    }


def _described_or_not(broker: Desk, peer: Peer, group: str, request: DescribeGroupsRequest) -> Fields:
    try:
        found = broker.log.groups.describe(group)
        if found.kind == SHARE:  # another request describes these
            found = GroupDescription(group, GroupState.DEAD)
        described = _described(_seen(peer, found), request.__version__)
        if described["error_code"] is not ErrorCode.none:
            return described
        return {**described, "authorized_operations": operations_on_group(peer, group, request)}
    except LogError as error:
        return {"group_id": group, "error_code": code_of(error), "error_message": message_of(error)}


def operations_on_group(peer: Peer, group: str, request: Versioned) -> int:
    """The answer for those who ask in a request that describes groups."""
    asked = getattr(request, "include_authorized_operations", False)
    return group_bits(peer, group, asked=asked)


def _seen(peer: Peer, group: GroupDescription) -> GroupDescription:
    """Without subscriptions and assignments of members that contain topics on which the client has no right."""
    if group.protocol_type != CONSUMER:
        return group
    members = (
        member if may_see_all(peer, topics_read(member)) else replace(member, metadata=b"", assignment=b"")
        for member in group.members
    )
    return replace(group, members=tuple(members))


def topics_read(member: MemberDescription) -> set[str]:
    """The topics that a member subscribes to, or has partitions of."""
    assigned = {topic for part in (member.assignment, member.target) for topic in topics_assigned(part)}
    return assigned | set(topics_of(member.metadata))


def _described(description: GroupDescription, version: int) -> Fields:
    """Newer clients expect an error if there is no such group."""
    dead = description.state is GroupState.DEAD and version >= _NO_GROUP_FROM
    return {
        "error_code": ErrorCode.group_id_not_found if dead else ErrorCode.none,
        "error_message": sayable(f'there is no group "{description.group}"') if dead else None,
        "group_id": description.group,
        "group_state": str(description.state),
        "protocol_type": description.protocol_type,
        "protocol_data": description.protocol,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": f"/{member.client_host}",
                "member_metadata": member.metadata,
                "member_assignment": member.assignment,
            }
            for member in description.members
        ],
    }


def list_groups(broker: Desk, request: ListGroupsRequest, peer: Peer) -> Fields:
    states = {state.lower() for state in getattr(request, "states_filter", ())}
    kinds = {kind.lower() for kind in getattr(request, "types_filter", ())}
    try:
        every = peer.may(DESCRIBE_CLUSTER, CLUSTER_NAME)
        names = [name for name in broker.log.groups.names() if every or peer.may(DESCRIBE_GROUP, name)]
        found = [broker.log.groups.describe(name) for name in names]
    except LogError as error:
        return {"error_code": code_of(error), "groups": []}
    return {
        "error_code": ErrorCode.none,
        "groups": [
            {
                "group_id": description.group,
                "protocol_type": description.protocol_type,
                "group_state": str(description.state),
                "group_type": description.kind,
            }
            for description in found
            if description.state is not GroupState.DEAD
            and (not states or description.state.lower() in states)
            and (not kinds or description.kind in kinds)
        ],
    }


def delete_groups(broker: Desk, request: DeleteGroupsRequest, peer: Peer) -> Fields:
    return {
        "results": [{"group_id": group, "error_code": _deleted(broker, peer, group)} for group in request.groups_names]
    }


def _deleted(broker: Desk, peer: Peer, group: str) -> ErrorCode:
    if broker.refuses(peer, group, DELETE_GROUP):
        return ErrorCode.group_authorization_failed
    return _code(lambda: broker.log.groups.delete(group))


def offset_delete(broker: Desk, request: OffsetDeleteRequest, peer: Peer) -> Fields:
    if broker.refuses(peer, request.group_id, DELETE_GROUP):
        return {"error_code": ErrorCode.group_authorization_failed}
    asked = [
        TopicPartition(topic.name, entry.partition_index)
        for topic in request.topics
        if peer.may(READ_TOPIC, topic.name)
        for entry in topic.partitions
    ]
    try:
        outcome = broker.log.groups.delete_offsets(request.group_id, asked)
    except LogError as error:
        return {"error_code": code_of(error), "topics": []}
    if isinstance(outcome, GroupFault):
        return {"error_code": code_of_fault(outcome), "topics": []}
    return {
        "error_code": ErrorCode.none,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": entry.partition_index,
                        "error_code": code_of_fault(outcome[TopicPartition(topic.name, entry.partition_index)])
                        if peer.may(READ_TOPIC, topic.name)
                        else ErrorCode.topic_authorization_failed,
                    }
                    for entry in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    }


def _code(act: Callable[[], GroupFault]) -> ErrorCode:
    try:
        return code_of_fault(act())
    except LogError as error:
        return code_of(error)


def _milliseconds(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)
