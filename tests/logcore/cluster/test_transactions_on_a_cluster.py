"""Transactions of Kafka's own client on three nodes, while the one that coordinates them is killed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import eventually

from millstream.logcore.protocol.channel import Address, Channels
from millstream.logcore.protocol.wire.apis import Api
from millstream.logcore.replication.machine import NodeId
from millstream.logcore.replication.shards.coordination_messages import partition_of
from millstream.logcore.topic_rules import TRANSACTIONS_TOPIC

from .nodes import Cluster

ID = "copier"


def create(cluster: Cluster, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.create_topics([NewTopic(name, 3) for name in names]).values():
        future.result()


def transactional(cluster: Cluster) -> Producer:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": ID, "transaction.timeout.ms": 20_000}
    )
    producer.init_transactions(30)
    return producer


def read(cluster: Cluster, topic: str, count: int) -> list[bytes]:
    """So many values of all partitions, as a reader of committed records sees them; sorted."""
    settings = {"group.id": f"reader-{topic}", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **settings})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(3)])
    values: list[bytes] = []

    def more() -> bool | None:
        for message in consumer.consume(100, timeout=0.5):
            assert message.error() is None
            values.append(message.value() or b"")
        return True if len(values) >= count else None

    eventually(more)
    values += [message.value() or b"" for message in consumer.consume(100, timeout=1.0)]
    consumer.close()
    return sorted(values)


def coordinator(cluster: Cluster) -> int:
    """Of `ID`."""
    return cluster.leader_of(TRANSACTIONS_TOPIC, partition_of(ID, 8))


def commit(producer: Producer) -> None:
    """Asks until it is decided, as clients do."""
    for _ in range(20):
        try:
            producer.commit_transaction(10)
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
    raise AssertionError("the commit was never decided")


def _nothing() -> None:
    """Nothing happens."""


def write(producer: Producer, values: list[bytes], *, then: Callable[[], object] = _nothing) -> None:
    """As one transaction, one value per partition; once more where the client says that it has to be aborted."""
    for _ in range(5):
        producer.begin_transaction()
        for partition, value in enumerate(values):
            producer.produce("copies", value, partition=partition)
        producer.flush(30)
        then()
        try:
            commit(producer)
            return
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(60)
            then = _nothing
    raise AssertionError("the transaction had to be aborted again and again")


def test_transactions_are_whole_though_their_coordinator_is_killed(cluster: Cluster) -> None:
    create(cluster, "copies")
    producer = transactional(cluster)
    expected: list[bytes] = []

    def kill() -> None:
        cluster.kill(coordinator(cluster))

    for number in range(12):
        values = [b"%02d.%d" % (number, partition) for partition in range(3)]
        if number % 4 == 3:
            producer.begin_transaction()
            producer.produce("copies", b"aborted", partition=1)
            producer.abort_transaction(60)
        else:
            write(producer, values, then=kill if number == 5 else _nothing)
            expected += values
    assert read(cluster, "copies", len(expected)) == sorted(expected)


def test_a_second_instance_fences_the_first(cluster: Cluster) -> None:
    create(cluster, "copies")
    first = transactional(cluster)
    first.begin_transaction()
    first.produce("copies", b"zombie", partition=0)
    first.flush(30)
    second = transactional(cluster)
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(10)
    assert refused.value.args[0].fatal() or refused.value.args[0].txn_requires_abort()
    second.begin_transaction()
    second.produce("copies", b"new", partition=0)
    commit(second)
    assert read(cluster, "copies", 1) == [b"new"]


def test_offsets_are_committed_with_what_was_made_of_the_records(cluster: Cluster) -> None:
    create(cluster, "source", "copies")
    plain = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(30):
        plain.produce("source", b"%02d" % number, partition=number % 3)
    plain.flush(30)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "copiers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["source"])
    producer = transactional(cluster)
    copied = 0

    def copy() -> bool | None:
        nonlocal copied
        messages = consumer.consume(7, timeout=1.0)
        if messages:
            producer.begin_transaction()
            for message in messages:
                producer.produce("copies", message.value(), partition=message.partition() or 0)
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 30
            )
            commit(producer)
            copied += len(messages)
        return True if copied >= 30 else None

    eventually(copy)
    found = eventually(lambda: _committed(consumer))
    consumer.close()
    assert found == [10, 10, 10]
    assert read(cluster, "copies", 30) == [b"%02d" % number for number in range(30)]


def _committed(consumer: Consumer) -> list[int] | None:
    """What the group has committed, when the last transaction is settled."""
    found = [each.offset for each in consumer.committed([TopicPartition("source", number) for number in range(3)], 30)]
    return found if sum(found) >= 30 else None


def test_only_its_coordinator_describes_a_transaction(cluster: Cluster) -> None:
    transactional(cluster)
    known_at = coordinator(cluster)
    for number, served in cluster.running.items():
        channels = Channels(Address("127.0.0.1", served.kafka.port))
        (found,) = channels.ask(Api.DESCRIBE_TRANSACTIONS, {"transactional_ids": [ID]}).transaction_states
        channels.close()
        assert found.error_code.name == ("none" if number == known_at else "not_coordinator")


def test_a_node_that_is_down_is_still_named(cluster: Cluster) -> None:
    """librdkafka gives up a node that is not named any more: what it was about to send there waits for ever."""
    cluster.kill(2)
    eventually(lambda: None if any(each.node.image.is_live(NodeId(2)) for each in cluster.running.values()) else True)
    named = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=60).brokers
    assert sorted(named) == [1, 2, 3]
