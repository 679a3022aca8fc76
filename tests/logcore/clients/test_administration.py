"""What administrators do with a client's tools: groups, settings, partitions, records, transactions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

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
from waiting import eventually  # noqa: E402

from . import outside  # noqa: E402
from .brokers import Broker  # noqa: E402
from .driver import TIMEOUT_S, Members, closing_all  # noqa: E402
from .outside import append, create_topic, one, unique  # noqa: E402
from .with_confluent import member_of_assigning_group  # noqa: E402


@pytest.fixture
def admin(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address})


class Reader:
    """A member of a group. State: how often it was told what to read."""

    def __init__(self, address: str, group: str, topic: str, instance: str) -> None:
        self.assigned = 0
        self.consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "client.id": "reader",
                "group.instance.id": instance,
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 100,
            }
        )
        self.consumer.subscribe([topic], on_assign=self._note)

    def _note(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned += 1

    @property
    def partitions(self) -> list[int]:
        return sorted(entry.partition for entry in self.consumer.assignment())


def poll_until(readers: list[Reader], holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline
        for reader in readers:
            reader.consumer.poll(0.05)


@pytest.fixture
def join(address: str, topic: str, group: str) -> Iterator[Callable[[str], Reader]]:
    """Makes a static member that reads the topic."""
    made: list[Reader] = []

    def make(instance: str) -> Reader:
        made.append(Reader(address, group, topic, instance))
        return made[-1]

    yield make
    for reader in made:
        reader.consumer.close()


def test_groups_are_listed_described_and_deleted(
    address: str, admin: AdminClient, topic: str, group: str, join: Callable[[str], Reader]
) -> None:
    idle = unique("idle")
    reader = join("first")
    poll_until([reader], lambda: reader.partitions == [0, 1])
    one(admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(idle, [TopicPartition(topic, 0, 1)])]))
    listed = {found.group_id: found.state for found in admin.list_consumer_groups().result(TIMEOUT_S).valid}
    assert (listed[group], listed[idle]) == (ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY)
    described = one(admin.describe_consumer_groups([group]))
    (known,) = described.members
    assert (described.state, described.partition_assignor) == (ConsumerGroupState.STABLE, "range")
    assert (known.client_id, known.host, known.group_instance_id) == ("reader", "/127.0.0.1", "first")
    assert [entry.partition for entry in known.assignment.topic_partitions] == [0, 1]
    assert one(admin.describe_consumer_groups([unique("nobody")])).state is ConsumerGroupState.DEAD
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        one(admin.delete_consumer_groups([group]))
    one(admin.delete_consumer_groups([idle]))
    with pytest.raises(KafkaException, match="GROUP_ID_NOT_FOUND"):
        one(admin.delete_consumer_groups([idle]))
    assert outside.committed(address, idle) == {}


def test_the_offsets_of_a_group_are_read_and_moved(
    address: str, admin: AdminClient, topic: str, group: str, join: Callable[[str], Reader]
) -> None:
    append(address, topic, 0, b"a", b"b")
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 1, metadata="a note", leader_epoch=0)])

    def kept() -> list[TopicPartition]:
        """A Kafka that has had no groups yet refuses the first offsets, per partition: its coordinator only begins."""
        one(admin.alter_consumer_group_offsets([moved]))
        return one(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])).topic_partitions

    (found,) = eventually(kept)
    assert (found.topic, found.partition, found.offset, found.metadata) == (topic, 0, 1, "a note")
    assert found.leader_epoch == 0
    reader = join("first")
    poll_until([reader], lambda: reader.partitions == [0, 1])
    (refused,) = one(admin.alter_consumer_group_offsets([moved])).topic_partitions
    assert refused.error is not None and refused.error.name() == "UNKNOWN_MEMBER_ID"


def test_settings_are_changed_one_by_one(address: str, admin: AdminClient, topic: str) -> None:
    def change(operation: AlterConfigOpType, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        one(admin.incremental_alter_configs([ConfigResource("topic", topic, incremental_configs=[entry])]))

    change(AlterConfigOpType.SET, "retention.ms", "1000000")
    change(AlterConfigOpType.SET, "cleanup.policy", "compact")
    change(AlterConfigOpType.APPEND, "cleanup.policy", "delete")
    assert outside.config(address, topic) == {"retention.ms": "1000000", "cleanup.policy": "compact,delete"}
    change(AlterConfigOpType.SUBTRACT, "cleanup.policy", "compact")
    change(AlterConfigOpType.DELETE, "retention.ms", "")
    assert outside.config(address, topic) == {"cleanup.policy": "delete"}
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        change(AlterConfigOpType.SET, "retention.ms", "soon")


def test_partitions_are_added_and_records_deleted(address: str, admin: AdminClient, topic: str) -> None:
    one(admin.create_partitions([NewPartitions(topic, 4)]))
    assert outside.partition_count(address, topic) == 4
    with pytest.raises(KafkaException, match="INVALID_PARTITIONS"):
        one(admin.create_partitions([NewPartitions(topic, 3)]))
    append(address, topic, 3, b"a", b"b", b"c")
    assert one(admin.delete_records([TopicPartition(topic, 3, 2)])).low_watermark == 2
    earliest: Any = {TopicPartition(topic, 3): OffsetSpec.earliest()}
    assert one(admin.list_offsets(earliest)).offset == 2
    with pytest.raises(KafkaException, match="OFFSET_OUT_OF_RANGE"):
        one(admin.delete_records([TopicPartition(topic, 3, 9)]))


def test_offsets_are_found_by_end_and_by_time(address: str, admin: AdminClient, topic: str) -> None:
    for timestamp_ms in (10, 30, 20):
        append(address, topic, 0, b"a", timestamp_ms=timestamp_ms)
    asked: Any = {
        OffsetSpec.earliest(): 0,
        OffsetSpec.latest(): 3,
        OffsetSpec.for_timestamp(11): 1,
        OffsetSpec.max_timestamp(): 1,
    }
    for spec, offset in asked.items():
        wanted: Any = {TopicPartition(topic, 0): spec}
        assert one(admin.list_offsets(wanted)).offset == offset


def test_the_cluster_is_one_node(broker: Broker, admin: AdminClient) -> None:
    cluster = admin.describe_cluster().result(TIMEOUT_S)
    assert cluster.cluster_id == broker.cluster_id
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [broker.address]


def test_a_group_may_let_the_server_assign(address: str, admin: AdminClient, group: str) -> None:
    shared = create_topic(address, unique("shared"), 6)
    members = Members([member_of_assigning_group(address, group, shared) for _ in range(3)])
    with closing_all(members):
        members.poll_until(lambda: members.share(6), "three members share six partitions")
        for partition in range(6):
            append(address, shared, partition, b"%d" % partition)
        members.poll_until(lambda: len(members.got) >= 6, "all records are read")
        for member in members.members:
            member.commit()
        described = one(admin.describe_consumer_groups([group]))
        assert (described.state, len(described.members)) == (ConsumerGroupState.STABLE, 3)
        assert sorted(len(member.assignment.topic_partitions) for member in described.members) == [2, 2, 2]
        members.members.pop().close()
        members.poll_until(lambda: members.share(6), "two members share what three had")
    assert outside.committed(address, group) == {(shared, number): 1 for number in range(6)}


def test_a_static_member_that_restarts_keeps_its_partitions_and_disturbs_nobody(join: Callable[[str], Reader]) -> None:
    first, second = join("first"), join("second")
    poll_until([first, second], lambda: sorted([first.partitions, second.partitions]) == [[0], [1]])
    held, told = first.partitions, second.assigned
    first.consumer.close()  # a static member stays in the group
    again = join("first")
    poll_until([again, second], lambda: bool(again.partitions))
    poll_until([again, second], lambda: again.partitions == held and second.assigned == told)
