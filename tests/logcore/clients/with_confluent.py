"""librdkafka, through confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from .driver import TIMEOUT_S, Got, Member, Record, Transaction

name = "confluent-kafka"
compressions = ("none", "gzip", "snappy", "lz4", "zstd")


def produce(
    address: str, topic: str, records: Sequence[Record], *, compression: str = "none", idempotent: bool = False
) -> None:
    producer = Producer(
        {
            "bootstrap.servers": address,
            "compression.type": compression,
            "enable.idempotence": idempotent,
            "linger.ms": 20,
            "retry.backoff.ms": 50,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
        }
    )
    _send(producer, topic, records)


def _send(producer: Producer, topic: str, records: Sequence[Record]) -> None:
    failures: list[Any] = []
    for record in records:
        producer.produce(
            topic,
            record.value,
            key=record.key,
            partition=record.partition,
            timestamp=record.timestamp_ms,
            headers=list(record.headers),
            on_delivery=lambda error, _: failures.append(error),
        )
    assert producer.flush(TIMEOUT_S) == 0
    for failure in filter(None, failures):
        raise KafkaException(failure)
    assert len(failures) == len(records)


def _got(message: Message) -> Got:
    offset = message.offset()
    assert offset is not None
    found: Any = message.headers() or ()
    headers = tuple((key, bytes(value)) for key, value in found)
    key: Any = message.key()
    value: Any = message.value()
    return Got(
        offset,
        Record(
            value,
            key,
            headers,
            message.timestamp()[1],
            message.partition() or 0,
        ),
    )


def read(address: str, topic: str, count: int, *, committed: bool = True, partition: int = 0) -> list[Got]:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "check.crcs": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[Got] = []
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append(_got(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
            else:
                raise KafkaException(error)
        raise TimeoutError(f"{len(found)} records of {count}")
    finally:
        consumer.close()


class _Member:
    def __init__(self, address: str, group: str, topic: str, **more: Any) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 500,
                **more,
            }
        )
        self._consumer.subscribe([topic])

    def poll(self) -> list[Got]:
        messages = self._consumer.consume(100, 0.1)
        return [_got(message) for message in messages if message.error() is None]

    def partitions(self) -> set[int]:
        return {entry.partition for entry in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


def member(address: str, group: str, topic: str) -> Member:
    return _classic(address, group, topic, "cooperative-sticky")


def eager_member(address: str, group: str, topic: str) -> Member:
    """It gives up all that it reads before it joins again."""
    return _classic(address, group, topic, "range")


def _classic(address: str, group: str, topic: str, assignor: str) -> Member:
    often = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
    return _Member(address, group, topic, **often, **{"partition.assignment.strategy": assignor})


def member_of_assigning_group(address: str, group: str, topic: str) -> Member:
    """Of a group whose coordinator decides who reads what (KIP-848)."""
    return _Member(address, group, topic, **{"group.protocol": "consumer"})


class _Transaction:
    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        producer.begin_transaction()

    def send(self, topic: str, records: Sequence[Record]) -> None:
        _send(self._producer, topic, records)

    def commit(self) -> None:
        self._producer.commit_transaction(TIMEOUT_S)

    def abort(self) -> None:
        self._producer.abort_transaction(TIMEOUT_S)


@contextmanager
def transactions(address: str, transactional_id: str) -> Generator[Callable[[], Transaction]]:
    producer = Producer({"bootstrap.servers": address, "transactional.id": transactional_id})
    producer.init_transactions(TIMEOUT_S)
    yield lambda: _Transaction(producer)


def create_topic(address: str, topic: str, partitions: int, config: Mapping[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": address})  # the library forgets what an admin asked when that is gone
    admin.create_topics([NewTopic(topic, partitions, 1, config=dict(config))])[topic].result(TIMEOUT_S)


def partitions_of(address: str, topic: str) -> int | None:
    known = AdminClient({"bootstrap.servers": address}).list_topics(timeout=TIMEOUT_S).topics.get(topic)
    return None if known is None else len(known.partitions)


def delete_topic(address: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
