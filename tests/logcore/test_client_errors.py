"""What our clients lose, and how they go on, after an error that passes: nothing, and as before."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import pytest

from millstream.logcore.client import Consumer, Producer, TopicPartition
from millstream.logcore.clients.client_groups import GroupLog
from millstream.logcore.cores.group_messages import CommittedOffset, JoinGroup, Message, Reply, Sync
from millstream.logcore.errors import LogUnavailable, UnknownTopic
from millstream.logcore.log import Log
from millstream.logcore.remote import RemoteLog
from millstream.logcore.server import LogServer

from .log_records import rows, values_of


class Failing:
    """The log, but what `fails` names raises `LogUnavailable`."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self.fails: set[TopicPartition] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def fetch(self, topic: str, partition: int, offset: int, **how: Any) -> Any:
        if TopicPartition(topic, partition) in self.fails:
            raise LogUnavailable("the leader does not answer")
        return self._log.fetch(topic, partition, offset, **how)


class FailingOnce:
    """The groups of a log; the first request of a kind gets no answer."""

    def __init__(self, groups: Any, kind: type) -> None:
        self._groups, self._kind = groups, kind
        self._failed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._groups, name)

    def committed(self, group: str) -> Any:
        if self._kind is CommittedOffset and not self._failed:
            self._failed = True
            raise LogUnavailable("the coordinator does not answer")
        return self._groups.committed(group)

    def ask(self, message: Message) -> Future[Reply]:
        if isinstance(message, self._kind) and not self._failed:
            self._failed = True
            future: Future[Reply] = Future()
            future.set_exception(LogUnavailable("the coordinator does not answer"))
            return future
        return self._groups.ask(message)


def read(consumer: Consumer, count: int) -> list[bytes]:
    """Polls until there are so many records; errors that may pass are waited out."""
    found: list[bytes] = []
    for _ in range(1_000):
        with suppress(LogUnavailable):
            for each in consumer.poll(0.05):
                found += each.table.column("value").to_pylist()
        if len(found) >= count:
            break
    return found


def test_records_of_other_partitions_are_not_lost_when_one_cannot_be_read(log: Log) -> None:
    log.add_partitions("t", 3)
    for number in range(3):
        log.append("t", number, rows(b"%d" % number))
    failing: Any = Failing(log)
    failing.fails = {TopicPartition("t", 2)}
    with Consumer(failing, commit_every_ms=None) as consumer:
        consumer.assign({TopicPartition("t", number): 0 for number in range(3)})
        found = read(consumer, 2)
        with pytest.raises(LogUnavailable):
            consumer.poll(0.0)
        failing.fails = set()
        assert sorted(found + read(consumer, 1)) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("kind", [JoinGroup, Sync, CommittedOffset])
def test_a_member_reads_after_all_when_a_first_request_was_not_answered(log: Log, kind: type) -> None:
    log.append("t", 0, rows(b"a"))
    failing: Any = Failing(log)
    failing.groups = FailingOnce(log.groups, kind)
    with Consumer(failing, "g") as consumer:
        consumer.subscribe("t")
        with pytest.raises(LogUnavailable):
            consumer.poll(1.0)
        assert read(consumer, 1) == [b"a"]


@pytest.fixture(params=["in process", "over the network"])
def door(request: pytest.FixtureRequest, log: Log) -> Iterator[GroupLog]:
    if request.param == "in process":
        yield log
    else:
        with LogServer(log, port=0) as server, RemoteLog(server.address) as remote:
            yield remote


def test_a_transaction_whose_records_are_refused_at_its_end_is_aborted(door: GroupLog, log: Log) -> None:
    producer = Producer(door, "p")
    with pytest.raises(UnknownTopic), producer.transaction():
        producer.send("t", b"", partition=9)
    with producer.transaction():
        producer.send("t", b"a", partition=0)
    assert values_of(log, "t", 0, 0) == [b"a"]
