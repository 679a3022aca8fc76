"""Answers about brokers and topics."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from millstream.errors import LogError

from ...client import Topic, TopicPartition
from ...error_codes import ErrorCode
from ...errors import InvalidTopic, UnknownTopic
from ...topic_rules import COORDINATORS
from ..kafka_service import Desk
from ..layout import NOBODY, TopicCreation
from ..security.access import check_changeable, check_creatable, may_see
from ..security.accesses import ALTER_TOPIC, DELETE_TOPIC
from ..security.authorized_operations import cluster_bits, topic_bits
from ..security.peer import Peer
from ..security.read_only_topics import check_no_mirror_named, check_not_mirrored
from ..wire.apis import ADVERTISED_FROM, CAME_WITH, FEATURES, FEATURES_CAME_WITH, KNOWN
from ..wire.faults import code_of, message_of, sayable
from ..wire.messages import Fields
from .config_requests import config_entries

if TYPE_CHECKING:
    from .request_shapes import (
        CreatePartitionsRequest,
        CreatePartitionsTopic,
        CreateTopicsRequest,
        CreateTopicsTopic,
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteTopicsRequest,
        DescribeClusterRequest,
        MetadataRequest,
        MetadataTopic,
    )

_PARTITIONS_BY_DEFAULT: Final = 1
_HIGH_WATERMARK: Final = -1
_DELETED_BY_ID_FROM: Final = 6
_Asked = TypeVar("_Asked")
_NAMELESS_FROM: Final = 12  # from this version on, an answer about an unknown topic may have no name


def api_versions(cluster_version: int, error: ErrorCode = ErrorCode.none) -> Fields:
    keys = [
        {"api_key": api, "min_version": ADVERTISED_FROM.get(api, versions.oldest), "max_version": versions.newest}
        for api, versions in KNOWN.items()
        if CAME_WITH.get(api, 1) <= cluster_version
    ]
    features = [{"name": name, "min_version": 0, "max_version": newest} for name, newest in FEATURES.items()]
    levels = [
        {"name": name, "min_version_level": newest, "max_version_level": newest}
        for name, newest in FEATURES.items()
        if FEATURES_CAME_WITH.get(name, 1) <= cluster_version
    ]
    return {
        "error_code": error,
        "api_keys": keys,
        "supported_features": features,
        "finalized_features_epoch": 0,
        "finalized_features": levels,
    }


def metadata(broker: Desk, request: MetadataRequest, peer: Peer) -> Fields:
    """Without a list it describes all topics; in the oldest version, with an empty list. Newer clients may use ids."""
    topics = broker.log.topics()
    if request.topics is None or (request.__version__ == 0 and not request.topics):
        described = [_described(broker, peer, topic, request) for topic in topics.values() if may_see(peer, topic.name)]
    else:
        if broker.settings.creates_topics and _may_create(request):
            _create_missing(broker, peer, [asked.name for asked in request.topics if asked.name not in topics])
            topics = broker.log.topics()
        described = [_described_or_not(broker, peer, topics, asked, request) for asked in request.topics]
    nodes = broker.layout.nodes(peer.local)
    return {
        "brokers": [{"node_id": each.node, "host": each.host, "port": each.port, "rack": each.rack} for each in nodes],
        "cluster_id": broker.log.id,
        "controller_id": broker.layout.controller,
        "topics": described,
        "cluster_authorized_operations": _operations_on_cluster(peer, request),
    }


def _operations_on_cluster(peer: Peer, request: MetadataRequest | DescribeClusterRequest) -> int:
    asked = getattr(request, "include_cluster_authorized_operations", False)
    return cluster_bits(peer, asked=asked)


def _may_create(request: MetadataRequest) -> bool:
    """Versions without the field imply it."""
    return getattr(request, "allow_auto_topic_creation", True)


def _create_missing(broker: Desk, peer: Peer, names: Sequence[str | None]) -> None:
    """Creates the topics that the client may create; the answer has the errors of the others."""
    for name in filter(None, names):
        with suppress(LogError):
            check_creatable(peer, name)
            broker.layout.create_topic(TopicCreation(name, _PARTITIONS_BY_DEFAULT, {}))


def _described_or_not(
    broker: Desk, peer: Peer, topics: Mapping[str, Topic], asked: MetadataTopic, request: MetadataRequest
) -> Fields:
    name, error = asked.name, ErrorCode.unknown_topic_or_partition
    topic_id: uuid.UUID | None = getattr(asked, "topic_id", None)
    if not name and topic_id is not None:  # some clients send an empty name beside the id
        name = _name_of(broker, topic_id)
        error = ErrorCode.unknown_topic_id
    topic = topics.get(name or "")
    if name and not may_see(peer, name):
        error = ErrorCode.topic_authorization_failed if asked.name else ErrorCode.unknown_topic_id
    elif topic is not None:
        return _described(broker, peer, topic, request)
    nameless = None if asked.__version__ >= _NAMELESS_FROM else ""
    return {"error_code": error, "name": asked.name or nameless, "topic_id": topic_id}


def _described(broker: Desk, peer: Peer, topic: Topic, request: MetadataRequest) -> Fields:
    asked = getattr(request, "include_topic_authorized_operations", False)
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "topic_id": topic_uuid(broker, topic.name),
        "is_internal": topic.name in COORDINATORS,
        "partitions": [described_partition(broker, topic.name, number) for number in range(topic.partition_count)],
        "topic_authorized_operations": topic_bits(peer, topic.name, asked=asked),
    }


def topic_uuid(broker: Desk, name: str) -> uuid.UUID | None:
    """The topic's id, which differs from that of an earlier topic of the same name; None if it was deleted."""
    try:
        return uuid.UUID(hex=broker.log.topic_id(name))
    except UnknownTopic:
        return None


def described_partition(broker: Desk, topic: str, partition: int) -> Fields:
    layout = broker.layout.partition(topic, partition)
    return {
        "error_code": ErrorCode.leader_not_available if layout.leader == NOBODY else ErrorCode.none,
        "partition_index": partition,
        "leader_id": layout.leader,
        "leader_epoch": layout.leader_epoch,
        "replica_nodes": list(layout.replicas),
        "isr_nodes": list(layout.in_sync),
        "offline_replicas": list(layout.offline),
    }


def create_topics(broker: Desk, request: CreateTopicsRequest, peer: Peer) -> Fields:
    named = [(topic.name, topic) for topic in request.topics]
    return {"topics": _each_once(named, lambda topic: _created(broker, topic, peer, only_check=request.validate_only))}


def _created(broker: Desk, asked: CreateTopicsTopic, peer: Peer, *, only_check: bool) -> Fields:
    partition_count = _PARTITIONS_BY_DEFAULT if asked.num_partitions == -1 else asked.num_partitions
    config = {entry.name: entry.value for entry in asked.configs if entry.value is not None}

    def create() -> None:
        nonlocal partition_count
        check_creatable(peer, asked.name)
        check_no_mirror_named({}, config, peer)
        assignment = _assignment(asked)
        partition_count = len(assignment) or partition_count
        new = TopicCreation(asked.name, partition_count, config, asked.replication_factor, assignment)
        broker.layout.create_topic(new, only_check=only_check)

    outcome = _outcome(create)
    made = outcome["error_code"] is ErrorCode.none
    return {
        "name": asked.name,
        "topic_id": topic_uuid(broker, asked.name) if made else None,
        "num_partitions": partition_count if made else -1,
        "replication_factor": _replication(broker, asked) if made else -1,
        "configs": config_entries(config) if made else None,
        **outcome,
    }


def _replication(broker: Desk, asked: CreateTopicsTopic) -> int:
    if asked.assignments:
        return len(asked.assignments[0].broker_ids)
    return asked.replication_factor if asked.replication_factor != -1 else broker.layout.default_replication()


def _assignment(asked: CreateTopicsTopic) -> Sequence[Sequence[int]]:
    """Replicas by partition. Raises `InvalidTopic`."""
    by_number = {assignment.partition_index: tuple(assignment.broker_ids) for assignment in asked.assignments}
    if sorted(by_number) != list(range(len(asked.assignments))):
        raise InvalidTopic(f'topic "{asked.name}" cannot be placed as asked: partitions are numbered from 0 on')
    return [by_number[number] for number in range(len(by_number))]


def delete_topics(broker: Desk, request: DeleteTopicsRequest, peer: Peer) -> Fields:
    """Deletes topics by name; newer clients may use ids instead."""

    def deleted(name: str) -> Fields:
        def delete() -> None:
            check_changeable(peer, name, DELETE_TOPIC)
            broker.log.delete_topic(name)

        return {"name": name, **_outcome(delete)}

    if request.__version__ < _DELETED_BY_ID_FROM:
        return {"responses": _each_once([(name, name) for name in request.topic_names], deleted)}
    unknown: list[Fields] = []
    known: list[tuple[str, str]] = []
    ids: dict[str, uuid.UUID | None] = {}
    for asked in request.topics:
        name = asked.name if asked.name is not None else _name_of(broker, asked.topic_id)
        if name is None or (asked.name is None and not may_see(peer, name)):
            error = ErrorCode.unknown_topic_id
            unknown.append({"name": None, "topic_id": asked.topic_id, "error_code": error})
        else:
            known.append((name, name))
            ids[name] = topic_uuid(broker, name)
    answers = [{**answer, "topic_id": ids[answer["name"]]} for answer in _each_once(known, deleted)]
    return {"responses": [*unknown, *answers]}


def _name_of(broker: Desk, id: uuid.UUID | None) -> str | None:
    return None if id is None else broker.log.topic_name(id.bytes)


def create_partitions(broker: Desk, request: CreatePartitionsRequest, peer: Peer) -> Fields:
    def created(asked: CreatePartitionsTopic) -> Fields:
        def create() -> None:
            check_changeable(peer, asked.name, ALTER_TOPIC)
            check_not_mirrored(broker.log, asked.name, peer)
            placed = [tuple(assignment.broker_ids) for assignment in asked.assignments or ()]
            broker.layout.add_partitions(asked.name, asked.count, placed, only_check=request.validate_only)

        return {"name": asked.name, **_outcome(create)}

    return {"results": _each_once([(asked.name, asked) for asked in request.topics], created)}


def delete_records(broker: Desk, request: DeleteRecordsRequest, peer: Peer) -> Fields:
    """Deletes all records before an offset; -1 means the high watermark."""

    def deleted(topic: str, asked: DeleteRecordsPartition) -> Fields:
        low_watermark = -1

        def delete() -> None:
            nonlocal low_watermark
            check_changeable(peer, topic, DELETE_TOPIC)
            check_not_mirrored(broker.log, topic, peer)
            where, offset = TopicPartition(topic, asked.partition_index), asked.offset
            if offset == _HIGH_WATERMARK:
                offset = broker.layout.offsets(where).offsets.high_watermark
            low_watermark = broker.layout.delete_records(where, offset)

        code = _outcome(delete)["error_code"]
        return {"partition_index": asked.partition_index, "low_watermark": low_watermark, "error_code": code}

    return {
        "topics": [
            {"name": topic.name, "partitions": [deleted(topic.name, asked) for asked in topic.partitions]}
            for topic in request.topics
        ]
    }


def describe_cluster(broker: Desk, request: DescribeClusterRequest, peer: Peer) -> Fields:
    nodes = broker.layout.nodes(peer.local)
    return {
        "error_code": ErrorCode.none,
        "cluster_id": broker.log.id,
        "controller_id": broker.layout.controller,
        "brokers": [
            {"broker_id": each.node, "host": each.host, "port": each.port, "rack": each.rack} for each in nodes
        ],
        "cluster_authorized_operations": _operations_on_cluster(peer, request),
    }


def _each_once(asked: Sequence[tuple[str, _Asked]], answer: Callable[[_Asked], Fields]) -> list[Fields]:
    """The answers for topics by name. Nothing is done with a topic that is named more than once, and there is one
    answer about it: clients look for their topics by name."""
    times = Counter(name for name, _ in asked)
    answers: list[Fields] = []
    for name, each in asked:
        match times.pop(name, 0):
            case 0:
                continue
            case 1:
                answers.append(answer(each))
            case _:
                message = f'the request names topic "{sayable(name)}" more than once'
                answers.append({"name": name, "error_code": ErrorCode.invalid_request, "error_message": message})
    return answers


def _outcome(act: Callable[[], None]) -> Fields:
    try:
        act()
    except LogError as error:
        return {"error_code": code_of(error), "error_message": message_of(error)}
    return {"error_code": ErrorCode.none}
