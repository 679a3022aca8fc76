"""What administrators do with a client's tools: groups, settings, partitions, records, transactions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from millstream.logcore.client import Topic
from millstream.logcore.client import TopicPartition as Place
from millstream.logcore.log import Log
from millstream.logcore.server import LogServer

from ..log_records import rows, values_of
from .driver import Members, closing_all

confluent_kafka = pytest.importorskip("confluent_kafka")

from confluent_kafka import (  # noqa: E402
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (  # noqa: E402
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
)

from .with_confluent import member_of_assigning_group  # noqa: E402

TIMEOUT_S = 20.0


@pytest.fixture
def address(log: Log) -> Iterator[str]:
    with LogServer(log, port=0) as running:
        yield running.address


@pytest.fixture
def admin(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address})


@pytest.fixture
def member(address: str) -> Iterator[Callable[[str], Consumer]]:
    made: list[Consumer] = []

    def make(group: str, **settings: Any) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 100,
                **settings,
            }
        )
        consumer.subscribe(["t"])
        deadline = time.monotonic() + TIMEOUT_S
        while not consumer.assignment():
            assert time.monotonic() < deadline
            consumer.poll(0.1)
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        consumer.close()


def one(futures: Any) -> Any:
    (future,) = futures.values()
    return future.result(TIMEOUT_S)


def test_groups_are_listed_described_and_deleted(log: Log, admin: AdminClient, member: Callable[..., Consumer]) -> None:
    log.append("t", 0, rows(b"a"))
    consumer = member("g", **{"client.id": "reader", "group.instance.id": "first"})
    log.commit_offsets("idle", {Place("t", 0): 1})
    listed = admin.list_consumer_groups().result(TIMEOUT_S).valid
    assert {group.group_id: group.state for group in listed} == {
        "g": ConsumerGroupState.STABLE,
        "idle": ConsumerGroupState.EMPTY,
    }
    described = one(admin.describe_consumer_groups(["g"]))
    (known,) = described.members
    assert (described.state, described.partition_assignor) == (ConsumerGroupState.STABLE, "range")
    assert (known.client_id, known.host, known.group_instance_id) == ("reader", "/127.0.0.1", "first")
    assert [entry.partition for entry in known.assignment.topic_partitions] == [0, 1]
    assert one(admin.describe_consumer_groups(["nobody"])).state is ConsumerGroupState.DEAD
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        one(admin.delete_consumer_groups(["g"]))
    one(admin.delete_consumer_groups(["idle"]))
    with pytest.raises(KafkaException, match="GROUP_ID_NOT_FOUND"):
        one(admin.delete_consumer_groups(["idle"]))
    assert log.committed_offsets("idle") == {} and consumer.assignment()


def test_the_offsets_of_a_group_are_read_and_moved(
    log: Log, admin: AdminClient, member: Callable[..., Consumer]
) -> None:
    log.append("t", 0, rows(b"a", b"b"))
    moved = ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0, 1, metadata="a note")])
    one(admin.alter_consumer_group_offsets([moved]))
    (found,) = one(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")])).topic_partitions
    assert (found.topic, found.partition, found.offset, found.metadata) == ("t", 0, 1, "a note")
    member("g")
    (refused,) = one(admin.alter_consumer_group_offsets([moved])).topic_partitions
    assert refused.error is not None and refused.error.name() == "UNKNOWN_MEMBER_ID"


def test_settings_are_changed_one_by_one(log: Log, admin: AdminClient) -> None:
    def change(operation: AlterConfigOpType, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        one(admin.incremental_alter_configs([ConfigResource("topic", "t", incremental_configs=[entry])]))

    change(AlterConfigOpType.SET, "retention.ms", "1000")
    change(AlterConfigOpType.SET, "cleanup.policy", "compact")
    change(AlterConfigOpType.APPEND, "cleanup.policy", "delete")
    assert log.topics()["t"] == Topic("t", 2, {"retention.ms": "1000", "cleanup.policy": "compact,delete"})
    change(AlterConfigOpType.SUBTRACT, "cleanup.policy", "compact")
    change(AlterConfigOpType.DELETE, "retention.ms", "")
    assert log.topics()["t"] == Topic("t", 2, {"cleanup.policy": "delete"})
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        change(AlterConfigOpType.SET, "retention.ms", "soon")


def test_partitions_are_added_and_records_deleted(log: Log, admin: AdminClient) -> None:
    one(admin.create_partitions([NewPartitions("t", 4)]))
    assert log.topics()["t"].partition_count == 4
    with pytest.raises(KafkaException, match="INVALID_PARTITIONS"):
        one(admin.create_partitions([NewPartitions("t", 3)]))
    log.append("t", 3, rows(b"a", b"b", b"c"))
    assert one(admin.delete_records([TopicPartition("t", 3, 2)])).low_watermark == 2
    assert values_of(log, "t", 3, 2) == [b"c"]
    with pytest.raises(KafkaException, match="OFFSET_OUT_OF_RANGE"):
        one(admin.delete_records([TopicPartition("t", 3, 9)]))


def test_offsets_are_found_by_end_and_by_time(log: Log, admin: AdminClient) -> None:
    for timestamp in (10, 30, 20):
        log.append("t", 0, rows(b"a", timestamp=timestamp))
    asked: dict[Any, int] = {
        OffsetSpec.earliest(): 0,
        OffsetSpec.latest(): 3,
        OffsetSpec.for_timestamp(11): 1,
        OffsetSpec.max_timestamp(): 1,
    }
    for spec, offset in asked.items():
        assert one(admin.list_offsets({TopicPartition("t", 0): spec})).offset == offset


def test_the_cluster_is_one_node(log: Log, admin: AdminClient, address: str) -> None:
    cluster = admin.describe_cluster().result(TIMEOUT_S)
    assert cluster.cluster_id == log.id
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [address]


def test_a_group_may_let_the_server_assign(log: Log, address: str, admin: AdminClient) -> None:
    log.create_topic("shared", 6)
    group = Members([member_of_assigning_group(address, "modern", "shared") for _ in range(3)])
    with closing_all(group):
        group.poll_until(lambda: group.share(6), "three members share six partitions")
        for partition in range(6):
            log.append("shared", partition, rows(b"%d" % partition))
        group.poll_until(lambda: len(group.got) >= 6, "all records are read")
        for member in group.members:
            member.commit()
        described = one(admin.describe_consumer_groups(["modern"]))
        assert (described.state, len(described.members)) == (ConsumerGroupState.STABLE, 3)
        assert sorted(len(member.assignment.topic_partitions) for member in described.members) == [2, 2, 2]
        group.members.pop().close()
        group.poll_until(lambda: group.share(6), "two members share what three had")
    assert log.committed_offsets("modern") == {Place("shared", number): 1 for number in range(6)}


def test_a_static_member_that_restarts_keeps_its_partitions_and_disturbs_nobody(
    log: Log, member: Callable[..., Consumer]
) -> None:
    first = member("g", **{"group.instance.id": "first"})
    first.close()  # a static member stays in the group
    generation = log.groups.describe("g").generation
    again = member("g", **{"group.instance.id": "first"})
    assert len(again.assignment()) == 2
    assert log.groups.describe("g").generation == generation
