"""Kafka Streams counts words exactly once, while the server and the applications end again and again."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from waiting import eventually

from bench.apache_kafka import VERSION

from .exactly_once import (
    PARTITIONS,
    Application,
    Disturbance,
    any_of_them,
    committed,
    kill_an_application,
    kill_the_server,
    running,
    serving,
    stop_the_server,
)
from .serving import JAVA_OPTIONS, Product, classpath, compiled, count_of

confluent_kafka = pytest.importorskip("confluent_kafka")

_WORDS: Final = ("one", "two", "three", "four", "five", "six", "seven")
_QUIET_S: Final = 300.0


class Producer:
    """Sends lines, and counts the words of those that were acknowledged."""

    def __init__(self, address: str, seed: int) -> None:
        self._random = random.Random(seed)
        settings = {"bootstrap.servers": address, "enable.idempotence": True, "delivery.timeout.ms": 300_000}
        self._producer = confluent_kafka.Producer(settings)
        self.acknowledged: Counter[str] = Counter()

    def send(self, lines: int) -> None:
        for _ in range(lines):
            line = " ".join(self._random.choices(_WORDS, k=4))
            self._producer.produce(
                "lines", line.encode(), partition=self._random.randrange(PARTITIONS), on_delivery=self._count
            )
            self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(_QUIET_S) == 0

    def _count(self, error: Any, message: Any) -> None:
        assert error is None, error
        self.acknowledged.update(message.value().decode().split(" "))


def counted(address: str) -> dict[str, list[int]]:
    counts: dict[str, list[int]] = defaultdict(list)
    for key, value in committed(address, "counts"):
        assert key is not None
        counts[key.decode()].append(int(value))
    return counts


def in_the_topic(address: str) -> Counter[str]:
    return Counter(word for _, line in committed(address, "lines") for word in line.decode().split(" "))


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    libraries = classpath(f"org.apache.kafka:kafka-streams:{VERSION}")
    program = compiled(Path(__file__).parent / "java" / "WordCount.java", libraries, tmp_path / "classes")
    return ["java", *JAVA_OPTIONS, "-cp", program, "WordCount"]


@pytest.fixture
def product(tmp_path: Path) -> Iterator[Product]:
    with serving(tmp_path, "lines", "counts") as product:
        yield product


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("disturb", "instances"),
    [(stop_the_server, 1), (kill_the_server, 1), (kill_an_application, 2), (any_of_them, 2)],
    ids=["server stopped", "server killed", "application killed", "any"],
)
def test_words_are_counted_exactly_once_whoever_ends(
    tmp_path: Path, product: Product, command: list[str], disturb: Disturbance, instances: int
) -> None:
    seed = count_of("STREAMS_SEED", 0)
    producer = Producer(product.address, seed)
    folders = [tmp_path / f"state{number}" for number in range(instances)]
    with running([*command, product.address], folders) as applications:
        _count_under(disturb, product, applications, producer, random.Random(seed))
        acknowledged = producer.acknowledged.total()
        eventually(lambda: sum(map(len, counted(product.address).values())) >= acknowledged, _QUIET_S, pause_s=2)
    # The applications are gone, and with them the last transaction that could still bring a count twice.
    assert in_the_topic(product.address) == producer.acknowledged
    assert counted(product.address) == {word: list(range(1, n + 1)) for word, n in producer.acknowledged.items()}


def _count_under(
    disturb: Disturbance, product: Product, applications: list[Application], producer: Producer, chance: random.Random
) -> None:
    for _ in range(count_of("STREAMS_ENDS", 8)):
        lasts_s = chance.uniform(2, 14)
        begun = time.monotonic()
        while time.monotonic() - begun < lasts_s:
            producer.send(20)
            time.sleep(0.1)
        disturb(product, applications, chance)
    producer.flush()
