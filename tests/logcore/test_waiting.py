"""Waiting for records while others commit: nobody sleeps through a commit, and nobody waits for the other for ever."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pyarrow as pa

from millstream.logcore.client import RowRecords, TopicPartition
from millstream.logcore.log import open_log

COMMITS = 300
PATIENCE_S = 20


def one_record() -> RowRecords:
    return RowRecords(
        pa.table(
            {
                "timestamp": pa.array([0], pa.int64()),
                "key": pa.array([b"k"], pa.binary()),
                "value": pa.array([b"v"], pa.binary()),
            }
        )
    )


def test_waiters_and_committers_do_not_block_each_other(tmp_path: Path) -> None:
    with open_log(tmp_path, sync="never") as log:
        log.create_topic("t", 2)
        stop = threading.Event()

        def wait_again_and_again() -> None:
            position = 0
            while not stop.is_set():
                if log.wait({TopicPartition("t", 0): position, TopicPartition("t", 1): 1 << 40}, 0.05):
                    position = log.offsets("t", 0).last_stable_offset

        waiters = [threading.Thread(target=wait_again_and_again, daemon=True) for _ in range(3)]
        for waiter in waiters:
            waiter.start()

        def commit_again_and_again() -> None:
            producer = log.transactional_producer("p")
            for _ in range(COMMITS):
                producer.begin()
                for partition in range(2):
                    producer.append("t", partition, one_record())
                producer.commit()

        committer = threading.Thread(target=commit_again_and_again, daemon=True)
        committer.start()
        committer.join(PATIENCE_S)
        finished = not committer.is_alive()
        stop.set()
        for waiter in waiters:
            waiter.join(PATIENCE_S)
        assert finished and not any(waiter.is_alive() for waiter in waiters)


def test_a_waiter_wakes_when_a_transaction_commits(tmp_path: Path) -> None:
    with open_log(tmp_path, sync="never") as log:
        log.create_topic("t", 1)
        woken: list[float] = []

        def sleep_until_there_is_something() -> None:
            if log.wait({TopicPartition("t", 0): 0}, PATIENCE_S):
                woken.append(time.monotonic())

        waiter = threading.Thread(target=sleep_until_there_is_something, daemon=True)
        waiter.start()
        producer = log.transactional_producer("p")
        producer.begin()
        producer.append("t", 0, one_record())
        assert not woken
        producer.commit()
        waiter.join(PATIENCE_S)
        assert woken
