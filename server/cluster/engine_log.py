"""The log as the engine of a cluster uses it: when another engine has started, writes of the previous one are refused,
except those of queries, which have their own fencing.

One transactional id, acquired at the start, is the engine's lease. Commands, schemas and committed offsets are written
in its transactions, so the cluster refuses those of an engine that was suspended or cut off while another one took
over. Operations outside of transactions (creating and deleting topics, acquiring transactional ids of queries) are
preceded by a check of the lease. Topics are deleted by an id that was read before that check, so that a late deletion
never deletes a newer topic.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Generator, Mapping
from typing import Final, Protocol

import structlog

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
    TopicPartition,
    TransactionalProducer,
)
from ...logcore.clients.client_groups import GroupClient
from ...logcore.clients.remote_cluster import RemoteCluster
from ...logcore.errors import InvalidTransactionState, LogUnavailable, ProducerFenced, UnknownTopic
from ..catalog.command_topic import COMMAND_TOPIC

ENGINE_ID: Final = "_millstream-engine"
_OWN_TOPICS: Final = (COMMAND_TOPIC, SCHEMAS_TOPIC)
_FOUND_S: Final = 30.0
_LOOK_S: Final = 0.2

_log = structlog.get_logger("millstream.server")


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


class EngineLog:
    """A `LogClient` for one engine of a cluster. Any thread may call any method.

    In: `on_loss` is called once, from any thread, when this engine has lost its lease, or cannot know what became of
    something that it wrote: it must end, and the next one reads what is true. Raises `ProducerFenced` from then on.
    `outlasts`: an outage of the log alone ends no lease, unless a record of the engine's is in doubt: for an engine
    that nobody else replaces. It goes on where nobody has taken the lease meanwhile.
    """

    def __init__(self, log: LeasedLog, on_loss: Callable[[], None], *, outlasts: bool = False) -> None:
        self._log = log
        self._on_loss = on_loss
        self._outlasts = outlasts
        self._lock = threading.Lock()  # of the lease's transactions
        self._lost = False
        self._failed = False  # in an outage: the lease has to be renewed
        self._lease = log.transactional_producer(ENGINE_ID)

    @property
    def capabilities(self) -> LogCapabilities:
        return self._log.capabilities

    def check_lease(self) -> None:
        """Raises `ProducerFenced` where another engine has begun, `LogUnavailable` where nobody can say."""
        with self._transaction():
            pass

    # What the lease guards

    def append(self, topic: str, partition: int, records: RowRecords | ColumnarRecords) -> int:
        if topic not in _OWN_TOPICS:
            return self._log.append(topic, partition, records)
        begin = self._log.offsets(topic, partition).log_end_offset
        with self._transaction(of_records=True) as lease:
            lease.append(topic, partition, records)
        return self._first_offset(TopicPartition(topic, partition), begin)

    def _first_offset(self, where: TopicPartition, begin: int) -> int:
        """Of the only committed record at or after `begin`: nobody else writes here, but an older engine whose records
        are aborted may have."""
        deadline = time.monotonic() + _FOUND_S
        while time.monotonic() < deadline:
            for run in (fetched := self._log.fetch(*where, begin)).runs:
                return _first_of(run)
            begin = max(begin, fetched.next_offset)
            self._log.wait({where: begin}, _LOOK_S)
        self._lose("its record is not visible")
        raise LogUnavailable(f"what was written to {where.topic} is not visible yet")

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        with self._transaction() as lease:
            lease.send_offsets(group, offsets)

    def forget_group(self, group: str) -> None:
        self.check_lease()
        self._log.forget_group(group)

    def forget_producer(self, transactional_id: str) -> None:
        self.check_lease()
        self._log.forget_producer(transactional_id)

    def create_topic(self, name: str, partition_count: int, config: Mapping[str, str] | None = None) -> None:
        self.check_lease()
        self._log.create_topic(name, partition_count, config)

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
    def _transaction(self, *, of_records: bool = False) -> Generator[TransactionalProducer]:
        """In: `of_records`: it writes what must not be there twice, or without anybody's knowledge."""
        with self._lock:
            if self._lost:
                raise ProducerFenced("another engine of the cluster has taken over, or is about to")
            with self._ending_the_lease(in_doubt=False):
                if self._failed:
                    self._lease.renew()
                    self._failed = False
                self._begin()
            with self._ending_the_lease(in_doubt=of_records):
                yield self._lease
                self._lease.commit()

    def _begin(self) -> None:
        try:
            self._lease.begin()
        except ProducerFenced:
            if not self._outlasts:
                raise
            self._lease.renew()  # refused if another engine has the id; the log forgets ids that are not used for days
            self._lease.begin()

    @contextlib.contextmanager
    def _ending_the_lease(self, *, in_doubt: bool) -> Generator[None]:
        """What fails in here ends the lease, unless it is an outage, or the log has aborted what took too long, and no
        records are in doubt."""
        try:
            yield
        except BaseException as error:
            if self._outlasts and not in_doubt and isinstance(error, LogUnavailable | InvalidTransactionState):
                self._failed = True
            else:
                self._lose(str(error))
            raise

    def _lose(self, why: str) -> None:
        """After a failure nobody knows what of it is in the log."""
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

    def committed_offsets(self, group: str) -> Mapping[TopicPartition, int]:
        return self._log.committed_offsets(group)

    def alter_topic(self, name: str, config: Mapping[str, str], *, only_check: bool = False) -> None:
        self._log.alter_topic(name, config, only_check=only_check)

    def add_partitions(self, name: str, partition_count: int, *, only_check: bool = False) -> None:
        self._log.add_partitions(name, partition_count, only_check=only_check)

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        return self._log.delete_records(topic, partition, offset)

    def close(self) -> None:
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
