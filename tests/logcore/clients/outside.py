"""What can be seen of a broker, and done to it, by anybody: for what a test prepares and checks, whatever it tests."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource

from . import with_confluent
from .driver import TIMEOUT_S, Record


def unique(prefix: str) -> str:
    """A name that nobody else uses: tests share a broker."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def one(futures: Any) -> Any:
    """The result of the only future."""
    (future,) = futures.values()
    return future.result(TIMEOUT_S)


def create_topic(address: str, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
    with_confluent.create_topic(address, topic, partitions, config or {})
    return topic


def append(address: str, topic: str, partition: int, *values: bytes, timestamp_ms: int = 7) -> None:
    records = [Record(value, b"k", (), timestamp_ms, partition) for value in values]
    with_confluent.produce(address, topic, records)


def values(address: str, topic: str, partition: int = 0) -> list[bytes | None]:
    """All that is committed."""
    return [got.record.value for got in with_confluent.read(address, topic, 0, partition=partition)]


def partition_count(address: str, topic: str) -> int | None:
    return with_confluent.partitions_of(address, topic)


def config(address: str, topic: str) -> Mapping[str, str]:
    """What was set for this topic; not the defaults."""
    admin = AdminClient({"bootstrap.servers": address})  # the library forgets what an admin asked when that is gone
    described = one(admin.describe_configs([ConfigResource("topic", topic)]))
    return {
        name: entry.value
        for name, entry in described.items()
        if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    }


def committed(address: str, group: str) -> Mapping[tuple[str, int], int]:
    admin = AdminClient({"bootstrap.servers": address})
    found: Sequence[TopicPartition] = one(
        admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    ).topic_partitions
    return {(entry.topic, entry.partition): entry.offset for entry in found if entry.offset >= 0}


def commit_offset(address: str, group: str, topic: str, offset: int) -> None:
    """Of partition 0, without a member."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()
