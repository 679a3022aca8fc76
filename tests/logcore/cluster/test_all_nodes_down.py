"""A client of Confluent's library that lives through an outage of all nodes at once."""

from __future__ import annotations

import threading
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import eventually

from .nodes import PATIENCE_S, Cluster


def test_offsets_go_into_transactions_again_after_all_nodes_were_down(cluster: Cluster) -> None:
    """With the library's own setting it never sends them, whoever the broker is: see docs/replication.md."""
    brokers = cluster.bootstrap
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([NewTopic("source", 1)])["source"].result(PATIENCE_S)
    all_down = threading.Event()
    producer = Producer(
        {
            "bootstrap.servers": brokers,
            "transactional.id": "copier",
            "metadata.recovery.strategy": "none",
            "error_cb": lambda error: all_down.set() if error.code() == KafkaError._ALL_BROKERS_DOWN else None,
        }
    )
    member = Consumer({"bootstrap.servers": brokers, "group.id": "copiers"})
    producer.init_transactions(PATIENCE_S)
    _in_time(lambda: _store(producer, member, 1))
    for number in list(cluster.running):
        cluster.kill(number)
    eventually(lambda: producer.poll(0.1) or all_down.is_set())
    cluster.start(*cluster.settings)
    _in_time(lambda: _store(producer, member, 2))
    assert eventually(lambda: _stored(member) if _stored(member) != 1 else None) == 2
    member.close()


def _store(producer: Producer, member: Consumer, offset: int) -> None:
    """In a transaction that has nothing else; asked again as long as the library says that this helps."""
    producer.begin_transaction()
    positions = [TopicPartition("source", 0, offset)]
    _persist(lambda: producer.send_offsets_to_transaction(positions, member.consumer_group_metadata(), 10))
    _persist(lambda: producer.commit_transaction(10))


def _persist(act: Callable[[], object]) -> None:
    def done() -> bool | None:
        try:
            act()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            return None
        return True

    eventually(done)


def _stored(member: Consumer) -> int:
    (found,) = member.committed([TopicPartition("source", 0)], PATIENCE_S)
    return found.offset


def _in_time(act: Callable[[], None]) -> None:
    """A call into the library may never return: nobody waits for the thread then."""
    failed: list[Exception] = []

    def run() -> None:
        try:
            act()
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(2 * PATIENCE_S)
    assert not thread.is_alive(), "the library does not come back"
    assert failed == []
