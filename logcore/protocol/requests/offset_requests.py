"""Answers about offsets: those of partitions, and those that groups commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from millstream.errors import LogError

from ...client import Offsets, TopicPartition
from ...cores.group_messages import NO_NOTE, CheckCommit, CommitNote, CommittedOffset
from ...error_codes import ErrorCode
from ...storage.timestamps import TimestampOffset, first_at_or_after, latest_timestamp
from ..kafka_service import Desk
from ..layout import ANY_EPOCH, KeyKind
from ..security.access import check_visible, may_see
from ..security.accesses import DESCRIBE_GROUP, DESCRIBE_TRANSACTION, READ_TOPIC
from ..security.peer import Peer
from ..wire.faults import code_of, message_of
from ..wire.messages import Fields
from .group_requests import code_of_fault

if TYPE_CHECKING:
    from .request_shapes import (
        FindCoordinatorRequest,
        ListOffsetsPartition,
        ListOffsetsRequest,
        OffsetCommitRequest,
        OffsetFetchGroup,
        OffsetFetchRequest,
        OffsetFetchTopic,
        OffsetForLeaderEpochPartition,
        OffsetForLeaderEpochRequest,
        TxnOffsetCommitRequest,
    )

    CommitRequest = OffsetCommitRequest | TxnOffsetCommitRequest

LATEST: Final = -1
EARLIEST: Final = -2
LARGEST_TIMESTAMP: Final = -3
_EARLIEST_LOCAL: Final = -4  # the same, because there is no remote storage
_LATEST_TIERED: Final = -5
_NOT_FOUND: Final = TimestampOffset(-1, -1)
_NOTHING_COMMITTED: Final = CommittedOffset(-1)
_METADATA_CHARACTERS_MAX: Final = 4096


def list_offsets(broker: Desk, request: ListOffsetsRequest, peer: Peer) -> Fields:
    committed_only = getattr(request, "isolation_level", 0) == 1
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [_listed(broker, peer, topic.name, asked, committed_only) for asked in topic.partitions],
            }
            for topic in request.topics
        ]
    }


def _listed(broker: Desk, peer: Peer, topic: str, asked: ListOffsetsPartition, committed_only: bool) -> Fields:
    try:
        check_visible(peer, topic)
        where = TopicPartition(topic, asked.partition_index)
        at_leader = broker.layout.offsets(where, getattr(asked, "current_leader_epoch", ANY_EPOCH))
        found = _offset_for(broker, where, at_leader.offsets, asked.timestamp, committed_only)
    except LogError as error:
        return {"partition_index": asked.partition_index, "error_code": code_of(error)}
    return {
        "partition_index": asked.partition_index,
        "error_code": ErrorCode.none,
        "timestamp": found.timestamp_ms,
        "offset": found.offset,
        "leader_epoch": at_leader.leader_epoch,
    }


def _offset_for(
    broker: Desk, where: TopicPartition, offsets: Offsets, timestamp_ms: int, committed_only: bool
) -> TimestampOffset:
    partition = broker.log.partition(*where)
    end_offset = offsets.last_stable_offset if committed_only else offsets.high_watermark
    if timestamp_ms == LATEST:
        return TimestampOffset(-1, end_offset)
    if timestamp_ms in (EARLIEST, _EARLIEST_LOCAL):
        return TimestampOffset(-1, offsets.log_start_offset)
    if timestamp_ms == _LATEST_TIERED:
        return _NOT_FOUND
    if timestamp_ms == LARGEST_TIMESTAMP:
        found = latest_timestamp(partition)
    else:
        found = first_at_or_after(partition, timestamp_ms)
    return found if found is not None and found.offset < end_offset else _NOT_FOUND


def find_coordinator(broker: Desk, request: FindCoordinatorRequest, peer: Peer) -> Fields:
    """Older clients ask for one coordinator, newer ones for several at once."""
    kind: KeyKind = "transaction" if getattr(request, "key_type", 0) == _TRANSACTION else "group"
    keys = getattr(request, "coordinator_keys", None)
    if keys is None:
        return _coordinator(broker, peer, kind, request.key)
    return {"coordinators": [{"key": key, **_coordinator(broker, peer, kind, key)} for key in keys]}


_TRANSACTION: Final = 1
_REFUSED: Final[Mapping[KeyKind, ErrorCode]] = {
    "group": ErrorCode.group_authorization_failed,
    "transaction": ErrorCode.transactional_id_authorization_failed,
}


def _coordinator(broker: Desk, peer: Peer, kind: KeyKind, key: str) -> Fields:
    nowhere: Fields = {"node_id": -1, "host": "", "port": -1}
    if not peer.may(DESCRIBE_TRANSACTION if kind == "transaction" else DESCRIBE_GROUP, key):
        return {"error_code": _REFUSED[kind], **nowhere}
    try:
        found = broker.layout.coordinator(kind, key, peer.local)
    except LogError as error:
        return {"error_code": code_of(error), "error_message": message_of(error), **nowhere}
    return {"error_code": ErrorCode.none, "node_id": found.node, "host": found.host, "port": found.port}


def offset_commit(broker: Desk, request: OffsetCommitRequest, peer: Peer) -> Fields:
    """Only members of the group's current generation may commit, or any client if the group has no members."""
    if broker.refuses(peer, request.group_id):
        return each_partition(request, ErrorCode.group_authorization_failed)
    check = CheckCommit(
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        getattr(request, "group_instance_id", None),
    )
    offsets, refused = committable(broker, peer, request)
    try:
        error = code_of_fault(broker.log.groups.commit(check, offsets, notes_in(request)))
    except LogError as failure:
        error = code_of(failure)
    return each_partition(request, error, refused)


def committable(
    broker: Desk, peer: Peer, request: CommitRequest
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, ErrorCode]]:
    """The offsets of the request that can be committed, and the errors of the others."""
    notes = notes_in(request)
    good: dict[TopicPartition, int] = {}
    refused: dict[TopicPartition, ErrorCode] = {}
    for where, offset in offsets_in(request).items():
        topic = broker.log.topic(where.topic)
        if not peer.may(READ_TOPIC, where.topic):
            refused[where] = ErrorCode.topic_authorization_failed
        elif topic is None or not 0 <= where.partition < topic.partition_count:
            refused[where] = ErrorCode.unknown_topic_or_partition
        elif len(notes.get(where, NO_NOTE).metadata) > _METADATA_CHARACTERS_MAX:
            refused[where] = ErrorCode.offset_metadata_too_large
        else:
            good[where] = offset
    return good, refused


def offset_fetch(broker: Desk, request: OffsetFetchRequest, peer: Peer) -> Fields:
    """Without a list of topics, it returns all committed offsets. Newer clients ask for several groups at once."""
    groups = getattr(request, "groups", None)
    stable = getattr(request, "require_stable", False)
    if groups is None:
        return _fetched_group(broker, peer, request, stable)
    return {"groups": [_fetched_group(broker, peer, group, stable) for group in groups]}


def _fetched_group(broker: Desk, peer: Peer, asked: OffsetFetchGroup, stable: bool) -> Fields:
    if not peer.may(DESCRIBE_GROUP, asked.group_id):
        return {"group_id": asked.group_id, "topics": [], "error_code": ErrorCode.group_authorization_failed}
    try:
        topics = _fetched(broker, peer, asked.group_id, asked.topics, stable)
    except LogError as error:  # another node coordinates the group, or this one is not ready
        code = code_of(error)
        return {"group_id": asked.group_id, "topics": _not_fetched(asked.topics or (), code), "error_code": code}
    return {"group_id": asked.group_id, "topics": topics, "error_code": ErrorCode.none}


def _not_fetched(topics: Sequence[OffsetFetchTopic], code: ErrorCode) -> list[Fields]:
    """Old clients look for errors only here, and would mistake an empty list for a group without offsets."""
    nothing: Fields = {"committed_offset": -1, "metadata": "", "error_code": code}
    return [
        {
            "name": topic.name,
            "partitions": [{"partition_index": number, **nothing} for number in topic.partition_indexes],
        }
        for topic in topics
    ]


def _fetched(
    broker: Desk, peer: Peer, group: str, topics: Sequence[OffsetFetchTopic] | None, stable: bool
) -> list[Fields]:
    # In this order, so that offsets of a transaction that is decided in between are among the committed ones.
    unsettled = broker.log.unsettled_offsets(group) if stable else frozenset[TopicPartition]()
    committed = broker.log.groups.committed(group)
    if topics is None:
        wanted: dict[str, list[int]] = {}
        for topic, partition in dict.fromkeys([*committed, *sorted(unsettled)]):
            if may_see(peer, topic):
                wanted.setdefault(topic, []).append(partition)
    else:
        wanted = {topic.name: list(topic.partition_indexes) for topic in topics}

    def fetched(where: TopicPartition) -> Fields:
        if not may_see(peer, where.topic):
            return {
                "partition_index": where.partition,
                "committed_offset": -1,
                "metadata": "",
                "error_code": ErrorCode.topic_authorization_failed,
            }
        found = committed.get(where, _NOTHING_COMMITTED)
        waits = where in unsettled
        return {
            "partition_index": where.partition,
            "committed_offset": -1 if waits else found.offset,
            "committed_leader_epoch": -1 if waits else found.leader_epoch,
            "metadata": found.metadata,
            "error_code": ErrorCode.unstable_offset_commit if waits else ErrorCode.none,
        }

    return [
        {"name": topic, "partitions": [fetched(TopicPartition(topic, partition)) for partition in partitions]}
        for topic, partitions in wanted.items()
    ]


def offset_for_leader_epoch(broker: Desk, request: OffsetForLeaderEpochRequest, peer: Peer) -> Fields:
    return {
        "topics": [
            {
                "topic": topic.topic,
                "partitions": [_epoch_end(broker, peer, topic.topic, asked) for asked in topic.partitions],
            }
            for topic in request.topics
        ]
    }


def _epoch_end(broker: Desk, peer: Peer, topic: str, asked: OffsetForLeaderEpochPartition) -> Fields:
    result: Fields = {"partition": asked.partition}
    try:
        check_visible(peer, topic)
        where = TopicPartition(topic, asked.partition)
        end = broker.layout.epoch_end(where, asked.leader_epoch, asked.current_leader_epoch)
    except LogError as error:
        return {**result, "error_code": code_of(error), "leader_epoch": -1, "end_offset": -1}
    return {**result, "error_code": ErrorCode.none, "leader_epoch": end.epoch, "end_offset": end.end_offset}


def offsets_in(request: CommitRequest) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, partition.partition_index): partition.committed_offset
        for topic in request.topics
        for partition in topic.partitions
    }


def notes_in(request: CommitRequest) -> dict[TopicPartition, CommitNote]:
    return {
        TopicPartition(topic.name, partition.partition_index): CommitNote(
            partition.committed_metadata or "", getattr(partition, "committed_leader_epoch", -1)
        )
        for topic in request.topics
        for partition in topic.partitions
    }


def each_partition(
    request: CommitRequest, error: ErrorCode, refused: Mapping[TopicPartition, ErrorCode] | None = None
) -> Fields:
    """The same answer for every partition of the request, except for those that were refused."""
    refused = refused or {}
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": partition.partition_index,
                        "error_code": refused.get(TopicPartition(topic.name, partition.partition_index), error),
                    }
                    for partition in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }
