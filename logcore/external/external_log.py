"""`ExternalLog`: a `LogClient` for brokers that others operate, and that Millstream shares with other programs."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, Self

from ..capabilities import LogCapabilities
from ..client import ColumnarRecords, Fetched, Isolation, Offsets, RowRecords, Topic, TopicConfig, TopicPartition
from ..clients.features import capabilities_of
from ..clients.remote_cluster import RemoteCluster
from ..clients.remote_producer import RemoteTransactionalProducer
from ..clients.routed_log import RoutedLog
from ..mirrors.mirror_errors import InvalidMirror
from ..protocol.routing import Router
from ..records.batch import EncodedBatch
from ..topic_settings import OWN_SETTINGS
from .external_groups import ExternalGroups
from .kafka_properties import (
    IN_SYNC_MIN,
    PROCESSING_LOG_RETENTION_MS,
    REPLICATION_FACTOR,
    TRANSACTION_TIMEOUT_MS,
    KafkaProperties,
)
from .names import RESERVED_THERE, ServiceNames

_PATIENCE_S: Final = 60.0
_SCHEME: Final = "external:"
_PROCESSING_LOG: Final = "default_ksql_processing_log"
_WEEK_MS: Final = 7 * 24 * 60 * 60 * 1000
_DAY_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class ExternalLogSettings:
    """How to connect to the brokers, and the names to use there. Raises `InvalidKafkaProperty`."""

    properties: KafkaProperties
    names: ServiceNames

    @classmethod
    def of(cls, properties: Mapping[str, str], service_id: str) -> Self:
        return cls(KafkaProperties(dict(properties)), ServiceNames(service_id))

    @property
    def address(self) -> str:
        """The settings as text, for other processes of ours. It may contain a password."""
        text = {"properties": dict(self.properties.values), "service_id": self.names.service_id}
        return _SCHEME + json.dumps(text, sort_keys=True)

    @classmethod
    def at(cls, address: str) -> Self | None:
        """The settings in an address; None if it is the address of something else."""
        if not address.startswith(_SCHEME):
            return None
        text = json.loads(address.removeprefix(_SCHEME))
        return cls.of(text["properties"], text["service_id"])


class ExternalLog:
    """Any thread may call any method. Topics that are not Millstream's keep their names. Its own topics, groups and
    transactional ids have names with a common prefix on the brokers (`names.py`), and their usual names here.

    Errors and retries are those of `RemoteLog`: it waits up to a minute for fail-overs of brokers and coordinators.
    Pickling copies only the settings.
    """

    def __init__(self, settings: ExternalLogSettings, *, patience_s: float = _PATIENCE_S) -> None:
        self.settings = settings
        properties, self._names = settings.properties, settings.names
        self._router = Router(properties.addresses(), properties.login(), properties.tls(), patience_s, clustered=True)
        self._log = RoutedLog(
            self._router,
            settings.address,
            replication_factor=properties.number(REPLICATION_FACTOR, -1, -1),
            shrinks=True,
            wait_bytes=1,
            transaction_timeout=timedelta(milliseconds=properties.number(TRANSACTION_TIMEOUT_MS, 60_000, 1_000)),
        )
        self.groups = ExternalGroups(self._log.groups, settings.names)
        self.cluster = RemoteCluster(self._router, settings.names.topic, settings.names.local_topic)
        self._capabilities: LogCapabilities | None = None

    def __reduce__(self) -> tuple[Callable[[str], ExternalLog], tuple[str]]:
        return external_log, (self.bootstrap,)

    @property
    def bootstrap(self) -> str:
        """The address for other processes of ours: see `log_at`."""
        return self.settings.address

    @property
    def capabilities(self) -> LogCapabilities:
        """The capabilities of the brokers, but names are never protected here."""
        if self._capabilities is None:
            found = capabilities_of(self._router)
            reserved = (*found.reserved, RESERVED_THERE)
            self._capabilities = replace(found, protects_names=False, shared=True, copies=False, reserved=reserved)
        return self._capabilities

    # Topics

    def create_topic(self, name: str, partition_count: int, config: TopicConfig = None, replicas: int = 0) -> None:
        told = self._config(name, config or {})
        self._log.create_topic(self._names.topic(name), partition_count, told, replicas)

    def _config(self, name: str, config: Mapping[str, str]) -> dict[str, str]:
        """The configuration to send to the brokers. For our own topics it also has the settings whose defaults at the
        brokers must not apply."""
        kept = dict(config) if self.capabilities.own_settings else _without_own(config)
        if self._names.topic(name) == name:
            return kept
        properties = self.settings.properties
        if IN_SYNC_MIN in properties.values:
            kept[IN_SYNC_MIN] = properties.values[IN_SYNC_MIN]
        if name == _PROCESSING_LOG:
            kept.setdefault("retention.ms", str(properties.number(PROCESSING_LOG_RETENTION_MS, _WEEK_MS, -1)))
        if "compact" in kept.get("cleanup.policy", ""):
            kept.setdefault("delete.retention.ms", str(_DAY_MS))  # `state_file.py` relies on it
        elif kept.get("retention.ms") == "-1":
            kept.setdefault("retention.bytes", "-1")
        return {"cleanup.policy": "delete", "compression.type": "producer", **kept}

    def delete_topic(self, name: str, topic_id: uuid.UUID | None = None) -> None:
        """Deletes a topic. In: `topic_id`: its id; a topic with another id is not deleted."""
        self._log.delete_topic(self._names.topic(name), topic_id)

    def topic_id(self, name: str) -> uuid.UUID | None:
        return self._log.topic_id(self._names.topic(name))

    def topics(self) -> Mapping[str, Topic]:
        """All topics except those that Millstream must not touch: those of other Millstreams and registries, and
        ksqlDB's processing log. Configurations are not read, since brokers may have 20,000 topics."""
        found: dict[str, Topic] = {}
        for topic in self._log.topics_without_configs():
            name = self._names.local_topic(topic.name)
            if name is not None:
                found[name] = replace(topic, name=name)
        return found

    def topic(self, name: str) -> Topic | None:
        there = self._names.topic(name)
        if self._names.local_topic(there) != name:  # one of another Millstream's, or of ours under its name there
            return None
        found = self._log.topic(there)
        return None if found is None else replace(found, name=name)

    def partition_count(self, topic: str) -> int:
        return self._log.partition_count(self._names.topic(topic))

    def alter_topic(self, name: str, config: Mapping[str, str], *, only_check: bool = False) -> None:
        self._log.alter_topic(self._names.topic(name), self._config(name, config), only_check=only_check)

    def add_partitions(self, name: str, partition_count: int, *, only_check: bool = False) -> None:
        self._log.add_partitions(self._names.topic(name), partition_count, only_check=only_check)

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        return self._log.delete_records(self._names.topic(topic), partition, offset)

    # Records

    def append(self, topic: str, partition: int, records: RowRecords | ColumnarRecords) -> int:
        return self._log.append(self._names.topic(topic), partition, records)

    def append_copies(self, topic: str, partition: int, batches: Sequence[EncodedBatch], mirror: str) -> None:
        """Raises `InvalidMirror`: see `LogCapabilities.copies`."""
        raise InvalidMirror(f'the brokers of others take no copies: topic "{topic}" of mirror "{mirror}"')

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = 16 * 1024 * 1024,
        isolation: Isolation = "read_committed",
    ) -> Fetched:
        return self._log.fetch(self._names.topic(topic), partition, offset, max_bytes=max_bytes, isolation=isolation)

    def offsets(self, topic: str, partition: int) -> Offsets:
        return self._log.offsets(self._names.topic(topic), partition)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        return self._log.offset_at(self._names.topic(topic), partition, timestamp_ms)

    def wait(self, positions: Mapping[TopicPartition, int], timeout_s: float) -> bool:
        """Also returns if a partition became shorter than its position. It was then created anew, or has lost records;
        the next fetch reports that."""
        return self._log.wait(self._there(positions), timeout_s)

    def advanced(
        self, positions: Mapping[TopicPartition, int], timeout_s: float
    ) -> Mapping[TopicPartition, int | None]:
        there = {TopicPartition(self._names.topic(at.topic), at.partition): at for at in positions}
        found = self._log.advanced({physical: positions[at] for physical, at in there.items()}, timeout_s)
        return {there[physical]: end for physical, end in found.items()}

    # Groups and transactions

    def committed_offsets(self, group: str) -> Mapping[TopicPartition, int]:
        found = self._log.committed_offsets(self._names.group(group))
        local = {at: self._names.local_topic(at.topic) for at in found}
        return {TopicPartition(name, at.partition): found[at] for at, name in local.items() if name is not None}

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        self._log.commit_offsets(self._names.group(group), self._there(offsets))

    def transactional_producer(self, transactional_id: str) -> ExternalProducer:
        return ExternalProducer(self._log.transactional_producer(self._names.group(transactional_id)), self._names)

    def forget_producer(self, transactional_id: str) -> None:
        self._log.forget_producer(self._names.group(transactional_id))

    def forget_group(self, group: str) -> None:
        self._log.forget_group(self._names.group(group))

    def _there(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return _on_brokers(self._names, positions)

    def close(self) -> None:
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ExternalProducer:
    """A `TransactionalProducer` that translates Millstream's names."""

    def __init__(self, producer: RemoteTransactionalProducer, names: ServiceNames) -> None:
        self._producer, self._names = producer, names

    @property
    def producer_id(self) -> int:
        return self._producer.producer_id

    @property
    def epoch(self) -> int:
        return self._producer.epoch

    def renew(self) -> None:
        self._producer.renew()

    def begin(self) -> None:
        self._producer.begin()

    def append(self, topic: str, partition: int, records: RowRecords | ColumnarRecords) -> None:
        self._producer.append(self._names.topic(topic), partition, records)

    def append_batch(self, topic: str, partition: int, batch: EncodedBatch) -> int:
        return self._producer.append_batch(self._names.topic(topic), partition, batch)

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        self._producer.send_offsets(self._names.group(group), _on_brokers(self._names, offsets))

    def commit(self) -> None:
        self._producer.commit()

    def abort(self) -> None:
        self._producer.abort()


def external_log(address: str) -> ExternalLog:
    """The log at an address. In: `ExternalLog.bootstrap` of another process."""
    settings = ExternalLogSettings.at(address)
    assert settings is not None, "not the address of an external log"
    return ExternalLog(settings)


def _on_brokers(names: ServiceNames, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    return {TopicPartition(names.topic(topic), number): offset for (topic, number), offset in positions.items()}


def _without_own(config: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in config.items() if name not in OWN_SETTINGS}
