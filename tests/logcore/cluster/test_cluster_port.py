"""Kafka's clients at three nodes: what they write, read and are told, also when a node is lost."""

from __future__ import annotations

import socket
from collections.abc import Iterable

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, ResourceType
from kafka import KafkaConsumer
from waiting import eventually

from millstream.logcore import client
from millstream.logcore.protocol.wire import produce_messages as produce
from millstream.logcore.protocol.wire.apis import Api
from millstream.logcore.protocol.wire.frames import write_request_frame
from millstream.logcore.records.codec import encode
from millstream.logcore.replication.controller.metadata_records import PartitionState

from ..log_records import rows
from .nodes import PATIENCE_S, Cluster


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def create(
    admin: AdminClient,
    name: str,
    partition_count: int = 1,
    replication: int = -1,
    config: dict[str, str] | None = None,
) -> None:
    topic = NewTopic(name, partition_count, replication, config=config or {})
    admin.create_topics([topic])[name].result(PATIENCE_S)


def write(cluster: Cluster, topic: str, values: Iterable[bytes], **settings: object) -> None:
    """Returns when all are acknowledged."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 1, **settings})

    def delivered(error: object, message: object) -> None:
        failed.extend([error] if error is not None else [])

    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=delivered)
    assert producer.flush(PATIENCE_S) == 0
    assert failed == []


def read(cluster: Cluster, topic: str, count: int, **settings: object) -> list[bytes]:
    """So many values of partition 0, from its beginning."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader", **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []

    def more() -> bool | None:
        values.extend(message.value() or b"" for message in consumer.consume(1000, 0.5) if message.error() is None)
        return True if len(values) >= count else None

    eventually(more)
    consumer.close()
    return values


def test_what_was_acknowledged_is_there_once_after_its_leader_was_killed(cluster: Cluster, admin: AdminClient) -> None:
    create(admin, "orders")
    first, second = [b"a%d" % i for i in range(500)], [b"b%d" % i for i in range(500)]
    write(cluster, "orders", first, **{"enable.idempotence": True})
    leader = cluster.leader_of("orders")
    cluster.kill(leader)
    write(cluster, "orders", second, **{"enable.idempotence": True})
    assert cluster.leader_of("orders") != leader
    assert read(cluster, "orders", 1000) == first + second


def test_what_came_before_its_client_closed_is_stored_though_nobody_waits_for_an_answer(
    cluster: Cluster, admin: AdminClient
) -> None:
    create(admin, "orders")
    kafka = cluster.running[cluster.leader_of("orders")].kafka
    heavy = b"".join(encode(rows(*[b"x"] * 20))[0].buffers)  # checked in a thread: the connection ends meanwhile
    data = [produce.ProduceData(client.TopicPartition("orders", 0), [heavy])]
    body = produce.write_request(produce.ProduceRequest(None, 0, 1000, data), 9)
    with socket.create_connection(("127.0.0.1", kafka.port)) as peer:
        peer.sendall(b"".join(b"".join(write_request_frame(Api.PRODUCE, 9, number, body)) for number in range(40)))
    eventually(lambda: kafka.log.partition("orders", 0).offsets().log_end_offset == 40 * 20)


def test_a_node_that_comes_back_catches_up_and_is_in_sync_again(cluster: Cluster, admin: AdminClient) -> None:
    create(admin, "orders")
    cluster.kill(3)
    write(cluster, "orders", [b"%d" % i for i in range(100)])
    cluster.start(3)

    def in_sync() -> list[int] | None:
        found = admin.list_topics("orders", timeout=PATIENCE_S).topics["orders"].partitions[0].isrs
        return found if len(found) == 3 else None

    assert sorted(eventually(in_sync)) == [1, 2, 3]
    assert cluster.running[3].kafka.log.partition("orders", 0).offsets().log_end_offset == 100


def test_clients_are_told_of_all_nodes_leaders_and_replicas(cluster: Cluster, admin: AdminClient) -> None:
    create(admin, "orders", 3, 3)
    create(admin, "notes", 1, 1)
    described = admin.list_topics(timeout=PATIENCE_S)
    assert {node: f"{broker.host}:{broker.port}" for node, broker in described.brokers.items()} == {
        number: served.kafka.address for number, served in cluster.running.items()
    }
    orders, notes = described.topics["orders"].partitions, described.topics["notes"].partitions
    assert sorted(partition.leader for partition in orders.values()) == [1, 2, 3]
    assert all(sorted(partition.replicas) == sorted(partition.isrs) == [1, 2, 3] for partition in orders.values())
    assert len(notes[0].replicas) == 1


def test_topics_are_changed_from_any_node(cluster: Cluster) -> None:
    for number, served in cluster.running.items():
        admin = AdminClient({"bootstrap.servers": served.kafka.address})
        create(admin, f"t{number}", 1, config={"retention.ms": "1000"})
        admin.create_partitions([NewPartitions(f"t{number}", 2)])[f"t{number}"].result(PATIENCE_S)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, "t1")
    configs = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    assert (configs["retention.ms"].value, configs["min.insync.replicas"].value) == ("1000", "2")
    assert len(admin.list_topics("t1", timeout=PATIENCE_S).topics["t1"].partitions) == 2
    admin.delete_topics(["t1"])["t1"].result(PATIENCE_S)
    assert "t1" not in admin.list_topics(timeout=PATIENCE_S).topics


def test_what_no_topic_can_be_is_refused_with_kafkas_code(admin: AdminClient) -> None:
    create(admin, "orders")
    for topic, code in [
        (NewTopic("orders", 1, 3), "TOPIC_ALREADY_EXISTS"),
        (NewTopic("wide", 1, 7), "INVALID_REPLICATION_FACTOR"),
        (NewTopic("no good", 1, 3), "TOPIC_EXCEPTION"),
    ]:
        with pytest.raises(KafkaException) as raised:
            admin.create_topics([topic])[topic.topic].result(PATIENCE_S)
        assert code in raised.value.args[0].name()


def test_a_write_that_too_few_replicas_can_have_is_refused(cluster: Cluster, admin: AdminClient) -> None:
    create(admin, "orders", 1, 3, {"min.insync.replicas": "3"})
    cluster.kill(next(number for number in cluster.running if number != cluster.leader_of("orders")))
    eventually(lambda: len(cluster_view(cluster).isr) == 2)
    errors: list[str] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "retries": 0})
    producer.produce("orders", b"x", on_delivery=lambda error, _: errors.append(error.name() if error else "stored"))
    producer.flush(PATIENCE_S)
    assert errors == ["NOT_ENOUGH_REPLICAS"]


def cluster_view(cluster: Cluster) -> PartitionState:
    image = cluster.running[cluster.leader_of("orders")].node.image
    return image.topics[image.topic_ids["orders"]].partitions[0]


def test_a_group_goes_on_where_it_was_when_its_coordinator_is_killed(cluster: Cluster, admin: AdminClient) -> None:
    create(admin, "orders", 1, 3)
    write(cluster, "orders", [b"%d" % i for i in range(10)])
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "session.timeout.ms": 6000})
    consumer.subscribe(["orders"])
    assert eventually(lambda: (message := consumer.poll(0.2)) and message.value()) == b"0"
    consumer.commit(asynchronous=False)
    coordinator = coordinator_of(cluster, "readers")
    cluster.kill(coordinator)
    assert consumer.committed([TopicPartition("orders", 0)], timeout=PATIENCE_S)[0].offset == 1
    assert eventually(lambda: (message := consumer.poll(0.2)) and message.value()) == b"1"
    consumer.commit(asynchronous=False)
    consumer.close()


def coordinator_of(cluster: Cluster, group: str) -> int:
    layout = next(iter(cluster.running.values())).kafka.serving.layout
    return layout.coordinator("group", group, ("", 0)).node


def test_a_transaction_is_seen_as_a_whole_or_not_at_all(cluster: Cluster, admin: AdminClient) -> None:
    create(admin, "orders", 1, 3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "shop"})
    producer.init_transactions(PATIENCE_S)
    for values, committed in [((b"a", b"b"), True), ((b"x", b"y"), False), ((b"c",), True)]:
        producer.begin_transaction()
        for value in values:
            producer.produce("orders", value)
        producer.flush(PATIENCE_S)
        (producer.commit_transaction if committed else producer.abort_transaction)(PATIENCE_S)
    assert read(cluster, "orders", 3) == [b"a", b"b", b"c"]


def test_another_client_reads_with_a_group_what_one_node_has_and_another_leads(cluster: Cluster) -> None:
    write(cluster, "created-by-asking", [b"%d" % i for i in range(20)])
    consumer = KafkaConsumer(
        "created-by-asking",
        bootstrap_servers=cluster.running[2].kafka.address,
        group_id="python",
        auto_offset_reset="earliest",
        consumer_timeout_ms=PATIENCE_S * 1000,
    )
    assert [next(consumer).value for _ in range(20)] == [b"%d" % i for i in range(20)]
    consumer.close()


def test_a_node_that_leaves_hands_over_before_it_ends(cluster: Cluster, admin: AdminClient) -> None:
    create(admin, "orders")
    leader = cluster.leader_of("orders")
    cluster.running[leader].node.leave()
    assert not cluster.running[leader].node.leads("orders", 0)
    assert any(served.node.leads("orders", 0) for served in cluster.running.values())
