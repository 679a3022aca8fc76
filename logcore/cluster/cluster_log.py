"""This node's part of a cluster's log, for the handlers of Kafka's requests: the topics in the metadata, and the
partitions that have a replica here."""

from __future__ import annotations

import hmac
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import cast

from ..client import Topic, TopicPartition
from ..cores.expiry import ExpiryTimes
from ..cores.transactions import TransactionDescription
from ..error_codes import ErrorCode
from ..errors import InvalidTopic, NotNow, UnknownTopic
from ..log_settings import Changes
from ..replication.controller.controller_messages import ChangeConfig, ChangeSettings, DeleteTopic
from ..replication.controller.metadata_image import MetadataImage, TopicImage
from ..replication.disk.disk_log import DiskLog
from ..replication.replica.replica import Replica
from ..replication.replica.replica_messages import PartitionId
from ..replication.topic_ids import id_bytes
from ..secret import secret_of
from ..topic_rules import GROUPS_TOPIC, TRANSACTIONS_TOPIC
from ..topic_settings import check_config
from .cluster_groups import ClusterGroups
from .cluster_node import ClusterNode
from .cluster_shares import ClusterShares
from .refusals import check_done

INTERNAL = frozenset({GROUPS_TOPIC, TRANSACTIONS_TOPIC})
_NOT_LEADER = ErrorCode.not_leader_or_follower


class ClusterLog:
    """`ServedLog`. State: the topics and ids of the last image that was used."""

    def __init__(self, node: ClusterNode) -> None:
        self.node = node
        self.groups = ClusterGroups(node)
        self.shares = ClusterShares(node)
        self.transactions: Callable[[], list[TransactionDescription]] = list
        self._guard = threading.Lock()
        self._listeners: tuple[Callable[[TopicPartition], None], ...] = ()
        node.advanced = self._advanced
        self._topics: tuple[MetadataImage, Mapping[str, Topic]] = (MetadataImage(), {})
        self._names: tuple[object, dict[bytes, str]] = (None, {})

    @property
    def id(self) -> str:
        """The cluster's name; for a single node the id of its disk, since all single nodes have the same name."""
        return self.node.logs.disk if self.node.settings.alone else self.node.settings.name

    @property
    def path(self) -> Path:
        return self.node.settings.folder

    @property
    def secret(self) -> str:
        """It is the same at all nodes, and does not reveal the cluster's secret. A single node has one in its
        directory."""
        settings = self.node.settings
        if settings.alone:
            return secret_of(settings.folder)
        return hmac.new(settings.secret, f"kafka clients of {settings.name}".encode(), "sha256").hexdigest()

    @property
    def expiry(self) -> ExpiryTimes:
        return self.node.settings.expiry

    # Topics

    def topics(self) -> Mapping[str, Topic]:
        image = self.node.image
        before, known = self._topics
        if image.topics is not before.topics or image.configs is not before.configs:
            known = {
                topic.name: known[topic.name] if _is_same(topic, image, before) else _topic(image, topic.id)
                for topic in image.topics.values()
            }
            self._topics = image, known
        return known

    def topic(self, name: str) -> Topic | None:
        image = self.node.image
        before, known = self._topics
        if image.topics is before.topics and image.configs is before.configs:
            return known.get(name)
        id = image.topic_ids.get(name)
        return None if id is None else _topic(image, id)

    @property
    def partitions_here(self) -> int:
        return sum(self.node.id in state.replicas for state in self.node.image.partitions())

    def topic_id(self, topic: str) -> str:
        id = self.node.image.topic_ids.get(topic)
        if id is None:
            raise UnknownTopic(f'topic "{topic}" does not exist')
        return id_bytes(id).hex()

    def topic_name(self, id: bytes) -> str | None:
        topic_ids = self.node.image.topic_ids
        seen, names = self._names
        if topic_ids is not seen:
            names = {id_bytes(topic_id): name for name, topic_id in topic_ids.items()}
            self._names = topic_ids, names
        return names.get(id)

    def delete_topic(self, name: str) -> None:
        self.check_own(name)
        check_done(self.node.decide(DeleteTopic(name)))

    def alter_topic(self, name: str, config: Mapping[str, str], *, only_check: bool = False) -> None:
        """Changes one setting after the other, so that readers may see only some of them changed."""
        self.check_own(name)
        topic = self.topic(name)
        if topic is None:
            raise UnknownTopic(f'topic "{name}" does not exist')
        check_config(name, config)
        if only_check:
            return
        for key in sorted({*config, *topic.config}):
            if config.get(key) != topic.config.get(key):
                check_done(self.node.decide(ChangeConfig(name, key, config.get(key))))

    # Settings of what is no topic

    def settings(self, resource: str) -> Mapping[str, str]:
        return self.node.image.configs.get(resource, {})

    def resources(self, prefix: str) -> Iterable[str]:
        return [resource for resource in self.node.image.configs if resource.startswith(prefix)]

    def change_settings(self, resource: str, changes: Changes) -> None:
        check_done(self.node.decide(ChangeSettings(resource, tuple(sorted(changes.items())))))

    # Partitions

    def check_own(self, name: str) -> None:
        if name in INTERNAL:
            raise InvalidTopic(f'topic "{name}" belongs to the log and cannot be changed or deleted')

    def partition(self, topic: str, partition: int) -> DiskLog:
        """Raises `UnknownTopic`; `NotNow` if there is no replica here; `CorruptLog` if the log cannot be opened and no
        other node has a replica."""
        return _on_disk(self.replica(TopicPartition(topic, partition)))

    def partition_if_open(self, topic: str, partition: int) -> DiskLog | None:
        id = self.node.partition_id(topic, partition)
        return None if id is None else self.node.logs.log(id)

    def led_if_open(self, topic: str, partition: int) -> DiskLog | None:
        """The partition's log, if it is open and this node leads it; else None."""
        id = self.node.partition_id(topic, partition)
        replica = None if id is None else self.node.replica_if_open(id)
        return None if replica is None or replica.leader is None else _on_disk(replica)

    def writable(self, topic: str, partition: int) -> DiskLog:
        where = TopicPartition(topic, partition)
        return self.writable_at(where, self.id_of(where))

    def writable_at(self, where: TopicPartition, id: PartitionId) -> DiskLog:
        """Like `writable`, for the partition with this id."""
        if where.topic in INTERNAL:
            raise InvalidTopic(f'topic "{where.topic}" belongs to the log: nobody else writes to it')
        return _on_disk(self._replica_at(where, id))

    def replica(self, where: TopicPartition) -> Replica:
        """The replica on this node. Raises the same errors as `partition`."""
        return self._replica_at(where, self.id_of(where))

    def _replica_at(self, where: TopicPartition, id: PartitionId) -> Replica:
        found = self.node.replica(id)
        if found is None:
            if (damaged := self.node.logs.why_unreadable(id)) is not None:
                raise damaged
            raise NotNow(_NOT_LEADER, f"node {self.node.id} has no replica of {where.topic}-{where.partition}")
        return found

    def id_of(self, where: TopicPartition) -> PartitionId:
        """Raises `UnknownTopic`."""
        image = self.node.image
        id = image.topic_ids.get(where.topic)
        if id is None:
            raise UnknownTopic(f'topic "{where.topic}" does not exist')
        count = image.topics[id].partitions.size
        if not 0 <= where.partition < count:
            raise UnknownTopic(f'topic "{where.topic}" has {count} partitions, and none with number {where.partition}')
        return PartitionId(id, where.partition)

    # Groups

    def unsettled_offsets(self, group: str) -> frozenset[TopicPartition]:
        return self.groups.unsettled(group)

    # News

    def listen(self, listener: Callable[[TopicPartition], None]) -> Callable[[], None]:
        """Calls `listener`, on the node's thread, with each partition whose replica on this node has more to read."""
        with self._guard:
            self._listeners = (*self._listeners, listener)

        def end() -> None:
            with self._guard:
                self._listeners = tuple(other for other in self._listeners if other is not listener)

        return end

    def _advanced(self, partition: PartitionId) -> None:
        topic = self.node.image.topics.get(partition.topic)
        where = TopicPartition(partition.topic if topic is None else topic.name, partition.number)
        for listener in self._listeners:
            listener(where)


def _is_same(topic: TopicImage, image: MetadataImage, before: MetadataImage) -> bool:
    """Most topics are: with 5,000 of them, describing all again after each new one took most of its time."""
    return before.topics.get(topic.id) is topic and before.configs.get(topic.id) is image.configs.get(topic.id)


def _topic(image: MetadataImage, id: str) -> Topic:
    topic = image.topics[id]
    factor = max((len(row.first.replicas) for row in topic.partitions.rows), default=1)
    return Topic(topic.name, len(topic.partitions), dict(image.configs.get(id, {})), factor)


def _on_disk(replica: Replica) -> DiskLog:
    """The log of a replica of this node. Only the simulator's nodes have others."""
    return cast(DiskLog, replica.core.log)
