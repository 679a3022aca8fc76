"""What a cluster agrees on: the fold of its metadata records. Images are immutable; each record creates a new one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final, NamedTuple, assert_never

from ...log_settings import ALL_TOPICS, with_changes
from ..cluster_version import VERSIONS
from ..machine import Committed, NodeId
from ..raft.quorum_messages import LeaderStarted, LogRecord, VotersChanged
from ..replica.replica_messages import PartitionId
from .metadata_codec import check_known, tuples
from .metadata_records import (
    BrokerFenced,
    BrokerRegistered,
    BrokerRemoved,
    BrokerUnfenced,
    ConfigChanged,
    Endpoints,
    NodeAdded,
    PartitionState,
    ProducerIdsReserved,
    SingleRecord,
    Together,
    TopicCreated,
    TopicDeleted,
    VersionRaised,
)
from .partition_rows import PartitionRow, PartitionRows
from .partition_rules import leads_alone, with_life_of, without, without_unclean

ALL: Final = ALL_TOPICS  # the resource of settings that apply to topics without a setting of their own
LifeRule = Callable[[PartitionState, NodeId], PartitionState]


class BrokerImage(NamedTuple):
    """A broker, as its latest registration describes it."""

    id: NodeId
    epoch: int  # the index of its registration
    incarnation: int
    endpoints: Endpoints
    rack: str | None
    fenced: bool
    disk: str = ""

    def address(self, purpose: str) -> str | None:
        """`host:port` for `kafka`, `http` or `node`; None if it has none."""
        return dict(self.endpoints).get(purpose)


class TopicImage(NamedTuple):
    id: str
    name: str
    partitions: PartitionRows


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """All records up to and including `index`."""

    index: int = 0
    brokers: Mapping[NodeId, BrokerImage] = field(default_factory=dict[NodeId, BrokerImage])
    addresses: Mapping[NodeId, str | None] = field(default_factory=dict[NodeId, str | None])
    """The addresses by which nodes reach each other; None for a removed node, whose messages are ignored."""
    topics: Mapping[str, TopicImage] = field(default_factory=dict[str, TopicImage])  # by id
    topic_ids: Mapping[str, str] = field(default_factory=dict[str, str])  # by name
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])  # by resource
    next_producer_id: int = 0
    version: int = VERSIONS.oldest  # of the cluster

    def partition(self, id: PartitionId) -> PartitionState | None:
        topic = self.topics.get(id.topic)
        if topic is None or not 0 <= id.number < topic.partitions.size:
            return None
        return topic.partitions[id.number]

    def partitions(self) -> Iterator[PartitionState]:
        for topic in self.topics.values():
            yield from topic.partitions

    def rows(self) -> Iterator[PartitionRow]:
        """All partitions; those that differ only in their numbers share a row."""
        for topic in self.topics.values():
            yield from topic.partitions.rows

    def config(self, topic_id: str, key: str) -> str | None:
        """The setting of the topic; if it has none of its own, that of all topics."""
        for resource in (topic_id, ALL):
            value = self.configs.get(resource, {}).get(key)
            if value is not None:
                return value
        return None

    def topic_config(self, topic_id: str) -> Mapping[str, str]:
        """The settings of all topics, overridden by those of the topic."""
        return {**self.configs.get(ALL, {}), **self.configs.get(topic_id, {})}

    def is_live(self, node: NodeId) -> bool:
        """Whether the node is registered and not fenced."""
        broker = self.brokers.get(node)
        return broker is not None and not broker.fenced


def fold(image: MetadataImage, index: int, record: LogRecord) -> MetadataImage:
    """The image with this record. A record about something that was deleted changes nothing."""
    match record:
        case Together():
            image = _together(image, index, record)
        case LeaderStarted() | VotersChanged():
            pass  # records of the quorum itself
        case _:
            image = _with_record(image, index, record)
    return replace(image, index=index)


def folded(image: MetadataImage, committed: Committed) -> MetadataImage:
    """The image with all committed records."""
    if committed.image is not None:
        image = committed.image
    for index, record in enumerate(committed.records, committed.first_index):
        image = fold(image, index, record)
    return image


def _together(image: MetadataImage, index: int, record: Together) -> MetadataImage:
    """Consecutive records of one kind are applied at once: each of them would copy all partitions of a topic, or all
    settings of a resource."""
    for kind, some in groupby(record.records, type):
        if kind is PartitionState:
            image = _partitions(image, (each for each in some if isinstance(each, PartitionState)))
        elif kind is ConfigChanged:
            image = _configs(image, [each for each in some if isinstance(each, ConfigChanged)])
        else:
            for each in some:
                image = _with_record(image, index, each)
    return image


def _with_record(image: MetadataImage, index: int, record: SingleRecord) -> MetadataImage:
    match record:
        case BrokerRegistered():
            return _registered(image, index, record)
        case BrokerFenced():
            return _fenced(image, record)
        case BrokerUnfenced():
            return _unfenced(image, record)
        case BrokerRemoved():
            return _removed(image, record)
        case NodeAdded():
            return _node_added(image, record)
        case TopicCreated():
            return _topic_created(image, record)
        case TopicDeleted():
            return _topic_deleted(image, record)
        case PartitionState():
            return _partitions(image, (record,))
        case ConfigChanged():
            return _configs(image, (record,))
        case ProducerIdsReserved():
            return _producer_ids(image, record)
        case VersionRaised(version):
            return replace(image, version=max(image.version, version))
        case _:
            assert_never(record)


def _registered(image: MetadataImage, index: int, record: BrokerRegistered) -> MetadataImage:
    broker = BrokerImage(record.broker, index, record.incarnation, record.endpoints, record.rack, True, record.disk)
    address = broker.address("node")
    addresses = image.addresses if address is None else {**image.addresses, record.broker: address}
    image = replace(image, brokers={**image.brokers, record.broker: broker}, addresses=addresses)
    return _with_life(image, record.broker, without if record.clean else without_unclean) if record.alone else image


def _node_added(image: MetadataImage, record: NodeAdded) -> MetadataImage:
    return replace(image, addresses={**image.addresses, record.node: record.address})


def _fenced(image: MetadataImage, record: BrokerFenced) -> MetadataImage:
    return _set_fenced(image, record, without)


def _unfenced(image: MetadataImage, record: BrokerUnfenced) -> MetadataImage:
    return _set_fenced(image, record, leads_alone)


def _set_fenced(image: MetadataImage, record: BrokerFenced | BrokerUnfenced, rule: LifeRule) -> MetadataImage:
    broker = image.brokers.get(record.broker)
    if broker is None or broker.epoch != record.epoch:
        return image
    broker = broker._replace(fenced=isinstance(record, BrokerFenced))
    image = replace(image, brokers={**image.brokers, record.broker: broker})
    return _with_life(image, record.broker, rule) if record.alone else image


def _with_life(image: MetadataImage, broker: NodeId, rule: LifeRule) -> MetadataImage:
    changed: dict[str, TopicImage] = {}
    for id, topic in image.topics.items():
        partitions = topic.partitions.mapped(lambda state: with_life_of(broker, state, rule))
        if partitions is not topic.partitions:
            changed[id] = topic._replace(partitions=partitions)
    return replace(image, topics={**image.topics, **changed}) if changed else image


def _removed(image: MetadataImage, record: BrokerRemoved) -> MetadataImage:
    return replace(
        image,
        brokers={node: broker for node, broker in image.brokers.items() if node != record.broker},
        addresses={**image.addresses, record.broker: None},
    )


def _topic_created(image: MetadataImage, record: TopicCreated) -> MetadataImage:
    topic = TopicImage(record.topic_id, record.name, PartitionRows())
    return replace(
        image,
        topics={**image.topics, record.topic_id: topic},
        topic_ids={**image.topic_ids, record.name: record.topic_id},
    )


def _topic_deleted(image: MetadataImage, record: TopicDeleted) -> MetadataImage:
    return replace(
        image,
        topics={id: topic for id, topic in image.topics.items() if id != record.topic_id},
        topic_ids={name: id for name, id in image.topic_ids.items() if id != record.topic_id},
        configs={resource: settings for resource, settings in image.configs.items() if resource != record.topic_id},
    )


def _partitions(image: MetadataImage, records: Iterable[PartitionState]) -> MetadataImage:
    """Copies each topic once, however many of its partitions change."""
    changed: dict[str, list[PartitionState]] = {}
    for state in records:
        if state.topic_id in image.topics:
            changed.setdefault(state.topic_id, []).append(state)
    topics = {id: _with_states(image.topics[id], states) for id, states in changed.items()}
    return replace(image, topics={**image.topics, **topics}) if topics else image


def _with_states(topic: TopicImage, states: list[PartitionState]) -> TopicImage:
    return topic._replace(partitions=topic.partitions.with_states(states))


def _configs(image: MetadataImage, records: Sequence[ConfigChanged]) -> MetadataImage:
    configs = image.configs
    for resource, some in groupby(records, lambda record: record.resource):
        configs = with_changes(configs, resource, {record.key: record.value for record in some})
    return replace(image, configs=configs)


def _producer_ids(image: MetadataImage, record: ProducerIdsReserved) -> MetadataImage:
    return replace(image, next_producer_id=max(image.next_producer_id, record.next_id))


class ImageCodec:
    """Images as bytes, for snapshots: JSON."""

    def encode(self, image: MetadataImage) -> bytes:
        content = {
            "index": image.index,
            "brokers": list(image.brokers.values()),
            "addresses": list(image.addresses.items()),
            "topics": [[topic.id, topic.name, _plain(topic.partitions)] for topic in image.topics.values()],
            "configs": image.configs,
            "next_producer_id": image.next_producer_id,
            "version": image.version,
        }
        return json.dumps(content, separators=(",", ":")).encode()

    def decode(self, content: bytes) -> MetadataImage:
        read = json.loads(content)
        check_known(version := read.get("version", VERSIONS.oldest))
        topics = [TopicImage(id, name, PartitionRows(map(_row, partitions))) for id, name, partitions in read["topics"]]
        brokers = [BrokerImage(*map(tuples, fields)) for fields in read["brokers"]]
        return MetadataImage(
            index=read["index"],
            brokers={broker.id: broker for broker in brokers},
            addresses={NodeId(node): address for node, address in read["addresses"]},
            topics={topic.id: topic for topic in topics},
            topic_ids={topic.name: topic.id for topic in topics},
            configs=read["configs"],
            next_producer_id=read["next_producer_id"],
            version=version,
        )


def _plain(partitions: PartitionRows) -> list[list[Any]]:
    return [[row.of, *row.first] for row in partitions.rows]


def _row(fields: list[Any]) -> PartitionRow:
    """Earlier versions wrote each partition separately, without a leading count."""
    count, *state = fields if isinstance(fields[0], int) else (1, *fields)
    return PartitionRow(PartitionState(*map(tuples, state)), count)
