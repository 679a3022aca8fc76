"""Kafka Streams counts words exactly once, while the server is killed and stopped again and again."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.apache_kafka import VERSION

from ..clients import outside
from .serving import JAVA_OPTIONS, Product, classpath, compiled, count_of

confluent_kafka = pytest.importorskip("confluent_kafka")

_WORDS = ["one", "two", "three", "four", "five", "six", "seven"]
_PARTITIONS = 2
_QUIET_S = 180.0


class Producer:
    """Sends lines, and counts the words of those that were acknowledged."""

    def __init__(self, address: str, seed: int) -> None:
        self._random = random.Random(seed)
        settings = {"bootstrap.servers": address, "enable.idempotence": True, "delivery.timeout.ms": 300_000}
        self._producer = confluent_kafka.Producer(settings)

    def send(self, lines: int) -> None:
        for _ in range(lines):
            line = " ".join(self._random.choices(_WORDS, k=4))
            self._producer.produce("lines", line.encode(), partition=self._random.randrange(_PARTITIONS))
            self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(_QUIET_S) == 0


def committed(address: str, topic: str) -> list[tuple[bytes | None, bytes]]:
    """Keys and values of all records that count."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "checker",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    places = [confluent_kafka.TopicPartition(topic, number, 0) for number in range(_PARTITIONS)]
    consumer.assign(places)
    found: list[tuple[bytes | None, bytes]] = []
    ended: set[int] = set()
    deadline = time.monotonic() + 60
    while len(ended) < len(places):
        assert time.monotonic() < deadline, f"{topic} is not read to its end"
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is None:
            found.append((message.key(), message.value()))
        else:
            ended.add(message.partition())
    consumer.close()
    return found


def counted(address: str) -> dict[str, list[int]]:
    counts: dict[str, list[int]] = defaultdict(list)
    for key, value in committed(address, "counts"):
        assert key is not None
        counts[key.decode()].append(int(value))
    return counts


def expected(address: str) -> dict[str, list[int]]:
    totals: dict[str, int] = defaultdict(int)
    for _, line in committed(address, "lines"):
        for word in line.decode().split(" "):
            totals[word] += 1
    return {word: list(range(1, total + 1)) for word, total in totals.items()}


def eventually(holds: Callable[[], bool], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(2)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("ends", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_words_are_counted_exactly_once_however_the_server_ends(tmp_path: Path, ends: signal.Signals) -> None:
    libraries = classpath(f"org.apache.kafka:kafka-streams:{VERSION}")
    source = Path(__file__).parent / "java" / "WordCount.java"
    program = compiled(source, libraries, tmp_path / "classes")
    with Product(tmp_path / "data") as product, (tmp_path / "streams.txt").open("w") as output:
        for topic in ("lines", "counts"):
            outside.create_topic(product.address, topic, _PARTITIONS)
        command = ["java", *JAVA_OPTIONS, "-cp", program, "WordCount", product.address, str(tmp_path / "state")]
        streams = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            _disturb(product, ends)
            wanted = expected(product.address)
            words = sum(map(len, wanted.values()))
            eventually(lambda: sum(map(len, counted(product.address).values())) >= words, _QUIET_S)
            assert counted(product.address) == wanted
        finally:
            streams.terminate()
            streams.wait(60)
        assert "Traceback" not in product.said


def _disturb(product: Product, ends: signal.Signals) -> None:
    producer = Producer(product.address, seed=int(ends))
    chance = random.Random(int(ends))
    for _ in range(count_of("STREAMS_ENDS", 8)):
        begun = time.monotonic()
        lasts_s = chance.uniform(6, 14)
        while time.monotonic() - begun < lasts_s:
            producer.send(20)
            time.sleep(0.1)
        product.end(ends)
        product.start()
        product.wait_until_started()
    producer.flush()
