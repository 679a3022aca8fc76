"""Transactions of clients. The protocol has no session: each request names id, producer and epoch.

A producer is known from its InitProducerId on. After a restart or a crash it goes on, unless a transaction of it was
open then: that is aborted, and the producer is fenced until it asks again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

import structlog

from millstream.errors import LogError

from ..client import TopicPartition
from ..clients.local_producer import LocalTransactionalProducer
from ..cores.group_messages import CommitNote
from ..errors import InvalidTransactionState, LogClosed, ProducerFenced
from ..records.batch import EncodedBatch
from ..storage.partition import Appended

if TYPE_CHECKING:
    from ..log import Log

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
        self._committed = producer.has_committed()  # of one that goes on, which may not have heard so
        self._deadline = 0.0
        self._used = clock()
        self._began = False
        self.follows: tuple[int, int] | None = None
        """The id and epoch that asked for this one."""

    def answers(self, producer_id: int, epoch: int) -> bool:
        """Whether this is what that producer has asked for before: the answer was lost."""
        return self.follows == (producer_id, epoch) and not self._began

    def is_overdue(self, now: float) -> bool:
        return self._open and now > self._deadline

    def is_idle_since(self, before: float) -> bool:
        return not self._open and self._used < before

    def announce(self, partitions: set[TopicPartition]) -> None:
        """The transaction is going to write to these; it begins where none is open."""
        with self._lock:
            self._used = self._clock()
            self._began = True
            if not self._open:
                self.producer.begin(noted=True)
                self._open, self._announced = True, set()
                self._deadline = self._used + self._timeout_s
            self._announced |= partitions

    def append(self, partition: TopicPartition, batches: list[EncodedBatch], *, announces: bool = False) -> Appended:
        """`announces`: the write itself makes the partition a part of the transaction."""
        with self._lock:
            for batch in batches:
                if (batch.header.producer_id, batch.header.producer_epoch) != (
                    self.producer.producer_id,
                    self.producer.epoch,
                ):
                    raise ProducerFenced("a record batch of another producer than the transaction's")
                if not batch.header.transactional:
                    raise InvalidTransactionState("a record batch that is not said to be a transaction's")
            if announces:
                self.announce({partition})
            if not self._open or partition not in self._announced:
                raise InvalidTransactionState(
                    f'partition {partition.partition} of topic "{partition.topic}" is not part of an open transaction',
                    hint="Add the partition to the transaction before writing to it.",
                )
            return self.producer.append_batches(*partition, batches)

    def send_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        notes: Mapping[TopicPartition, CommitNote],
        *,
        announces: bool = False,
    ) -> None:
        with self._lock:
            if announces:
                self.announce(set())
            if not self._open:
                raise InvalidTransactionState("no transaction is open")
            self.producer.send_offsets(group, offsets, notes)

    def end(self, *, commit: bool) -> None:
        """Asked twice, because an answer was lost, it ends once. To abort nothing is fine; to abort what is committed
        raises `InvalidTransactionState`, as Apache Kafka's coordinator does."""
        with self._lock:
            self._used = self._clock()
            if not commit and self._committed and not self._open:
                raise InvalidTransactionState("the transaction is committed, and cannot be aborted any more")
            if not commit:
                with self._ended():
                    self.producer.abort()
            elif self._open:
                with self._ended():
                    self.producer.commit()
                self._committed = True
            elif not self._committed:
                raise InvalidTransactionState("no transaction is open")

    @contextmanager
    def _ended(self) -> Generator[None]:
        """Ends the transaction, also by a failure; but what a log refuses that is closing, has changed nothing."""
        was = self._open, self._committed
        self._open, self._committed = False, False
        try:
            yield
        except LogClosed:
            self._open, self._committed = was
            raise

    def end_and_raise(self, producer_id: int, epoch: int, *, commit: bool) -> tuple[int, int]:
        """Ends the transaction, and gives the id and the epoch that the producer goes on with. Nothing that was sent
        before, and comes later, is taken for a part of the next one. Asked twice, it ends once."""
        with self._lock:
            self._used = self._clock()
            current = (producer_id, epoch) == (self.producer.producer_id, self.producer.epoch)
            with self._ended() if current else nullcontext():
                self.producer.end_and_raise((producer_id, epoch), commit=commit)
            return self.producer.producer_id, self.producer.epoch


class Producers:
    """State: the producers that asked for their ids in this process's life. Any thread may call any method."""

    def __init__(self, log: Log, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._idle_s_max = log.expiry.transactional_ids_ms / 1000
        self._lock = threading.Lock()
        self._known: dict[str, ClientProducer] = {}

    def __len__(self) -> int:
        return len(self._known)

    def new(self, transactional_id: str, timeout_ms: int) -> ClientProducer:
        """Fences whoever had the id."""
        producer = ClientProducer(
            self._log.transactional_producer(transactional_id, timeout_ms), timeout_ms / 1000, self._clock
        )
        with self._lock:
            known = self._known.get(transactional_id)
            if known is None or _age(known) < _age(producer):
                self._known[transactional_id] = producer
        return producer

    def after(self, transactional_id: str, timeout_ms: int, producer_id: int, epoch: int) -> ClientProducer:
        """For a producer that goes on after a mishap, and must still be the one that has the id. Raises
        `ProducerFenced`."""
        with self._lock:
            known = self._known.get(transactional_id)
        if known is not None and known.answers(producer_id, epoch):
            return known
        self.find(transactional_id, producer_id, epoch)
        new = self.new(transactional_id, timeout_ms)
        new.follows = (producer_id, epoch)
        return new

    def find(self, transactional_id: str, producer_id: int, epoch: int) -> ClientProducer:
        """Raises `ProducerFenced`."""
        with self._lock:
            known = self._known.get(transactional_id)
            if known is None:
                known = self._resumed(transactional_id, producer_id, epoch)
        if known is None or (known.producer.producer_id, known.producer.epoch) != (producer_id, epoch):
            raise ProducerFenced(
                f'producer "{transactional_id}" with id {producer_id} and epoch {epoch} was replaced, or the server was'
                " restarted",
                hint="Start a new producer with this transactional id.",
            )
        return known

    def end_and_raise(self, transactional_id: str, producer_id: int, epoch: int, *, commit: bool) -> tuple[int, int]:
        """Of the producer that has this epoch, or had it until it asked the same before. Raises `ProducerFenced`."""
        with self._lock:
            known = self._known.get(transactional_id) or self._resumed(transactional_id, producer_id, epoch)
        known = known or self.find(transactional_id, producer_id, epoch)
        return known.end_and_raise(producer_id, epoch, commit=commit)

    def _resumed(self, transactional_id: str, producer_id: int, epoch: int) -> ClientProducer | None:
        producer = self._log.resumed_producer(transactional_id, producer_id, epoch)
        if producer is None:
            return None
        # How long its transactions may take was said to the process of before.
        found = self._known[transactional_id] = ClientProducer(producer, TIMEOUT_MS_MAX / 1000, self._clock)
        return found

    def end_overdue(self) -> None:
        """Aborts what was open for longer than its producer asked for, and fences the producer. Forgets those that do
        nothing any more."""
        now = self._clock()
        with self._lock:
            overdue = [id for id, producer in self._known.items() if producer.is_overdue(now)]
            idle = [id for id, producer in self._known.items() if producer.is_idle_since(now - self._idle_s_max)]
            for transactional_id in (*overdue, *idle):
                del self._known[transactional_id]
        for transactional_id in overdue:
            _log.warning("transaction timed out", id=transactional_id)
            try:
                self._log.transactional_producer(transactional_id)
            except LogError as error:
                _log.warning("overdue transaction not aborted", id=transactional_id, error=error.message)


def _age(producer: ClientProducer) -> tuple[int, int]:
    return producer.producer.producer_id, producer.producer.epoch
