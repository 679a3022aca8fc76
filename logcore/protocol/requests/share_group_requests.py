"""Answers about share groups (KIP-932): their members and their offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from millstream.errors import LogError

from ...client import TopicPartition
from ...cores.group_messages import ConsumerBeat, MemberDescription
from ...cores.share_groups import SHARE, ShareHeartbeat
from ...cores.share_settings import HEARTBEAT_MS, SESSION_MS, SIZE_MAX, in_force
from ...cores.subscriptions import decode_assignment, topics_of
from ...error_codes import ErrorCode
from ...errors import OffsetOutOfRange
from ...log_settings import ALL_BROKERS, of_group
from ...replication.replica.replica_messages import PartitionId
from ...replication.shards.share_messages import (
    AskShareOffsets,
    DeleteShareOffsets,
    ResetShareOffsets,
    ShareChanged,
    ShareOffset,
    ShareOffsets,
)
from ..kafka_service import Desk
from ..other_settings import OF_BROKERS, value_of
from ..security.access import check_readable, check_visible, may_see_all
from ..security.accesses import DELETE_GROUP, DESCRIBE_GROUP, READ_TOPIC
from ..security.peer import Peer
from ..setting_limits import NAME_BYTES_MAX
from ..wire.faults import code_of, message_of
from ..wire.messages import Fields
from .consumer_group_requests import described_groups, not_of_kind, places_by_id, why_not_member
from .group_requests import code_of_fault
from .topic_requests import topic_uuid

if TYPE_CHECKING:
    from .share_request_shapes import (
        AlteredSharePartition,
        AlterShareGroupOffsetsRequest,
        DeleteShareGroupOffsetsRequest,
        DescribedShareGroup,
        DescribeShareGroupOffsetsRequest,
        ShareGroupDescribeRequest,
        ShareGroupHeartbeatRequest,
    )

_NO_LAG: Final = -1
_UNKNOWN_OFFSET: Final = -1


def share_group_heartbeat(broker: Desk, request: ShareGroupHeartbeatRequest, peer: Peer) -> Fields:
    """A member sends its subscription, and gets its assignment."""
    if broker.refuses(peer, request.group_id):
        return {"error_code": ErrorCode.group_authorization_failed, "member_id": request.member_id or None}
    if not all(peer.may(READ_TOPIC, name) for name in request.subscribed_topic_names or ()):
        return {"error_code": ErrorCode.topic_authorization_failed, "member_id": request.member_id or None}
    if len(request.member_id.encode()) > NAME_BYTES_MAX:
        return {"error_code": ErrorCode.invalid_request, "member_id": None}
    brokers = broker.log.settings(ALL_BROKERS)
    settings = in_force(brokers, broker.log.settings(of_group(request.group_id)))
    beat = ShareHeartbeat(
        request.group_id,
        request.member_id,
        request.member_epoch,
        peer.client_id,
        peer.remote[0],
        request.subscribed_topic_names,
        int(settings[SESSION_MS]),
        int(settings[HEARTBEAT_MS]),
        value_of(OF_BROKERS, brokers, SIZE_MAX),
    )
    try:
        answer = broker.log.shares.ask_here(request.group_id, beat, ConsumerBeat)
    except LogError as error:
        code, member_id = code_of(error), request.member_id or None
        return {"error_code": code, "error_message": message_of(error), "member_id": member_id}
    assigned = answer.assignment
    return {
        "error_code": code_of_fault(answer.fault),
        "error_message": why_not_member(broker, answer.fault, request.group_id, "share"),
        "member_id": answer.member_id or None,
        "member_epoch": answer.epoch,
        "heartbeat_interval": timedelta(milliseconds=answer.heartbeat_ms),
        "assignment": None if assigned is None else {"topic_partitions": places_by_id(broker, assigned)},
    }


def share_group_describe(broker: Desk, request: ShareGroupDescribeRequest, peer: Peer) -> Fields:
    return described_groups(broker, peer, request, SHARE, _member)


def _member(broker: Desk, member: MemberDescription) -> Fields:
    places = decode_assignment(member.assignment)
    return {
        "member_id": member.member_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": f"/{member.client_host}",
        "subscribed_topic_names": topics_of(member.metadata),
        "assignment": {"topic_partitions": places_by_id(broker, places, named=True)},
    }


# Offsets


def describe_share_group_offsets(broker: Desk, request: DescribeShareGroupOffsetsRequest, peer: Peer) -> Fields:
    return {"groups": [_offsets_or_not(broker, peer, asked) for asked in request.groups]}


def _offsets_or_not(broker: Desk, peer: Peer, asked: DescribedShareGroup) -> Fields:
    group = asked.group_id
    if not peer.may(DESCRIBE_GROUP, group):
        return {"group_id": group, "error_code": ErrorCode.group_authorization_failed}
    try:
        found = broker.log.shares.ask_here(group, AskShareOffsets(), ShareOffsets)
    except LogError as error:
        return {"group_id": group, "error_code": code_of(error), "error_message": message_of(error)}
    if not found.known:
        message = not_of_kind(broker.log.groups.describe(group), SHARE)
        return {"group_id": group, "error_code": ErrorCode.group_id_not_found, "error_message": message}
    known: dict[TopicPartition, ShareOffset] = {}
    for row in found.offsets:
        where = broker.log.shares.where(row.partition)
        if where is not None and (asked.topics is not None or may_see_all(peer, (where.topic,))):
            known[where] = row
    wanted = _by_topic(known) if asked.topics is None else {each.topic_name: each.partitions for each in asked.topics}
    topics = [_topic_offsets(broker, peer, topic, numbers, known) for topic, numbers in wanted.items()]
    return {"group_id": group, "topics": topics}


def _by_topic(places: Iterable[TopicPartition]) -> Mapping[str, Sequence[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in places:
        by_topic.setdefault(topic, []).append(partition)
    return by_topic


def _topic_offsets(
    broker: Desk, peer: Peer, topic: str, numbers: Sequence[int], known: Mapping[TopicPartition, ShareOffset]
) -> Fields:
    named: Fields = {"topic_name": topic, "topic_id": topic_uuid(broker, topic)}
    try:
        check_visible(peer, topic)
    except LogError as error:
        failed = {"start_offset": _UNKNOWN_OFFSET, "error_code": code_of(error), "error_message": message_of(error)}
        return {**named, "partitions": [{"partition_index": number, **failed} for number in numbers]}
    rows = [_offset(broker, number, known.get(TopicPartition(topic, number))) for number in numbers]
    return {**named, "partitions": rows}


def _offset(broker: Desk, number: int, found: ShareOffset | None) -> Fields:
    if found is None:
        return {"partition_index": number, "start_offset": _UNKNOWN_OFFSET, "lag": _NO_LAG}
    lag = _NO_LAG
    try:
        behind = broker.log.shares.end_offset(found.partition) - found.end_offset
        lag = max(behind, 0) + found.in_flight
    except LogError:
        pass  # the partition has no leader now
    return {"partition_index": number, "start_offset": found.start_offset, "leader_epoch": 0, "lag": lag}


def alter_share_group_offsets(broker: Desk, request: AlterShareGroupOffsetsRequest, peer: Peer) -> Fields:
    group = request.group_id
    if broker.refuses(peer, group):
        return {"error_code": ErrorCode.group_authorization_failed}
    if not group:
        return {"error_code": ErrorCode.invalid_group_id}
    outcome = {
        TopicPartition(topic.topic_name, entry.partition_index): _alterable(broker, peer, topic.topic_name, entry)
        for topic in request.topics
        for entry in topic.partitions
    }
    rows = [
        (outcome[TopicPartition(topic.topic_name, entry.partition_index)], entry.start_offset)
        for topic in request.topics
        for entry in topic.partitions
    ]
    offsets = tuple((place, offset) for place, offset in rows if isinstance(place, PartitionId))
    code, message = _changed(lambda: broker.log.shares.ask_here(group, ResetShareOffsets(offsets), ShareChanged))
    if code is not ErrorCode.none:
        return {"error_code": code, "error_message": message}
    return {
        "responses": [
            {
                "topic_name": topic.topic_name,
                "topic_id": topic_uuid(broker, topic.topic_name),
                "partitions": [
                    {
                        "partition_index": entry.partition_index,
                        **_said(outcome[TopicPartition(topic.topic_name, entry.partition_index)]),
                    }
                    for entry in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


def _alterable(broker: Desk, peer: Peer, topic: str, asked: AlteredSharePartition) -> PartitionId | LogError:
    """The partition, or the reason why its offset cannot be set."""
    try:
        check_readable(peer, topic)
        if asked.start_offset < 0:
            raise OffsetOutOfRange(f"there is no offset {asked.start_offset}")
        return broker.log.shares.place(TopicPartition(topic, asked.partition_index))
    except LogError as error:
        return error


def _said(outcome: PartitionId | LogError) -> Fields:
    if isinstance(outcome, LogError):
        return {"error_code": code_of(outcome), "error_message": message_of(outcome)}
    return {"error_code": ErrorCode.none}


def _changed(ask: Callable[[], ShareChanged]) -> tuple[ErrorCode, str | None]:
    try:
        return ErrorCode(ask().code), None
    except LogError as error:
        return code_of(error), message_of(error)


def delete_share_group_offsets(broker: Desk, request: DeleteShareGroupOffsetsRequest, peer: Peer) -> Fields:
    group = request.group_id
    if broker.refuses(peer, group, DELETE_GROUP):
        return {"error_code": ErrorCode.group_authorization_failed}
    problems = {topic.topic_name: _unreadable(broker, peer, topic.topic_name) for topic in request.topics}
    names = [name for name, problem in problems.items() if problem is None]
    ids = tuple(broker.log.shares.place(TopicPartition(name, 0)).topic for name in names)
    code, message = _changed(lambda: broker.log.shares.ask_here(group, DeleteShareOffsets(ids), ShareChanged))
    if code is not ErrorCode.none:
        return {"error_code": code, "error_message": message}
    return {
        "responses": [
            {"topic_name": name, "topic_id": topic_uuid(broker, name), **({} if problem is None else _said(problem))}
            for name, problem in problems.items()
        ]
    }


def _unreadable(broker: Desk, peer: Peer, topic: str) -> LogError | None:
    try:
        check_readable(peer, topic)
        broker.log.shares.place(TopicPartition(topic, 0))
    except LogError as error:
        return error
    return None
