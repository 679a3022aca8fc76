"""Leaders that nobody else copies store without a message to their machine; all else is as it is everywhere."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from descriptors import descriptors_above_select

from millstream.logcore.client import TopicPartition
from millstream.logcore.errors import LogClosed, LogUnavailable, OutOfOrderSequence, UnknownTopic
from millstream.logcore.log import Log, open_log
from millstream.logcore.protocol.wire.fetch_messages import FetchPosition
from millstream.logcore.records.batch import BatchProducer
from millstream.logcore.records.codec import encode
from millstream.logcore.replication.broker.broker import ReplicaBroker
from millstream.logcore.replication.disk.disk_log import DiskLog
from millstream.logcore.replication.machine import Asked, Input
from millstream.logcore.storage.disk import LogFile

from ..log_records import rows, values_of

WAIT_S = 20.0


@pytest.fixture
def log(tmp_path: Path) -> Generator[Log]:
    with open_log(tmp_path / "log") as opened:
        opened.create_topic("t", 2)
        for partition in range(2):
            opened.append("t", partition, rows(b"first"))
        yield opened


@dataclass
class Held:
    """Syncs of segments wait until they are let go. State: how many have begun."""

    began: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)
    count: int = 0

    def into(self, patch: pytest.MonkeyPatch) -> Held:
        sync: Callable[[LogFile], None] = LogFile.sync

        def held(file: LogFile) -> None:
            if str(file.path).endswith(".log"):
                self.count += 1
                self.began.set()
                assert self.go.wait(WAIT_S)
            sync(file)

        patch.setattr(LogFile, "sync", held)
        return self


def test_an_append_asks_no_machine(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Input] = []
    step = ReplicaBroker.step

    def seen(broker: ReplicaBroker, given: Input) -> object:
        asked.extend([given] if isinstance(given, Asked) else [])
        return step(broker, given)

    monkeypatch.setattr(ReplicaBroker, "step", seen)
    assert [log.append("t", 0, rows(b"%d" % number)) for number in range(3)] == [1, 2, 3]
    assert not asked
    assert values_of(log, "t") == [b"first", b"0", b"1", b"2"]


def wait_until_written(log: Log, end_offset: int) -> None:
    """`end_offset`: of what is in the log, durable or not."""
    written = threading.Event()
    while log.offsets("t", 0).log_end_offset < end_offset:
        assert not written.wait(0.001)


def test_who_comes_while_a_sync_runs_shares_the_next_one(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held().into(monkeypatch)
    with ThreadPoolExecutor(6) as pool:
        first = pool.submit(log.append, "t", 0, rows(b"a"))
        assert held.began.wait(WAIT_S)
        others = [pool.submit(log.append_batches, "t", 0, batch(b"b")) for _ in range(5)]
        wait_until_written(log, 7)
        assert not any(done.done() for done in (first, *others))
        assert log.offsets("t", 0).high_watermark == 1
        held.go.set()
        assert first.result(WAIT_S) == 1
        assert sorted(done.result(WAIT_S) for done in others) == [2, 3, 4, 5, 6]
    assert held.count == 2


def batch(value: bytes, producer: BatchProducer | None = None) -> bytes:
    [encoded] = encode(rows(value), *([producer] if producer else []))
    return b"".join(encoded.buffers)


def test_a_sync_of_one_partition_holds_up_no_other(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held().into(monkeypatch)
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(log.append, "t", 0, rows(b"a"))
        assert held.began.wait(WAIT_S)
        monkeypatch.undo()
        assert log.append("t", 1, rows(b"b")) == 1
        assert not slow.done()
        held.go.set()
        assert slow.result(WAIT_S) == 1


def test_who_holds_the_node_finds_no_sync_under_way(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held().into(monkeypatch)
    with ThreadPoolExecutor(2) as pool:
        appending = pool.submit(log.append, "t", 0, rows(b"a"))
        assert held.began.wait(WAIT_S)
        holding = pool.submit(log.node.hold, lambda: log.offsets("t", 0).high_watermark)
        assert not threading.Event().wait(0.05)
        assert not holding.done()
        held.go.set()
        assert holding.result(WAIT_S) == 2
        assert appending.result(WAIT_S) == 1


def test_a_batch_that_comes_twice_is_stored_once(log: Log) -> None:
    producer = BatchProducer(log._new_producer().producer_id, 0, 0)
    for _ in range(2):
        assert log.append_batches("t", 0, batch(b"a", producer)) == 1
    with pytest.raises(OutOfOrderSequence):
        log.append_batches("t", 0, batch(b"b", producer._replace(base_sequence=7)))
    assert values_of(log, "t") == [b"first", b"a"]


def test_a_topic_that_goes_during_a_sync_leaves_the_log_usable(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the record was stored is open, and nobody can tell any more."""
    held = Held().into(monkeypatch)
    with ThreadPoolExecutor(2) as pool:
        appending = pool.submit(log.append, "t", 0, rows(b"a"))
        assert held.began.wait(WAIT_S)
        deleting = pool.submit(log.delete_topic, "t")
        held.go.set()
        deleting.result(WAIT_S)
        try:
            appending.result(2 * WAIT_S)
        except (UnknownTopic, LogUnavailable):
            pass
    log.create_topic("u", 1)
    assert log.append("u", 0, rows(b"a")) == 0


def test_records_of_an_open_transaction_become_durable_by_themselves(log: Log) -> None:
    """Readers of uncommitted records wait for that."""
    producer, seen = log.transactional_producer("q"), threading.Event()
    end = log.listen(lambda _: seen.set() if log.offsets("t", 0).high_watermark == 2 else None)
    try:
        producer.begin()
        producer.append("t", 0, rows(b"a"))
        assert seen.wait(WAIT_S)
    finally:
        end()
    assert log.fetch("t", 0, 1, isolation="read_uncommitted").next_offset == 2
    assert log.offsets("t", 0).last_stable_offset == 1


@pytest.mark.parametrize("partitions", [(0,), (0, 1)])
def test_a_commit_waits_until_its_records_are_durable(
    log: Log, monkeypatch: pytest.MonkeyPatch, partitions: tuple[int, ...]
) -> None:
    producer, noted = log.transactional_producer("q"), dict[str, int]()
    producer.begin()
    for partition in partitions:
        producer.append("t", partition, rows(b"a"))
    note: Callable[[DiskLog, Any], None] = DiskLog._end_sync

    def synced(part: DiskLog, unsynced: Any) -> None:
        note(part, unsynced)
        noted.setdefault(part.name, part.end_offset)

    monkeypatch.setattr(DiskLog, "_end_sync", synced)
    producer.commit()
    names = list(noted)
    decision = next(place for place, name in enumerate(names) if "__transaction_state" in name)
    assert {names.index(f'partition {partition} of topic "t"') < decision for partition in partitions} == {True}
    for partition in partitions:
        assert values_of(log, "t", partition) == [b"first", b"a"]


def test_readers_wait_where_many_files_are_open(log: Log) -> None:
    where = TopicPartition("t", 0)
    positions = [FetchPosition(where, log.offsets(*where).log_end_offset, 0)]
    with descriptors_above_select():
        door = log.parts.door()
        (before,) = door.look(positions, "read_committed", 0.05)
        later = threading.Timer(0.05, lambda: log.append("t", 0, rows(b"a")))
        later.start()
        (after,) = door.look(positions, "read_committed", WAIT_S)
        later.join()
    assert (before.last_stable_offset, after.last_stable_offset) == (1, 2)


def test_a_closed_log_takes_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    log.create_topic("t", 1)
    log.close()
    with pytest.raises(LogClosed):
        log.append("t", 0, rows(b"a"))
    with pytest.raises(LogClosed):
        log.offsets("t", 0)
