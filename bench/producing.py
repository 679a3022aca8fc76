"""Records sent as fast as they go, with confluent-kafka."""

from __future__ import annotations

import time
from typing import Any, Final

from confluent_kafka import Producer

TIMEOUT_S: Final = 120.0


def fast_producer(brokers: str, settings: dict[str, Any]) -> Producer:
    """One with room for a million records, that prints nothing about what it tries."""
    room = {"queue.buffering.max.messages": 1_000_000, "queue.buffering.max.kbytes": 1 << 20}
    return Producer({"bootstrap.servers": brokers, "log_level": 2, **room, **settings})


def seconds_to_produce(producer: Producer, topic: str, value: bytes, count: int, partitions: int = 1) -> float:
    """Until so many records are acknowledged, over so many partitions in turn; behind one each that nobody counts.

    Raises TimeoutError.
    """
    for number in range(partitions):
        producer.produce(topic, value, partition=number)
    producer.flush(TIMEOUT_S)
    began = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1024 == 0:
            producer.poll(0)
    if producer.flush(TIMEOUT_S):
        raise TimeoutError("not all records were acknowledged")
    return time.perf_counter() - began
