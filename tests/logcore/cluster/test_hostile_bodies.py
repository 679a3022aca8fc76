"""Whatever a client asks of the nodes of a cluster: they go on, and others are served as before."""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterator
from datetime import timedelta

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import eventually

from millstream.logcore.client import TopicPartition as Place
from millstream.logcore.cluster import produce as cluster_produce
from millstream.logcore.error_codes import ErrorCode
from millstream.logcore.protocol.wire import messages
from millstream.logcore.protocol.wire import produce_messages as produce
from millstream.logcore.protocol.wire.apis import Api
from millstream.logcore.protocol.wire.messages import Fields
from millstream.logcore.protocol.wire.produce_messages import ProduceData, ProduceRequest
from millstream.logcore.records.batch import BatchProducer as ProducerOf
from millstream.logcore.records.codec import encode
from millstream.logcore.replication.shards import led_log

from ..log_records import rows
from ..unforeseen import unforeseen_failures
from .hostile_requests import LONGEST, HostileRequests, ask, read_answer, request_frame
from .nodes import PATIENCE_S, Cluster

_SESSION: Fields = {"session_timeout": timedelta(seconds=30), "rebalance_timeout": timedelta(seconds=30)}
_JOIN: Fields = {
    "group_id": "g",
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b"x"}],
    **_SESSION,
}


@pytest.fixture
def unforeseen() -> Iterator[list[str]]:
    with unforeseen_failures() as found:
        yield found


def test_hostile_requests_end_no_node(cluster: Cluster, unforeseen: list[str]) -> None:
    attack(cluster, seed=1, rounds=3, requests=150)
    assert unforeseen == [], "\n".join(unforeseen[:3])


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_hostile_requests_end_no_node(cluster: Cluster, unforeseen: list[str], seed: int) -> None:
    attack(cluster, seed=seed, rounds=30, requests=700)
    assert unforeseen == [], "\n".join(unforeseen[:3])


def attack(cluster: Cluster, seed: int, rounds: int, requests: int) -> None:
    """After each round: all nodes run, and who means well is served."""
    hostile = HostileRequests(seed)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    create(admin, NewTopic("t", 2, 3), NewTopic("orders", 1, 3))
    client = Client(cluster)
    for number in range(rounds):
        for served in cluster.running.values():
            hostile.attack(served.kafka.port, requests)
        assert [served.node.failure for served in cluster.running.values()] == [None] * len(cluster.running)
        client.write_read_and_commit(number)
    for number in list(cluster.running):
        cluster.kill(number)
    cluster.start(*cluster.settings)  # what was taken is read again by the coordinators
    client.write_read_and_commit(rounds)
    eventually(lambda: every_coordinator_has_begun(cluster))
    client.close()


def every_coordinator_has_begun(cluster: Cluster) -> bool | None:
    ports = [served.kafka.port for served in cluster.running.values()]
    listed = [ask(port, api, 0, {}) for port in ports for api in (Api.LIST_GROUPS, Api.LIST_TRANSACTIONS)]
    return True if all(answer.error_code is ErrorCode.none for answer in listed) else None


class Client:
    """One that means well. State: how far it has read."""

    def __init__(self, cluster: Cluster) -> None:
        settings = {"bootstrap.servers": cluster.bootstrap}
        self._producer = Producer({**settings, "acks": "all", "linger.ms": 0})
        self._consumer = Consumer({**settings, "group.id": "fair", "auto.offset.reset": "earliest"})
        self._consumer.assign([TopicPartition("orders", 0, 0)])

    def write_read_and_commit(self, number: int) -> None:
        self._producer.produce("orders", b"%d" % number)
        assert self._producer.flush(PATIENCE_S) == 0
        assert eventually(lambda: (found := self._consumer.poll(0.2)) and found.value()) == b"%d" % number
        self._consumer.commit(offsets=[TopicPartition("orders", 0, number + 1)], asynchronous=False)
        [committed] = self._consumer.committed([TopicPartition("orders", 0)], timeout=PATIENCE_S)
        assert committed.offset == number + 1

    def close(self) -> None:
        self._consumer.close()


def create(admin: AdminClient, *topics: NewTopic) -> None:
    for made in admin.create_topics(list(topics)).values():
        made.result(PATIENCE_S)


# What was found


@pytest.fixture
def alone(cluster_of_one: Cluster) -> Cluster:
    create(AdminClient({"bootstrap.servers": cluster_of_one.bootstrap}), NewTopic("t", 1, 1))
    eventually(lambda: coordinator_answers(cluster_of_one))
    return cluster_of_one


def coordinator_answers(cluster: Cluster) -> bool | None:
    port = cluster.running[1].kafka.port
    ask(port, Api.FIND_COORDINATOR, 3, {"key": "g", "key_type": 0})
    described = ask(port, Api.DESCRIBE_GROUPS, 4, {"groups": ["g"]}).groups[0]
    return True if described.error_code is ErrorCode.none else None


def test_a_member_with_the_longest_name_ends_no_node(alone: Cluster) -> None:
    """Its id is longer than its name, and stands in the record that the others' synchronization writes."""
    port = alone.running[1].kafka.port
    with (
        socket.create_connection(("127.0.0.1", port)) as leader,
        socket.create_connection(("127.0.0.1", port)) as other,
    ):
        leader.sendall(_frame(Api.JOIN_GROUP, 7, {**_JOIN, "group_instance_id": "s"}))
        other.sendall(_frame(Api.JOIN_GROUP, 3, _JOIN, client_id="n" * LONGEST))
        joined = read_answer(leader, Api.JOIN_GROUP, 7)
        assert [member.member_id[:2] for member in joined.members] == ["s-", "nn"]
        sync = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id}
        leader.sendall(_frame(Api.SYNC_GROUP, 3, sync))
        assert read_answer(leader, Api.SYNC_GROUP, 3).error_code is ErrorCode.none
    assert alone.running[1].node.failure is None


def test_a_batch_that_no_follower_could_be_sent_is_refused(alone: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_produce, "_BATCH_BYTES_MAX", 1000)
    assert produced(alone, encoded(b"x" * 900)) == 0
    assert produced(alone, encoded(b"x" * 1000)) == ErrorCode.message_too_large


def test_batches_of_a_producer_come_one_by_one(alone: Cluster) -> None:
    """Only the first of a request is looked up: another one could open a transaction that nobody knows of."""
    plain, numbered = encoded(b"a"), encoded(b"b", ProducerOf(5, 0, 0))
    assert produced(alone, plain + plain) == 0
    assert produced(alone, plain + numbered) == ErrorCode.invalid_record
    assert produced(alone, numbered) == 0


def encoded(value: bytes, producer: ProducerOf | None = None) -> bytes:
    batches = encode(rows(value), producer) if producer is not None else encode(rows(value))
    return b"".join(bytes(buffer) for batch in batches for buffer in batch.buffers)


def produced(cluster: Cluster, records: bytes) -> int:
    """The error code of the answer."""
    body = b"".join(produce.write_request(ProduceRequest(None, -1, 5000, [ProduceData(Place("t", 0), [records])]), 8))
    with socket.create_connection(("127.0.0.1", cluster.running[1].kafka.port), timeout=60) as peer:
        peer.sendall(request_frame(Api.PRODUCE, 8, 1, "c", body))
        return _produce_answer(peer)


def _produce_answer(peer: socket.socket) -> int:
    answer = peer.recv(4)
    answer = peer.recv(struct.unpack(">i", answer)[0], socket.MSG_WAITALL)
    [result] = produce.read_response(memoryview(answer), 4, 8)
    return result.error_code


def test_a_leader_epoch_that_is_not_known_yet_is_no_fatal_error(alone: Cluster) -> None:
    place: Fields = {"partition_index": 0, "current_leader_epoch": 99, "timestamp": -1}
    asked: Fields = {"replica_id": -1, "topics": [{"name": "t", "partitions": [place]}]}
    [topic] = ask(alone.running[1].kafka.port, Api.LIST_OFFSETS, 5, asked).topics
    assert topic.partitions[0].error_code is ErrorCode.unknown_leader_epoch


def test_the_longest_names_are_refused_in_words_that_fit(alone: Cluster) -> None:
    name = "z" * LONGEST
    change: Fields = {
        "resources": [{"resource_type": 2, "resource_name": "t", "configs": [{"name": name, "value": ""}]}]
    }
    [answer] = ask(alone.running[1].kafka.port, Api.ALTER_CONFIGS, 1, change).responses
    assert answer.error_code is ErrorCode.invalid_config
    first, hint = answer.error_message.split("\n")
    assert re.search("zzz …$", first)
    assert hint.startswith("The properties of a topic are Kafka's")


def test_a_request_without_records_that_is_far_too_large_is_not_read(alone: Cluster) -> None:
    port = alone.running[1].kafka.port
    groups = ["g" * LONGEST] * (17 * 1024 * 1024 // LONGEST)
    with pytest.raises(OSError, match=r"answer|reset|Broken"):
        ask(port, Api.DESCRIBE_GROUPS, 4, {"groups": groups})
    assert ask(port, Api.DESCRIBE_GROUPS, 4, {"groups": groups[:2]}).groups[0].error_code is ErrorCode.none


def test_what_a_coordinator_could_not_replicate_it_does_not_write(
    alone: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(led_log, "_CHANGES_BYTES_MAX", 2000)
    assert committed(alone, "x" * 3000) is ErrorCode.not_coordinator
    assert eventually(lambda: committed(alone, "x") is ErrorCode.none)
    assert alone.running[1].node.failure is None


def committed(cluster: Cluster, metadata: str) -> ErrorCode:
    place: Fields = {"partition_index": 0, "committed_offset": 1, "committed_metadata": metadata}
    asked: Fields = {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": "t", "partitions": [place]}],
    }
    return ask(cluster.running[1].kafka.port, Api.OFFSET_COMMIT, 7, asked).topics[0].partitions[0].error_code


def _frame(api: Api, version: int, fields: Fields, client_id: str = "c") -> bytes:
    return request_frame(api, version, 1, client_id, messages.write_request(api, version, fields))
