"""Answers about the metadata quorum: its leader, and how far its members are."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

from millstream.errors import LogError

from ...error_codes import ErrorCode
from ..kafka_service import Desk
from ..layout import QuorumLayout, QuorumMember
from ..security.access import check_cluster
from ..security.accesses import DESCRIBE_CLUSTER
from ..security.peer import Peer
from ..wire.faults import code_of, message_of
from ..wire.messages import Fields

if TYPE_CHECKING:
    from .request_shapes import (
        DescribeQuorumRequest,
    )

_METADATA: Final = "__cluster_metadata"
_LISTENER: Final = "CONTROLLER"
_NO_FOLDER: Final = uuid.UUID(int=0)


def describe_quorum(broker: Desk, request: DescribeQuorumRequest, peer: Peer) -> Fields:
    """For administrators."""
    try:
        check_cluster(peer, DESCRIBE_CLUSTER)
        quorum = broker.layout.quorum()
    except LogError as error:
        return {"error_code": code_of(error), "error_message": message_of(error)}
    return {
        "error_code": ErrorCode.none,
        "topics": [
            {
                "topic_name": topic.topic_name,
                "partitions": [
                    _described(quorum, topic.topic_name, partition.partition_index) for partition in topic.partitions
                ],
            }
            for topic in request.topics
        ],
        "nodes": [
            {
                "node_id": address.node,
                "listeners": [{"name": _LISTENER, "host": address.host, "port": address.port}],
            }
            for address in quorum.addresses
        ],
    }


def _described(quorum: QuorumLayout, topic: str, partition: int) -> Fields:
    if (topic, partition) != (_METADATA, 0):
        return {"partition_index": partition, "error_code": ErrorCode.unknown_topic_or_partition}
    return {
        "partition_index": partition,
        "error_code": ErrorCode.none,
        "leader_id": quorum.leader,
        "leader_epoch": quorum.epoch,
        "high_watermark": quorum.high_watermark,
        "current_voters": [_member(member) for member in quorum.voters],
        "observers": [_member(member) for member in quorum.observers],
    }


def _member(member: QuorumMember) -> Fields:
    return {
        "replica_id": member.node,
        "replica_directory_id": _NO_FOLDER,
        "log_end_offset": member.end_offset,
        "last_fetch_timestamp": member.fetched_ms,
        "last_caught_up_timestamp": member.caught_up_ms,
    }
