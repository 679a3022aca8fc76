"""Transactions of Kafka 4's clients over the wire: what is written is announced by being written."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from millstream.logcore.client import TopicPartition
from millstream.logcore.errors import InvalidTransactionState, ProducerFenced
from millstream.logcore.log import Log
from millstream.logcore.protocol.channel import Address
from millstream.logcore.protocol.routing import CoordinatorKey, Router
from millstream.logcore.protocol.sender import Sender
from millstream.logcore.protocol.wire.apis import Api
from millstream.logcore.records.batch import BatchProducer
from millstream.logcore.records.codec import encode
from millstream.logcore.server import LogServer

from ..log_records import rows, values_of

WHERE = TopicPartition("t", 0)
_TX = CoordinatorKey("transaction", "tx")


@pytest.fixture
def router(log: Log) -> Iterator[Router]:
    with LogServer(log, port=0) as server:
        opened = Router([Address("127.0.0.1", server.port)])
        yield opened
        opened.close()


class Client:
    """A producer that announces nothing."""

    def __init__(self, router: Router) -> None:
        self._router = router
        nobody = {"producer_id": -1, "producer_epoch": -1}
        asked = {"transactional_id": "tx", "transaction_timeout": timedelta(minutes=1), **nobody}
        answer = router.ask(Api.INIT_PRODUCER_ID, asked, to=_TX)
        self.id, self.epoch = answer.producer_id, answer.producer_epoch

    @property
    def identity(self) -> dict[str, Any]:
        return {"transactional_id": "tx", "producer_id": self.id, "producer_epoch": self.epoch}

    def write(self, value: bytes, sequence: int = 0, epoch: int | None = None) -> None:
        producer = BatchProducer(self.id, self.epoch if epoch is None else epoch, sequence, transactional=True)
        Sender(self._router).send(WHERE, encode(rows(value), producer), "tx")

    def send_offset(self, offset: int) -> str:
        entry = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_metadata": "a note",
            "committed_leader_epoch": 3,
        }
        topics = [{"name": "t", "partitions": [entry]}]
        asked = {**self.identity, "group_id": "g", "generation_id": -1, "member_id": "", "topics": topics}
        (topic,) = self._router.ask(Api.TXN_OFFSET_COMMIT, asked, to=CoordinatorKey("group", "g")).topics
        return topic.partitions[0].error_code.name

    def end(self, *, committed: bool) -> str:
        answer = self._router.ask(Api.END_TXN, {**self.identity, "committed": committed}, to=_TX)
        if not answer.error_code:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer.error_code.name


def test_writing_and_sending_offsets_begin_the_transaction(log: Log, router: Router) -> None:
    client = Client(router)
    client.write(b"a")
    assert values_of(log, "t") == []
    assert client.end(committed=True) == "none"
    assert client.send_offset(7) == "none"
    assert log.served.groups.committed("g") == {}
    assert client.end(committed=True) == "none"
    assert (values_of(log, "t"), client.epoch) == ([b"a"], 2)
    assert log.groups.committed("g")[WHERE][:3] == (7, "a note", 3)
    client.write(b"b")
    assert client.end(committed=False) == "none"
    assert values_of(log, "t") == [b"a"]


def test_records_of_a_transaction_that_nobody_names_are_refused(log: Log, router: Router) -> None:
    """They would hold readers back for ever."""
    client = Client(router)
    batches = encode(rows(b"a"), BatchProducer(client.id, client.epoch, 0, transactional=True))
    with pytest.raises(InvalidTransactionState):
        Sender(router).send(WHERE, batches, None)
    assert log.served.partition("t", 0).open_transactions() == []


def test_what_is_late_is_refused_and_opens_nothing(log: Log, router: Router) -> None:
    client = Client(router)
    client.write(b"a")
    client.end(committed=True)
    with pytest.raises(ProducerFenced):
        client.write(b"late", 1, epoch=0)
    assert client.end(committed=True) == "invalid_txn_state"
    assert [found.state.value for found in log.served.transactions()] == ["complete_commit"]
