"""Programs that write with confluent-kafka while their server dies and comes back, and note what becomes of it.

    feed ADDRESS TOPIC PARTITIONS RATE STOP              numbers, by an idempotent producer, RATE a second
    copy ADDRESS SOURCE TARGET GROUP TRANSACTIONAL STOP  records and their offsets in transactions: both, or neither

Each goes on until there is a file at the path STOP. The first one then waits until everything is answered. It prints
`stored NUMBER PARTITION OFFSET` for a number that is, `failed NUMBER ERROR` for one that the library gave up, and `left
COUNT` at its end. The copy of a record says whence it comes, `PARTITION OFFSET VALUE`; the second one prints `copied
COUNT`, `aborted WHY`, `replaced WHY`, and what else happens. What the library logs of them is on stderr.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

_FLUSH_S: Final = 120
_WAIT_S: Final = 5.0
_PAUSE_S: Final = 0.05
_RECORDS_MAX: Final = 100
_PATIENCE_MS: Final = 600_000  # whoever gives up sooner cannot tell whether a number is stored
_QUICK: Final = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 500}


def say(*words: object) -> None:
    print(*words, flush=True)


# The feeder


def feed(address: str, topic: str, partitions: str, rate: str, stop: str) -> None:
    producer = Producer(
        {
            **_QUICK,
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "linger.ms": 5,
            "message.timeout.ms": _PATIENCE_MS,
            "debug": "eos,msg",
        }
    )

    def note(error: object, message: Any) -> None:
        number = int(message.value())
        say(*(("failed", number, error) if error else ("stored", number, message.partition(), message.offset())))

    number, begun_s = 0, time.monotonic()
    while not Path(stop).exists():
        while number < (time.monotonic() - begun_s) * float(rate):
            producer.produce(topic, b"%d" % number, partition=number % int(partitions), on_delivery=note)
            number += 1
        producer.poll(0.02)
    say("left", producer.flush(_FLUSH_S))


# The copier


class Aborted(Exception):
    """The transaction has to be aborted, says the library."""


def copy(address: str, source: str, target: str, group: str, transactional_id: str, stop: str) -> None:
    copier = Copier(address, source, target, group, transactional_id)
    while not Path(stop).exists():
        copier.copy_some()
    copier.close()


class Copier:
    """State: a consumer, a transactional producer, which another one follows after a fatal error, and whether
    partitions were taken from us since the transaction began."""

    def __init__(self, address: str, source: str, target: str, group: str, transactional_id: str) -> None:
        self._address, self._target, self._transactional_id = address, target, transactional_id
        self._consumer = _consumer(address, group)
        self._consumer.subscribe([source], on_revoke=self._on_taken, on_lost=self._on_taken)
        self._producer = self._next_producer()
        self._taken = False

    def _on_taken(self, consumer: Any, partitions: Sequence[TopicPartition]) -> None:
        say("taken", *(each.partition for each in partitions))
        self._taken = True

    def _next_producer(self) -> Producer:
        """It ends the transaction of the one before."""
        while True:
            producer = _transactional_producer(self._address, self._transactional_id)
            try:
                _insist(lambda producer=producer: producer.init_transactions(_WAIT_S))
            except KafkaException as error:
                say("replaced", error)
                time.sleep(_PAUSE_S)
            else:
                return producer

    def copy_some(self) -> None:
        """At most one transaction."""
        first = self._next(0.1)
        if first is None:
            return
        try:
            say("copied", self._copy(first))
        except Aborted as why:
            say("aborted", why)
            self._abort()
        except KafkaException as error:
            self._replace(error)

    def _next(self, within_s: float) -> Any:
        message = self._consumer.poll(within_s)
        if message is None or message.error() is None:
            return message
        say("consumer", message.error())
        return None

    def _copy(self, message: Any) -> int:
        """Raises `Aborted`; `KafkaException` where the producer is of no use any more."""
        self._taken = False
        self._producer.begin_transaction()
        ends: dict[int, TopicPartition] = {}
        count = 0
        while message is not None:
            value = f"{message.partition()} {message.offset()} {message.value().decode()}"
            self._producer.produce(self._target, value.encode(), partition=message.partition())
            ends[message.partition()] = TopicPartition(message.topic(), message.partition(), message.offset() + 1)
            count += 1
            message = self._next(0.02) if count < _RECORDS_MAX else None
            if self._taken:
                raise Aborted("partitions were taken")
        group = self._consumer.consumer_group_metadata()
        _insist(lambda: self._producer.send_offsets_to_transaction([*ends.values()], group, _WAIT_S))
        _insist(lambda: self._producer.commit_transaction(_WAIT_S))
        return count

    def _abort(self) -> None:
        try:
            _insist(lambda: self._producer.abort_transaction(_WAIT_S))
        except KafkaException as error:
            self._replace(error)
        else:
            self._rewind()

    def _replace(self, error: KafkaException) -> None:
        say("replaced", error)
        self._producer = self._next_producer()
        self._rewind()

    def _rewind(self) -> None:
        """To what is committed; again where that cannot be had now."""
        while True:
            try:
                for place in self._consumer.committed(self._consumer.assignment(), timeout=_WAIT_S):
                    if place.error is not None:
                        raise KafkaException(place.error)
                    place.offset = place.offset if place.offset >= 0 else OFFSET_BEGINNING
                    self._consumer.seek(place)
            except KafkaException as error:
                say("cannot go back yet", error)
                time.sleep(_PAUSE_S)
            else:
                return

    def close(self) -> None:
        self._consumer.close()


def _consumer(address: str, group: str) -> Consumer:
    return Consumer(
        {
            **_QUICK,
            "bootstrap.servers": address,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 1000,
            "debug": "cgrp,eos",
        }
    )


def _transactional_producer(address: str, transactional_id: str) -> Producer:
    return Producer(
        {
            **_QUICK,
            "bootstrap.servers": address,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": _PATIENCE_MS,
            "message.timeout.ms": _PATIENCE_MS,
            "debug": "eos,broker",
            # Otherwise send_offsets_to_transaction may wait forever after a restart: see docs/replication.md.
            "metadata.recovery.strategy": "none",
        }
    )


def _insist(act: Callable[[], object]) -> None:
    """Repeats what may be repeated. Raises `Aborted`, `KafkaException`."""
    while True:
        try:
            act()
        except KafkaException as error:
            found = error.args[0]
            if found.txn_requires_abort():
                raise Aborted(str(error)) from error
            if not found.retriable():
                raise
            say("again", error)
            time.sleep(_PAUSE_S)
        else:
            return


if __name__ == "__main__":
    {"feed": feed, "copy": copy}[sys.argv[1]](*sys.argv[2:])
