"""Answers about groups whose coordinator assigns (KIP-848). These requests name topics by their ids."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from millstream.errors import LogError

from ...client import TopicPartition
from ...cores.group_messages import ConsumerHeartbeat, GroupDescription, GroupFault, GroupState, MemberDescription
from ...cores.subscriptions import decode_assignment, topics_of
from ...error_codes import ErrorCode
from ...log_settings import of_group
from ..kafka_service import Desk
from ..other_settings import HEARTBEAT_MS, OF_GROUPS, SESSION_MS, value_of
from ..security.access import may_see_all
from ..security.accesses import DESCRIBE_GROUP, READ_TOPIC
from ..security.peer import Peer
from ..wire.faults import code_of, message_of, sayable
from ..wire.messages import Fields
from .group_requests import code_of_fault, operations_on_group, topics_read
from .topic_requests import topic_uuid

if TYPE_CHECKING:
    from .request_shapes import (
        ConsumerGroupDescribeRequest,
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatTopic,
    )


_CLASSIC, _CONSUMER = 0, 1  # the protocol that a member speaks

MemberFields = Callable[[Desk, MemberDescription], Fields]


def consumer_group_heartbeat(broker: Desk, request: ConsumerGroupHeartbeatRequest, peer: Peer) -> Fields:
    """A member reports what it reads, and gets what it should read."""
    if broker.refuses(peer, request.group_id):
        return {"error_code": ErrorCode.group_authorization_failed, "member_id": request.member_id or None}
    if not all(peer.may(READ_TOPIC, name) for name in request.subscribed_topic_names or ()):
        return {"error_code": ErrorCode.topic_authorization_failed, "member_id": request.member_id or None}
    member_id = request.member_id or (str(uuid.uuid4()) if request.member_epoch == 0 else "")
    owned = None if request.topic_partitions is None else _places(broker, request.topic_partitions)
    beat = ConsumerHeartbeat(
        request.group_id,
        member_id,
        request.member_epoch,
        request.instance_id,
        peer.client_id,
        peer.remote[0],
        round(request.rebalance_timeout.total_seconds() * 1000),
        request.subscribed_topic_names,
        getattr(request, "subscribed_topic_regex", None),
        owned,
        request.server_assignor,
        *_times(broker, request.group_id),
    )
    counts = {topic.name: topic.partition_count for topic in broker.log.topics().values()}
    readable = frozenset(name for name in counts if peer.may(READ_TOPIC, name))
    if len(readable) < len(counts):
        beat = replace(beat, readable=readable)
    try:
        answer = broker.log.groups.beat(beat, counts)
    except LogError as error:
        return {"error_code": code_of(error), "error_message": message_of(error), "member_id": member_id or None}
    return {
        "error_code": code_of_fault(answer.fault),
        "error_message": why_not_member(broker, answer.fault, request.group_id, "consumer"),
        "member_id": answer.member_id or None,
        "member_epoch": answer.epoch,
        "heartbeat_interval": timedelta(milliseconds=answer.heartbeat_ms),
        "assignment": None
        if answer.assignment is None
        else {"topic_partitions": places_by_id(broker, answer.assignment)},
    }


def why_not_member(broker: Desk, fault: GroupFault, group: str, kind: Literal["consumer", "share"]) -> str | None:
    """A message for a group of another kind, which the error code does not explain; None for other faults."""
    if fault is not GroupFault.NOT_FOUND:
        return None
    found = broker.log.groups.describe(group)
    stays = not found.members or "share" in (kind, found.kind)  # even if all members are ended
    hint = "" if stays else " It changes its kind only without members: end them all, then start the others."
    return f"{not_of_kind(found, kind)}{hint}"


def _times(broker: Desk, group: str) -> tuple[int, int]:
    settings = broker.log.settings(of_group(group))
    return value_of(OF_GROUPS, settings, SESSION_MS), value_of(OF_GROUPS, settings, HEARTBEAT_MS)


def _places(broker: Desk, owned: Sequence[ConsumerGroupHeartbeatTopic]) -> frozenset[TopicPartition]:
    """The member's partitions, without those of topics that were deleted meanwhile."""
    names = {topic_uuid(broker, name): name for name in broker.log.topics()}
    return frozenset(
        TopicPartition(names[topic.topic_id], partition)
        for topic in owned
        if topic.topic_id in names
        for partition in topic.partitions
    )


def places_by_id(broker: Desk, places: Iterable[TopicPartition], *, named: bool = False) -> list[Fields]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in places:
        by_topic.setdefault(topic, []).append(partition)
    return [
        {"topic_id": id, "partitions": partitions, **({"topic_name": topic} if named else {})}
        for topic, partitions in by_topic.items()
        if (id := topic_uuid(broker, topic)) is not None
    ]


def consumer_group_describe(broker: Desk, request: ConsumerGroupDescribeRequest, peer: Peer) -> Fields:
    return described_groups(broker, peer, request, "consumer", _member)


def described_groups(
    broker: Desk,
    peer: Peer,
    request: ConsumerGroupDescribeRequest,
    kind: Literal["consumer", "share"],
    member_fields: MemberFields,
) -> Fields:
    """In: `kind`: groups of other kinds are not found."""

    def described(group: str) -> Fields:
        absent = {"group_id": group, "group_state": ""}
        if not peer.may(DESCRIBE_GROUP, group):
            return {**absent, "error_code": ErrorCode.group_authorization_failed}
        try:
            found = broker.log.groups.describe(group)
            if found.kind != kind:
                message = not_of_kind(found, kind)
                return {
                    **absent,
                    "group_state": "Dead",
                    "error_code": ErrorCode.group_id_not_found,
                    "error_message": message,
                }
            if not all(may_see_all(peer, topics_read(member)) for member in found.members):
                return {**absent, "error_code": ErrorCode.topic_authorization_failed}
            return {
                "error_code": ErrorCode.none,
                "group_id": group,
                "group_state": str(found.state),
                "group_epoch": found.generation,
                "assignment_epoch": found.generation,
                "assignor_name": found.protocol,
                "members": [member_fields(broker, member) for member in found.members],
                "authorized_operations": operations_on_group(peer, group, request),
            }
        except LogError as error:
            return {**absent, "error_code": code_of(error), "error_message": message_of(error)}

    return {"groups": [described(group) for group in request.group_ids]}


def not_of_kind(group: GroupDescription, kind: str) -> str:
    """Kafka's text, because people search for it."""
    why = "not found" if group.state is GroupState.DEAD else f"is not a {kind} group"
    return sayable(f"Group {group.group} {why}.")


def _member(broker: Desk, member: MemberDescription) -> Fields:
    def assignment(encoded: bytes) -> Fields:
        return {"topic_partitions": places_by_id(broker, decode_assignment(encoded), named=True)}

    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": f"/{member.client_host}",
        "subscribed_topic_names": topics_of(member.metadata),
        "assignment": assignment(member.assignment),
        "target_assignment": assignment(member.target),
        "member_type": _CLASSIC if member.is_classic else _CONSUMER,
    }
