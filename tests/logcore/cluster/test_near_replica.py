"""Consumers read from a replica on their own rack, as far as it has what is committed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import eventually

from millstream.logcore.replication.machine import NodeId

from .nodes import Cluster


@pytest.fixture
def racked(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    for node, rack in zip(cluster.settings, "abc", strict=True):
        cluster.settings[node] = dataclasses.replace(cluster.settings[node], rack=rack)
    with cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("clicks", 1, 3)])["clicks"].result()
        yield cluster


def produce(cluster: Cluster, first: int, last: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(first, last):
        producer.produce("clicks", str(number))
    assert producer.flush(30) == 0


def read(consumer: Consumer, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        message = consumer.poll(30)
        assert message is not None and message.error() is None
        found.append(int(message.value() or b"-1"))
    return found


def consumer_on(cluster: Cluster, rack: str) -> Consumer:
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "readers", "client.rack": rack}
    consumer = Consumer({**settings, "enable.auto.commit": False, "fetch.wait.max.ms": 50})
    consumer.assign([TopicPartition("clicks", 0, 0)])
    return consumer


def sent(cluster: Cluster) -> dict[int, int]:
    """Records sent to clients, by node."""
    found: dict[int, int] = {}
    for number, served in cluster.running.items():
        id = served.node.partition_id("clicks", 0)
        log = served.node.logs.log(id) if id is not None else None
        assert log is not None
        found[number] = log.traffic.sent.records
    return found


def test_a_consumer_reads_from_the_replica_on_its_rack_and_goes_on_elsewhere_when_that_dies(racked: Cluster) -> None:
    leader = racked.leader_of("clicks")
    near = next(number for number in racked.running if number != leader)
    eventually(lambda: len(racked.running[leader].node.image.brokers) == 3)
    produce(racked, 0, 100)
    rack = racked.settings[NodeId(near)].rack
    assert rack is not None
    consumer = consumer_on(racked, rack)
    try:
        assert read(consumer, 100) == list(range(100))
        produce(racked, 100, 200)
        assert read(consumer, 100) == list(range(100, 200))
        assert {number: count > 0 for number, count in sent(racked).items() if count} == {near: True}
        racked.kill(near)
        produce(racked, 200, 300)
        assert read(consumer, 100) == list(range(200, 300))
    finally:
        consumer.close()


def test_a_consumer_without_a_rack_reads_from_the_leader(racked: Cluster) -> None:
    produce(racked, 0, 100)
    consumer = consumer_on(racked, "")
    try:
        assert read(consumer, 100) == list(range(100))
    finally:
        consumer.close()
    assert [number for number, count in sent(racked).items() if count] == [racked.leader_of("clicks")]
