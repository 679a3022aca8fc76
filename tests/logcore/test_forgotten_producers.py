"""What is left of transactional ids and groups that nobody uses any more: nothing."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.logcore.client import TopicPartition
from millstream.logcore.cores.expiry import ExpiryTimes
from millstream.logcore.errors import ProducerFenced
from millstream.logcore.log import Log, open_log
from millstream.logcore.remote import RemoteLog, trusted_address
from millstream.logcore.server import LogServer

from .log_records import rows

T0 = TopicPartition("t", 0)
AGE_MS = 1000


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(tmp_path: Path, clock: Clock) -> Iterator[Log]:
    expiry = ExpiryTimes(transactional_ids_ms=AGE_MS)
    with open_log(tmp_path / "log", clock=clock, sync="never", expiry=expiry) as opened:
        opened.create_topic("t", 1)
        yield opened


def commit(log: Log, transactional_id: str, *offsets: int) -> None:
    producer = log.transactional_producer(transactional_id)
    for offset in offsets:
        producer.begin()
        producer.append("t", 0, rows(b"v"))
        producer.send_offsets("g", {T0: offset})
        producer.commit()


def kept(log: Log) -> list[int]:
    """How many entries the log keeps in memory about producers and groups, by where they are."""
    coordinator, offsets = log._coordinator, log._group_offsets
    core = coordinator._core._known
    places = (
        core, coordinator._used_ms, coordinator._begun_ms, coordinator._held, coordinator._id_locks,
        coordinator._noted, coordinator._found_notes, coordinator._log.entries(),
        offsets._groups, offsets._applied, offsets.entries(),
    )  # fmt: skip
    return [*map(len, places), len(log.groups.names())]


def test_an_id_that_has_expired_commits_offsets_again(log: Log, clock: Clock) -> None:
    commit(log, "id", 1, 2, 3)
    gc.collect()  # a producer holds its id
    clock.now_s += AGE_MS / 1000 + 1
    log.keep_house()
    assert log.transactions() == []
    commit(log, "id", 4)
    assert log.committed_offsets("g") == {T0: 4}


def test_nothing_is_left_of_what_is_forgotten(log: Log, tmp_path: Path) -> None:
    commit(log, "stays", 1)
    before = kept(log)
    for number in range(5):
        commit(log, f"goes-{number}", 1, 2)
        log.forget_producer(f"goes-{number}")
    log.forget_group("g")
    log.forget_group("g")
    log.forget_producer("never was")
    assert log.committed_offsets("g") == {}
    commit(log, "stays", 1)
    assert kept(log) == before
    log.close()
    with open_log(tmp_path / "log") as later:
        assert [found.identity.transactional_id for found in later.transactions()] == ["stays"]
        commit(later, "goes-1", 7)
        assert later.committed_offsets("g") == {T0: 7}


def test_what_a_forgotten_producer_has_open_is_aborted_and_it_is_fenced(log: Log) -> None:
    producer = log.transactional_producer("id")
    producer.begin()
    producer.append("t", 0, rows(b"never seen"))
    log.forget_producer("id")
    with pytest.raises(ProducerFenced):
        producer.commit()
    commit(log, "id", 1)
    assert log.offsets("t", 0).last_stable_offset == log.offsets("t", 0).log_end_offset


def test_over_the_network_a_group_is_forgotten_and_a_producer_is_fenced(log: Log) -> None:
    with LogServer(log, port=0) as server, RemoteLog(trusted_address(log, server.address)) as remote:
        producer = remote.transactional_producer("id")
        producer.begin()
        producer.send_offsets("g", {T0: 1})
        producer.commit()
        remote.forget_group("g")
        remote.forget_group("g")
        assert remote.committed_offsets("g") == {}
        remote.forget_producer("id")
        with pytest.raises(ProducerFenced):
            producer.begin()
