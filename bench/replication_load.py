"""Clients of a replicated topic, with confluent-kafka: as fast as it goes, one record at a time, and through a failure.

`python -m bench.replication_load BROKERS TOPIC PARTITIONS COUNT` runs the first one in a process of its own, and prints
the seconds that it took.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from .producing import fast_producer, seconds_to_produce

RECORD: Final = b"x" * 100
_TIMEOUT_S: Final = 120.0
_ADMIN_S: Final = 5.0
_ROOT: Final = Path(__file__).resolve().parent.parent
_QUIET: Final = {"log_level": 2}
_FAST_TO_GO_ON: Final = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "socket.timeout.ms": 3_000,
    "message.timeout.ms": 60_000,
}


def create_topic(brokers: str, topic: str, partitions: int, replication: int) -> None:
    """A topic of which most replicas have to acknowledge."""
    admin = AdminClient({"bootstrap.servers": brokers, **_QUIET})
    config = {"min.insync.replicas": str(replication // 2 + 1)}
    new = NewTopic(topic, partitions, replication, config=config)
    admin.create_topics([new], request_timeout=_ADMIN_S)[topic].result(_ADMIN_S + 1.0)


def partitions_in_sync(brokers: str, topic: str) -> dict[int, tuple[int, int]]:
    """The leader of each partition, and how many replicas are in sync."""
    admin = AdminClient({"bootstrap.servers": brokers, **_QUIET})
    found = admin.list_topics(topic, timeout=10.0).topics[topic].partitions
    return {number: (each.leader, len(each.isrs)) for number, each in found.items()}


def produce_in_process(brokers: str, topic: str, partitions: int, count: int) -> float:
    """The seconds for so many records, acks=all."""
    command = [sys.executable, "-m", "bench.replication_load", brokers, topic, str(partitions), str(count)]
    run = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, timeout=600, check=True)
    return float(run.stdout)


def produce(brokers: str, topic: str, partitions: int, count: int) -> float:
    producer = fast_producer(brokers, {"acks": "all", "linger.ms": 5})
    return seconds_to_produce(producer, topic, RECORD, count, partitions)


def one_by_one(brokers: str, topic: str, seconds: float, rate: int) -> list[float]:
    """So many records per second, acks=all: the seconds until each was acknowledged."""
    producer = Producer({"bootstrap.servers": brokers, "acks": "all", "linger.ms": 0, **_QUIET})
    taken: list[float] = []
    began = time.perf_counter()
    for number in range(int(seconds * rate)):
        time.sleep(max(0.0, began + number / rate - time.perf_counter()))
        sent = time.perf_counter()
        producer.produce(
            topic, RECORD, partition=0, on_delivery=lambda _, __, sent=sent: taken.append(time.perf_counter() - sent)
        )
        producer.flush(_TIMEOUT_S)
    return taken


class SteadyProducer:
    """Sends a record to partition 0 every few milliseconds, idempotently, and notes when each is acknowledged.

    State: `acknowledged_at`, seconds of the clock `time.monotonic`.
    """

    def __init__(self, brokers: str, topic: str, every_s: float = 0.005) -> None:
        self.acknowledged_at: list[float] = []
        self.failures = 0
        self._topic, self._every_s = topic, every_s
        settings: dict[str, Any] = {"enable.idempotence": True, "acks": "all", "linger.ms": 0, **_FAST_TO_GO_ON}
        self._producer = Producer({"bootstrap.servers": brokers, **settings, **_QUIET})
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        self._thread.join()
        self._producer.flush(_TIMEOUT_S)

    def _work(self) -> None:
        while not self._ending.is_set():
            self._producer.produce(self._topic, RECORD, partition=0, on_delivery=self._delivered)
            self._producer.poll(self._every_s)

    def _delivered(self, error: Any, _: Any) -> None:
        if error is None:
            self.acknowledged_at.append(time.monotonic())
        else:
            self.failures += 1


if __name__ == "__main__":
    _, brokers, topic, partitions, count = sys.argv
    sys.stdout.write(str(produce(brokers, topic, int(partitions), int(count))))
