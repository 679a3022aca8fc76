"""A restart of the server, as clients that are not ours see it: nothing happens to them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from waiting import eventually

from millstream.logcore.client import TopicPartition
from millstream.logcore.log import Log, open_log
from millstream.logcore.server import LogServer

from ..log_records import rows, values_of


class Node:
    """A log and its listener, which can be started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = 0
        self.start()
        self.log.create_topic("t", 2)

    def start(self) -> None:
        self.log: Log = open_log(self._folder)
        self._server = LogServer(self.log, port=self._port)
        self._server.start()
        self._port = self._server.port

    def stop(self) -> None:
        self._server.stop()
        self.log.close()

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self._server.address, "log_level": 0, "reconnect.backoff.max.ms": 200,
            "error_cb": lambda error: None,
        }  # fmt: skip


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    running = Node(tmp_path / "log")
    yield running
    running.stop()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on_without_a_rebalance(node: Node, protocol: str) -> None:
    moves: list[str] = []
    gone = threading.Event()
    group = {"group.id": "g", "group.protocol": protocol, "auto.offset.reset": "earliest"}
    consumer = Consumer({**node.settings, **group, "error_cb": lambda error: gone.set()})
    consumer.subscribe(
        ["t"], on_assign=lambda *_: moves.append("assign"), on_revoke=lambda *_: moves.append("revoke"),
        on_lost=lambda *_: moves.append("lost"),
    )  # fmt: skip
    node.log.append("t", 0, rows(b"before"))
    read = reader(consumer)
    assert read(1) == [b"before"]
    before = node.log.groups.describe("g")
    gone.clear()
    node.stop()
    eventually(lambda: consumer.poll(0.1) or gone.is_set(), otherwise="the consumer does not notice")
    node.start()
    node.log.append("t", 1, rows(b"after"))
    assert read(1) == [b"after"]
    consumer.commit(asynchronous=False)
    assert moves == ["assign"]
    assert node.log.groups.describe("g") == before
    assert node.log.committed_offsets("g")[TopicPartition("t", 1)] == 1
    consumer.close()


def reader(consumer: Consumer) -> Callable[[int], list[bytes | None]]:
    def read(count: int) -> list[bytes | None]:
        found: list[bytes | None] = []
        deadline = time.monotonic() + 60
        while len(found) < count and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and not message.error():
                found.append(message.value())
        return found

    return read


def test_a_transactional_producer_goes_on(node: Node) -> None:
    producer = Producer({**node.settings, "transactional.id": "tx"})
    producer.init_transactions(10)
    for value in (b"before", b"after"):
        producer.begin_transaction()
        producer.produce("t", value, partition=0)
        producer.commit_transaction(20)
        if value == b"before":
            node.stop()
            node.start()
    assert node.log.wait({TopicPartition("t", 0): 2}, 20)
    assert values_of(node.log, "t") == [b"before", b"after"]
