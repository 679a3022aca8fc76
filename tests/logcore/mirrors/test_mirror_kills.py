"""The source, the copier with its log, or both are killed at random while somebody writes: every record is copied once.
How often says MILLSTREAM_SOAK_KILLS."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from two_logs import TwoLogs, records_of, rows
from waiting import eventually

from bench.apache_kafka import free_ports
from millstream.errors import LogError
from millstream.logcore.external.kafka_properties import KafkaProperties
from millstream.logcore.log import Log, open_log
from millstream.logcore.mirrors.mirror_source import MirrorSource, TopicFilter
from millstream.logcore.mirrors.renamed_mirror import RenamedMirror, RenamedMirrorSettings
from millstream.logcore.remote import RemoteLog
from millstream.logcore.server import LogServer

from .. import killable
from ..kill_server import PARTITIONS, TOPIC
from ..soak import count_of

COPIER = Path(__file__).with_name("copying_process.py")
SERVER = Path(__file__).parents[1] / "kill_server.py"
START_S = 60.0


@pytest.mark.usefixtures("only_processes_die")
@pytest.mark.parametrize("mode", ["exact", "renamed"])
def test_whoever_is_killed_everything_is_copied_once(memory_folder: Path, mode: str) -> None:
    kill_again_and_again(memory_folder, mode, kills=4, seed=1)


@pytest.mark.soak
@pytest.mark.usefixtures("only_processes_die")
@pytest.mark.parametrize("mode", ["exact", "renamed"])
def test_whoever_is_killed_often_everything_is_copied_once(memory_folder: Path, mode: str) -> None:
    kill_again_and_again(memory_folder, mode, kills=count_of("KILLS", 100), seed=count_of("SEED", 2))


class Processes:
    """State: the source and the copier, each running but for the moment between its end and its next start."""

    def __init__(self, folder: Path, mode: str) -> None:
        self._folder, self._mode = folder, mode
        (self._port,) = free_ports(1)
        self.address = f"127.0.0.1:{self._port}"
        self._starts = 0
        self.running: dict[str, killable.Killable] = {}

    def start(self, name: str) -> None:
        self._starts += 1
        output = self._folder / f"output-{self._starts}"
        if name == "source":
            program, arguments, says = SERVER, [str(self._folder / "there"), str(self._port)], "can connect"
        else:
            program, arguments, says = COPIER, [str(self._folder / "here"), self.address, self._mode], "copies"
        process = self.running[name] = killable.start(program, arguments, output)
        eventually(lambda: says in process.printed(), START_S, otherwise=f"the {name} does not start")

    def kill(self, name: str) -> None:
        self.running.pop(name).kill()


class Writer(threading.Thread):
    """Writes numbers, some in transactions, of which some are aborted; what becomes of one in doubt is the source's."""

    def __init__(self, address: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._address, self._chance = address, random.Random(seed)
        self.ends = threading.Event()
        self.acknowledged: set[bytes] = set()

    def run(self) -> None:
        number = 0
        while not self.ends.is_set():
            with contextlib.suppress(LogError), RemoteLog(self._address, patience_s=0.5) as log:
                producer = log.transactional_producer("p")
                while not self.ends.is_set():
                    number += 1
                    value, partition = b"%d" % number, number % PARTITIONS
                    if self._chance.random() < 0.6:
                        log.append(TOPIC, partition, rows(value))
                        self.acknowledged.add(value)
                        continue
                    producer.begin()
                    producer.append(TOPIC, partition, rows(value, value))
                    producer.commit() if self._chance.random() < 0.5 else producer.abort()


def kill_again_and_again(folder: Path, mode: str, kills: int, seed: int) -> None:
    chance, processes = random.Random(seed), Processes(folder, mode)
    processes.start("source")
    processes.start("copier")
    writer = Writer(processes.address, seed)
    writer.start()
    for _ in range(kills):
        time.sleep(chance.uniform(0.05, 0.5))
        victims = chance.choice([["source"], ["copier"], ["source", "copier"]])
        for name in victims:
            processes.kill(name)
        for name in victims:
            processes.start(name)
    time.sleep(0.2)
    writer.ends.set()
    writer.join(60)
    for name in list(processes.running):
        processes.kill(name)
    _compare(folder, mode, writer.acknowledged)


def _compare(folder: Path, mode: str, acknowledged: set[bytes]) -> None:
    """After what was left is copied."""
    with (
        open_log(folder / "there", sync="never") as there,
        LogServer(there, port=0) as server,
        open_log(folder / "here", sync="never") as here,
    ):
        logs = TwoLogs(there, here, server.address)
        if mode == "exact":
            logs.copy()
        else:
            _copy_renamed(logs)
        name = TOPIC if mode == "exact" else f"a.{TOPIC}"
        shown: Callable[[Log, str, int], object] = records_of if mode == "exact" else _values
        values = {value for number in range(PARTITIONS) for value in _values(there, TOPIC, number)}
        assert acknowledged <= values
        assert acknowledged
        for number in range(PARTITIONS):
            assert shown(here, name, number) == shown(there, TOPIC, number)


def _values(log: Log, topic: str, partition: int) -> list[object]:
    return [record[2] for record in records_of(log, topic, partition)]


def _copy_renamed(logs: TwoLogs) -> None:
    everything = TopicFilter(("*",))
    source = MirrorSource(KafkaProperties({"bootstrap.servers": logs.address}))
    mirror = RenamedMirror(logs.here, source, RenamedMirrorSettings("m", "a", "b", everything, everything))
    while not mirror.is_level():
        mirror.step(0.05)
    mirror.close()
