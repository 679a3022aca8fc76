"""Answers about brokers and topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from kio.schema.errors import ErrorCode

from millstream.errors import LogError

from ..client import Topic
from ..errors import InvalidTopic, TopicExists
from ..log import RESERVED
from ..topic_rules import check_topic
from .apis import ADVERTISED_FROM, KNOWN
from .broker import LEADER_EPOCH, NODE_ID, Broker
from .faults import code_of, message_of
from .messages import Fields

_PARTITIONS_BY_DEFAULT: Final = 1
_TOPIC_RESOURCE: Final = 2
_SET_ON_TOPIC: Final = 1
_STRING_TYPE: Final = 2


def api_versions(error: ErrorCode = ErrorCode.none) -> Fields:
    keys = [
        {"api_key": api, "min_version": ADVERTISED_FROM.get(api, versions.oldest), "max_version": versions.newest}
        for api, versions in KNOWN.items()
    ]
    return {"error_code": error, "api_keys": keys}


def metadata(broker: Broker, request: Any, local: tuple[str, int]) -> Fields:
    """No list of names asks for all topics; in the oldest version an empty list does."""
    topics = broker.log.topics()
    if request.topics is None or (request.__version__ == 0 and not request.topics):
        described = [_described(topic) for topic in topics.values()]
    else:
        described = [_described_or_not(topics.get(asked.name), asked.name) for asked in request.topics]
    host, port = broker.address_for(local)
    return {
        "brokers": [{"node_id": NODE_ID, "host": host, "port": port}],
        "cluster_id": broker.log.id,
        "controller_id": NODE_ID,
        "topics": described,
    }


def _described_or_not(topic: Topic | None, name: str) -> Fields:
    if topic is not None:
        return _described(topic)
    return {"error_code": ErrorCode.unknown_topic_or_partition, "name": name}


def _described(topic: Topic) -> Fields:
    return {
        "error_code": ErrorCode.none,
        "name": topic.name,
        "is_internal": topic.name in RESERVED,
        "partitions": [_described_partition(partition) for partition in range(topic.partition_count)],
    }


def _described_partition(partition: int) -> Fields:
    return {
        "error_code": ErrorCode.none,
        "partition_index": partition,
        "leader_id": NODE_ID,
        "leader_epoch": LEADER_EPOCH,
        "replica_nodes": [NODE_ID],
        "isr_nodes": [NODE_ID],
    }


def create_topics(broker: Broker, request: Any, local: tuple[str, int]) -> Fields:
    return {"topics": [_created(broker, topic, only_check=request.validate_only) for topic in request.topics]}


def _created(broker: Broker, asked: Any, *, only_check: bool) -> Fields:
    partition_count = _PARTITIONS_BY_DEFAULT if asked.num_partitions == -1 else asked.num_partitions
    config = {entry.name: entry.value for entry in asked.configs if entry.value is not None}

    def create() -> None:
        nonlocal partition_count
        if asked.assignments:
            _check_assignments(asked)
            partition_count = len(asked.assignments)
        elif asked.replication_factor not in (-1, 1):
            raise InvalidReplicationFactor(
                f'topic "{asked.name}" cannot have {asked.replication_factor} replicas: there is one node'
            )
        check_topic(asked.name, partition_count, config)
        if not only_check:
            broker.log.create_topic(asked.name, partition_count, config)
        elif asked.name in broker.log.topics():
            raise TopicExists(f'topic "{asked.name}" exists already')

    outcome = _outcome(create)
    made = outcome["error_code"] is ErrorCode.none
    return {
        "name": asked.name,
        "num_partitions": partition_count if made else -1,
        "replication_factor": 1 if made else -1,
        "configs": _config_entries(config) if made else None,
        **outcome,
    }


class InvalidReplicationFactor(InvalidTopic):
    code = "INVALID_REPLICATION_FACTOR"


def _check_assignments(asked: Any) -> None:
    numbers = sorted(assignment.partition_index for assignment in asked.assignments)
    brokers = {broker for assignment in asked.assignments for broker in assignment.broker_ids}
    if numbers != list(range(len(numbers))) or brokers != {NODE_ID}:
        raise InvalidTopic(f'topic "{asked.name}" cannot be placed as asked: there is one node, number {NODE_ID}')


def delete_topics(broker: Broker, request: Any, local: tuple[str, int]) -> Fields:
    def deleted(name: str) -> Fields:
        return {"name": name, **_outcome(lambda: broker.log.delete_topic(name))}

    return {"responses": [deleted(name) for name in request.topic_names]}


def describe_configs(broker: Broker, request: Any, local: tuple[str, int]) -> Fields:
    """What is set on topics; everything else has its default and is not listed."""
    topics = broker.log.topics()
    return {"results": [_configs_of(topics.get(asked.resource_name), asked) for asked in request.resources]}


def _configs_of(topic: Topic | None, asked: Any) -> Fields:
    result = {"resource_type": asked.resource_type, "resource_name": asked.resource_name}
    if asked.resource_type != _TOPIC_RESOURCE:
        return {**result, "error_code": ErrorCode.none, "configs": []}
    if topic is None:
        return {**result, "error_code": ErrorCode.unknown_topic_or_partition, "configs": []}
    wanted = topic.config if asked.configuration_keys is None else asked.configuration_keys
    configs = {name: value for name, value in topic.config.items() if name in wanted}
    return {**result, "error_code": ErrorCode.none, "configs": _config_entries(configs)}


def _config_entries(config: dict[str, str]) -> Iterable[Fields]:
    return [
        {"name": name, "value": value, "config_source": _SET_ON_TOPIC, "config_type": _STRING_TYPE}
        for name, value in config.items()
    ]


def _outcome(act: Callable[[], None]) -> Fields:
    try:
        act()
    except LogError as error:
        return {"error_code": code_of(error), "error_message": message_of(error)}
    return {"error_code": ErrorCode.none}
