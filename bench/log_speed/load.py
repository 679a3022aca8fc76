"""A client of a broker, with confluent-kafka, in a process of its own: `python -m bench.log_speed.load WHAT ADDRESS …`.

Prints JSON: the seconds that the work took, or those of each request.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition

from ..producing import TIMEOUT_S, fast_producer, seconds_to_produce


def produce(address: str, topic: str, count: int, size: int) -> float:
    """All records, as fast as they go, acks=1, in batches as the library makes them."""
    return _produced(fast_producer(address, {"acks": 1, "linger.ms": 5}), topic, count, size)


def requests(address: str, topic: str, count: int, size: int) -> float:
    """Each record in a request of its own, acks=1, many under way."""
    return _produced(fast_producer(address, {"acks": 1, "linger.ms": 0, "batch.num.messages": 1}), topic, count, size)


def turns(address: str, topic: str, count: int, size: int) -> float:
    """Each record in a request of its own, acks=1, sent when the one before is acknowledged."""
    producer = fast_producer(address, {"acks": 1, "linger.ms": 0})
    _warm_up(producer, topic, size)
    began = time.perf_counter()
    for _ in range(count):
        producer.produce(topic, b"x" * size, partition=0)
        producer.flush(TIMEOUT_S)
    return time.perf_counter() - began


def paced(address: str, topic: str, count: int, size: int, rate: int = 200) -> list[float]:
    """So many records per second, acks=all: how long each took to be acknowledged."""
    producer = fast_producer(address, {"acks": "all", "linger.ms": 0})
    _warm_up(producer, topic, size)
    taken: list[float] = []
    began = time.perf_counter()
    for number in range(count):
        time.sleep(max(0.0, began + number / rate - time.perf_counter()))
        sent = time.perf_counter()
        producer.produce(
            topic, b"x" * size, partition=0,
            on_delivery=lambda _, __, sent=sent: taken.append(time.perf_counter() - sent),
        )  # fmt: skip
        producer.flush(TIMEOUT_S)
    return taken


def fetch(address: str, topic: str, count: int, size: int) -> float:
    """All records of the topic, from the first one."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 1 << 20,
            "fetch.wait.max.ms": 100,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen = len(consumer.consume(1, TIMEOUT_S))
    began = time.perf_counter()
    while seen < count:
        seen += len(consumer.consume(10_000, 1.0))
    taken = time.perf_counter() - began
    consumer.close()
    return taken


def _warm_up(producer: Producer, topic: str, size: int) -> None:
    producer.produce(topic, b"x" * size, partition=0)
    producer.flush(TIMEOUT_S)


def _produced(producer: Producer, topic: str, count: int, size: int) -> float:
    return seconds_to_produce(producer, topic, b"x" * size, count)


WORK: Final[dict[str, Callable[[str, str, int, int], float | list[float]]]] = {
    work.__name__: work for work in (produce, requests, turns, paced, fetch)
}

if __name__ == "__main__":
    what, address, topic, count, size = sys.argv[1:]
    sys.stdout.write(json.dumps(WORK[what](address, topic, int(count), int(size))))
