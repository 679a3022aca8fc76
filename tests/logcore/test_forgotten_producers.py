"""Transactional ids and groups that nobody uses any more."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest
from waiting import eventually

from millstream.logcore.client import FetchedRows, TopicPartition
from millstream.logcore.coordination.group_offset_bytes import SettledKey, decode_offset_key
from millstream.logcore.errors import ProducerFenced
from millstream.logcore.log import Log, open_log
from millstream.logcore.remote import RemoteLog, trusted_address
from millstream.logcore.replication.shards import group_shard
from millstream.logcore.replication.shards.group_shard import GroupSettings
from millstream.logcore.replication.shards.transaction_entries import TransactionEntries
from millstream.logcore.server import LogServer
from millstream.logcore.topic_rules import GROUPS_TOPIC

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


def test_a_group_that_is_deleted_stays_so_while_the_end_of_its_last_transaction_is_not_said_to_be_complete(
    log: Log, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TransactionEntries, "write_owed", lambda self: None)  # a crash comes first
    commit(log, "id", 1)
    log.forget_group("g")
    log.close()
    with open_log(folder) as later:
        assert (later.committed_offsets("g"), later.groups.names()) == ({}, [])


@pytest.mark.parametrize(("complete_ms", "remembered"), [(0, False), (3_600_000, True)])
def test_what_a_deleted_group_had_settled_is_forgotten_later(
    log: Log, folder: Path, monkeypatch: pytest.MonkeyPatch, complete_ms: int, remembered: bool
) -> None:
    log.close()
    monkeypatch.setattr(group_shard, "_COMPLETE_MS", complete_ms)
    often = partial(GroupSettings, expire_every_ms=20)
    monkeypatch.setattr("millstream.logcore.cluster.cluster_node.GroupSettings", often)
    with open_log(folder) as later:  # with the time of day
        commit(later, "id", 1)
        later.forget_group("g")
        if remembered:
            time.sleep(0.3)  # several looks
        eventually(lambda: _settled(later) == [remembered])


def _settled(log: Log) -> list[bool]:
    """Whether each transaction that a group has ever settled is remembered."""
    kept: dict[bytes, bytes | None] = {}
    for run in log.fetch(GROUPS_TOPIC, 0, 0).runs:
        assert isinstance(run, FetchedRows)
        for record in run.table.to_pylist():
            kept[record["key"]] = record["value"]
    return [value is not None for key, value in kept.items() if isinstance(decode_offset_key(key), SettledKey)]


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
