"""Clients that send: idempotent producers, and transactions over several partitions."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

from . import events
from .recording import (
    PARTITIONS,
    SENT_TOPIC,
    TRANSACTION_TIMEOUT_MS,
    TRANSACTIONS_TOPIC,
    Work,
    is_fatal,
    is_retriable,
    place,
    requires_abort,
)

_PAUSE_S: Final = 0.1
_ABORTED_SHARE: Final = 0.15
_GIVES_UP_S: Final = 60.0
_NEVER_MS: Final = 1_800_000
"""No record may time out in the library while others wait behind it: it goes on under a new epoch then, and sends again
what may be in the log already (librdkafka 2.16; so it does with Apache Kafka)."""


class Lost(Exception):
    """This producer is of no use any more: fenced, or in an unknown state. The next one begins anew."""


class NotingProducer:
    """A producer that notes what it sends and what is acknowledged. State: acknowledgements that are not noted yet."""

    def __init__(self, work: Work, **settings: Any) -> None:
        self._work = work
        self.name = work.part()
        self.producer = Producer(work.settings(enable_idempotence=True, acks="all", linger_ms=5, **settings))
        self._acknowledged: list[tuple[str, str, int]] = []

    def send(self, records: Iterable[tuple[str, str, int, str]], transaction: str | None = None) -> None:
        """In: value, topic, partition and key of each; the key is the value it is a copy of, or empty."""
        batch = list(records)
        noted = [(value, place(topic, partition)) for value, topic, partition, _ in batch]
        self._work.recorder.note(events.SEND, producer=self.name, transaction=transaction, records=noted)
        for position, (value, topic, partition, key) in enumerate(batch):
            try:
                self.producer.produce(topic, value, key or None, partition, on_delivery=self._delivered)
            except (BufferError, KafkaException) as error:
                self._work.recorder.note(events.NOT_SENT, values=[value for value, *_ in batch[position:]])
                self._work.say(error)
                if isinstance(error, KafkaException):
                    raise
                break

    def serve(self, seconds: float = 0.0) -> None:
        """Takes acknowledgements, and notes them."""
        self.producer.poll(seconds)
        if self._acknowledged:
            self._work.recorder.note(events.SENT, records=self._acknowledged)
            self._acknowledged = []

    def finish(self, seconds: float) -> int:
        """Waits for what is under way. Returns how many records are left without an answer."""
        left = self.producer.flush(seconds)
        self.serve()
        return left

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            where = place(message.topic(), message.partition())
            self._acknowledged.append((message.value().decode(), where, message.offset()))


def send_idempotently(work: Work) -> None:
    """Some records every tenth of a second, whether those before are acknowledged or not."""
    while not work.ending.is_set():
        producer = NotingProducer(work, delivery_timeout_ms=_NEVER_MS)
        try:
            while not work.ending.is_set():
                producer.send(
                    (work.unique(), SENT_TOPIC, work.draw.randrange(PARTITIONS), "")
                    for _ in range(work.draw.randint(1, 15))
                )
                producer.serve(_PAUSE_S)
                time.sleep(_PAUSE_S / 2)
        except KafkaException as error:
            work.say(error)
        producer.finish(20.0)


def send_in_transactions(work: Work) -> None:
    """Transactions of a few records each, some of them aborted."""
    while not work.ending.is_set():
        sender = TransactionSender(work)
        try:
            sender.begin_life()
            while not work.ending.is_set():
                _one_transaction(work, sender)
                time.sleep(_PAUSE_S)
        except (Lost, KafkaException) as error:
            work.say(error)
            time.sleep(_PAUSE_S)


def _one_transaction(work: Work, sender: TransactionSender) -> None:
    with_abort = work.draw.random() < _ABORTED_SHARE
    transaction = sender.begin()
    try:
        for _ in range(work.draw.randint(1, 3)):
            sender.send(
                (work.unique(), TRANSACTIONS_TOPIC, work.draw.randrange(PARTITIONS), "")
                for _ in range(work.draw.randint(1, 6))
            )
            time.sleep(work.draw.random() * _PAUSE_S)
        if with_abort:
            sender.abort(transaction)
        else:
            sender.commit(transaction)
    except KafkaException as error:
        sender.recover(transaction, error)


class TransactionSender:
    """A transactional producer. All methods raise `Lost` where only a new producer helps, which fences this one off."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._producer = NotingProducer(
            work,
            transactional_id=work.name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            message_timeout_ms=TRANSACTION_TIMEOUT_MS,
            metadata_recovery_strategy="none",  # see `Clients.kill_stuck`
        )
        self._transaction = ""

    def begin_life(self) -> None:
        self._persist(lambda: self._producer.producer.init_transactions(10.0))

    def begin(self) -> str:
        """Returns its name."""
        self._producer.producer.begin_transaction()
        self._transaction = self._work.unique()
        return self._transaction

    def send(self, records: Iterable[tuple[str, str, int, str]]) -> None:
        self._producer.send(records, self._transaction)
        self._producer.serve()

    def store(self, group: str, offsets: dict[str, int], positions: Any, metadata: Any) -> None:
        """Group offsets that become visible with the transaction."""
        self._work.recorder.note(
            events.STORING, commit=self._work.unique(), group=group, transaction=self._transaction, offsets=offsets
        )
        self._persist(lambda: self._producer.producer.send_offsets_to_transaction(positions, metadata, 10.0))

    def commit(self, transaction: str) -> None:
        self._work.recorder.note(events.COMMITTING, transaction=transaction)
        self._persist(lambda: self._producer.producer.commit_transaction(10.0))
        self._producer.serve()
        self._work.recorder.note(events.COMMITTED, transaction=transaction)

    def abort(self, transaction: str) -> None:
        self._persist(lambda: self._producer.producer.abort_transaction(10.0))
        self._work.recorder.note(events.ABORTED, transaction=transaction)
        self._producer.serve()

    def recover(self, transaction: str, error: KafkaException) -> None:
        """Aborts after an error, where the library says that this is the way."""
        self._work.say(error)
        if not requires_abort(error):
            raise Lost(transaction) from error
        try:
            self.abort(transaction)
        except KafkaException as another:
            raise Lost(transaction) from another

    def _persist(self, call: Any) -> None:
        """Asks again as long as the library says that this may help."""
        until = time.monotonic() + _GIVES_UP_S
        while True:
            try:
                call()
            except KafkaException as error:
                if is_fatal(error) or not is_retriable(error) or requires_abort(error):
                    raise
                self._work.say(error)
                if time.monotonic() > until:
                    raise Lost("no answer") from error
            else:
                return
