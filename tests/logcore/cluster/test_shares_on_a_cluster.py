"""A share group on three nodes: the leader of a partition and the coordinator of the group are different ones."""

from __future__ import annotations

import socket
import uuid
from datetime import timedelta
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import eventually

from millstream.logcore.error_codes import ErrorCode
from millstream.logcore.log_settings import of_group
from millstream.logcore.protocol.wire import messages
from millstream.logcore.protocol.wire.apis import Api
from millstream.logcore.replication.shards.coordination_messages import place_of
from millstream.logcore.topic_rules import GROUPS_TOPIC

from .hostile_requests import ask, read_answer, request_frame
from .nodes import PATIENCE_S, Cluster

GROUP = "workers"
MEMBER = {"group_id": GROUP, "member_id": "a"}


def coordinator(cluster: Cluster) -> int:
    image = next(iter(cluster.running.values())).node.image
    place = place_of(image, GROUPS_TOPIC, GROUP)
    assert place is not None
    return cluster.leader_of(GROUPS_TOPIC, place.number)


def port(cluster: Cluster, node: int) -> int:
    return cluster.running[node].kafka.port


def joined(cluster: Cluster) -> bool | None:
    """Whoever is asked knows the coordinator, or it is made; then the member joins there."""
    any_port = next(iter(cluster.running.values())).kafka.port
    ask(any_port, Api.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": [GROUP]})
    try:
        beat = {**MEMBER, "member_epoch": 0, "subscribed_topic_names": ("jobs",)}
        answer = ask(port(cluster, coordinator(cluster)), Api.SHARE_GROUP_HEARTBEAT, 1, beat)
    except (AssertionError, KeyError, OSError):
        return None
    return answer.error_code is ErrorCode.none or None


class Session:
    """With the leader of a partition. State: the connection, with which the session ends, and its epoch."""

    def __init__(self, cluster: Cluster, partition: int, member: str) -> None:
        node = cluster.leader_of("jobs", partition)
        self._topic_id = uuid.UUID(hex=cluster.running[node].parts.log.topic_id("jobs"))
        self._partition, self._member, self._epoch = partition, member, 0
        self._peer = socket.create_connection(("127.0.0.1", port(cluster, node)), timeout=60)

    def fetch(self) -> list[tuple[int, int]]:
        wait = {"max_wait": timedelta(milliseconds=500), "min_bytes": 1, "max_records": 100}
        answer = self._ask(Api.SHARE_FETCH, wait, [])
        entries = [entry for topic in answer.responses for entry in topic.partitions]
        return [(each.first_offset, each.last_offset) for entry in entries for each in entry.acquired_records]

    def acknowledge(self, *batches: Any) -> list[ErrorCode]:
        answer = self._ask(Api.SHARE_ACKNOWLEDGE, {}, list(batches))
        return [entry.error_code for topic in answer.responses for entry in topic.partitions]

    def _ask(self, api: Api, more: Any, batches: list[Any]) -> Any:
        entry = {"partition_index": self._partition, "acknowledgement_batches": batches}
        about = {"group_id": GROUP, "member_id": self._member, "share_session_epoch": self._epoch, **more}
        about["topics"] = [{"topic_id": self._topic_id, "partitions": [entry]}]
        self._epoch += 1
        self._peer.sendall(request_frame(api, 2, 7, "c", messages.write_request(api, 2, about)))
        return read_answer(self._peer, api, 2)

    def close(self) -> None:
        self._peer.close()


def first_of(cluster: Cluster, partition: int, member: str) -> tuple[Session, list[int]] | None:
    """A session that has got records, and which."""
    try:
        session = Session(cluster, partition, member)
        found = session.fetch()
    except (AssertionError, KeyError, OSError):
        return None
    if found:
        return session, [offset for first, last in found for offset in range(first, last + 1)]
    session.close()
    return None


def test_what_was_accepted_outlives_the_coordinator(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("jobs", 3, 3)])["jobs"].result(PATIENCE_S)
    some = next(iter(cluster.running.values()))
    some.parts.log.change_settings(of_group(GROUP), {"share.auto.offset.reset": "earliest"})
    eventually(lambda: joined(cluster))
    dead = coordinator(cluster)
    partition = next(number for number in range(3) if cluster.leader_of("jobs", number) != dead)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(4):
        producer.produce("jobs", b"%d" % number, partition=partition)
    assert producer.flush(PATIENCE_S) == 0
    session, found = eventually(lambda: first_of(cluster, partition, "a"))
    assert found == [0, 1, 2, 3]
    accepted = {"first_offset": 0, "last_offset": 1, "acknowledge_types": (1,)}
    released = {"first_offset": 2, "last_offset": 3, "acknowledge_types": (2,)}
    assert session.acknowledge(accepted, released) == [ErrorCode.none]
    session.close()
    cluster.kill(dead)
    session, found = eventually(lambda: first_of(cluster, partition, "b"))
    assert found == [2, 3]
    session.close()
