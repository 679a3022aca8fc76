"""Applications that people outside have written, which promise "exactly once", while they and the server end again and
again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import confluent_kafka
from waiting import eventually

from ..clients import outside
from .serving import Product

PARTITIONS: Final = 2
QUIET_S: Final = 300.0
_WORDS: Final = ("one", "two", "three", "four", "five", "six", "seven")


class Application:
    """An application. State: its process, with those that it starts; what they say goes to a file beside `folder`."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._command = command
        self._output = folder.with_suffix(".txt").open("a")
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdout=self._output, stderr=self._output, start_new_session=True
        )

    def end(self, number: int = signal.SIGTERM) -> None:
        os.killpg(self._process.pid, number)
        self._process.wait(60)

    def __enter__(self) -> Application:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._output.close()


@contextmanager
def running(command: list[str], folders: Iterable[Path]) -> Generator[list[Application]]:
    """An application for each folder, which is its last argument."""
    with ExitStack() as started:
        yield [started.enter_context(Application([*command, str(folder)], folder)) for folder in folders]


@contextmanager
def serving(folder: Path, *topics: str) -> Generator[Product]:
    """A server with these topics. It may have no error at its end."""
    with Product(folder / "data") as product:
        for topic in topics:
            outside.create_topic(product.address, topic, PARTITIONS)
        yield product
        assert "Traceback" not in product.said


Disturbance = Callable[[Product, list[Application], random.Random], None]


def stop_the_server(product: Product, _: list[Application], chance: random.Random) -> None:
    _restart(product, signal.SIGTERM)


def kill_the_server(product: Product, _: list[Application], chance: random.Random) -> None:
    _restart(product, signal.SIGKILL)


def kill_an_application(_: Product, applications: list[Application], chance: random.Random) -> None:
    killed = chance.choice(applications)
    killed.end(signal.SIGKILL)
    killed.start()


def any_of_them(product: Product, applications: list[Application], chance: random.Random) -> None:
    chance.choice([stop_the_server, kill_the_server, kill_an_application])(product, applications, chance)


def _restart(product: Product, number: int) -> None:
    product.end(number)
    product.start()
    product.wait_until_started()


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
    places = [confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
    consumer.assign(places)
    found: list[tuple[bytes | None, bytes]] = []
    ended: set[int | None] = set()
    deadline = time.monotonic() + 60
    while len(ended) < len(places):
        assert time.monotonic() < deadline, f"{topic} is not read to its end"
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is None:
            value = message.value()
            assert value is not None
            found.append((message.key(), value))
        else:
            ended.add(message.partition())
    consumer.close()
    return found


class Lines:
    """Writes to `lines`: a word and a number that counts up. State: `words`, the word of each line that was
    acknowledged, by number."""

    def __init__(self, address: str, seed: int) -> None:
        self._random = random.Random(seed)
        settings = {"bootstrap.servers": address, "enable.idempotence": True, "delivery.timeout.ms": 300_000}
        self._producer = confluent_kafka.Producer(settings)
        self._sent = 0
        self.words: dict[int, str] = {}

    def send_under(
        self, disturb: Disturbance, product: Product, applications: list[Application], chance: random.Random, ends: int
    ) -> None:
        """Sends lines while this is done, every 5 to 20 seconds, until all is acknowledged."""
        for _ in range(ends):
            until = time.monotonic() + chance.uniform(5, 20)
            while time.monotonic() < until:
                self._send(20)
                time.sleep(0.1)
            disturb(product, applications, chance)
        assert self._producer.flush(QUIET_S) == 0

    def eventually(self, address: str, topic: str) -> list[bytes]:
        """The values of the topic, once it has as many as there are lines."""
        eventually(lambda: len(committed(address, topic)) >= len(self.words), QUIET_S, pause_s=2)
        return [value for _, value in committed(address, topic)]

    def check_counts(self, totals: Iterable[tuple[str, int]]) -> None:
        """In: words, and how often each had come so far."""
        found: dict[str, list[int]] = defaultdict(list)
        for word, total in totals:
            found[word].append(total)
        assert found == {word: list(range(1, count + 1)) for word, count in Counter(self.words.values()).items()}

    def _send(self, lines: int) -> None:
        for _ in range(lines):
            line = {"word": self._random.choice(_WORDS), "number": self._sent}
            self._sent += 1
            partition = self._random.randrange(PARTITIONS)
            self._producer.produce("lines", json.dumps(line).encode(), partition=partition, on_delivery=self._add)
            self._producer.poll(0)

    def _add(self, error: object, message: confluent_kafka.Message) -> None:
        assert error is None, error
        line = json.loads(message.value() or b"")
        self.words[line["number"]] = line["word"]
