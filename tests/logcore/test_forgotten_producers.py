"""Transactional ids and groups that nobody uses any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.logcore.client import TopicPartition
from millstream.logcore.errors import ProducerFenced
from millstream.logcore.log import Log, open_log
from millstream.logcore.remote import RemoteLog, trusted_address
from millstream.logcore.server import LogServer

from .log_records import rows

T0 = TopicPartition("t", 0)


def commit(log: Log, transactional_id: str, *offsets: int) -> None:
    producer = log.transactional_producer(transactional_id)
    for offset in offsets:
        producer.begin()
        producer.append("t", 0, rows(b"v"))
        producer.send_offsets("g", {T0: offset})
        producer.commit()


def test_nothing_is_left_of_a_group_that_is_forgotten(log: Log, folder: Path) -> None:
    commit(log, "id", 1)
    log.commit_offsets("g", {T0: 9})
    log.forget_group("g")
    log.forget_group("g")
    assert (log.committed_offsets("g"), log.groups.names()) == ({}, [])
    log.close()
    with open_log(folder) as later:
        assert (later.committed_offsets("g"), later.groups.names()) == ({}, [])
        commit(later, "id", 7)
        assert later.committed_offsets("g") == {T0: 7}


def test_an_id_that_is_forgotten_can_be_taken_again(log: Log, folder: Path) -> None:
    commit(log, "id", 1, 2)
    log.forget_producer("id")
    log.forget_producer("never was")
    commit(log, "id", 3)
    log.close()
    with open_log(folder) as later:
        commit(later, "id", 4)
        assert later.committed_offsets("g") == {T0: 4}


def test_what_a_forgotten_producer_has_open_is_aborted_and_it_is_fenced(log: Log) -> None:
    producer = log.transactional_producer("id")
    producer.begin()
    producer.append("t", 0, rows(b"never seen"))
    log.forget_producer("id")
    with pytest.raises(ProducerFenced):
        producer.commit()
    commit(log, "id", 1)
    assert log.offsets("t", 0).last_stable_offset == log.offsets("t", 0).high_watermark


def test_over_the_network_a_group_is_forgotten_and_a_producer_is_fenced(log: Log) -> None:
    with LogServer(log, port=0) as server, RemoteLog(trusted_address(log.served, server.address)) as remote:
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
