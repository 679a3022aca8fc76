"""Copiers that are killed, links that are cut, consumers that fail over: every record is there once."""

from __future__ import annotations

import random
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from frame_relay import FrameRelay
from two_logs import TwoLogs, ends_of, records_of, rows, two_logs, until_level

from millstream.logcore.client import Consumer, TopicPartition
from millstream.logcore.clients.client_groups import GroupLog
from millstream.logcore.errors import LogUnavailable
from millstream.logcore.external.kafka_properties import KafkaProperties
from millstream.logcore.log import Log, open_log
from millstream.logcore.mirrors.exact_mirror import ExactMirror
from millstream.logcore.mirrors.mirror_source import MirrorSource, TopicFilter
from millstream.logcore.mirrors.mirrored_topics import release_topics
from millstream.logcore.mirrors.renamed_mirror import RenamedMirror, RenamedMirrorSettings
from millstream.logcore.remote import RemoteLog
from millstream.logcore.server import LogServer

from .. import killable
from ..soak import count_of

PROGRAM = Path(__file__).with_name("copying_process.py")
PARTITIONS = 2


def write(log: Log, numbers: range, random_: random.Random) -> None:
    """Each number in a batch of its own: alone, or in a transaction, some of which are aborted."""
    producer = log.transactional_producer("p")
    for number in numbers:
        partition, value = number % PARTITIONS, b"%d" % number
        if random_.random() < 0.6:
            log.append("t", partition, rows(value))
            continue
        producer.begin()
        producer.append("t", partition, rows(value, value))
        producer.commit() if random_.random() < 0.5 else producer.abort()


def is_equal(logs: TwoLogs) -> bool:
    return all(
        records_of(logs.here, "t", number) == records_of(logs.there, "t", number)
        and ends_of(logs.here, "t", number) == ends_of(logs.there, "t", number)
        for number in range(PARTITIONS)
    )


# The copier is killed


@pytest.mark.usefixtures("only_processes_die")
@pytest.mark.parametrize("mode", ["exact", "renamed"])
def test_a_copier_that_is_killed_at_random_copies_everything_once(memory_folder: Path, mode: str) -> None:
    kill_copiers(memory_folder, mode, kills=3, seed=1)


@pytest.mark.soak
@pytest.mark.usefixtures("only_processes_die")
@pytest.mark.parametrize("mode", ["exact", "renamed"])
def test_a_copier_that_is_killed_often_copies_everything_once(memory_folder: Path, mode: str) -> None:
    kill_copiers(memory_folder, mode, kills=count_of("KILLS", 100), seed=count_of("SEED", 2))


def kill_copiers(folder: Path, mode: str, kills: int, seed: int) -> None:
    random_ = random.Random(seed)
    with open_log(folder / "there", sync="never") as there, LogServer(there, port=0) as server:
        there.create_topic("t", PARTITIONS)
        arguments, written = [str(folder / "here"), server.address, mode], 0
        for round_ in range(kills):
            copier = killable.start(PROGRAM, arguments, folder / f"output-{round_}")
            deadline = time.monotonic() + 60
            while "copies" not in copier.printed():
                assert copier.process.is_alive() and time.monotonic() < deadline, copier.errors()
                time.sleep(0.02)
            until = time.monotonic() + random_.uniform(0.1, 0.6)
            while time.monotonic() < until:
                write(there, range(written, written + 10), random_)
                written += 10
            copier.kill()
        with open_log(folder / "here", sync="never") as here:
            logs = TwoLogs(there, here, server.address)
            if mode == "exact":
                logs.copy()
                assert is_equal(logs)
            else:
                copy_renamed(logs)
                for number in range(PARTITIONS):
                    assert values_of(here, "a.t", number) == values_of(there, "t", number)


def copy_renamed(logs: TwoLogs) -> None:
    with renamed(logs, logs.address) as mirror:
        while not mirror.is_level():
            mirror.step(0.05)


def values_of(log: Log, topic: str, partition: int) -> list[object]:
    return [record[2] for record in records_of(log, topic, partition)]


# The link is cut


def test_a_link_that_is_cut_in_the_middle_of_answers_loses_nothing(memory_folder: Path) -> None:
    random_, relay = random.Random(5), FrameRelay()
    with (
        two_logs(memory_folder) as logs,
        LogServer(logs.there, port=0, advertised=("127.0.0.1", relay.port)) as server,
    ):
        relay.lead_to(int(server.address.rpartition(":")[2]))
        logs.there.create_topic("t", PARTITIONS)
        with logs.mirror(address=relay.address) as mirror:
            for number in range(4):
                write(logs.there, range(20 * number, 20 * number + 20), random_)
                relay.lose_answer_of(1)  # Fetch
                for _ in range(30):
                    step(mirror)
                    if relay.gone.is_set():
                        break
                relay.come_back()
            until_level_again(mirror)
        assert is_equal(logs)
    relay.close()


@pytest.mark.parametrize("mode", ["exact", "renamed"])
def test_a_mirror_says_that_it_copies_again_even_if_there_is_nothing_new(memory_folder: Path, mode: str) -> None:
    relay = FrameRelay()
    with (
        two_logs(memory_folder) as logs,
        LogServer(logs.there, port=0, advertised=("127.0.0.1", relay.port)) as server,
    ):
        relay.lead_to(int(server.address.rpartition(":")[2]))
        logs.there.create_topic("t", 1)
        logs.there.append("t", 0, rows(b"a"))
        with logs.mirror(address=relay.address) if mode == "exact" else renamed(logs, relay.address) as mirror:
            until_phase(mirror, "COPYING")
            relay.go()
            until_phase(mirror, "WAITING")
            relay.come_back()
            until_phase(mirror, "COPYING")
            assert mirror.board.error is None
    relay.close()


@contextmanager
def renamed(logs: TwoLogs, address: str) -> Generator[RenamedMirror]:
    everything = TopicFilter(("*",))
    source = MirrorSource(KafkaProperties({"bootstrap.servers": address}))
    mirror = RenamedMirror(logs.here, source, RenamedMirrorSettings("m", "a", "b", everything, everything))
    try:
        yield mirror
    finally:
        mirror.close()


def until_phase(mirror: ExactMirror | RenamedMirror, phase: str) -> None:
    deadline = time.monotonic() + 30
    while {each.phase for each in mirror.board.partitions.values()} != {phase}:
        assert time.monotonic() < deadline, mirror.board.partitions
        step(mirror)


def step(mirror: ExactMirror | RenamedMirror) -> None:
    """As the worker does it: what passes is waited out."""
    try:
        mirror.step(0.1)
    except LogUnavailable:
        time.sleep(0.1)


def until_level_again(mirror: ExactMirror) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            until_level(mirror)
            return
        except LogUnavailable:
            assert time.monotonic() < deadline


# Consumers fail over


def test_consumers_that_fail_over_read_everything_once(memory_folder: Path) -> None:
    fail_over(memory_folder, times=3, seed=1)


@pytest.mark.soak
def test_consumers_that_fail_over_often_read_everything_once(memory_folder: Path) -> None:
    fail_over(memory_folder, times=count_of("FAILOVERS", 50), seed=count_of("SEED", 2))


def fail_over(folder: Path, times: int, seed: int) -> None:
    """A consumer reads a part at the source, and goes; after the mirror is promoted it reads the rest at the copy."""
    random_ = random.Random(seed)
    for number in range(times):
        with two_logs(folder / str(number)) as logs:
            logs.there.create_topic("t", PARTITIONS)
            write(logs.there, range(60), random_)
            written = {record for part in range(PARTITIONS) for record in in_part(logs.there, part)}
            with RemoteLog(logs.address) as remote:
                read = consume(remote, random_.randrange(1, 60))
            with logs.mirror() as mirror:
                until_level(mirror)
                mirror.look()
            release_topics(logs.here, "m")
            read += consume(logs.here, None)
            assert len(read) == len(set(read)), "read again"
            assert set(read) == written


def in_part(log: Log, partition: int) -> list[tuple[int, int, bytes]]:
    return [(partition, record[0], record[2]) for record in records_of(log, "t", partition)]


def consume(log: GroupLog, at_least: int | None) -> list[tuple[int, int, bytes]]:
    """In: `at_least`: so many records; None: all that there are."""
    found: list[tuple[int, int, bytes]] = []
    with Consumer(log, "g", commit_every_ms=None, max_bytes=200) as consumer:
        consumer.assign([TopicPartition("t", number) for number in range(PARTITIONS)])
        empty = 0
        while empty < 3 and (at_least is None or len(found) < at_least):
            polled = consumer.poll(0.1)
            empty = 0 if polled else empty + 1
            for each in polled:
                offsets, values = each.table["offset"].to_pylist(), each.table["value"].to_pylist()
                found += [(each.partition.partition, *pair) for pair in zip(offsets, values, strict=True)]
        consumer.commit()
    return found
