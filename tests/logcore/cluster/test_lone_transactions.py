"""Transactions of producers in the process of a node that is alone: two rounds of syncs, and nothing in between is lost
or seen by half."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from waiting import eventually

from millstream.logcore import failpoints
from millstream.logcore.client import TopicPartition
from millstream.logcore.clients.remote_producer import RemoteTransactionalProducer
from millstream.logcore.cluster.refusals import listed
from millstream.logcore.errors import LogFull, ProducerFenced
from millstream.logcore.log import Log, open_log
from millstream.logcore.replication.machine import BROKER
from millstream.logcore.replication.shards.coordination_messages import ForEveryShard, ForTransaction
from millstream.logcore.replication.shards.transaction_messages import (
    DescribedTransaction,
    InitProducer,
    ListTransactions,
)
from millstream.logcore.topic_rules import TRANSACTIONS_TOPIC

from ..log_records import crashed_copy, rows, values_of
from ..replication.power import Power, lay_out
from .ticks import stop_ticks, tick

WHERE = TopicPartition("t", 0)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    opened = open_log(tmp_path / "log")
    opened.create_topic("t", 2)
    return opened


def write(producer: RemoteTransactionalProducer, value: bytes) -> None:
    producer.begin()
    producer.append("t", 0, rows(value))
    producer.append("t", 1, rows(value))


def crashed(log: Log, tmp_path: Path) -> Path:
    """The directory as a process leaves it that is killed now."""
    found = crashed_copy(log, tmp_path / "log", tmp_path / f"crashed-{len(list(tmp_path.iterdir()))}")
    log.close()
    return found


def described(log: Log) -> list[DescribedTransaction]:
    return listed(log.node.answer(BROKER, ForEveryShard(TRANSACTIONS_TOPIC, ListTransactions())), DescribedTransaction)


def test_a_commit_waits_for_two_rounds_of_syncs(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written, in all partitions at once; then the decision. What the commit before has left shares them."""
    rounds: list[int] = []
    sync: Callable[[], None] = log.node.logs.sync

    def counted() -> None:
        rounds.append(1)
        sync()

    with log:
        producer = log.transactional_producer("q")
        for number in range(5):
            if number == 1:
                stop_ticks(log, monkeypatch)  # they sync, too
                monkeypatch.setattr(log.node.logs, "sync", counted)
            write(producer, b"%d" % number)
            producer.send_offsets("g", {WHERE: number})
            producer.commit()
        assert len(rounds) == 2 * 4
        assert values_of(log, "t", 1) == [b"0", b"1", b"2", b"3", b"4"]
        assert log.committed_offsets("g") == {WHERE: 4}


def test_what_a_crash_left_open_is_aborted_when_the_log_is_opened(log: Log, tmp_path: Path) -> None:
    producer = log.transactional_producer("q")
    write(producer, b"committed")
    producer.commit()
    write(producer, b"left open")
    with open_log(crashed(log, tmp_path)) as again:
        for partition in range(2):
            assert values_of(again, "t", partition) == [b"committed"]
            offsets = again.offsets("t", partition)
            assert offsets.last_stable_offset == offsets.high_watermark
        successor = again.transactional_producer("q")
        write(successor, b"next")
        successor.commit()
        assert values_of(again, "t", 1) == [b"committed", b"next"]


def test_an_orphan_of_an_earlier_epoch_does_not_fence_the_next_producer(log: Log, tmp_path: Path) -> None:
    """Its partition is opened while the successor is in the middle of a transaction, which then writes there, too."""
    producer = log.transactional_producer("q")
    write(producer, b"left open")
    with open_log(crashed(log, tmp_path)) as again:
        successor = again.transactional_producer("q")
        successor.begin()
        successor.append("t", 0, rows(b"next"))
        assert values_of(again, "t", 1) == []
        successor.append("t", 1, rows(b"next"))
        successor.commit()
        assert [values_of(again, "t", partition) for partition in range(2)] == [[b"next"]] * 2


def test_a_committed_transaction_outlasts_a_power_cut_before_its_markers_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(20):
        root = tmp_path / f"root-{seed}"
        root.mkdir()
        with monkeypatch.context() as patch:
            power = Power(root, patch)
            with open_log(root / "log") as log:
                log.create_topic("t", 2)
                producer = log.transactional_producer("q")
                for number in range(seed % 3 + 1):
                    write(producer, b"%d" % number)
                    producer.send_offsets("g", {WHERE: number})
                    producer.commit()
                disk = power.possible(Random(seed))
        cut = tmp_path / f"cut-{seed}"
        cut.mkdir()
        lay_out(disk, cut)
        expected = [b"%d" % number for number in range(seed % 3 + 1)]
        with open_log(cut / "log") as again:
            assert again.committed_offsets("g") == {WHERE: seed % 3}
            assert [values_of(again, "t", partition) for partition in range(2)] == [expected] * 2


def test_who_takes_the_id_aborts_what_is_open_of_it(log: Log) -> None:
    with log:
        producer = log.transactional_producer("q")
        write(producer, b"lost")
        assert [(found.state, len(found.partitions)) for found in described(log)] == [("Ongoing", 2)]
        successor = log.transactional_producer("q")
        for partition in range(2):
            offsets = log.offsets("t", partition)
            assert offsets.last_stable_offset == offsets.high_watermark
        with pytest.raises(ProducerFenced):
            producer.append("t", 0, rows(b"late"))
        with pytest.raises(ProducerFenced):
            producer.commit()
        write(successor, b"kept")
        successor.commit()
        assert values_of(log, "t") == [b"kept"]


def test_a_coordinator_that_could_not_write_knows_what_is_open_all_the_same(log: Log) -> None:
    """It is read again from its log, in which open transactions of this process are not."""
    with log:
        producer = log.transactional_producer("q")
        write(producer, b"first")
        failpoints.arm("append.write:1:enospc")
        try:
            with pytest.raises(LogFull):
                producer.commit()
        finally:
            failpoints.arm("")
        producer.abort()
        write(producer, b"second")
        producer.commit()
        for partition in range(2):
            assert values_of(log, "t", partition) == [b"second"]
            offsets = log.offsets("t", partition)
            assert offsets.last_stable_offset == offsets.high_watermark


def test_what_is_open_for_too_long_is_aborted(log: Log) -> None:
    with log:
        producer = log.transactional_producer("q")
        given: Any = log.node.answer(BROKER, ForTransaction("q", InitProducer(300)))
        producer.producer_id, producer.epoch = given.producer_id, given.epoch
        write(producer, b"lost")
        eventually(lambda: log.offsets("t", 0).last_stable_offset > 0)
        assert values_of(log, "t") == []
        with pytest.raises(ProducerFenced):
            producer.commit()


def test_what_is_open_for_too_long_is_aborted_though_the_end_before_it_is_not_durable_yet(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time comes while the id's last transaction is seen by all, and some of its markers are not durable."""
    with log:
        producer = log.transactional_producer("q")
        given: Any = log.node.answer(BROKER, ForTransaction("q", InitProducer(50)))
        producer.producer_id, producer.epoch = given.producer_id, given.epoch
        stop_ticks(log, monkeypatch)
        write(producer, b"first")
        producer.commit()
        write(producer, b"second")
        time.sleep(0.1)
        tick(log)

        for partition in range(2):
            log.append("t", partition, rows(b"later"))  # makes the markers before it durable

        def is_aborted() -> bool:
            tick(log)
            return values_of(log, "t") == [b"first", b"later"]

        eventually(is_aborted, 10)
        with pytest.raises(ProducerFenced):
            producer.commit()


def test_a_log_that_was_closed_properly_has_nothing_to_end(log: Log, tmp_path: Path) -> None:
    with log:
        producer = log.transactional_producer("q")
        write(producer, b"a")
        producer.commit()
    with open_log(tmp_path / "log") as again:
        assert [found.state for found in described(again)] == ["CompleteCommit"]
        assert values_of(again, "t") == [b"a"]
