"""One suite for clients that we did not write: confluent-kafka, kafka-python, aiokafka."""

from __future__ import annotations

import importlib
import time
from dataclasses import replace
from typing import cast

import pytest

from . import outside
from .brokers import Broker
from .driver import TIMEOUT_S, Driver, Members, Record, abandon, closing_all
from .outside import create_topic, unique
from .relay import PRODUCE

LIBRARIES = {"confluent_kafka": "with_confluent", "kafka": "with_kafka_python", "aiokafka": "with_aiokafka"}
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(params=LIBRARIES)
def driver(request: pytest.FixtureRequest) -> Driver:
    pytest.importorskip(request.param)
    return cast(Driver, importlib.import_module(f".{LIBRARIES[request.param]}", __package__))


def records(count: int, prefix: str = "value") -> list[Record]:
    return [Record(f"{prefix} {number}".encode()) for number in range(count)]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_what_is_produced_is_read_again_whatever_the_compression(
    driver: Driver, address: str, topic: str, compression: str
) -> None:
    sent = records(500)
    driver.produce(address, topic, sent, compression=compression)
    assert outside.values(address, topic) == [record.value for record in sent]
    assert [(got.offset, got.record) for got in driver.read(address, topic, len(sent))] == list(enumerate(sent))


def test_keys_headers_times_and_tombstones_arrive_as_they_were_sent(driver: Driver, address: str, topic: str) -> None:
    sent = [
        Record(b"v", b"k", (("h", b"1"), ("h", b"2")), 123_456),
        Record(None, b"gone", (), 123_457),
        Record(b"", b"", (("empty", b""),), 123_458),
    ]
    driver.produce(address, topic, sent)
    assert [got.record for got in driver.read(address, topic, len(sent))] == sent


def test_a_batch_whose_answer_was_lost_is_stored_once(driver: Driver, broker: Broker, topic: str) -> None:
    with broker.relayed() as relay:
        relay.lose_answer_to(PRODUCE)
        driver.produce(relay.address, topic, records(200), idempotent=True)
        assert relay.lost.is_set()
    assert outside.values(broker.address, topic) == [record.value for record in records(200)]


def test_committed_transactions_are_seen_and_aborted_ones_are_not(driver: Driver, address: str, topic: str) -> None:
    with driver.transactions(address, unique("tx")) as begin:
        for number, commits in enumerate([True, False, True, False]):
            transaction = begin()
            transaction.send(topic, [Record(b"%d" % number)])
            transaction.commit() if commits else transaction.abort()
        left_open = begin()
        left_open.send(topic, [Record(b"open")])
        seen = [got.record.value for got in driver.read(address, topic, 2)]
        everything = [got.record.value for got in driver.read(address, topic, 5, committed=False)]
        left_open.abort()
    assert seen == [b"0", b"2"]
    assert everything == [b"0", b"1", b"2", b"3", b"open"]


def test_a_group_shares_its_partitions_and_takes_over_from_a_member_that_dies(
    driver: Driver, broker: Broker, group: str
) -> None:
    address = broker.address
    shared = create_topic(address, unique("shared"), 6)
    with broker.relayed() as relay, closing_all(Members()) as living:
        dying = driver.member(relay.address, group, shared)
        living.members += [driver.member(address, group, shared) for _ in range(2)]
        everybody = Members([*living.members, dying])
        everybody.poll_until(lambda: everybody.share(6), "three members share six partitions")
        driver.produce(address, shared, [replace(record, partition=i % 6) for i, record in enumerate(records(60))])
        everybody.poll_until(lambda: len(everybody.got) >= 60, "all records are read")
        for member in everybody.members:
            member.commit()
        relay.cut()
        living.poll_until(lambda: living.share(6), "two members share what three had")
        driver.produce(
            address, shared, [replace(record, partition=i % 6) for i, record in enumerate(records(60, "2nd"))]
        )
        living.poll_until(lambda: len(living.got) >= 60, "the new records are read")
        assert {got.record.value for got in living.got} == {record.value for record in records(60, "2nd")}
        assert len(living.got) == 60
        for member in living.members:
            member.commit()
    abandon(dying)
    assert outside.committed(address, group) == {(shared, number): 20 for number in range(6)}


def test_a_group_goes_on_where_it_committed(driver: Driver, address: str, topic: str, group: str) -> None:
    driver.produce(address, topic, records(10))
    with closing_all(Members([driver.member(address, group, topic)])) as first:
        first.poll_until(lambda: len(first.got) >= 10, "all records are read")
        first.members[0].commit()
    driver.produce(address, topic, records(5, "later"))
    with closing_all(Members([driver.member(address, group, topic)])) as second:
        second.poll_until(lambda: len(second.got) >= 5, "the new records are read")
    assert [got.record.value for got in second.got] == [record.value for record in records(5, "later")]


def test_a_compacted_topic_keeps_the_last_record_of_each_key(driver: Driver, broker: Broker) -> None:
    address, latest = broker.address, unique("latest")
    driver.create_topic(
        address, latest, 1, {"cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0"}
    )
    start_ms = int(time.time() * 1000) - 120_000
    sent = [Record(b"value %d" % number, b"key %d" % (number % 3)) for number in range(120)]
    for start in range(0, len(sent), 12):
        time.sleep(0.06)  # one broker begins segments by its clock, the other by the times of the records
        timed = [replace(record, timestamp_ms=start_ms + 1000 * start) for record in sent[start : start + 12]]
        driver.produce(address, latest, timed)
    deadline = time.monotonic() + TIMEOUT_S
    while (kept := len(outside.values(address, latest))) > 12 + 3:  # the segment being written, and a record per key
        assert time.monotonic() < deadline, "it is not compacted"
        broker.keep_house()
    found = driver.read(address, latest, kept)
    assert {got.record.key: got.record.value for got in found} == {record.key: record.value for record in sent[-3:]}
    assert all(sent[got.offset].value == got.record.value for got in found)


def test_topics_are_created_seen_and_deleted(driver: Driver, address: str) -> None:
    made = unique("made")
    driver.create_topic(address, made, 3, {"retention.ms": "1000000"})
    assert (outside.partition_count(address, made), outside.config(address, made)) == (3, {"retention.ms": "1000000"})
    assert driver.partitions_of(address, made) == 3
    driver.delete_topic(address, made)
    assert driver.partitions_of(address, made) is None
