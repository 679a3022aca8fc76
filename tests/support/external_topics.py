"""Topics of any brokers, as a stranger sees them: by confluent-kafka, read committed."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable
from typing import Any

from waiting import eventually

_WAITS_S = 30.0


def create_topic(address: str, name: str, partitions: int, **config: str) -> str:
    from confluent_kafka.admin import AdminClient, NewTopic

    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin = AdminClient({"bootstrap.servers": address})  # what it has begun ends with it
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(_WAITS_S)
    return name


def topic_names(address: str) -> set[str]:
    from confluent_kafka.admin import AdminClient

    return set(AdminClient({"bootstrap.servers": address}).list_topics(timeout=_WAITS_S).topics)


def produce(address: str, topic: str, rows: Iterable[tuple[str, object]]) -> None:
    """Keys as text, values as JSON."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "linger.ms": 5})
    for number, (key, value) in enumerate(rows):
        producer.produce(topic, json.dumps(value).encode(), key.encode(), timestamp=1000 + number)
    assert producer.flush(_WAITS_S) == 0


def consumed(
    address: str, topic: str, count: int, *, more_s: float = 0.5, waits_s: float = _WAITS_S
) -> list[tuple[str | None, Any]]:
    """What is committed, from the start: waits for so many records, and a while for more than that."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "topic.metadata.refresh.interval.ms": 500,
            "allow.auto.create.topics": False,
        }
    )
    consumer.subscribe([topic])
    found: list[tuple[str | None, Any]] = []
    deadline = time.monotonic() + waits_s
    while time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            key, value = message.key(), message.value()
            name = None if key is None else key.decode(errors="replace")
            found.append((name, None if value is None else json.loads(value)))
            if len(found) >= count:
                deadline = min(deadline, time.monotonic() + more_s)
    consumer.close()
    return found


def delete_topic(address: str, name: str) -> None:
    """Returns once it is gone."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": address})
    admin.delete_topics([name])[name].result(_WAITS_S)
    listed = admin.list_topics
    eventually(lambda: name not in listed(timeout=_WAITS_S).topics, _WAITS_S, otherwise=f"{name} is still there")
