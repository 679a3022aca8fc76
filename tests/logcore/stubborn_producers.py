"""Producers that go on while their server dies and comes back, and note what they were told.

Each writes the numbers 0, 1, 2, … under its name: number n to partition n % 3. A `Unit` is what has to appear together:
one number, or the numbers of a transaction.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa

from millstream.logcore.client import RowRecords, TransactionalProducer
from millstream.logcore.errors import LogUnavailable, ProducerFenced
from millstream.logcore.remote import RemoteLog

from . import killable
from .kill_server import PARTITIONS, TOPIC

_PAUSE_S: Final = 0.01
_COMMITTED_SHARE: Final = 0.7
_CONFLUENT: Final = Path(__file__).with_name("confluent_writer.py")


class Outcome(Enum):
    ABORTED = "open"
    UNKNOWN = "ask"  # nobody said: all of it is there, or nothing
    ACKNOWLEDGED = "done"


@dataclass(slots=True)
class Unit:
    numbers: Sequence[int]
    outcome: Outcome = Outcome.UNKNOWN


@dataclass(slots=True)
class Told:
    """What a producer was told: its units in order."""

    name: str
    units: list[Unit] = field(default_factory=list)
    next_number: int = 0

    def next_unit(self, size: int, outcome: Outcome = Outcome.UNKNOWN) -> Unit:
        unit = Unit(range(self.next_number, self.next_number + size), outcome)
        self.next_number += size
        self.units.append(unit)
        return unit


class Stubborn(Protocol):
    name: str

    def told(self) -> Told:
        """Up to now. Raises what has ended the producer, if something has."""
        ...

    def stop(self) -> None:
        """Lets it end what it has begun. Raises AssertionError where it hangs."""
        ...


# Ours: a thread each


class OurProducer:
    """State: a thread that works until it is told to stop."""

    def __init__(self, work: Callable[[str, Told, threading.Event], None], name: str, address: str) -> None:
        self.name = name
        self._told = Told(name)
        self._failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(work, address), name=name, daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[str, Told, threading.Event], None], address: str) -> None:
        try:
            work(address, self._told, self._stop)
        except BaseException as error:
            self._failure = error

    def told(self) -> Told:
        if self._failure is not None:
            raise self._failure
        return self._told

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), f"{self.name} hangs"


def append(address: str, told: Told, stop: threading.Event) -> None:
    """An append of `RemoteLog` may fail; then whether it was stored is not known."""
    with RemoteLog(address) as log:
        while not stop.is_set():
            unit = told.next_unit(1)
            try:
                log.append(TOPIC, unit.numbers[0] % PARTITIONS, _rows(told.name, unit.numbers[0]))
                unit.outcome = Outcome.ACKNOWLEDGED
            except LogUnavailable:
                time.sleep(_PAUSE_S)


def append_in_transactions(address: str, told: Told, stop: threading.Event) -> None:
    chance = random.Random(told.name)
    with RemoteLog(address) as log:
        producer: TransactionalProducer | None = None
        while producer is None or not stop.is_set():  # whoever takes the id ends what was left open
            try:
                producer = producer or log.transactional_producer(told.name)
                _append_transaction(producer, told, chance)
            except (LogUnavailable, ProducerFenced):  # what was open is aborted, and the server has forgotten us
                producer = None
                time.sleep(_PAUSE_S)


def _append_transaction(producer: TransactionalProducer, told: Told, chance: random.Random) -> None:
    producer.begin()
    unit = told.next_unit(chance.randint(1, 5), Outcome.ABORTED)  # as long as nobody asks for the commit
    for number in unit.numbers:
        producer.append(TOPIC, number % PARTITIONS, _rows(told.name, number))
    if chance.random() > _COMMITTED_SHARE:
        producer.abort()
        return
    unit.outcome = Outcome.UNKNOWN
    producer.commit()
    unit.outcome = Outcome.ACKNOWLEDGED


def _rows(name: str, number: int) -> RowRecords:
    return RowRecords(pa.table({"timestamp": [number], "key": [name.encode()], "value": [b"%d" % number]}))


# confluent-kafka: a process each


class ConfluentProducer:
    """State: a process, and what those before it have printed."""

    def __init__(self, kind: str, name: str, address: str, folder: Path) -> None:
        self.name = name
        self._arguments = (address, kind, name)
        self._folder = folder
        self._stop = folder / f"{name}.stop"
        self._before: list[str] = []
        self._process = self._start(0)

    def _start(self, first: int) -> killable.Killable:
        arguments = [*self._arguments, str(first), str(self._stop)]
        return killable.start(_CONFLUENT, arguments, self._folder / f"{self.name}-{len(self._before)}")

    def told(self) -> Told:
        if not self._process.process.is_alive() and self._process.wait() != 0:
            # Not our affair where the library has found itself to be wrong.
            assert self._process.wait() == -signal.SIGABRT, self._process.errors()
            self._before.append(self._process.printed())
            self._process = self._start(self._parsed().next_number)
        return self._parsed(self._process.printed())

    def _parsed(self, now: str = "") -> Told:
        told = Told(self.name)
        by_first: dict[int, Unit] = {}
        for line in "".join([*self._before, now]).splitlines():
            what, first, count = line.split()
            if int(first) not in by_first:
                by_first[int(first)] = told.next_unit(int(count))
            by_first[int(first)].outcome = Outcome(what)
        return told

    def stop(self) -> None:
        self._stop.touch()
        deadline = time.monotonic() + 60
        while self._process.process.is_alive() or self._process.wait() != 0:
            self.told()
            assert time.monotonic() < deadline, f"{self.name} hangs"
            time.sleep(_PAUSE_S)
