"""kafka-python: a client in Python alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic  # pyrefly: ignore[deprecated]
from kafka.structs import TopicPartition

from .driver import TIMEOUT_S, Got, Member, Record, Transaction

name = "kafka-python"
compressions = ("none", "gzip", "snappy", "lz4", "zstd")


def produce(
    address: str, topic: str, records: Sequence[Record], *, compression: str = "none", idempotent: bool = False
) -> None:
    kind: Any = None if compression == "none" else compression
    producer = KafkaProducer(
        bootstrap_servers=address,
        compression_type=kind,
        enable_idempotence=idempotent,
        acks="all",
        linger_ms=20,
        retries=10,
        retry_backoff_ms=50,
    )
    try:
        _send(producer, topic, records)
    finally:
        producer.close(timeout=TIMEOUT_S)


def _send(producer: Any, topic: str, records: Sequence[Record]) -> None:
    sent = [
        producer.send(
            topic,
            value=record.value,
            key=record.key,
            headers=list(record.headers),
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
        )
        for record in records
    ]
    producer.flush(TIMEOUT_S)
    for future in sent:
        future.get(TIMEOUT_S)


def _got(found: Any) -> Got:
    headers = tuple((key, bytes(value)) for key, value in found.headers)
    return Got(found.offset, Record(found.value, found.key, headers, found.timestamp, found.partition))


def read(address: str, topic: str, count: int, *, committed: bool = True) -> list[Got]:
    consumer = KafkaConsumer(
        bootstrap_servers=address,
        isolation_level="read_committed" if committed else "read_uncommitted",
        check_crcs=True,
        enable_auto_commit=False,
    )
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    try:
        found: list[Got] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(found) < count and time.monotonic() < deadline:
            found += [_got(record) for record in consumer.poll(500).get(partition, [])]
        found += [_got(record) for record in consumer.poll(300).get(partition, [])]
        return found
    finally:
        consumer.close()


class _Member:
    def __init__(self, address: str, group: str, topic: str) -> None:
        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6000,
            heartbeat_interval_ms=200,
            max_poll_interval_ms=20_000,
            reconnect_backoff_max_ms=500,
        )
        # A leader that shares out a topic it has not seen gives nobody a partition, and may never look again.
        deadline = time.monotonic() + TIMEOUT_S
        while not self._consumer.partitions_for_topic(topic):
            assert time.monotonic() < deadline, f"{topic} does not become known"

    def poll(self) -> list[Got]:
        return [_got(record) for records in self._consumer.poll(100).values() for record in records]

    def partitions(self) -> set[int]:
        return {partition.partition for partition in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close(autocommit=False)


def member(address: str, group: str, topic: str) -> Member:
    return _Member(address, group, topic)


class _Transaction:
    def __init__(self, producer: Any) -> None:
        self._producer = producer
        producer.begin_transaction()

    def send(self, topic: str, records: Sequence[Record]) -> None:
        _send(self._producer, topic, records)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()


@contextmanager
def transactions(address: str, transactional_id: str) -> Generator[Callable[[], Transaction]]:
    producer = KafkaProducer(bootstrap_servers=address, transactional_id=transactional_id)
    producer.init_transactions()
    try:
        yield lambda: _Transaction(producer)
    finally:
        producer.close(timeout=TIMEOUT_S)


@contextmanager
def _admin(address: str) -> Generator[Any]:
    admin = KafkaAdminClient(bootstrap_servers=address)
    try:
        yield admin
    finally:
        admin.close()


def create_topic(address: str, topic: str, partitions: int, config: Mapping[str, str]) -> None:
    with _admin(address) as admin:
        admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=dict(config))])  # pyrefly: ignore[deprecated]


def partitions_of(address: str, topic: str) -> int | None:
    with _admin(address) as admin:
        if topic not in admin.list_topics():
            return None
        return len(admin.describe_topics([topic])[0]["partitions"])


def delete_topic(address: str, topic: str) -> None:
    with _admin(address) as admin:
        admin.delete_topics([topic])
