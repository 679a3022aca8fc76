"""One suite for clients that we did not write: confluent-kafka, kafka-python, aiokafka."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import pytest

from millstream.logcore import client
from millstream.logcore.log import Log
from millstream.logcore.server import LogServer

from ..log_records import values_of
from .driver import Driver, Members, Record, abandon, closing_all
from .relay import Relay

LIBRARIES = {"confluent_kafka": "with_confluent", "kafka": "with_kafka_python", "aiokafka": "with_aiokafka"}
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(params=LIBRARIES)
def driver(request: pytest.FixtureRequest) -> Driver:
    pytest.importorskip(request.param)
    return cast(Driver, importlib.import_module(f".{LIBRARIES[request.param]}", __package__))


@pytest.fixture
def address(log: Log) -> Iterator[str]:
    with LogServer(log, port=0) as running:
        yield running.address


def records(count: int, prefix: str = "value") -> list[Record]:
    return [Record(f"{prefix} {number}".encode()) for number in range(count)]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_what_is_produced_is_read_again_whatever_the_compression(
    driver: Driver, address: str, log: Log, compression: str
) -> None:
    sent = records(500)
    driver.produce(address, "t", sent, compression=compression)
    assert values_of(log, "t") == [record.value for record in sent]
    assert [(got.offset, got.record) for got in driver.read(address, "t", len(sent))] == list(enumerate(sent))


def test_keys_headers_times_and_tombstones_arrive_as_they_were_sent(driver: Driver, address: str) -> None:
    sent = [
        Record(b"v", b"k", (("h", b"1"), ("h", b"2")), 123_456),
        Record(None, b"gone", (), 123_457),
        Record(b"", b"", (("empty", b""),), 123_458),
    ]
    driver.produce(address, "t", sent)
    assert [got.record for got in driver.read(address, "t", len(sent))] == sent


def test_a_batch_whose_answer_was_lost_is_stored_once(driver: Driver, log: Log) -> None:
    relay = Relay()
    with LogServer(log, port=0, advertised=("127.0.0.1", relay.port)) as server:
        relay.start(server.port)
        lost = _lose_first_append(log, relay)
        driver.produce(f"127.0.0.1:{relay.port}", "t", records(200), idempotent=True)
        assert lost()
        relay.cut()
    assert values_of(log, "t") == [record.value for record in records(200)]


def _lose_first_append(log: Log, relay: Relay):
    """The first records are stored, and the client does not hear of it."""
    armed = [True]

    def advanced() -> None:
        if armed and log.offsets("t", 0).log_end_offset > 0:
            armed.clear()
            relay.lose_next_answer()

    stop = log.listen(advanced)

    def outcome() -> bool:
        stop()
        return relay.lost.is_set()

    return outcome


def test_committed_transactions_are_seen_and_aborted_ones_are_not(driver: Driver, address: str) -> None:
    with driver.transactions(address, "tx") as begin:
        for number, commits in enumerate([True, False, True, False]):
            transaction = begin()
            transaction.send("t", [Record(b"%d" % number)])
            transaction.commit() if commits else transaction.abort()
        left_open = begin()
        left_open.send("t", [Record(b"open")])
        seen = [got.record.value for got in driver.read(address, "t", 2)]
        everything = [got.record.value for got in driver.read(address, "t", 5, committed=False)]
        left_open.abort()
    assert seen == [b"0", b"2"]
    assert everything == [b"0", b"1", b"2", b"3", b"open"]


def test_a_group_shares_its_partitions_and_takes_over_from_a_member_that_dies(
    driver: Driver, address: str, log: Log
) -> None:
    log.create_topic("shared", 6)
    relay = Relay()
    with LogServer(log, port=0, advertised=("127.0.0.1", relay.port)) as mortal, closing_all(Members()) as group:
        relay.start(mortal.port)
        dying = driver.member(f"127.0.0.1:{relay.port}", "g", "shared")
        group.members += [driver.member(address, "g", "shared") for _ in range(2)]
        everybody = Members([*group.members, dying])
        everybody.poll_until(lambda: everybody.share(6), "three members share six partitions")
        driver.produce(address, "shared", [replace(record, partition=i % 6) for i, record in enumerate(records(60))])
        everybody.poll_until(lambda: len(everybody.got) >= 60, "all records are read")
        for member in everybody.members:
            member.commit()
        relay.cut()
        group.poll_until(lambda: group.share(6), "two members share what three had")
        driver.produce(
            address, "shared", [replace(record, partition=i % 6) for i, record in enumerate(records(60, "2nd"))]
        )
        group.poll_until(lambda: len(group.got) >= 60, "the new records are read")
        assert {got.record.value for got in group.got} == {record.value for record in records(60, "2nd")}
        assert len(group.got) == 60
        for member in group.members:
            member.commit()
    abandon(dying)
    assert log.committed_offsets("g") == {client.TopicPartition("shared", number): 20 for number in range(6)}


def test_a_group_goes_on_where_it_committed(driver: Driver, address: str, log: Log) -> None:
    driver.produce(address, "t", records(10))
    with closing_all(Members([driver.member(address, "g", "t")])) as first:
        first.poll_until(lambda: len(first.got) >= 10, "all records are read")
        first.members[0].commit()
    driver.produce(address, "t", records(5, "later"))
    with closing_all(Members([driver.member(address, "g", "t")])) as second:
        second.poll_until(lambda: len(second.got) >= 5, "the new records are read")
    assert [got.record.value for got in second.got] == [record.value for record in records(5, "later")]


def test_a_compacted_topic_keeps_the_last_record_of_each_key(driver: Driver, address: str, log: Log) -> None:
    driver.create_topic(
        address, "latest", 1, {"cleanup.policy": "compact", "segment.bytes": "1024", "min.cleanable.dirty.ratio": "0"}
    )
    sent = [Record(b"value %d" % number, b"key %d" % (number % 3)) for number in range(120)]
    for start in range(0, len(sent), 10):
        driver.produce(address, "latest", sent[start : start + 10])
    log.keep_house()
    found = driver.read(address, "latest", 3)
    assert len(found) < len(sent) / 2
    last = {got.record.key: got.record.value for got in found}
    assert last == {b"key 0": b"value 117", b"key 1": b"value 118", b"key 2": b"value 119"}
    assert all(sent[got.offset].value == got.record.value for got in found)


def test_topics_are_created_seen_and_deleted(driver: Driver, address: str, log: Log) -> None:
    driver.create_topic(address, "made", 3, {"retention.ms": "1000000"})
    assert log.topics()["made"] == client.Topic("made", 3, {"retention.ms": "1000000"})
    assert driver.partitions_of(address, "made") == 3
    driver.delete_topic(address, "made")
    assert driver.partitions_of(address, "made") is None


def test_topics_of_millstream_are_read_by_everybody_and_written_by_nobody_else(
    driver: Driver, address: str, log: Log
) -> None:
    log.create_topic("_millstream-command", 1)
    with pytest.raises(Exception, match=r"(?i)authoriz|NOT_ALLOWED"):
        driver.produce(address, "_millstream-command", [Record(b"intruder")])
    assert values_of(log, "_millstream-command") == []
    with pytest.raises(Exception, match=r"(?i)authoriz|NOT_ALLOWED"):
        driver.delete_topic(address, "_millstream-command")
    assert "_millstream-command" in log.topics()
