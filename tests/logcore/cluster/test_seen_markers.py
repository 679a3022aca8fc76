"""Markers of a node that is alone: readers see them at once, they are durable soon, and no crash gives their offsets to
something else."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from waiting import eventually, without_error

from millstream.logcore.client import TopicPartition
from millstream.logcore.failpoints import fp
from millstream.logcore.log import Log, open_log
from millstream.logcore.records.batch import read_header
from millstream.logcore.replication.replica.replica_core import ReplicaCore
from millstream.logcore.storage import disk
from millstream.logcore.topic_rules import TRANSACTIONS_TOPIC

from ..log_records import NO_ROOM_YET, crashed_copy, records_of, rows, segment_files, values_of
from .ticks import stop_ticks, tick_every

SOON_S = 10.0  # a tick, on a busy machine
WHERE = TopicPartition("t", 0)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log") as opened:
        opened.create_topic("t", 2)
        yield opened


@pytest.fixture
def no_ticks(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_ticks(log, monkeypatch)


def commit(log: Log, *partitions: int) -> None:
    producer = log.transactional_producer("q")
    producer.begin()
    for partition in partitions:
        producer.append("t", partition, rows(b"a"))
    producer.send_offsets("g", {WHERE: 1})
    producer.commit()


def cores(log: Log) -> list[ReplicaCore]:
    """Of both partitions, and of the log of the coordinator."""
    found = (log.node.partition_id(*where) for where in (("t", 0), ("t", 1), (TRANSACTIONS_TOPIC, 0)))
    return [replica.core for id in found if id is not None and (replica := log.node.replica(id)) is not None]


def test_a_marker_is_seen_with_the_records_before_it(log: Log, no_ticks: None) -> None:
    commit(log, 0, 1)
    for partition in range(2):
        offsets = log.offsets("t", partition)
        assert (offsets.last_stable_offset, offsets.high_watermark, offsets.log_end_offset) == (2, 2, 2)
        assert log.fetch("t", partition, 0).next_offset == 2
        assert log.fetch("t", partition, 2).next_offset == 2
    assert min(core.high_watermark for core in cores(log)) < 2, "they are not durable"


def test_an_idle_node_makes_the_end_of_a_transaction_durable_soon(log: Log) -> None:
    """Nobody asks the node for anything meanwhile."""
    commit(log, 0, 1)
    eventually(lambda: all(core.high_watermark == core.log.end_offset for core in cores(log)), SOON_S)
    assert all(core.visible_offset == core.last_stable_offset == core.high_watermark for core in cores(log))


def test_a_busy_producer_waits_for_two_rounds_of_syncs_with_ticks_too(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a tick makes durable is its own round, of the thread that tells the time."""
    mine, all_rounds, count = [0], [0], 50
    sync: Callable[[], None] = log.node.logs.sync
    here = threading.get_ident()

    def counted() -> None:
        all_rounds[0] += 1
        mine[0] += threading.get_ident() == here
        sync()

    producer = log.transactional_producer("q")
    monkeypatch.setattr(log.node.logs, "sync", counted)
    began = time.monotonic()
    for number in range(count):
        producer.begin()
        producer.append("t", 0, rows(b"%d" % number))
        producer.commit()
    ticks = (time.monotonic() - began) / 0.05
    assert mine[0] <= 2 * count
    assert all_rounds[0] <= 2 * count + 2 * ticks + 2


def test_records_of_others_between_a_transaction_and_its_marker_are_not_seen_before_they_are_durable(
    log: Log, no_ticks: None
) -> None:
    producer = log.transactional_producer("q")
    other = log.transactional_producer("other")
    producer.begin()
    producer.append("t", 0, rows(b"a"))
    other.begin()
    other.append("t", 0, rows(b"b"))  # in the log, and not durable
    producer.commit()
    assert log.offsets("t", 0).last_stable_offset == 1
    assert values_of(log, "t") == [b"a"]
    other.commit()
    assert values_of(log, "t") == [b"a", b"b"]
    assert log.offsets("t", 0).last_stable_offset == 4


def test_what_readers_have_seen_can_be_deleted(log: Log, no_ticks: None) -> None:
    commit(log, 0)
    log.delete_records("t", 0, 2)
    assert log.offsets("t", 0).log_start_offset == 2


def without_marker(log: Log, tmp_path: Path) -> Path:
    """The directory after a power cut that takes the marker of the only transaction, which is the last thing in it."""
    found = crashed_copy(log, tmp_path / "log", tmp_path / "cut")
    [path] = segment_files(found)
    size = read_header(path.read_bytes()).size
    with path.open("r+b") as file:
        file.seek(size)
        file.write(bytes(path.stat().st_size - size))
    return found


def test_a_marker_that_a_crash_took_is_written_again_at_its_offset(log: Log, no_ticks: None, tmp_path: Path) -> None:
    commit(log, 0)
    with open_log(without_marker(log, tmp_path)) as again:
        assert again.offsets("t", 0).last_stable_offset == 2
        assert again.append("t", 0, rows(b"next")) == 2
        assert values_of(again, "t") == [b"a", b"next"]


def test_nothing_takes_the_offset_of_a_marker_that_a_full_disk_does_not_take_again(
    log: Log, no_ticks: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(log, 0)
    full = [True]

    def at(name: str) -> None:
        fp(name)
        if full[0] and name == "append.write":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    found = without_marker(log, tmp_path)
    tick_every(0.05, monkeypatch)
    monkeypatch.setattr(disk, "fp", at)
    with open_log(found) as again:
        full[0] = False
        assert without_error(lambda: again.append("t", 0, rows(b"next")), NO_ROOM_YET) == 2
        assert records_of(again, "t") == [(0, b"a"), (2, b"next")]
        assert again.committed_offsets("g") == {WHERE: 1}
