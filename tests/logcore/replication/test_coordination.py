"""What all coordinators have in common: who begins when, what is held back, and what ends them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from millstream.logcore.records.key_values import KeyValue
from millstream.logcore.replication.machine import NodeId, RequestId, Send
from millstream.logcore.replication.replica.replica_messages import FetchRequest, Problem, Refused
from millstream.logcore.replication.shards.coordination import CoordinationSettings
from millstream.logcore.replication.shards.coordination_messages import ForEveryShard, ForGroup
from millstream.logcore.replication.shards.led_log import LedLog
from millstream.logcore.topic_rules import GROUPS_TOPIC

from .brokers import Brokers


class Book:
    """A shard that keeps what it is told, and answers with all of it."""

    def __init__(self, log: LedLog) -> None:
        self.log = log
        self.folds = 0
        self.entries: list[bytes] = []
        self.heard: list[Any] = []

    def fold(self, records: Sequence[KeyValue]) -> None:
        self.folds += 1
        self.entries += [record.key for record in records]

    def begin(self) -> None:
        self.entries.append(b"begun")

    def ask(self, request: RequestId, key: str, body: Any) -> None:
        self.entries.append(body)
        self.log.write([KeyValue(body, None)])
        self.log.reply(request, cast("Any", tuple(self.entries)))

    def answer_now(self, key: str, asked: Any) -> Any:
        return None

    def look(self, body: Any) -> Any:
        return len(self.entries)

    def receive(self, sender: NodeId, message: Any) -> None:
        self.heard.append(message)

    def tick(self) -> None:
        pass


def books(shards: int = 1, **settings: Any) -> Brokers:
    return Brokers({GROUPS_TOPIC: Book}, shards=shards, coordination=CoordinationSettings(**settings))


def tell(cluster: Brokers, node: int, text: bytes, key: str = "key") -> Any:
    return cluster.group(node, key, text)


def book(cluster: Brokers, node: int) -> Book:
    [shard] = cluster.brokers[NodeId(node)].coordinators.shards(GROUPS_TOPIC)
    assert isinstance(shard, Book)
    return shard


def test_a_new_coordinator_knows_all_that_was_written_in_order() -> None:
    cluster = books()
    for text in (b"a", b"b", b"c"):
        tell(cluster, 1, text)
    cluster.kill(1)
    cluster.elect(2)
    cluster.pass_time(200)
    assert tell(cluster, 2, b"d") == (b"a", b"b", b"c", b"begun", b"d")


def test_a_long_log_is_read_in_pieces() -> None:
    cluster = books(load_bytes=1)
    for number in range(5):
        tell(cluster, 1, b"%d" % number)
    cluster.kill(1)
    cluster.elect(2)
    cluster.pass_time(1_000)
    assert book(cluster, 2).folds == 5
    assert len(tell(cluster, 2, b"x")) == 7


def test_each_partition_has_a_coordinator_of_its_own() -> None:
    cluster = books(shards=3)
    answers = [tell(cluster, 1, b"x", key) for key in ("a", "b", "c")]
    assert answers == [(b"begun", b"x")] * 3
    looked = cluster.replies[cluster.ask(1, ForEveryShard(GROUPS_TOPIC, cast("Any", "how many?")))]
    assert looked == (2, 2, 2)
    cluster.elect(2, shard=1)
    cluster.pass_time(200)
    assert len(cluster.replies[cluster.ask(1, ForEveryShard(GROUPS_TOPIC, cast("Any", "how many?")))]) == 2
    assert cluster.replies[cluster.ask(3, ForEveryShard(GROUPS_TOPIC, cast("Any", "how many?")))] == ()


def test_what_is_held_back_goes_in_order_when_it_is_committed() -> None:
    cluster = books()
    log = book(cluster, 1).log
    heard: list[str] = []
    log.once_committed(lambda: heard.append("nothing to wait for"))
    cluster.held = lambda sender, message: isinstance(message, FetchRequest)
    request = cluster.ask(1, ForGroup("key", cast("Any", b"x")))
    log.once_committed(lambda: heard.append("after the record"))
    log.say(Send(NodeId(2), cast("Any", "a message that no broker gets"), "nobody"))
    assert heard == ["nothing to wait for"] and request not in cluster.replies
    cluster.held = lambda sender, message: message == cast("Any", "a message that no broker gets")
    cluster.pass_time(3_000)
    assert heard == ["nothing to wait for", "after the record"] and request in cluster.replies


def test_what_was_held_back_is_never_done_when_the_coordinator_ends() -> None:
    cluster = books()
    log = book(cluster, 1).log
    heard: list[str] = []
    cluster.cut = {1}
    request = cluster.ask(1, ForGroup("key", cast("Any", b"x")))
    log.once_committed(lambda: heard.append("too late"))
    cluster.cut = set()
    cluster.elect(2)
    cluster.pass_time(3_000)
    assert heard == [] and cluster.replies[request].problem is Problem.NOT_COORDINATOR


def test_no_more_requests_wait_than_may() -> None:
    cluster = books(waiting_max=2)
    cluster.held = lambda sender, message: isinstance(message, FetchRequest)
    waiting = [cluster.ask(1, ForGroup("key", cast("Any", b"x"))) for _ in range(2)]
    refused = tell(cluster, 1, b"x")
    assert isinstance(refused, Refused) and refused.problem is Problem.COORDINATOR_NOT_AVAILABLE
    cluster.held = lambda sender, message: False
    cluster.pass_time(3_000)
    assert all(request in cluster.replies for request in waiting)
    assert isinstance(tell(cluster, 1, b"x"), tuple)


def test_a_coordinator_that_leads_again_has_forgotten_what_it_knew() -> None:
    cluster = books()
    tell(cluster, 1, b"a")
    cluster.elect(2)
    cluster.pass_time(200)
    tell(cluster, 2, b"b")
    cluster.elect(1)
    cluster.pass_time(200)
    assert tell(cluster, 1, b"c") == (b"a", b"b", b"begun", b"c")


def test_coordinators_of_a_deleted_topic_are_gone() -> None:
    cluster = books()
    cluster.delete_topic(GROUPS_TOPIC)
    assert cluster.brokers[NodeId(1)].coordinators.shards(GROUPS_TOPIC) == []
    assert tell(cluster, 1, b"x").problem is Problem.COORDINATOR_NOT_AVAILABLE
