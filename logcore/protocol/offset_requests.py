"""Answers about offsets: of partitions, and those that groups commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from millstream.errors import LogError

from ..client import TopicPartition
from ..group_messages import CheckCommit
from ..group_offsets import CommittedOffset
from ..timestamps import TimestampOffset, first_at_or_after, latest_timestamp
from .access import check_visible
from .broker import LEADER_EPOCH, NODE_ID, Broker
from .faults import code_of
from .group_requests import code_of_fault
from .messages import Fields
from .peer import Peer

LATEST: Final = -1
EARLIEST: Final = -2
LARGEST_TIMESTAMP: Final = -3
_EARLIEST_LOCAL: Final = -4  # everything is here, nothing in another store
_LATEST_TIERED: Final = -5
_NOT_FOUND: Final = TimestampOffset(-1, -1)
_NOTHING_COMMITTED: Final = CommittedOffset(-1)
_METADATA_CHARACTERS_MAX: Final = 4096


def list_offsets(broker: Broker, request: Any, peer: Peer) -> Fields:
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


def _listed(broker: Broker, peer: Peer, topic: str, asked: Any, committed_only: bool) -> Fields:
    try:
        check_visible(peer, topic)
        found = _offset_for(broker, TopicPartition(topic, asked.partition_index), asked.timestamp, committed_only)
    except LogError as error:
        return {"partition_index": asked.partition_index, "error_code": code_of(error)}
    return {
        "partition_index": asked.partition_index,
        "error_code": ErrorCode.none,
        "timestamp": found.timestamp_ms,
        "offset": found.offset,
        "leader_epoch": LEADER_EPOCH,
    }


def _offset_for(broker: Broker, where: TopicPartition, timestamp_ms: int, committed_only: bool) -> TimestampOffset:
    partition = broker.log.partition(*where)
    offsets = partition.offsets()
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


def find_coordinator(broker: Broker, request: Any, peer: Peer) -> Fields:
    """There is one node, and it coordinates everything."""
    host, port = broker.address_for(peer.local)
    node = {"error_code": ErrorCode.none, "node_id": NODE_ID, "host": host, "port": port}
    keys = getattr(request, "coordinator_keys", ())
    return {**node, "coordinators": [{"key": key, **node} for key in keys]}


def offset_commit(broker: Broker, request: Any, peer: Peer) -> Fields:
    """Only from members of the group's present generation, or where the group has no members."""
    if broker.refuses(peer, request.group_id):
        return each_partition(request, ErrorCode.group_authorization_failed)
    check = CheckCommit(
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        getattr(request, "group_instance_id", None),
    )
    offsets, refused = _split(broker, peer, request)
    try:
        error = code_of_fault(broker.log.groups.commit(check, offsets, metadata_in(request)))
    except LogError as failure:
        error = code_of(failure)
    return each_partition(request, error, refused)


def _split(
    broker: Broker, peer: Peer, request: Any
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, ErrorCode]]:
    """What can be committed, and what is wrong with the rest."""
    notes = metadata_in(request)
    good: dict[TopicPartition, int] = {}
    refused: dict[TopicPartition, ErrorCode] = {}
    for where, offset in offsets_in(request).items():
        topic = broker.log.topic(where.topic)
        if not peer.may("read", where.topic):
            refused[where] = ErrorCode.topic_authorization_failed
        elif topic is None or not 0 <= where.partition < topic.partition_count:
            refused[where] = ErrorCode.unknown_topic_or_partition
        elif len(notes.get(where, "")) > _METADATA_CHARACTERS_MAX:
            refused[where] = ErrorCode.offset_metadata_too_large
        else:
            good[where] = offset
    return good, refused


def offset_fetch(broker: Broker, request: Any, peer: Peer) -> Fields:
    """No list of topics asks for all that the group committed. Newer clients ask for several groups at once."""
    groups = getattr(request, "groups", None)
    stable = getattr(request, "require_stable", False)
    if groups is None:
        return _fetched_group(broker, peer, request, stable)
    return {"groups": [_fetched_group(broker, peer, group, stable) for group in groups]}


def _fetched_group(broker: Broker, peer: Peer, asked: Any, stable: bool) -> Fields:
    if not peer.may("group", asked.group_id):
        return {"group_id": asked.group_id, "topics": [], "error_code": ErrorCode.group_authorization_failed}
    topics = _fetched(broker, asked.group_id, asked.topics, stable)
    return {"group_id": asked.group_id, "topics": topics, "error_code": ErrorCode.none}


def _fetched(broker: Broker, group: str, topics: Any, stable: bool) -> list[Fields]:
    committed = broker.log.groups.committed(group)
    unsettled = broker.log.unsettled_offsets(group) if stable else frozenset[TopicPartition]()
    if topics is None:
        wanted: dict[str, list[int]] = {}
        for topic, partition in committed:
            wanted.setdefault(topic, []).append(partition)
    else:
        wanted = {topic.name: list(topic.partition_indexes) for topic in topics}

    def fetched(where: TopicPartition) -> Fields:
        found = committed.get(where, _NOTHING_COMMITTED)
        waits = where in unsettled
        return {
            "partition_index": where.partition,
            "committed_offset": -1 if waits else found.offset,
            "metadata": found.metadata,
            "error_code": ErrorCode.unstable_offset_commit if waits else ErrorCode.none,
        }

    return [
        {"name": topic, "partitions": [fetched(TopicPartition(topic, partition)) for partition in partitions]}
        for topic, partitions in wanted.items()
    ]


def offset_for_leader_epoch(broker: Broker, request: Any, peer: Peer) -> Fields:
    """There has been one leader only: its epoch ends where the log does."""
    return {
        "topics": [
            {
                "topic": topic.topic,
                "partitions": [_epoch_end(broker, peer, topic.topic, asked) for asked in topic.partitions],
            }
            for topic in request.topics
        ]
    }


def _epoch_end(broker: Broker, peer: Peer, topic: str, asked: Any) -> Fields:
    result: Fields = {"partition": asked.partition}
    try:
        check_visible(peer, topic)
        end_offset = broker.log.partition(topic, asked.partition).offsets().high_watermark
    except LogError as error:
        return {**result, "error_code": code_of(error), "leader_epoch": -1, "end_offset": -1}
    if asked.current_leader_epoch > LEADER_EPOCH:
        return {**result, "error_code": ErrorCode.unknown_leader_epoch, "leader_epoch": -1, "end_offset": -1}
    if asked.leader_epoch != LEADER_EPOCH:
        return {**result, "error_code": ErrorCode.none, "leader_epoch": -1, "end_offset": -1}
    return {**result, "error_code": ErrorCode.none, "leader_epoch": LEADER_EPOCH, "end_offset": end_offset}


def offsets_in(request: Any) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, partition.partition_index): partition.committed_offset
        for topic in request.topics
        for partition in topic.partitions
    }


def metadata_in(request: Any) -> dict[TopicPartition, str]:
    return {
        TopicPartition(topic.name, partition.partition_index): partition.committed_metadata
        for topic in request.topics
        for partition in topic.partitions
        if partition.committed_metadata
    }


def each_partition(request: Any, error: ErrorCode, refused: Mapping[TopicPartition, ErrorCode] | None = None) -> Fields:
    """The same answer for every partition of the request, but for those that were refused."""
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
