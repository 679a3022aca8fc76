"""Closing a log while others use it: what was acknowledged is whole after it, and every partition opens again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millstream.errors import LogError
from millstream.logcore import failpoints
from millstream.logcore.errors import LogClosed, ProducerFenced
from millstream.logcore.log import open_log
from millstream.logcore.records.batch import BatchProducer
from millstream.logcore.records.codec import encode
from millstream.logcore.storage.partition import Partition

from .log_records import rows, values_of


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


@pytest.mark.parametrize("point", ["log.close", "log.closed_noted"])
def test_a_transaction_that_begins_while_the_log_closes_is_whole_or_refused(folder: Path, point: str) -> None:
    with open_log(folder) as log:
        log.create_topic("t", 2)
        producer = log.transactional_producer("x")
        failpoints.arm(f"{point}:1:sleep(300)")
        closing = threading.Thread(target=log.close)
        closing.start()
        _wait_until_hit(point)
        written = True
        try:
            producer.begin()
            producer.append("t", 0, rows(b"first half"))
        except LogClosed:
            written = False
        closing.join()
    with open_log(folder) as log:  # the client has not noticed
        resumed = log.resumed_producer("x", producer.producer_id, producer.epoch)
        if resumed is not None:
            if not written:
                resumed.begin()
                resumed.append("t", 0, rows(b"first half"))
            resumed.append("t", 1, rows(b"second half"))
            resumed.commit()
        whole = ([b"first half"], [b"second half"])
        assert (values_of(log, "t", 0), values_of(log, "t", 1)) in (whole, ([], []))


def test_a_commit_that_is_under_way_is_finished_before_the_log_closes(folder: Path) -> None:
    with open_log(folder) as log:
        log.create_topic("t", 1)
        producer = log.transactional_producer("x")
        producer.begin()
        producer.append("t", 0, rows(b"a"))
        failpoints.arm("txn.after_prepare:1:sleep(300)")
        failures: list[LogError] = []
        committing = threading.Thread(target=_note_failure, args=(producer.commit, failures))
        committing.start()
        _wait_until_hit("txn.after_prepare")
        log.close()
        committing.join()
        assert failures == []
    with open_log(folder) as log:
        assert values_of(log, "t") == [b"a"]
        assert log.resumed_producer("x", producer.producer_id, producer.epoch) is not None


def test_a_partition_opens_whatever_epochs_its_open_transaction_has_seen(folder: Path) -> None:
    log = open_log(folder)
    log.create_topic("t", 1)
    for epoch in (3, 4):
        _append_to_transaction(log.partition("t", 0), producer_id=7, epoch=epoch)
    log.close()
    with open_log(folder) as log:
        assert values_of(log, "t") == []
        offsets = log.offsets("t", 0)
        assert offsets.last_stable_offset == offsets.log_end_offset
        with pytest.raises(ProducerFenced):
            _append_to_transaction(log.partition("t", 0), producer_id=7, epoch=3)


def test_no_partition_opens_in_a_log_that_is_closed(folder: Path) -> None:
    with open_log(folder) as log:
        log.create_topic("t", 1)
    log = open_log(folder)
    failpoints.arm("log.closed_noted:1:sleep(300)")
    closing = threading.Thread(target=log.close)
    closing.start()
    _wait_until_hit("log.closed_noted")
    with pytest.raises(LogClosed):
        log.append("t", 0, rows(b"a"))
    closing.join()


def _append_to_transaction(partition: Partition, producer_id: int, epoch: int) -> None:
    partition.append(encode(rows(b"open"), BatchProducer(producer_id, epoch, 0, transactional=True)))
    partition.sync_all()


def _note_failure(act: Callable[[], None], failures: list[LogError]) -> None:
    try:
        act()
    except LogError as error:
        failures.append(error)


def _wait_until_hit(point: str) -> None:
    while not failpoints.hits(point):
        threading.Event().wait(0.001)
