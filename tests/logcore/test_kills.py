"""A server that is killed, or told to end, again and again while eight producers write to it: what they were told is
what is there."""

from __future__ import annotations

import importlib.util
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bench.apache_kafka import free_ports
from millstream.logcore.client import FetchedRows
from millstream.logcore.cluster.node_folder import verify_node
from millstream.logcore.log import Log, open_log

from . import killable
from .kill_server import PARTITIONS, TOPIC
from .soak import count_of
from .stubborn_producers import (
    ConfluentProducer,
    OurProducer,
    Outcome,
    Stubborn,
    Told,
    append,
    append_in_transactions,
)

PROGRAM = Path(__file__).with_name("kill_server.py")
PRODUCERS_OF_A_KIND = 2
POINTS = (
    "append.write",
    "replica.before_sync",
    "replica.after_sync",
    "txn.data_written",
    "txn.before_prepare",
    "txn.after_prepare",
    "txn.marker",
    "txn.committed",
)
pytestmark = pytest.mark.usefixtures("only_processes_die")


def test_whoever_writes_while_the_server_is_killed_finds_what_was_acknowledged(memory_folder: Path) -> None:
    kill_again_and_again(memory_folder, kills=4, seed=1)


@pytest.mark.soak
def test_whoever_writes_while_the_server_is_killed_often_finds_what_was_acknowledged(memory_folder: Path) -> None:
    kill_again_and_again(memory_folder, kills=count_of("KILLS", 100), seed=count_of("SEED", 2))


@pytest.mark.timeout(180)  # four kinds of clients, each of which finds its way back three times
def test_whoever_writes_while_the_server_ends_finds_what_was_acknowledged(memory_folder: Path) -> None:
    terminate_again_and_again(memory_folder, times=3, seed=3)


@pytest.mark.soak
def test_whoever_writes_while_the_server_ends_often_finds_what_was_acknowledged(memory_folder: Path) -> None:
    terminate_again_and_again(memory_folder, times=count_of("KILLS", 100), seed=count_of("SEED", 2))


def kill_again_and_again(folder: Path, kills: int, seed: int) -> None:
    def end(server: killable.Killable, chance: random.Random) -> None:
        server.process.join(chance.uniform(0.05, 1.0))
        server.kill()

    end_again_and_again(folder, kills, random.Random(seed), end, random_point)


def terminate_again_and_again(folder: Path, times: int, seed: int) -> None:
    """The log closes slowly while the listener serves on."""

    def end(server: killable.Killable, chance: random.Random) -> None:
        time.sleep(chance.uniform(0.2, 1.0))
        assert server.terminate() == 0, server.errors()

    end_again_and_again(folder, times, random.Random(seed), end, lambda chance: "")


def end_again_and_again(
    folder: Path,
    times: int,
    chance: random.Random,
    end: Callable[[killable.Killable, random.Random], None],
    random_point: Callable[[random.Random], str],
) -> None:
    """Raises AssertionError where something is missing, there twice, out of order, or visible though aborted."""
    (port,) = free_ports(1)
    server = started(folder, port, random_point(chance))
    producers = eight_producers(folder, f"127.0.0.1:{port}")
    for _ in range(times):
        end(server, chance)
        server = started(folder, port, random_point(chance))
    server.kill()
    server = started(folder, port)
    wait_for_all(producers, server)
    for producer in producers:
        producer.stop()
    server.kill()
    told = [producer.told() for producer in producers]
    with open_log(folder / "log") as log:
        found = {each.name: [read(log, each.name, partition) for partition in range(PARTITIONS)] for each in told}
        assert log.problems() == []
    for each in told:
        compare(each, found[each.name])
    assert verify_node(folder / "log")[1] == []


def eight_producers(folder: Path, address: str) -> list[Stubborn]:
    """Four kinds, two of each; ours do it alone where confluent-kafka is not installed."""
    without = importlib.util.find_spec("confluent_kafka") is None
    producers: list[Stubborn] = []
    for number in range(PRODUCERS_OF_A_KIND * (2 if without else 1)):
        producers.append(OurProducer(append, f"append-{number}", address))
        producers.append(OurProducer(append_in_transactions, f"append_in_transactions-{number}", address))
    for number in range(0 if without else PRODUCERS_OF_A_KIND):
        for kind in ("sequenced", "transactions"):
            producers.append(ConfluentProducer(kind, f"{kind}-{number}", address, folder))
    return producers


def wait_for_all(producers: Sequence[Stubborn], server: killable.Killable) -> None:
    """Each gets something stored on the last server."""
    before = [len(producer.told().units) for producer in producers]
    deadline = time.monotonic() + 60
    for producer, count in zip(producers, before, strict=True):
        while not any(unit.outcome is Outcome.ACKNOWLEDGED for unit in producer.told().units[count:]):
            assert time.monotonic() < deadline, f"{producer.name} cannot go on: {server.printed()[-2000:]}"
            time.sleep(0.05)


def random_point(chance: random.Random) -> str:
    """Where the server kills itself, if it is not killed before; nowhere at times. Often where records are stored, and
    nobody was told yet: so they are sent again."""
    point = chance.choice(["", "replica.after_sync", chance.choice(POINTS)])
    return f"{point}:{chance.randint(1, 150)}:kill9" if point else ""


def started(folder: Path, port: int, failpoint: str = "") -> killable.Killable:
    server = killable.start(PROGRAM, [str(folder / "log"), str(port)], folder / "printed", failpoint)
    deadline = time.monotonic() + 60
    while "can connect" not in server.printed():
        if not server.process.is_alive():  # it came to the point by opening the log
            assert failpoint, server.errors()
            return started(folder, port)
        assert time.monotonic() < deadline, server.errors()
        time.sleep(0.002)
    return server


def read(log: Log, name: str, partition: int) -> list[int]:
    """The numbers of this producer that a reader of committed records sees."""
    numbers: list[int] = []
    offset = 0
    while True:
        fetched = log.fetch(TOPIC, partition, offset)
        for run in fetched.runs:
            assert isinstance(run, FetchedRows)
            keys, values = run.table.column("key").to_pylist(), run.table.column("value").to_pylist()
            numbers += [int(value) for key, value in zip(keys, values, strict=True) if key == name.encode()]
        if fetched.next_offset == offset:
            assert offset == log.offsets(TOPIC, partition).high_watermark, "a transaction is open for ever"
            return numbers
        offset = fetched.next_offset


def compare(told: Told, found: Sequence[Sequence[int]]) -> None:
    for partition, numbers in enumerate(found):
        assert all(number % PARTITIONS == partition for number in numbers), f"{told.name}: a number in a wrong place"
        assert list(numbers) == sorted(set(numbers)), f"{told.name}: out of order, or there twice"
    there = {number for numbers in found for number in numbers}
    for unit in told.units:
        present = [number in there for number in unit.numbers]
        what = f"{told.name}: {unit} is {'half' if any(present) else 'not'} there"
        match unit.outcome:
            case Outcome.ACKNOWLEDGED:
                assert all(present), what
            case Outcome.ABORTED:
                assert not any(present), f"{told.name}: {unit} was aborted and can be seen"
            case Outcome.UNKNOWN:
                assert all(present) or not any(present), what
    assert not there - {number for unit in told.units for number in unit.numbers}
