"""The log that a mirror copies from: its topics, and fetches of many partitions at a time."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from ..client import Fetched, TopicPartition
from ..clients.remote_admin import check
from ..clients.routed_log import RoutedLog
from ..error_codes import ErrorCode
from ..external.kafka_properties import KafkaProperties
from ..protocol.routing import Router
from ..protocol.wire.apis import Api
from ..topic_rules import COORDINATORS, belongs_to_millstream
from ..topic_settings import MIRROR_ORIGINS, OF_MIRRORS, SETTINGS

_EARLIEST: Final = -2
_LATEST: Final = -1
_PATIENCE_S: Final = 5.0
_TOPIC_RESOURCE: Final = 2
_SET: Final = (1, 4)  # set for the topic, or in the brokers' configuration
_SET_ON_TOPIC: Final = 1
_OF_THE_PLACE: Final = frozenset({
    *OF_MIRRORS, "min.insync.replicas", "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas", "unclean.leader.election.enable", "remote.storage.enable",
    "local.retention.bytes", "local.retention.ms", "message.format.version",
})  # fmt: skip
"""Settings that are about the source's brokers."""
_FOLLOWED_FROM_BROKERS: Final = ("retention.ms", "retention.bytes", "max.message.bytes")
"""Settings that may differ between logs without being set for the topic, so that records would be lost."""


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """`chosen`, `excluded`: names, in which * matches any characters and ? one character."""

    chosen: tuple[str, ...]
    excluded: tuple[str, ...] = ()

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and not _is_internal(name) and self.matches(name)

    def matches(self, name: str) -> bool:
        return _any(self.chosen, name) and not _any(self.excluded, name)


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """`id`: None if the brokers do not give ids to topics."""

    name: str
    id: str | None
    partition_count: int


class SourceSettings(NamedTuple):
    """`followed`: the settings that our log supports and that are not about brokers. `origins`: the topics that the
    topic is a copy of, nearest first, as named by `origin_of`."""

    followed: dict[str, str]
    origins: tuple[str, ...] = ()


class PartitionEnds(NamedTuple):
    log_start_offset: int
    high_watermark: int


class MirrorSource:
    """Any thread may call any method. Methods raise `LogUnavailable` after some seconds without an answer."""

    def __init__(self, properties: KafkaProperties, *, patience_s: float = _PATIENCE_S) -> None:
        """Does not connect yet. Raises `InvalidKafkaProperty`."""
        self.address = ", ".join(map(str, properties.addresses()))
        self.router = Router(properties.addresses(), properties.login(), properties.tls(), patience_s, clustered=True)
        self._log = RoutedLog(self.router, "", shrinks=True, wait_bytes=1)
        self.groups = self._log.groups
        self.acls = self._log.cluster.acls
        self._cluster_id: str | None = None

    def cluster_id(self) -> str | None:
        if self._cluster_id is None:
            self._cluster_id = self._log.cluster.brokers().cluster_id
        return self._cluster_id

    def topics(self, wanted: TopicFilter) -> dict[str, SourceTopic]:
        fields = {"topics": None, "allow_auto_topic_creation": False}
        answer = self.router.put(lambda line: line.ask(Api.METADATA, fields), lambda answer: ())
        found: dict[str, SourceTopic] = {}
        for topic in answer.topics:
            if topic.name in wanted and not topic.error_code and topic.partitions:
                id = getattr(topic, "topic_id", None)
                found[topic.name] = SourceTopic(topic.name, None if id is None else id.hex, len(topic.partitions))
        return found

    def settings(self, names: list[str]) -> dict[str, SourceSettings]:
        """The settings of those of these topics that exist."""
        asked = [
            {"resource_type": _TOPIC_RESOURCE, "resource_name": name, "configuration_keys": None} for name in names
        ]
        answer = self.router.ask(Api.DESCRIBE_CONFIGS, {"resources": asked})
        found: dict[str, SourceSettings] = {}
        for result in answer.results:
            if int(result.error_code) == ErrorCode.unknown_topic_or_partition:
                continue
            check(result.error_code, result.error_message, f'read the settings of topic "{result.resource_name}"')
            values = {entry.name: entry.value for entry in result.configs if entry.value is not None}
            followed = {entry.name: entry.value for entry in result.configs if entry.name in values and _follows(entry)}
            origins = tuple(filter(None, values.get(MIRROR_ORIGINS, "").split(",")))
            found[result.resource_name] = SourceSettings(followed, origins)
        return found

    def ends(self, where: TopicPartition) -> PartitionEnds:
        """The first and last offsets of a partition. Raises `UnknownTopic`."""
        return PartitionEnds(self._offset(where, _EARLIEST), self._offset(where, _LATEST))

    def _offset(self, where: TopicPartition, time: int) -> int:
        asked = {"partition_index": where.partition, "timestamp": time}
        fields = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": where.topic, "partitions": [asked]}]}
        found = self.router.ask(Api.LIST_OFFSETS, fields, to=where).topics[0].partitions[0]
        check(found.error_code, None, f'read the offsets of partition {where.partition} of topic "{where.topic}"')
        return int(found.offset)

    def rows(self, where: TopicPartition, offset: int, max_bytes: int) -> Fetched:
        return self._log.fetch(*where, offset, max_bytes=max_bytes)

    def close(self) -> None:
        self._log.close()


def _follows(entry: object) -> bool:
    name, value, source = (getattr(entry, field) for field in ("name", "value", "config_source"))
    if name not in SETTINGS or name in _OF_THE_PLACE or SETTINGS[name].problem(value) is not None:
        return False
    if int(source) == _SET_ON_TOPIC:
        return True
    return name in _FOLLOWED_FROM_BROKERS and value != SETTINGS[name].default


def origin_of(cluster_id: str | None, topic_id: str | None) -> str:
    """A name for the topic that is unique among all logs. It contains the cluster's id, because earlier versions gave
    the same ids to topics of different servers."""
    return f"{cluster_id or ''}/{topic_id or ''}"


def _is_internal(name: str) -> bool:
    return name in COORDINATORS or name.startswith("__") or belongs_to_millstream(name)


def _any(patterns: tuple[str, ...], name: str) -> bool:
    return any(re.fullmatch(fnmatch.translate(pattern.replace("[", "[[]")), name) for pattern in patterns)
