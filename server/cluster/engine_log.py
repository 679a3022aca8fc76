"""The log as the engine of a cluster uses it: when another engine has started, writes of the previous one are refused,
except those of queries, which have their own fencing.

One transactional id, acquired at the start, is the engine's lease. Commands, schemas and committed offsets are written
in its transactions, so the cluster refuses those of an engine that was suspended or cut off while another one took
over. Operations outside of transactions (creating and deleting topics, acquiring transactional ids of queries) are
preceded by a check of the lease. Topics are deleted by an id that was read before that check, so that a late deletion
never deletes a newer topic.

On brokers of others nobody replaces the engine, so it outlasts their outages. After one, a record of its own may be in
doubt: written and not acknowledged. The engine then waits until the lease is renewed, which decides the transaction,
and reads the topic from where the record would be. A lease that is refused was taken by another engine, or the brokers
have fenced a transaction that they timed out: each engine commits a random number at its start, and the number that is
there says which.
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
_NUMBER_AT: Final = TopicPartition(COMMAND_TOPIC, 0)  # where `ENGINE_ID`, as a group, has the engine's number
_OWN_TOPICS: Final = (COMMAND_TOPIC, SCHEMAS_TOPIC)
_FOUND_S: Final = 30.0
_LOOK_S: Final = 0.2
_LAST_RECORD_S: Final = 3.0

_log = structlog.get_logger("millstream.server")

_Answer = TypeVar("_Answer")


class RenewableProducer(TransactionalProducer, Protocol):
    def renew(self) -> None:
        """After a failure: goes on with the id where nobody else has taken it; what was open is decided. Raises
        `ProducerFenced`."""
        ...


class LeasedLog(LogClient, LogAdmin, Protocol):
    """What an `EngineLog` stands on: topics can be deleted by their id, and producers renewed."""

    @property
    def groups(self) -> GroupClient: ...

    @property
    def cluster(self) -> RemoteCluster: ...

    def delete_topic(self, name: str, topic_id: uuid.UUID | None = None) -> None: ...

    def transactional_producer(self, transactional_id: str) -> RenewableProducer: ...

    def append_copies(self, topic: str, partition: int, batches: Sequence[EncodedBatch], mirror: str) -> None: ...


class EngineLog:
    """A `LogClient` for one engine of a cluster. Any thread may call any method.

    In: `on_loss` is called once, from any thread, when this engine has lost its lease, or cannot know what became of
    something that it wrote: it must end, and the next one reads what is true. Raises `ProducerFenced` from then on.
    `outlasts`: no outage ends the lease: for an engine that nobody else replaces. It goes on where no other engine has
    taken the lease meanwhile.
    """

    def __init__(self, log: LeasedLog, on_loss: Callable[[], None], *, outlasts: bool = False) -> None:
        self._log = log
        self._on_loss = on_loss
        self._outlasts = outlasts
        self._writing = threading.Lock()  # so at most one record is in doubt
        self._lock = threading.Lock()  # of the lease's transactions
        self._lost = False
        self._failed = False  # the last transaction did: the lease has to be renewed
        self._given_up = threading.Event()
        self._number = uuid.uuid4().int >> 66  # an offset, and no other engine's
        claims = outlasts and log.topic(COMMAND_TOPIC) is not None
        if claims:  # before the lease is taken, so that who has it now does not take it back
            log.commit_offsets(ENGINE_ID, {_NUMBER_AT: self._number})
        self._lease = log.transactional_producer(ENGINE_ID)
        if claims:  # again: of engines that begin at the same time, the number of the one that has the lease stays
            self._claim()

    @property
    def capabilities(self) -> LogCapabilities:
        return self._log.capabilities

    def check_lease(self) -> None:
        """Raises `ProducerFenced` where another engine has begun, `LogUnavailable` where nobody can say."""
        with self._transaction():
            pass

    # What the lease guards

    def append(self, topic: str, partition: int, records: RowRecords | ColumnarRecords) -> int:
        """To a topic of the engine's own: waits as long as it is in doubt whether the record is there."""
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
        """Of the record, where it is there in spite of the failure. Raises where it is not."""
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
        """Of the only committed record at or after `begin`: nobody else writes here, but an older engine whose records
        are aborted may have. In: `written`: it is there; else None where it is not."""
        deadline = time.monotonic() + _FOUND_S
        while time.monotonic() < deadline:
            end = self._log.offsets(*where).log_end_offset
            for run in (fetched := self._log.fetch(*where, begin)).runs:
                return _first_of(run)
            begin = max(begin, fetched.next_offset)
            if begin >= end and not written:
                return None
            self._log.wait({where: begin}, _LOOK_S)
        if self._outlasts:  # brokers that have come back may take minutes to end the transactions of before
            _log.warning("record is not visible yet", topic=where.topic)
            self.check_lease()
        else:
            self._lose("its record is not visible")
        raise LogUnavailable(f"what was written to {where.topic} is not visible yet")

    def _waited_out(self, ask: Callable[[], _Answer]) -> _Answer:
        """The answer, once the log gives one: without it the engine cannot go on."""
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
        """The engine is about to end: a record that is being written waits for the brokers only a little longer."""
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
        """Decides what is open. Raises `ProducerFenced` where another engine has begun; the log may also have forgotten
        the id, which it does if it is not used for days, or have timed a transaction out."""
        try:
            self._lease.renew()
        except ProducerFenced:
            self._check_number()
            self._lease = self._log.transactional_producer(ENGINE_ID)
            self._check_number()  # of an engine that began meanwhile, and is fenced now: it has a newer catalog
        self._failed = False

    def _claim(self) -> None:
        with self._transaction() as lease:
            lease.send_offsets(ENGINE_ID, {_NUMBER_AT: self._number})

    def _check_number(self) -> None:
        if self._log.committed_offsets(ENGINE_ID).get(_NUMBER_AT) != self._number:
            raise ProducerFenced("another engine has taken over")

    @contextlib.contextmanager
    def _ending_the_lease(self) -> Generator[None]:
        """What fails in here ends the lease of an engine that outlasts no outages; of another one only that somebody
        else has taken it."""
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
        """For good."""
        if not self._lost:
            self._lost = True
            _log.warning("engine loses its lease", reason=why)
            self._on_loss()

    # What needs no guard: groups and topics of clients are not the engine's

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
        """An engine without a lease can only append the same records at the same offsets: see `exact_mirror.py`."""
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
    """A query's producer. One that is fenced while its engine holds the lease was fenced by an engine that has lost
    it: the query takes its id again."""

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
