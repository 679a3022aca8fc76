"""The product is killed, and told to end, while confluent-kafka writes to it and copies with transactions: each number
that was acknowledged is where the library said, once, and each record is copied once."""

from __future__ import annotations

import importlib.util
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from .serving import Product, count_of

_PROGRAM: Final = Path(__file__).with_name("confluent_copying.py")
_SOURCE, _TARGET, _GROUP = "copied", "copies", "copiers"
_COPIERS: Final = 2
_RATE: Final = 300
"""Numbers a second: few enough that nothing waits for long in the library's queue."""
_BETWEEN_S: Final = (0.5, 5.0)
_STUCK_S: Final = 120
_KILLED: Final = (signal.SIGKILL,)
_ENDED: Final = (signal.SIGTERM,)

Place = tuple[int, int]
"""Partition, offset."""


class Program(NamedTuple):
    """One that runs. `said` and `logged` are files."""

    process: subprocess.Popen[bytes]
    said: Path
    logged: Path

    def lines(self, kind: str) -> list[list[str]]:
        """What follows this word in what it has said."""
        lines = [line.split(" ", 3) for line in self.said.read_text().splitlines()]
        return [rest for first, *rest in lines if first == kind]

    def end(self) -> None:
        """Raises AssertionError where it fails or hangs: then its files say why."""
        assert self.process.wait(_STUCK_S) == 0, self.last_words()

    def last_words(self) -> str:
        return f"{self.said.read_text()[-1000:]}\n{self.logged.read_text()[-3000:]}"


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("signals", "partitions"),
    [(_KILLED, 1), (_ENDED, 3), (_KILLED + _ENDED, 3)],
    ids=["killed", "ended", "killed and ended"],
)
def test_what_confluent_kafka_was_told_is_there_once_and_is_copied_once(
    signals: Sequence[signal.Signals], partitions: int, tmp_path: Path
) -> None:
    if importlib.util.find_spec("confluent_kafka") is None:
        pytest.skip("needs confluent-kafka")
    chance = random.Random(count_of("SEED", 1))
    no_more, enough = tmp_path / "no_more", tmp_path / "enough"
    with ExitStack() as stack:
        product = stack.enter_context(Product(tmp_path / "data"))
        create_topics(product.address, partitions)
        feeding = ("feed", product.address, _SOURCE, str(partitions), str(_RATE), str(no_more))
        feeder = stack.enter_context(running(tmp_path, "feeder", *feeding))
        copiers: list[Program] = []
        for name in (f"copier{number}" for number in range(_COPIERS)):
            copying = ("copy", product.address, _SOURCE, _TARGET, _GROUP, name, str(enough))
            copiers.append(stack.enter_context(running(tmp_path, name, *copying)))
        wait_until(lambda: any(copier.lines("copied") for copier in copiers), [feeder, *copiers])
        for _ in range(count_of("KILLS", 6)):
            time.sleep(chance.uniform(*_BETWEEN_S))
            product.end(chance.choice(signals))
            product.start()
            product.wait_until_started()
        no_more.touch()
        feeder.end()
        source = committed(product.address, _SOURCE, partitions)
        assert feeder.lines("failed") == [] and feeder.lines("left") == [["0"]], feeder.last_words()
        wait_until(lambda: is_read(product.address, source), copiers)
        enough.touch()
        for copier in copiers:
            copier.end()
        copies = committed(product.address, _TARGET, partitions)
    told = {int(number): (int(partition), int(offset)) for number, partition, offset in feeder.lines("stored")}
    assert differences(told, source, copies) == []
    assert "Traceback" not in product.said, product.said[-3000:]


@contextmanager
def running(folder: Path, name: str, *arguments: str) -> Generator[Program]:
    said, logged = folder / f"{name}.txt", folder / f"{name}.log"
    with said.open("w") as output, logged.open("w") as errors:
        process = subprocess.Popen([sys.executable, str(_PROGRAM), *arguments], stdout=output, stderr=errors)
        try:
            yield Program(process, said, logged)
        finally:
            process.kill()
            process.wait()


def wait_until(done: Callable[[], bool], programs: Sequence[Program]) -> None:
    """Raises AssertionError where one of the programs has ended, or none says anything new for long."""
    before, deadline_s = -1, 0.0
    while not done():
        size = sum(program.said.stat().st_size for program in programs)
        if size != before:
            before, deadline_s = size, time.monotonic() + _STUCK_S
        for program in programs:
            stopped = program.process.poll() is not None or time.monotonic() > deadline_s
            assert not stopped, f"{program.said.stem} does not go on: {program.last_words()}"
        time.sleep(0.5)


def create_topics(address: str, partitions: int) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": address})
    for made in admin.create_topics([NewTopic(topic, partitions) for topic in (_SOURCE, _TARGET)]).values():
        made.result(60)


def reader(address: str, group: str) -> Any:
    from confluent_kafka import Consumer

    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )


def is_read(address: str, source: Mapping[Place, bytes]) -> bool:
    """Whether the copiers have committed all of it."""
    from confluent_kafka import TopicPartition

    ends = Counter(partition for partition, _ in source)
    with closing(reader(address, _GROUP)) as group:
        places = [TopicPartition(_SOURCE, partition) for partition in ends]
        return {each.partition: each.offset for each in group.committed(places, timeout=60)} == ends


def committed(address: str, topic: str, partitions: int) -> dict[Place, bytes]:
    """All values, once no transaction is open any more."""
    from confluent_kafka import KafkaError, TopicPartition

    found: dict[Place, bytes] = {}
    left = set(range(partitions))
    with closing(reader(address, "verifier")) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
        while left:
            message = consumer.poll(_STUCK_S)
            assert message is not None, f"partitions {left} have no end"
            if message.error() is None:
                found[message.partition(), message.offset()] = message.value()
                continue
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            end = consumer.get_watermark_offsets(TopicPartition(topic, message.partition()), timeout=60)[1]
            if message.offset() == end:
                left.discard(message.partition())
    return found


def differences(told: Mapping[int, Place], source: Mapping[Place, bytes], copies: Mapping[Place, bytes]) -> list[str]:
    """Sentences on what is missing, or there twice, or in a wrong place."""
    there = {place: int(value) for place, value in source.items()}
    places: dict[int, list[Place]] = {}
    for place, number in there.items():
        places.setdefault(number, []).append(place)
    wrong = [f"{number} is at {places.get(number)}, said to be at {place}" for number, place in told.items()
             if places.get(number) != [place]]  # fmt: skip
    wrong += [f"{number} is at {where}, and nobody was told" for number, where in places.items() if number not in told]
    times = Counter(copies.values())
    wanted = {b"%d %d %d" % (*place, number) for place, number in there.items()}
    wrong += [f"{value!r} is copied {times[value]} times" for value in wanted if times[value] != 1]
    return wrong + [f"{value!r} is copied from nowhere" for value in times.keys() - wanted]
