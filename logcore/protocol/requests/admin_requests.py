"""Answers to requests of administrators: folders and sizes, lists of topics and settings, replicas."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from millstream.errors import LogError

from ...client import Topic, TopicPartition
from ...error_codes import ErrorCode
from ...log_settings import GROUP
from ...topic_rules import COORDINATORS
from ..kafka_service import Desk
from ..security.access import check_cluster, may_see
from ..security.accesses import ALTER_CLUSTER, DESCRIBE_CLUSTER, DESCRIBE_GROUP_CONFIGS, DESCRIBE_TOPIC_CONFIGS
from ..security.authorized_operations import topic_bits
from ..security.peer import Peer
from ..wire.faults import code_of, message_of
from ..wire.messages import Fields
from .config_requests import Resource
from .topic_requests import described_partition, topic_uuid

if TYPE_CHECKING:
    from .request_shapes import (
        AlterPartitionReassignmentsPartition,
        AlterPartitionReassignmentsRequest,
        DescribeLogDirsRequest,
        DescribeLogDirsTopic,
        DescribeTopicPartitionsRequest,
        ElectLeadersRequest,
        ElectLeadersTopic,
        ListConfigResourcesRequest,
        ListPartitionReassignmentsRequest,
    )

_PARTITIONS_MAX: Final = 2000  # in one answer; Kafka's default


# Folders


def describe_log_dirs(broker: Desk, request: DescribeLogDirsRequest, peer: Peer) -> Fields:
    """The only folder, and the size of each partition in it."""
    try:
        check_cluster(peer, DESCRIBE_CLUSTER)
        folder = broker.log.path
    except LogError as error:
        return {"error_code": code_of(error), "results": []}
    usage = shutil.disk_usage(folder)
    return {
        "error_code": ErrorCode.none,
        "results": [
            {
                "error_code": ErrorCode.none,
                "log_dir": str(folder),
                "topics": [
                    {"name": name, "partitions": [_size(broker, name, number) for number in numbers]}
                    for name, numbers in _asked(broker, request.topics)
                ],
                "total_bytes": usage.total,
                "usable_bytes": usage.free,
            }
        ],
    }


def _asked(broker: Desk, topics: Sequence[DescribeLogDirsTopic] | None) -> Iterable[tuple[str, Iterable[int]]]:
    known = broker.log.topics()
    if topics is None:
        return [(name, range(topic.partition_count)) for name, topic in known.items()]
    return [
        (entry.topic, [number for number in entry.partitions if 0 <= number < known[entry.topic].partition_count])
        for entry in topics
        if entry.topic in known
    ]


def _size(broker: Desk, topic: str, partition: int) -> Fields:
    try:
        size = broker.log.partition(topic, partition).size_on_disk
    except LogError:
        size = 0
    return {"partition_index": partition, "partition_size": size, "offset_lag": 0, "is_future_key": False}


# Topics, page by page


def describe_topic_partitions(broker: Desk, request: DescribeTopicPartitionsRequest, peer: Peer) -> Fields:
    """In the order of names, so that a cursor can tell where to continue."""
    topics = broker.log.topics()
    names = sorted({entry.name for entry in request.topics} or {name for name in topics if may_see(peer, name)})
    first = request.cursor
    left = max(1, min(request.response_partition_limit, _PARTITIONS_MAX))
    described: list[Fields] = []
    for name in names:
        start = max(first.partition_index, 0) if first is not None and name == first.topic_name else 0
        if first is not None and name < first.topic_name:
            continue
        count = topics[name].partition_count if name in topics and may_see(peer, name) else 0
        if left <= 0:
            return {"topics": described, "next_cursor": {"topic_name": name, "partition_index": 0}}
        end = min(count, start + left)
        described.append(_described(broker, peer, name, topics.get(name), range(start, end)))
        left -= end - start
        if end < count:
            return {"topics": described, "next_cursor": {"topic_name": name, "partition_index": end}}
    return {"topics": described, "next_cursor": None}


def _described(broker: Desk, peer: Peer, name: str, topic: Topic | None, numbers: Iterable[int]) -> Fields:
    """The request has no field to ask for the operations; Kafka always answers them."""
    error = ErrorCode.none if topic is not None else ErrorCode.unknown_topic_or_partition
    if not may_see(peer, name):
        error = ErrorCode.topic_authorization_failed
    return {
        "error_code": error,
        "name": name,
        "topic_id": topic_uuid(broker, name) if error is ErrorCode.none else None,
        "is_internal": name in COORDINATORS,
        "partitions": [
            {
                **described_partition(broker, name, number),
                "eligible_leader_replicas": list(broker.layout.partition(name, number).eligible),
                "last_known_elr": [],
            }
            for number in numbers
        ],
        "topic_authorized_operations": topic_bits(peer, name, asked=error is ErrorCode.none),
    }


def list_config_resources(broker: Desk, request: ListConfigResourcesRequest, peer: Peer) -> Fields:
    """Topics, nodes, and groups with settings. The oldest version asks for a kind that does not exist here."""
    kinds = set(getattr(request, "resource_types", (0,))) or set(Resource)
    found: list[Fields] = []
    if Resource.TOPIC in kinds:
        names = [name for name in broker.log.topics() if peer.may(DESCRIBE_TOPIC_CONFIGS, name)]
        found += [{"resource_name": name, "resource_type": Resource.TOPIC} for name in names]
    if Resource.BROKER in kinds:
        found += [
            {"resource_name": str(each.node), "resource_type": Resource.BROKER}
            for each in broker.layout.nodes(peer.local)
        ]
    if Resource.GROUP in kinds:
        groups = [resource.removeprefix(GROUP) for resource in broker.log.resources(GROUP)]
        found += [
            {"resource_name": name, "resource_type": Resource.GROUP}
            for name in groups
            if peer.may(DESCRIBE_GROUP_CONFIGS, name)
        ]
    return {"error_code": ErrorCode.none, "config_resources": found}


# Replicas


def elect_leaders(broker: Desk, request: ElectLeadersRequest, peer: Peer) -> Fields:
    """Without a list, it elects for all partitions, and answers only for those that change. An unclean election may
    lose records."""
    try:
        check_cluster(peer, ALTER_CLUSTER)
    except LogError as error:
        return _no_election(request, code_of(error))
    unclean = getattr(request, "election_type", 0) == _UNCLEAN
    named = request.topic_partitions
    everything = named is None
    asked = _everywhere(broker, peer) if named is None else _by_topic(named)

    def results(topic: str, numbers: Iterable[int]) -> list[Fields]:
        outcomes = {
            number: _changed(lambda n=number: broker.layout.elect(TopicPartition(topic, n), unclean=unclean))
            for number in numbers
        }
        return [
            {"partition_id": number, **outcome}
            for number, outcome in outcomes.items()
            if not everything or outcome["error_code"] is not ErrorCode.election_not_needed
        ]

    found = [{"topic": topic, "partition_result": results(topic, numbers)} for topic, numbers in asked]
    return {
        "error_code": ErrorCode.none,
        "replica_election_results": [each for each in found if each["partition_result"]],
    }


def _no_election(request: ElectLeadersRequest, code: ErrorCode) -> Fields:
    """Old clients check only the codes of partitions."""
    asked = [] if request.topic_partitions is None else _by_topic(request.topic_partitions)
    return {
        "error_code": code,
        "replica_election_results": [
            {"topic": topic, "partition_result": [{"partition_id": number, "error_code": code} for number in numbers]}
            for topic, numbers in asked
        ],
    }


_UNCLEAN: Final = 1


def _by_topic(topics: Sequence[ElectLeadersTopic]) -> list[tuple[str, Iterable[int]]]:
    return [(topic.topic, topic.partitions) for topic in topics]


def _everywhere(broker: Desk, peer: Peer) -> list[tuple[str, Iterable[int]]]:
    topics = broker.log.topics()
    return [(name, range(topic.partition_count)) for name, topic in topics.items() if may_see(peer, name)]


def _changed(change: Callable[[], None]) -> Fields:
    try:
        change()
    except LogError as error:
        return {"error_code": code_of(error), "error_message": message_of(error)}
    return {"error_code": ErrorCode.none, "error_message": None}


def alter_partition_reassignments(broker: Desk, request: AlterPartitionReassignmentsRequest, peer: Peer) -> Fields:
    try:
        check_cluster(peer, ALTER_CLUSTER)
    except LogError as error:
        return {"error_code": code_of(error), "error_message": message_of(error), "responses": []}

    def altered(topic: str, asked: AlterPartitionReassignmentsPartition) -> Fields:
        where = TopicPartition(topic, asked.partition_index)
        outcome = _changed(lambda: broker.layout.reassign(where, asked.replicas))
        return {"partition_index": asked.partition_index, **outcome}

    return {
        "error_code": ErrorCode.none,
        "responses": [
            {"name": topic.name, "partitions": [altered(topic.name, asked) for asked in topic.partitions]}
            for topic in request.topics
        ],
    }


def list_partition_reassignments(broker: Desk, request: ListPartitionReassignmentsRequest, peer: Peer) -> Fields:
    """A request without a list asks for all topics."""
    known = broker.log.topics()
    asked = _everywhere(broker, peer)
    if request.topics is not None:
        asked = [
            (topic.name, [n for n in topic.partition_indexes if 0 <= n < known[topic.name].partition_count])
            for topic in request.topics
            if topic.name in known and may_see(peer, topic.name)
        ]
    found = [{"name": topic, "partitions": _moving(broker, topic, numbers)} for topic, numbers in asked]
    return {"error_code": ErrorCode.none, "topics": [each for each in found if each["partitions"]]}


def _moving(broker: Desk, topic: str, numbers: Iterable[int]) -> list[Fields]:
    layouts = [(number, broker.layout.partition(topic, number)) for number in numbers]
    return [
        {
            "partition_index": number,
            "replicas": list(layout.replicas),
            "adding_replicas": list(layout.adding),
            "removing_replicas": list(layout.removing),
        }
        for number, layout in layouts
        if layout.adding or layout.removing
    ]
