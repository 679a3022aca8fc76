"""Closing a log while others use it: what was acknowledged is whole after it, and every partition opens again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from waiting import eventually

from millstream.logcore import failpoints
from millstream.logcore.client import TopicPartition
from millstream.logcore.errors import LogClosed
from millstream.logcore.log import Log, open_log

from .log_records import rows, values_of

SOURCE = TopicPartition("src", 0)


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


@pytest.mark.parametrize("begun", [1, 2, 5, 9])
def test_a_transaction_that_is_open_while_the_log_closes_is_whole_or_not_there(folder: Path, begun: int) -> None:
    log = open_log(folder)
    log.create_topic("t", 2)
    log.create_topic("src", 1)
    committed: list[bytes] = []
    enough = threading.Event()

    def commit_until_it_is_closed() -> None:
        producer = log.transactional_producer("x")
        for number in range(10_000):
            if number == begun:
                enough.set()
            producer.begin()
            for partition in range(2):
                producer.append("t", partition, rows(b"%d" % number))
            producer.send_offsets("g", {SOURCE: number + 1})
            producer.commit()
            committed.append(b"%d" % number)

    with ThreadPoolExecutor(1) as pool:
        committing = pool.submit(commit_until_it_is_closed)
        assert enough.wait(60)
        log.close()
        with pytest.raises(LogClosed):
            committing.result()
    assert len(committed) >= begun
    with open_log(folder) as log:
        count = log.committed_offsets("g")[SOURCE]
        assert count in (len(committed), len(committed) + 1)
        log.transactional_producer("x")
        for partition in range(2):
            eventually(lambda partition=partition: _is_stable(log, partition))
            assert values_of(log, "t", partition) == [b"%d" % number for number in range(count)]


def test_a_commit_that_is_under_way_is_whole_after_the_log_was_closed(folder: Path) -> None:
    with open_log(folder) as log:
        log.create_topic("t", 2)
        producer = log.transactional_producer("x")
        producer.begin()
        producer.append("t", 0, rows(b"a"))
        producer.append("t", 1, rows(b"a"))
        failpoints.arm("txn.after_prepare:1:sleep(300)")
        with ThreadPoolExecutor(1) as pool:
            committing = pool.submit(producer.commit)
            while not failpoints.hits("txn.after_prepare"):
                threading.Event().wait(0.001)
            log.close()
            with suppress(LogClosed):
                committing.result()
    with open_log(folder) as log:
        for partition in range(2):
            eventually(lambda partition=partition: _is_stable(log, partition))
            assert values_of(log, "t", partition) == [b"a"]


def _is_stable(log: Log, partition: int) -> bool:
    offsets = log.offsets("t", partition)
    return offsets.last_stable_offset == offsets.high_watermark
