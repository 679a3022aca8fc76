"""The log as the engine of a cluster uses it: when another engine has started, writes of the previous one are refused,
except those of queries, which have their own fencing.

One transactional id, acquired at the start, is the engine's lease. Commands, schemas and committed offsets are written
in its transactions, so the cluster refuses those of an engine that was suspended or cut off while another one took
over. Operations outside of transactions (creating and deleting topics, acquiring transactional ids of queries) are
preceded by a check of the lease. Topics are deleted by an id that was read before that check, so that a late deletion
never deletes a newer topic.

On external brokers nobody replaces the engine, so it survives their outages. After an outage, one of its records may be
in doubt: written, but not acknowledged. The engine then waits until the lease is renewed, which decides the
transaction, and reads the topic from the offset that the record would have. If the renewal is refused, either another
engine has acquired the lease, or the brokers have fenced a transaction that timed out. Each engine commits a random
number at its start; the number that is committed now tells which case it is.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Final, Protocol, TypeVar

import structlog

from millstream.errors import LogError

from ...executor.sources.schemas_topic import SCHEMAS_TOPIC
from ...logcore.capabilities import LogCapabilities
from ...logcore.client import (
    ColumnarRecords,
    Fetched,
    FetchedColumns,
    FetchedRows,
    Isolation,
    LogAdmin,
    LogClient,
    Offsets,
    RowRecords,
    Topic,
    TopicConfig,
    TopicPartition,
    TransactionalProducer,
)
from ...logcore.clients.client_groups import GroupClient
from ...logcore.clients.remote_cluster import RemoteCluster
from ...logcore.errors import InvalidTransactionState, LogUnavailable, ProducerFenced, UnknownTopic
from ...logcore.records.batch import EncodedBatch
from ..catalog.command_topic import COMMAND_TOPIC

ENGINE_ID: Final = "_millstream-engine"
_NUMBER_AT: Final = TopicPartition(COMMAND_TOPIC, 0)  # the engine commits its number here
_OWN_TOPICS: Final = (COMMAND_TOPIC, SCHEMAS_TOPIC)
_FOUND_S: Final = 30.0
_LOOK_S: Final = 0.2
_LAST_RECORD_S: Final = 3.0

_log = structlog.get_logger("millstream.server")

_Answer = TypeVar("_Answer")


class RenewableProducer(TransactionalProducer, Protocol):
    def renew(self) -> None:
        """After a failure: continues with the id unless another producer has acquired it; an open transaction is
        decided. Raises `ProducerFenced`."""
        ...


class LeasedLog(LogClient, LogAdmin, Protocol):
    """The log below an `EngineLog`: topics can be deleted by their id, and producers renewed."""

    @property
    def groups(self) -> GroupClient: ...

    @property
    def cluster(self) -> RemoteCluster: ...

    def delete_topic(self, name: str, topic_id: uuid.UUID | None = None) -> None: ...

    def transactional_producer(self, transactional_id: str) -> RenewableProducer: ...

    def append_copies(self, topic: str, partition: int, batches: Sequence[EncodedBatch], mirror: str) -> None: ...


class EngineLog:
    """A `LogClient` for one engine of a cluster. Any thread may call any method.

    In: `on_loss` is called once, from any thread, when this engine has lost its lease, or cannot know whether one of
    its records was written. It must end then; the next engine reads the true state. From then on, methods raise
    `ProducerFenced`. `outlasts`: for an engine that nobody replaces: an outage does not end the lease. The engine
    continues unless another engine has acquired the lease meanwhile.
    """

    def __init__(self, log: LeasedLog, on_loss: Callable[[], None], *, outlasts: bool = False) -> None:
        self._log = log
        self._on_loss = on_loss
        self._outlasts = outlasts
        self._writing = threading.Lock()  # so at most one record is in doubt
        self._lock = threading.Lock()  # guards the lease's transactions
        self._lost = False
        self._failed = False  # the last transaction failed: the lease has to be renewed
        self._given_up = threading.Event()
        self._number = uuid.uuid4().int >> 66  # a valid offset, unique to this engine
        claims = outlasts and log.topic(COMMAND_TOPIC) is not None
        if claims:  # before acquiring the lease, so that its current holder does not reacquire it
            log.commit_offsets(ENGINE_ID, {_NUMBER_AT: self._number})
        self._lease = log.transactional_producer(ENGINE_ID)
        if claims:  # again: if engines start at the same time, the number of the lease's holder remains
            self._claim()

    @property
    def capabilities(self) -> LogCapabilities:
        return self._log.capabilities

    def check_lease(self) -> None:
        """Raises `ProducerFenced` if another engine has started, `LogUnavailable` if the cluster cannot tell."""
        with self._transaction():
            pass

    # Operations that the lease guards

    def append(self, topic: str, partition: int, records: RowRecords | ColumnarRecords) -> int:
        """Appends to one of the engine's own topics. If a failure leaves it in doubt whether the record was written, it
        waits until that is known."""
        if topic not in _OWN_TOPICS:
            return self._log.append(topic, partition, records)
        with self._writing:
            return self._append_own(TopicPartition(topic, partition), records)

    def _append_own(self, where: TopicPartition, records: RowRecords | ColumnarRecords) -> int:
        begin, begun = self._log.offsets(*where).log_end_offset, False
        try:
            with self._transaction() as lease:
                begun = True
                lease.append(*where, records)
        except LogError as error:
            if self._lost or not begun:
                raise
            return self._offset_after(error, where, begin)
        found = self._waited_out(lambda: self._first_offset(where, begin, written=True))
        assert found is not None
        return found

    def _offset_after(self, failure: LogError, where: TopicPartition, begin: int) -> int:
        """The record's offset if it was written in spite of the failure; otherwise raises."""
        _log.warning("record is in doubt", topic=where.topic, error=str(failure))
        self._waited_out(self.check_lease)
        found = self._waited_out(lambda: self._first_offset(where, begin, written=False))
        _log.info("record is no longer in doubt", topic=where.topic, written=found is not None)
        if found is not None:
            return found
        if not isinstance(failure, LogUnavailable | InvalidTransactionState):
            raise failure
        raise LogUnavailable(
            f"nothing was written: the brokers were away meanwhile ({failure.message})", hint="Send it again."
        ) from failure

    def _first_offset(self, where: TopicPartition, begin: int, *, written: bool) -> int | None:
        """The offset of the only committed record at or after `begin`. Nobody else writes here, except maybe an older
        engine whose records are aborted. In: `written`: the record exists; else None if it does not."""
        deadline = time.monotonic() + _FOUND_S
        while time.monotonic() < deadline:
            end = self._log.offsets(*where).log_end_offset
            for run in (fetched := self._log.fetch(*where, begin)).runs:
                return _first_of(run)
            begin = max(begin, fetched.next_offset)
            if begin >= end and not written:
                return None
            self._log.wait({where: begin}, _LOOK_S)
        if self._outlasts:  # after an outage, brokers may take minutes to end earlier transactions
            _log.warning("record is not visible yet", topic=where.topic)
            self.check_lease()
        else:
            self._lose("its record is not visible")
        raise LogUnavailable(f"what was written to {where.topic} is not visible yet")

    def _waited_out(self, ask: Callable[[], _Answer]) -> _Answer:
        """Asks until the log answers: the engine cannot continue without the answer."""
        try:
            while True:
                try:
                    return ask()
                except (LogUnavailable, InvalidTransactionState):
                    if self._lost or not self._outlasts or self._given_up.wait(_LOOK_S):
                        raise
        except BaseException as error:
            self._lose(str(error))
            raise

    def give_up(self) -> None:
        """Called before the engine ends: a record that is being written waits only `_LAST_RECORD_S` longer for the
        brokers."""
        self._given_up.set()
        if self._writing.acquire(timeout=_LAST_RECORD_S):
            self._writing.release()
        else:
            self._log.close()

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        with self._transaction() as lease:
            lease.send_offsets(group, offsets)

    def forget_group(self, group: str) -> None:
        self.check_lease()
        self._log.forget_group(group)

    def forget_producer(self, transactional_id: str) -> None:
        self.check_lease()
        self._log.forget_producer(transactional_id)

    def create_topic(self, name: str, partition_count: int, config: TopicConfig = None, replicas: int = 0) -> None:
        self.check_lease()
        self._log.create_topic(name, partition_count, config, replicas)
        if self._outlasts and name == COMMAND_TOPIC:
            self._claim()

    def delete_topic(self, name: str) -> None:
        topic_id = self._log.topic_id(name)
        if topic_id is None:
            raise UnknownTopic(f'topic "{name}" does not exist')
        self.check_lease()
        self._log.delete_topic(name, topic_id)

    def transactional_producer(self, transactional_id: str) -> TransactionalProducer:
        self.check_lease()
        return _QueryProducer(self._log.transactional_producer(transactional_id), self)

    @contextlib.contextmanager
    def _transaction(self) -> Generator[TransactionalProducer]:
        with self._lock:
            if self._lost:
                raise ProducerFenced("another engine of the cluster has taken over, or is about to")
            with self._ending_the_lease():
                if self._failed:
                    self._renew()
                self._begin()
            with self._ending_the_lease():
                yield self._lease
                self._lease.commit()

    def _begin(self) -> None:
        try:
            self._lease.begin()
        except ProducerFenced:
            if not self._outlasts:
                raise
            self._renew()
            self._lease.begin()

    def _renew(self) -> None:
        """Renews the lease and decides its open transaction. Raises `ProducerFenced` if another engine has started. The
        refusal may have other causes: the log forgets an id that is not used for days, and times out transactions."""
        try:
            self._lease.renew()
        except ProducerFenced:
            self._check_number()
            self._lease = self._log.transactional_producer(ENGINE_ID)
            self._check_number()  # an engine that started meanwhile was fenced just now, but has a newer catalog
        self._failed = False

    def _claim(self) -> None:
        with self._transaction() as lease:
            lease.send_offsets(ENGINE_ID, {_NUMBER_AT: self._number})

    def _check_number(self) -> None:
        if self._log.committed_offsets(ENGINE_ID).get(_NUMBER_AT) != self._number:
            raise ProducerFenced("another engine has taken over")

    @contextlib.contextmanager
    def _ending_the_lease(self) -> Generator[None]:
        """Handles failures of the lease's transactions. If the engine does not outlast outages, any failure ends its
        lease; otherwise only another engine's acquisition does."""
        try:
            yield
        except BaseException as error:
            if not self._outlasts or not isinstance(error, LogError):
                self._lose(str(error))
                raise
            self._failed = True
            if not isinstance(error, ProducerFenced):
                raise
            self._renew_after(error)
            raise LogUnavailable("the brokers have ended a transaction that took too long") from error

    def _renew_after(self, fenced: ProducerFenced) -> None:
        try:
            self._renew()
        except ProducerFenced:
            self._lose(str(fenced))
            raise
        except LogError as error:
            _log.warning("lease is not renewed yet", error=str(error))

    def _lose(self, why: str) -> None:
        """Permanently."""
        if not self._lost:
            self._lost = True
            _log.warning("engine loses its lease", reason=why)
            self._on_loss()

    # Operations without a guard: groups and topics of clients do not belong to the engine

    @property
    def groups(self) -> GroupClient:
        return self._log.groups

    @property
    def cluster(self) -> RemoteCluster:
        return self._log.cluster

    def topics(self) -> Mapping[str, Topic]:
        return self._log.topics()

    def topic(self, name: str) -> Topic | None:
        return self._log.topic(name)

    def topic_id(self, name: str) -> uuid.UUID | None:
        return self._log.topic_id(name)

    def partition_count(self, topic: str) -> int:
        return self._log.partition_count(topic)

    def append_copies(self, topic: str, partition: int, batches: Sequence[EncodedBatch], mirror: str) -> None:
        """Needs no lease: an engine without one can only append the same records at the same offsets, see
        `exact_mirror.py`."""
        self._log.append_copies(topic, partition, batches, mirror)

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = 16 * 1024 * 1024,
        isolation: Isolation = "read_committed",
    ) -> Fetched:
        return self._log.fetch(topic, partition, offset, max_bytes=max_bytes, isolation=isolation)

    def offsets(self, topic: str, partition: int) -> Offsets:
        return self._log.offsets(topic, partition)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        return self._log.offset_at(topic, partition, timestamp_ms)

    def wait(self, positions: Mapping[TopicPartition, int], timeout_s: float) -> bool:
        return self._log.wait(positions, timeout_s)

    def advanced(
        self, positions: Mapping[TopicPartition, int], timeout_s: float
    ) -> Mapping[TopicPartition, int | None]:
        return self._log.advanced(positions, timeout_s)

    def committed_offsets(self, group: str) -> Mapping[TopicPartition, int]:
        return self._log.committed_offsets(group)

    def alter_topic(self, name: str, config: Mapping[str, str], *, only_check: bool = False) -> None:
        self._log.alter_topic(name, config, only_check=only_check)

    def add_partitions(self, name: str, partition_count: int, *, only_check: bool = False) -> None:
        self._log.add_partitions(name, partition_count, only_check=only_check)

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        return self._log.delete_records(topic, partition, offset)

    def close(self) -> None:
        self._given_up.set()
        self._log.close()


def _first_of(run: FetchedRows | FetchedColumns) -> int:
    return int(run.table["offset"][0].as_py()) if isinstance(run, FetchedRows) else int(run.row_offsets[0])


class _QueryProducer:
    """A query's producer. If it is fenced while its engine holds the lease, an engine that has lost the lease fenced
    it; the query acquires its id again."""

    def __init__(self, producer: TransactionalProducer, log: EngineLog) -> None:
        self._producer = producer
        self._log = log

    @property
    def producer_id(self) -> int:
        return self._producer.producer_id

    @property
    def epoch(self) -> int:
        return self._producer.epoch

    def begin(self) -> None:
        with self._explained():
            self._producer.begin()

    def append(self, topic: str, partition: int, records: RowRecords | ColumnarRecords) -> None:
        with self._explained():
            self._producer.append(topic, partition, records)

    def append_batch(self, topic: str, partition: int, batch: EncodedBatch) -> int:
        with self._explained():
            return self._producer.append_batch(topic, partition, batch)

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        with self._explained():
            self._producer.send_offsets(group, offsets)

    def commit(self) -> None:
        with self._explained():
            self._producer.commit()

    def abort(self) -> None:
        with self._explained():
            self._producer.abort()

    @contextlib.contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except ProducerFenced as error:
            self._log.check_lease()
            raise LogUnavailable(f"an engine without a lease interfered: {error.message}") from error
