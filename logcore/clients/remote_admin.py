"""Manages the topics of a log over the network: `LogAdmin` over the Kafka protocol."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from ..client import TopicConfig, TopicPartition
from ..error_codes import ErrorCode
from ..errors import InvalidTopic, TopicExists, UnknownTopic
from ..protocol.routing import Router
from ..protocol.wire.apis import Api
from ..protocol.wire.faults import error_of

_TIMEOUT: Final = timedelta(seconds=30)
_TOPIC_RESOURCE: Final = 2
OF_THE_BROKER: Final = -1
"""As a replication factor: the broker's default."""
_UNKNOWN_TOPIC: Final = int(ErrorCode.unknown_topic_or_partition)
_HEARD_S: Final = 10.0
_LOOK_S: Final = 0.02


class RemoteAdmin:
    """Any thread may call any method."""

    def __init__(self, router: Router, replication_factor: int = OF_THE_BROKER) -> None:
        """In: `replication_factor`: for new topics."""
        self._router = router
        self._replication_factor = replication_factor

    def create_topic(self, name: str, partition_count: int, config: TopicConfig = None, replicas: int = 0) -> None:
        """With a cluster it returns once the topic can be written to, so that the next request finds it. If an answer
        was lost, an existing topic with this name and partition count counts as the created one."""
        configs = [{"name": key, "value": value} for key, value in (config or {}).items()]
        topic = {
            "name": name,
            "num_partitions": partition_count,
            "replication_factor": replicas or self._replication_factor,
            "configs": configs,
        }
        fields = {"topics": [topic], "timeout": _TIMEOUT}
        answer, in_doubt = self._router.ask_in_doubt(Api.CREATE_TOPICS, fields, repeat=self._router.clustered)
        try:
            check(answer.topics[0].error_code, answer.topics[0].error_message, f'create topic "{name}"')
        except TopicExists:
            if not (in_doubt and self.partition_count(name) == partition_count):
                raise
        self._await(lambda: self.partition_count(name) == partition_count)

    def delete_topic(self, name: str, topic_id: uuid.UUID | None = None) -> None:
        """In: `topic_id`: if given, a topic of this name with another id is not deleted. Raises `UnknownTopic`."""
        topic = {"name": name} if topic_id is None else {"topic_id": topic_id}
        fields = {"topic_names": [name], "topics": [topic], "timeout": _TIMEOUT}
        answer, in_doubt = self._router.ask_in_doubt(Api.DELETE_TOPICS, fields, repeat=self._router.clustered)
        result = answer.responses[0]
        try:
            check(result.error_code, getattr(result, "error_message", None), f'delete topic "{name}"')
        except UnknownTopic:
            if not in_doubt:
                raise
        self._await(lambda: not self._exists(name, topic_id))

    def partition_count(self, name: str) -> int:
        """The partition count; 0 if the topic does not exist, or if a partition has no leader."""
        [topic] = self.described(name).topics
        ready = all(partition.leader_id >= 0 for partition in topic.partitions)
        return len(topic.partitions) if ready else 0

    def topic_id(self, name: str) -> uuid.UUID | None:
        """The topic's id; None if there is no such topic, or the server gives it no id. Raises any other error that the
        server reports."""
        [topic] = self.described(name).topics
        if topic.error_code and int(topic.error_code) != _UNKNOWN_TOPIC:
            raise self._router.error(topic.error_code, f'look up topic "{name}"')
        return getattr(topic, "topic_id", None) if not topic.error_code else None

    def _exists(self, name: str, topic_id: uuid.UUID | None) -> bool:
        [topic] = self.described(name).topics
        if int(topic.error_code) == _UNKNOWN_TOPIC:
            return False
        return topic_id is None or getattr(topic, "topic_id", None) == topic_id

    def described(self, name: str | None) -> Any:
        """The metadata of a topic, or of all topics."""
        fields = {"topics": None if name is None else [{"name": name}], "allow_auto_topic_creation": False}
        return self._router.put(lambda line: line.ask(Api.METADATA, fields), lambda answer: ())

    def _await(self, is_so: Callable[[], bool]) -> None:
        """Waits until the change is visible: in a cluster, the node that is asked gets it a little later."""
        deadline = time.monotonic() + _HEARD_S
        while self._router.clustered and not is_so() and time.monotonic() < deadline:
            time.sleep(_LOOK_S)

    def alter_topic(self, name: str, config: Mapping[str, str], *, only_check: bool = False) -> None:
        configs = [{"name": key, "value": value} for key, value in config.items()]
        resource = {"resource_type": _TOPIC_RESOURCE, "resource_name": name, "configs": configs}
        answer = self._router.ask(Api.ALTER_CONFIGS, {"resources": [resource], "validate_only": only_check})
        check(answer.responses[0].error_code, answer.responses[0].error_message, f'change topic "{name}"')

    def add_partitions(self, name: str, partition_count: int, *, only_check: bool = False) -> None:
        topic = {"name": name, "count": partition_count, "assignments": None}
        fields = {"topics": [topic], "timeout": _TIMEOUT, "validate_only": only_check}
        answer, in_doubt = self._router.ask_in_doubt(Api.CREATE_PARTITIONS, fields, repeat=self._router.clustered)
        result = answer.results[0]
        try:
            check(result.error_code, result.error_message, f'add partitions to topic "{name}"')
        except InvalidTopic:
            if not (in_doubt and self.partition_count(name) == partition_count):
                raise

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        asked = {"name": topic, "partitions": [{"partition_index": partition, "offset": before_offset}]}
        fields = {"topics": [asked], "timeout": _TIMEOUT}
        answer = self._router.ask(Api.DELETE_RECORDS, fields, to=TopicPartition(topic, partition))
        result = answer.topics[0].partitions[0]
        check(result.error_code, None, f'delete records of partition {partition} of topic "{topic}"')
        return result.low_watermark

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """Like `LogClient.offset_at`; negative times have the protocol's meaning (-1 end, -2 start)."""
        asked = {"name": topic, "partitions": [{"partition_index": partition, "timestamp": timestamp_ms}]}
        fields = {"replica_id": -1, "isolation_level": 1, "topics": [asked]}
        answer = self._router.ask(Api.LIST_OFFSETS, fields, to=TopicPartition(topic, partition))
        found = answer.topics[0].partitions[0]
        check(found.error_code, None, f'read the offsets of partition {partition} of topic "{topic}"')
        return None if found.offset < 0 else found.offset


def check(code: int, message: str | None, what: str) -> None:
    """Raises the error of an answer's error code, if any."""
    if code:
        raise error_of(code, message, what)
