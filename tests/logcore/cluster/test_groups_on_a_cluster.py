"""Consumer groups of Kafka's clients on three nodes, whose coordinator is lost."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import eventually

from millstream.logcore.protocol.channel import Address, Channels
from millstream.logcore.protocol.wire.apis import Api
from millstream.logcore.replication.shards.coordination_messages import partition_of, place_of
from millstream.logcore.topic_rules import GROUPS_TOPIC

from .nodes import PATIENCE_S, Cluster

PLACES = [TopicPartition("orders", number) for number in range(4)]


@contextmanager
def readers(cluster: Cluster, protocol: str) -> Generator[list[Consumer]]:
    """Two members of one group."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "readers", "group.protocol": protocol}
    if protocol == "classic":
        settings["session.timeout.ms"] = "30000"  # a busy machine may be slow
    consumers = [Consumer({**settings, "enable.auto.commit": False}) for _ in range(2)]
    for consumer in consumers:
        consumer.subscribe(["orders"])
    yield consumers
    for consumer in consumers:
        consumer.close()


def all_read(consumers: list[Consumer]) -> list[set[int]] | None:
    """Who reads which partitions, once that is all of them, and both have some."""
    for consumer in consumers:
        consumer.poll(0.05)
    owned = [{place.partition for place in consumer.assignment()} for consumer in consumers]
    return owned if all(owned) and sorted([*owned[0], *owned[1]]) == [0, 1, 2, 3] else None


def coordinator(cluster: Cluster) -> int:
    image = next(iter(cluster.running.values())).node.image
    place = place_of(image, GROUPS_TOPIC, "readers")
    assert place is not None
    return cluster.leader_of(GROUPS_TOPIC, place.number)


def _commit(consumer: Consumer, places: list[TopicPartition]) -> None:
    """librdkafka gives up by itself while it has not found the new coordinator; it is asked to try again."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._WAIT_COORD or time.monotonic() > deadline:
                raise
        else:
            return


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_go_on_reading_what_they_read_when_their_coordinator_is_killed(cluster: Cluster, protocol: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("orders", 4, 3)])["orders"].result(PATIENCE_S)
    with readers(cluster, protocol) as consumers:
        before = eventually(lambda: all_read(consumers))
        for consumer, owned in zip(consumers, before, strict=True):
            consumer.commit(offsets=[TopicPartition("orders", number, 5) for number in owned], asynchronous=False)
        dead = coordinator(cluster)
        cluster.kill(dead)
        deadline = time.monotonic() + PATIENCE_S
        while coordinator(cluster) == dead:
            assert time.monotonic() < deadline
        for consumer, owned in zip(consumers, before, strict=True):
            _commit(consumer, [TopicPartition("orders", number, 7) for number in owned])
        assert eventually(lambda: all_read(consumers)) == before
        found = consumers[0].committed(PLACES, timeout=PATIENCE_S)
        assert [place.offset for place in found] == [7, 7, 7, 7]
        [described] = admin.describe_consumer_groups(["readers"]).values()
        assert sorted(len(member.assignment.topic_partitions) for member in described.result(PATIENCE_S).members) == [
            2,
            2,
        ]


def test_what_groups_have_committed_cannot_be_deleted_as_records(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("orders", 4, 3)])["orders"].result(PATIENCE_S)
    reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "readers"})
    reader.commit(offsets=[TopicPartition("orders", 0, 5)], asynchronous=False)
    where = TopicPartition(GROUPS_TOPIC, 0, 0)
    with pytest.raises(KafkaException) as refused:
        admin.delete_records([where])[where].result(PATIENCE_S)
    assert refused.value.args[0].code() == KafkaError.TOPIC_EXCEPTION
    reader.close()


def test_a_node_that_does_not_coordinate_a_group_says_so_whatever_it_is_asked(cluster: Cluster) -> None:
    """Once the coordinators' topic is there; before that nobody coordinates anything."""
    joined = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
    joined.committed([TopicPartition("t", 0)], 30)
    joined.close()
    at = cluster.leader_of(GROUPS_TOPIC, partition_of("g", 8))
    other = next(served for number, served in cluster.running.items() if number != at)
    channels = Channels(Address("127.0.0.1", other.kafka.port))
    fetched = channels.ask(Api.OFFSET_FETCH, {"groups": [{"group_id": "g", "topics": None}], "require_stable": True})
    described = channels.ask(Api.DESCRIBE_GROUPS, {"groups": ["g"]})
    of_consumers = channels.ask(Api.CONSUMER_GROUP_DESCRIBE, {"group_ids": ["g"]})
    deleted = channels.ask(Api.OFFSET_DELETE, {"group_id": "g", "topics": []})
    channels.close()
    answers = [fetched.groups[0], described.groups[0], of_consumers.groups[0], deleted]
    assert [answer.error_code.name for answer in answers] == ["not_coordinator"] * 4
