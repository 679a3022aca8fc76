"""Brokers, replicas and topic settings of a log over the network, as tools show them, read with the Kafka protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from ..error_codes import ErrorCode
from ..errors import InvalidTopic
from ..protocol.routing import Router
from ..protocol.wire.apis import Api
from .remote_acls import RemoteAcls
from .remote_admin import OF_THE_BROKER, check

_TIMEOUT: Final = timedelta(seconds=30)
_TOPIC: Final = 2
_BROKER: Final = 4
_SET: Final = 0
_DELETE: Final = 1
_UNKNOWN_TOPIC: Final = int(ErrorCode.unknown_topic_or_partition)
_INVALID_ASSIGNMENT: Final = int(ErrorCode.invalid_replica_assignment)
_SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
}


@dataclass(frozen=True, slots=True)
class BrokerPlace:
    node: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class Brokers:
    """`cluster_id`: None if the brokers report none; `controller`: None if there is none now."""

    cluster_id: str | None
    controller: int | None
    brokers: tuple[BrokerPlace, ...]


@dataclass(frozen=True, slots=True)
class PartitionPlace:
    """`leader`: None while there is none. `replicas`, `in_sync`: broker ids."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicPlace:
    """`internal`: as the brokers report it."""

    name: str
    internal: bool
    partitions: tuple[PartitionPlace, ...]

    @property
    def replication_factor(self) -> int:
        return max((len(partition.replicas) for partition in self.partitions), default=0)


@dataclass(frozen=True, slots=True)
class SettingValue:
    """`value`: None if it is hidden. `source`, also in the synonyms (name, value, source): Kafka's names."""

    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool
    synonyms: tuple[tuple[str, str | None, str], ...]

    @property
    def is_default(self) -> bool:
        return self.source == "DEFAULT_CONFIG"


@dataclass(frozen=True, slots=True)
class TopicToCreate:
    """`partition_count`, `replication_factor`: -1 is the brokers' default. `assignments`: brokers by partition; they
    replace both numbers."""

    name: str
    partition_count: int = OF_THE_BROKER
    replication_factor: int = OF_THE_BROKER
    config: Mapping[str, str] | None = None
    assignments: Mapping[int, Sequence[int]] | None = None


def _same(name: str) -> str:
    return name


class RemoteCluster:
    """Any thread may call any method. Each sends one request, and waits for fail-overs like the log's other methods."""

    def __init__(
        self,
        router: Router,
        there: Callable[[str], str] = _same,
        here: Callable[[str], str | None] = _same,
    ) -> None:
        """In: `there`: the brokers' name of one of our topics; `here`: our name of one of theirs, None if it is not
        ours."""
        self._router = router
        self._there, self._here = there, here
        self.acls = RemoteAcls(router)

    def brokers(self) -> Brokers:
        answer = self._metadata([])
        controller = getattr(answer, "controller_id", -1)
        return Brokers(
            getattr(answer, "cluster_id", None),
            None if controller < 0 else int(controller),
            tuple(
                BrokerPlace(int(each.node_id), each.host, each.port, getattr(each, "rack", None))
                for each in sorted(answer.brokers, key=lambda broker: int(broker.node_id))
            ),
        )

    def coordinator(self, group: str) -> int | None:
        """The broker that coordinates a group; None if there is none now."""
        fields = {"key": group, "key_type": 0, "coordinator_keys": [group]}
        answer = self._router.ask(Api.FIND_COORDINATOR, fields)
        found = answer.coordinators[0] if hasattr(answer, "coordinators") else answer
        return None if found.error_code or found.node_id < 0 else int(found.node_id)

    def topics(self) -> list[TopicPlace]:
        """All topics, ordered by name."""
        named = [(self._here(topic.name), topic) for topic in self._metadata(None).topics]
        found = [_place(name, topic) for name, topic in named if name is not None]
        return sorted(found, key=lambda topic: topic.name)

    def topic(self, name: str) -> TopicPlace | None:
        [topic] = self._metadata([{"name": self._there(name)}]).topics
        if int(topic.error_code) == _UNKNOWN_TOPIC:
            return None
        check(topic.error_code, None, f'find topic "{name}"')
        return _place(name, topic)

    def create(self, topic: TopicToCreate, *, only_check: bool = False) -> None:
        """Raises `TopicExists`, `InvalidTopic`."""
        placed = topic.assignments or {}
        asked = {
            "name": self._there(topic.name),
            "num_partitions": OF_THE_BROKER if placed else topic.partition_count,
            "replication_factor": OF_THE_BROKER if placed else topic.replication_factor,
            "assignments": [
                {"partition_index": number, "broker_ids": list(brokers)} for number, brokers in placed.items()
            ],
            "configs": [{"name": name, "value": value} for name, value in (topic.config or {}).items()],
        }
        fields = {"topics": [asked], "timeout": _TIMEOUT, "validate_only": only_check}
        [result] = self._router.ask(Api.CREATE_TOPICS, fields, repeat=False).topics
        if int(result.error_code) == _INVALID_ASSIGNMENT:
            raise InvalidTopic(result.error_message or f'topic "{topic.name}" cannot be placed as asked')
        check(result.error_code, result.error_message, f'create topic "{topic.name}"')

    def settings(self, topic: str) -> list[SettingValue]:
        """All settings of a topic, ordered by name. Raises `UnknownTopic`."""
        return self._described(_TOPIC, self._there(topic), None, f'topic "{topic}"')

    def broker_settings(self, node: int) -> list[SettingValue]:
        """The settings that this broker reports. Raises `LogError` if there is no such broker."""
        return self._described(_BROKER, str(node), None, f"broker {node}")

    def change_settings(self, topic: str, changes: Mapping[str, str | None], *, only_check: bool = False) -> None:
        """Changes these settings and keeps the others; None resets a setting to its default. Raises `UnknownTopic`,
        `InvalidTopic`."""
        configs = [
            {"name": name, "config_operation": _DELETE if value is None else _SET, "value": value}
            for name, value in changes.items()
        ]
        resource = {"resource_type": _TOPIC, "resource_name": self._there(topic), "configs": configs}
        fields = {"resources": [resource], "validate_only": only_check}
        [result] = self._router.ask(Api.INCREMENTAL_ALTER_CONFIGS, fields).responses
        check(result.error_code, result.error_message, f'change topic "{topic}"')

    def _metadata(self, topics: list[dict[str, str]] | None) -> Any:
        fields = {"topics": topics, "allow_auto_topic_creation": False}
        return self._router.put(lambda line: line.ask(Api.METADATA, fields), _no_codes)

    def _described(self, kind: int, name: str, keys: list[str] | None, what: str) -> list[SettingValue]:
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        [result] = self._router.ask(Api.DESCRIBE_CONFIGS, {"resources": [resource], "include_synonyms": True}).results
        check(result.error_code, result.error_message, f"read the settings of {what}")
        return sorted(map(_setting, result.configs), key=lambda setting: setting.name)


def _no_codes(answer: object) -> Iterable[int]:
    del answer
    return ()


def _place(name: str, topic: Any) -> TopicPlace:
    partitions = [
        PartitionPlace(
            each.partition_index,
            None if each.leader_id < 0 else int(each.leader_id),
            tuple(map(int, each.replica_nodes)),
            tuple(map(int, each.isr_nodes)),
        )
        for each in topic.partitions
    ]
    return TopicPlace(name, bool(topic.is_internal), tuple(sorted(partitions, key=lambda place: place.partition)))


def _setting(entry: Any) -> SettingValue:
    synonyms = tuple((each.name, each.value, _source(each.source)) for each in entry.synonyms)
    return SettingValue(
        entry.name, entry.value, _source(entry.config_source), entry.read_only, entry.is_sensitive, synonyms
    )


def _source(number: int) -> str:
    return _SOURCES.get(int(number), "UNKNOWN")
