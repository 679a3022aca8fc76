"""Answers about offsets: of partitions, and those that groups commit."""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from millstream.errors import LogError

from ..client import TopicPartition
from .broker import LEADER_EPOCH, NODE_ID, Broker
from .faults import code_of
from .messages import Fields
from .stored import TimestampOffset, first_at_or_after, latest_timestamp

LATEST: Final = -1
EARLIEST: Final = -2
LARGEST_TIMESTAMP: Final = -3
_NOT_FOUND: Final = TimestampOffset(-1, -1)


def list_offsets(broker: Broker, request: Any, local: tuple[str, int]) -> Fields:
    committed_only = getattr(request, "isolation_level", 0) == 1
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [_listed(broker, topic.name, asked, committed_only) for asked in topic.partitions],
            }
            for topic in request.topics
        ]
    }


def _listed(broker: Broker, topic: str, asked: Any, committed_only: bool) -> Fields:
    try:
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
    if timestamp_ms == EARLIEST:
        return TimestampOffset(-1, offsets.log_start_offset)
    if timestamp_ms == LARGEST_TIMESTAMP:
        found = latest_timestamp(partition)
    else:
        found = first_at_or_after(partition, timestamp_ms)
    return found if found is not None and found.offset < end_offset else _NOT_FOUND


def find_coordinator(broker: Broker, request: Any, local: tuple[str, int]) -> Fields:
    """There is one node, and it coordinates everything."""
    host, port = broker.address_for(local)
    node = {"error_code": ErrorCode.none, "node_id": NODE_ID, "host": host, "port": port}
    keys = getattr(request, "coordinator_keys", ())
    return {**node, "coordinators": [{"key": key, **node} for key in keys]}


def offset_commit(broker: Broker, request: Any, local: tuple[str, int]) -> Fields:
    error = ErrorCode.none
    try:
        broker.log.commit_offsets(request.group_id, offsets_in(request))
    except LogError as failure:
        error = code_of(failure)
    return each_partition(request, error)


def offset_fetch(broker: Broker, request: Any, local: tuple[str, int]) -> Fields:
    """No list of topics asks for all that the group committed."""
    committed = broker.log.committed_offsets(request.group_id)
    if request.topics is None:
        wanted: dict[str, list[int]] = {}
        for topic, partition in committed:
            wanted.setdefault(topic, []).append(partition)
    else:
        wanted = {topic.name: list(topic.partition_indexes) for topic in request.topics}
    return {
        "error_code": ErrorCode.none,
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": partition,
                        "committed_offset": committed.get(TopicPartition(topic, partition), -1),
                        "metadata": "",
                        "error_code": ErrorCode.none,
                    }
                    for partition in partitions
                ],
            }
            for topic, partitions in wanted.items()
        ],
    }


def offsets_in(request: Any) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, partition.partition_index): partition.committed_offset
        for topic in request.topics
        for partition in topic.partitions
    }


def each_partition(request: Any, error: ErrorCode) -> Fields:
    """The same answer for every partition of the request."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": partition.partition_index, "error_code": error}
                    for partition in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }
