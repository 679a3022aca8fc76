"""A mirror of Apache Kafka's topics: what a consumer reads there, it reads here, at the same offsets."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from external_topics import create_topic
from two_logs import until_level, until_stopped

from millstream.logcore.client import FetchedRows, TopicPartition
from millstream.logcore.external.kafka_properties import KafkaProperties
from millstream.logcore.log import Log, open_log
from millstream.logcore.mirrors.exact_mirror import ExactMirror, ExactMirrorSettings
from millstream.logcore.mirrors.mirror_source import MirrorSource, TopicFilter

from .conftest import GuardedKafka

pytestmark = pytest.mark.timeout(300)

_WAITS_S = 30.0
Read = list[tuple[int, bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "here", sync="never") as log:
        yield log


def mirror_of(kafka: GuardedKafka, here: Log, topics: str) -> ExactMirror:
    source = MirrorSource(KafkaProperties({"bootstrap.servers": kafka.address}))
    settings = ExactMirrorSettings("m", TopicFilter((topics,)), TopicFilter((topics,)), look_ms=200)
    return ExactMirror(here, source, settings)


def copy(kafka: GuardedKafka, here: Log, topics: str) -> None:
    mirror = mirror_of(kafka, here, topics)
    until_level(mirror)
    mirror.look()
    mirror.close()


def producer_of(kafka: GuardedKafka, **settings: Any) -> Any:
    from confluent_kafka import Producer

    named = {key.replace("_", "."): value for key, value in settings.items()}
    return Producer({"bootstrap.servers": kafka.address, "linger.ms": 20, **named})


def read_there(kafka: GuardedKafka, topic: str, partition: int, end_offset: int) -> Read:
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Place

    settings = {"bootstrap.servers": kafka.address, "group.id": "reads", "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "auto.offset.reset": "earliest"})
    consumer.assign([Place(topic, partition, 0)])
    found: Read = []
    deadline = time.monotonic() + _WAITS_S
    while time.monotonic() < deadline:
        message: Any = consumer.poll(0.5)
        if message is None:
            continue
        if message.error() is not None:
            if message.error().name() == "_PARTITION_EOF":
                break
            continue
        time_ms = message.timestamp()[1]
        found.append((message.offset(), message.key(), message.value(), time_ms, list(message.headers() or ())))
    consumer.close()
    return found


def read_here(here: Log, topic: str, partition: int) -> Read:
    found: Read = []
    offset = here.offsets(topic, partition).log_start_offset
    while True:
        fetched = here.fetch(topic, partition, offset)
        for run in fetched.runs:
            assert isinstance(run, FetchedRows)
            for row in run.table.to_pylist():
                headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
                found.append((row["offset"], row["key"], row["value"], row["timestamp"], headers))
        if fetched.next_offset <= offset:
            return found
        offset = fetched.next_offset


def end_there(kafka: GuardedKafka, topic: str, partition: int) -> tuple[int, int]:
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Place

    consumer = Consumer({"bootstrap.servers": kafka.address, "group.id": "ends"})
    found = consumer.get_watermark_offsets(Place(topic, partition), timeout=_WAITS_S)
    consumer.close()
    return found


def check_same(kafka: GuardedKafka, here: Log, topic: str, partitions: int) -> int:
    """How many records there are."""
    count = 0
    for partition in range(partitions):
        start, end = end_there(kafka, topic, partition)
        offsets = here.offsets(topic, partition)
        assert (offsets.log_start_offset, offsets.log_end_offset) == (start, end)
        there = read_there(kafka, topic, partition, end)
        assert read_here(here, topic, partition) == there
        count += len(there)
    return count


def test_every_compression_headers_and_tombstones_are_copied(kafka: GuardedKafka, here: Log, service_id: str) -> None:
    topic = create_topic(kafka.address, f"mirrored-{service_id}-c", 2, cleanup_policy="compact")
    create_topic(kafka.address, f"mirrored-{service_id}-empty", 6)
    for kind in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = producer_of(kafka, compression_type=kind, enable_idempotence=kind != "none")
        for number in range(40):
            value = None if number % 10 == 9 else f"{kind} {number} {'x' * 50}".encode()
            headers = [("kind", kind.encode()), ("none", None)] if number % 3 == 0 else []
            producer.produce(topic, value, b"%d" % number, headers=headers, timestamp=1_700_000_000_000 + number)
        assert producer.flush(_WAITS_S) == 0
    copy(kafka, here, f"mirrored-{service_id}-*")
    assert check_same(kafka, here, topic, 2) == 200
    assert here.partition_count(f"mirrored-{service_id}-empty") == 6
    assert here.topics()[topic].config["cleanup.policy"] == "compact"


def test_transactions_with_aborts_and_groups_are_copied(kafka: GuardedKafka, here: Log, service_id: str) -> None:
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Place

    topic = create_topic(kafka.address, f"mirrored-{service_id}-t", 2)
    random_ = random.Random(4)
    producers = [producer_of(kafka, transactional_id=f"{topic}-{number}") for number in range(2)]
    for producer in producers:
        producer.init_transactions(_WAITS_S)
    for number in range(12):
        for producer in producers:
            producer.begin_transaction()
        for step in range(10):
            value = b"%d %d" % (number, step)
            random_.choice(producers).produce(topic, value, partition=random_.randrange(2))
        for producer in producers:
            producer.flush(_WAITS_S)
            if random_.random() < 0.5:
                producer.commit_transaction(_WAITS_S)
            else:
                producer.abort_transaction(_WAITS_S)
    consumer = Consumer({"bootstrap.servers": kafka.address, "group.id": topic})
    consumer.commit(offsets=[Place(topic, 0, 3), Place(topic, 1, 5)], asynchronous=False)
    consumer.close()
    copy(kafka, here, topic)
    assert 0 < check_same(kafka, here, topic, 2) < 120
    assert here.committed_offsets(topic) == {TopicPartition(topic, 0): 3, TopicPartition(topic, 1): 5}


def test_deleted_records_and_topics_that_are_made_anew(kafka: GuardedKafka, here: Log, service_id: str) -> None:
    from confluent_kafka import TopicPartition as Place
    from confluent_kafka.admin import AdminClient

    topic = create_topic(kafka.address, f"mirrored-{service_id}-d", 1)
    producer = producer_of(kafka)
    for number in range(20):
        producer.produce(topic, b"%d" % number)
    producer.flush(_WAITS_S)
    admin = AdminClient({"bootstrap.servers": kafka.address})
    admin.delete_records([Place(topic, 0, 7)])[Place(topic, 0)].result(_WAITS_S)
    mirror = mirror_of(kafka, here, topic)
    until_level(mirror)
    assert check_same(kafka, here, topic, 1) == 13
    admin.delete_topics([topic])[topic].result(_WAITS_S)
    time.sleep(0.5)
    create_topic(kafka.address, topic, 1)
    for _ in range(30):
        producer.produce(topic, b"new")
    producer.flush(_WAITS_S)
    assert "made anew" in until_stopped(mirror, TopicPartition(topic, 0))
    assert here.offsets(topic, 0).log_end_offset == 20
    mirror.close()
