"""Transactions of clients. The protocol has no session: each request names id, producer and epoch.

A producer is known from its InitProducerId on, in the life of this process. After a restart its open transaction is
gone, and so it must not go on: it is fenced until it asks again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from millstream.errors import LogError

from ..client import TopicPartition
from ..errors import InvalidTransactionState, ProducerFenced
from ..log import Log
from ..partition import Appended
from ..producer import LocalTransactionalProducer
from ..records.batch import EncodedBatch

TIMEOUT_MS_MAX: Final = 15 * 60 * 1000

_log = structlog.get_logger("millstream.logcore")


class ClientProducer:
    """State: the partitions that the open transaction has announced, if one is open, and how the last one ended."""

    def __init__(self, producer: LocalTransactionalProducer, timeout_s: float, clock: Callable[[], float]) -> None:
        self.producer = producer
        self._clock = clock
        self._timeout_s = timeout_s
        self._lock = threading.RLock()
        self._announced: set[TopicPartition] = set()
        self._open = False
        self._committed = False
        self._deadline = 0.0

    def is_overdue(self, now: float) -> bool:
        return self._open and now > self._deadline

    def announce(self, partitions: set[TopicPartition]) -> None:
        """The transaction is going to write to these; it begins where none is open."""
        with self._lock:
            if not self._open:
                self.producer.begin()
                self._open, self._announced = True, set()
                self._deadline = self._clock() + self._timeout_s
            self._announced |= partitions

    def append(self, partition: TopicPartition, batches: list[EncodedBatch]) -> Appended:
        with self._lock:
            for batch in batches:
                if (batch.header.producer_id, batch.header.producer_epoch) != (
                    self.producer.producer_id,
                    self.producer.epoch,
                ):
                    raise ProducerFenced("a record batch of another producer than the transaction's")
            if not self._open or partition not in self._announced:
                raise InvalidTransactionState(
                    f'partition {partition.partition} of topic "{partition.topic}" is not part of an open transaction',
                    hint="Add the partition to the transaction before writing to it.",
                )
            return self.producer.append_batches(*partition, batches)

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        with self._lock:
            if not self._open:
                raise InvalidTransactionState("no transaction is open")
            self.producer.send_offsets(group, offsets)

    def end(self, *, commit: bool) -> None:
        """Asked twice, because an answer was lost, it ends once. To abort nothing is fine."""
        with self._lock:
            if not commit:
                self._open, self._committed = False, False
                self.producer.abort()
            elif self._open:
                self._open, self._committed = False, False
                self.producer.commit()
                self._committed = True
            elif not self._committed:
                raise InvalidTransactionState("no transaction is open")


class Producers:
    """State: the producers that asked for their ids in this process's life. Any thread may call any method."""

    def __init__(self, log: Log, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, ClientProducer] = {}

    def new(self, transactional_id: str, timeout_ms: int) -> ClientProducer:
        """Fences whoever had the id."""
        producer = ClientProducer(self._log.transactional_producer(transactional_id), timeout_ms / 1000, self._clock)
        with self._lock:
            known = self._known.get(transactional_id)
            if known is None or _age(known) < _age(producer):
                self._known[transactional_id] = producer
        return producer

    def find(self, transactional_id: str, producer_id: int, epoch: int) -> ClientProducer:
        """Raises `ProducerFenced`."""
        with self._lock:
            known = self._known.get(transactional_id)
        if known is None or (known.producer.producer_id, known.producer.epoch) != (producer_id, epoch):
            raise ProducerFenced(
                f'producer "{transactional_id}" with id {producer_id} and epoch {epoch} was replaced, or the server was'
                " restarted",
                hint="Start a new producer with this transactional id.",
            )
        return known

    def owner(self, transactional_id: str) -> ClientProducer:
        """The producer that has the id now. Raises `ProducerFenced`."""
        with self._lock:
            known = self._known.get(transactional_id)
        if known is None:
            raise ProducerFenced(f'no producer has the transactional id "{transactional_id}"')
        return known

    def end_overdue(self) -> None:
        """Aborts what was open for longer than its producer asked for, and fences the producer."""
        now = self._clock()
        with self._lock:
            overdue = [id for id, producer in self._known.items() if producer.is_overdue(now)]
            for transactional_id in overdue:
                del self._known[transactional_id]
        for transactional_id in overdue:
            _log.warning("transaction timed out", id=transactional_id)
            try:
                self._log.transactional_producer(transactional_id)
            except LogError as error:
                _log.warning("overdue transaction not aborted", id=transactional_id, error=error.message)


def _age(producer: ClientProducer) -> tuple[int, int]:
    return producer.producer.producer_id, producer.producer.epoch
