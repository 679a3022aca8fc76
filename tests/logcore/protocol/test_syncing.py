"""Appends that came while a sync ran share the next one; small ones wait for nobody else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from millstream.errors import LogError
from millstream.logcore import failpoints
from millstream.logcore.log import Log
from millstream.logcore.protocol.syncing import Outcome, Syncs
from millstream.logcore.records.codec import encode
from millstream.logcore.storage.partition import Partition

from ..log_records import rows


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def partition(log: Log) -> Partition:
    return log.partition("t", 0)


class CountedSyncs:
    """Holds back the first sync of a partition, until it is let go, and counts them."""

    def __init__(self, partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.go_on = threading.Event()
        sync = partition.segments()[-1].file.sync

        def counted(_: Any) -> None:
            self.count += 1
            self.go_on.wait(60)
            sync()

        monkeypatch.setattr(type(partition.segments()[-1].file), "sync", counted)


def test_who_comes_while_a_sync_runs_shares_the_next_one(
    partition: Partition, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = CountedSyncs(partition, monkeypatch)

    async def run() -> list[Outcome]:
        syncs = Syncs(asyncio.get_running_loop(), threads)
        waiting = [syncs.durable(partition, partition.append(encode(rows(b"first"))).mark)]
        await asyncio.sleep(0.05)
        waiting += [
            syncs.durable(partition, partition.append(encode(rows(b"%d" % number))).mark) for number in range(20)
        ]
        assert not any(future.done() for future in waiting)
        held.go_on.set()
        await syncs.settled()
        return [future.result() for future in waiting]

    assert asyncio.run(run()) == [None] * 21
    assert held.count == 2
    assert partition.offsets().high_watermark == 21


def test_who_waits_hears_that_the_disk_refused(partition: Partition, threads: ThreadPoolExecutor) -> None:
    async def run() -> Outcome:
        failpoints.arm("append.before_sync:1:eio")
        syncs = Syncs(asyncio.get_running_loop(), threads)
        refused = syncs.durable(partition, partition.append(encode(rows(b"lost"))).mark)
        await syncs.settled()
        return refused.result()

    assert isinstance(asyncio.run(run()), LogError)
    assert partition.offsets().log_end_offset == 0


def test_an_append_is_told_when_it_would_wait(partition: Partition) -> None:
    with partition.unless_busy(100) as free:
        assert free
        assert partition.append(encode(rows(b"a"))).first_offset == 0
    with partition.unless_busy(1 << 40) as free:
        assert not free  # a new segment would be due
    seen: list[bool] = []

    def another() -> None:
        with partition.unless_busy(100) as free:
            seen.append(free)

    with partition.unless_busy(100):
        thread = threading.Thread(target=another)
        thread.start()
        thread.join()
    assert seen == [False]
