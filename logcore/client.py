"""The public interface of the log. It is the same in this process and over the network.

`open_log` (in `logcore.log`) gives a `LogClient` for a directory of this process, `RemoteLog` (in `logcore.remote`) one
over the network. `Producer`, `Consumer` and `Admin` are convenient clients on top of either.
"""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .capabilities import LogCapabilities

if TYPE_CHECKING:
    from .clients.admin import Admin as Admin
    from .clients.consumer import Consumer as Consumer
    from .clients.producer import Producer as Producer
    from .records.batch import EncodedBatch

Isolation = Literal["read_committed", "read_uncommitted"]

_CLIENTS: Final = {"Admin": "admin", "Consumer": "consumer", "Producer": "producer"}


def __getattr__(name: str) -> Any:
    """The clients import this module, so it loads them only on first use."""
    if name not in _CLIENTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".clients.{_CLIENTS[name]}", __package__), name)


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

ROWS = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),  # ms
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
    ]
)
"""The columns of fetched records in row form. On append, `offset` is absent and `headers` is optional."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int


TopicConfig = Mapping[str, str] | None
"""Properties that differ from the defaults, by Kafka's names. None: all are defaults."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic. `config` holds the properties that differ from the defaults, by Kafka's names."""

    name: str
    partition_count: int
    config: Mapping[str, str] = field(default_factory=dict)
    replication_factor: int = 1


@dataclass(frozen=True, slots=True)
class RowRecords:
    """Records to append: a table with `timestamp`, `key`, `value` and, optionally, `headers` (see ROWS)."""

    table: pa.Table | pa.RecordBatch

    @property
    def row_count(self) -> int:
        """How many offsets they take in their partition."""
        return self.table.num_rows


@dataclass(frozen=True, slots=True)
class ColumnarRecords:
    """One columnar batch to append: any columns, one row per record.

    On disk it is a Kafka record batch with one record, whose value is an Arrow IPC stream of this batch. It uses
    one offset per row. `timestamp_ms` is the largest rowtime in the batch.
    """

    batch: pa.RecordBatch
    timestamp_ms: int

    @property
    def row_count(self) -> int:
        """How many offsets they take in their partition."""
        return self.batch.num_rows


@dataclass(frozen=True, slots=True)
class FetchedRows:
    """A run of records in row form, with the columns of `ROWS`. Adjacent record batches are joined into one table."""

    table: pa.Table


@dataclass(frozen=True, slots=True)
class FetchedColumns:
    """One columnar batch, without the rows below the requested offset.

    `offsets`: the offset of each row, if compaction removed rows in between. None: row i has `base_offset + i`.
    """

    batch: pa.RecordBatch
    base_offset: int
    timestamp_ms: int
    offsets: npt.NDArray[np.int64] | None = None

    @property
    def row_offsets(self) -> npt.NDArray[np.int64]:
        """The offset of each row, in order."""
        if self.offsets is not None:
            return self.offsets
        return np.arange(self.base_offset, self.base_offset + self.batch.num_rows, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Fetched:
    """The result of a fetch. `next_offset` is where to continue: it skips control records and aborted records."""

    runs: Sequence[FetchedRows | FetchedColumns]
    next_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class Offsets:
    """Invariant: log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset."""

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int


class TransactionalProducer(Protocol):
    """Makes several writes visible together. Only one thread at a time may use it.

    Every method raises `ProducerFenced` after a newer producer has acquired the transactional id.
    """

    @property
    def producer_id(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    def begin(self) -> None:
        """Starts a transaction."""
        ...

    def append(self, topic: str, partition: int, records: RowRecords | ColumnarRecords) -> None:
        """Writes records that readers with `read_committed` see only after `commit`."""
        ...

    def append_batch(self, topic: str, partition: int, batch: EncodedBatch) -> int:
        """Writes a batch that the caller has already encoded. Returns its first offset."""
        ...

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Makes these committed offsets of `group` part of the transaction."""
        ...

    def commit(self) -> None:
        """Returns once the outcome is durable and visible."""
        ...

    def abort(self) -> None:
        """Discards everything written since `begin`."""
        ...


class LogAdmin(Protocol):
    """Administrative operations on the topics of a log."""

    def alter_topic(self, name: str, config: Mapping[str, str], *, only_check: bool = False) -> None:
        """Replaces the topic's whole configuration. Raises `UnknownTopic`, `InvalidTopic`."""
        ...

    def add_partitions(self, name: str, partition_count: int, *, only_check: bool = False) -> None:
        """In: `partition_count`: the new total. Raises `UnknownTopic`, `InvalidTopic` if the topic already has that
        many partitions."""
        ...

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        """Deletes the records before this offset. Returns the log start offset. Raises `OffsetOutOfRange`."""
        ...


class LogClient(Protocol):
    """A log. Any thread may call its methods."""

    @property
    def capabilities(self) -> LogCapabilities:
        """What this log can do. The first call may send a request to the log. Raises `LogUnavailable`."""
        ...

    def create_topic(self, name: str, partition_count: int, config: TopicConfig = None, replicas: int = 0) -> None:
        """In: `replicas`: 0 means the log's default. Raises `TopicExists`, `InvalidTopic` for a name that Kafka would
        refuse, `InvalidReplicationFactor` for more replicas than nodes."""
        ...

    def delete_topic(self, name: str) -> None:
        """Raises `UnknownTopic`."""
        ...

    def topics(self) -> Mapping[str, Topic]:
        """All topics with their settings, including internal topics (names that begin with `_`). Over the network this
        is slow for many topics."""
        ...

    def topic(self, name: str) -> Topic | None:
        """None if no topic has that name."""
        ...

    def topic_id(self, name: str) -> uuid.UUID | None:
        """The topic's id. A topic that was deleted and created again has a new id. None if the topic does not exist or
        the server gives topics no ids."""
        ...

    def partition_count(self, topic: str) -> int:
        """Raises `UnknownTopic`."""
        ...

    def append(self, topic: str, partition: int, records: RowRecords | ColumnarRecords) -> int:
        """Appends and returns the first offset, once the records are durable. Raises `UnknownTopic`, `LogFull`."""
        ...

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = 16 * 1024 * 1024,
        isolation: Isolation = "read_committed",
    ) -> Fetched:
        """The records from `offset` on: at least one record batch, if one exists. Never waits.

        Raises `UnknownTopic`, `OffsetOutOfRange`.
        """
        ...

    def offsets(self, topic: str, partition: int) -> Offsets:
        """Raises `UnknownTopic`."""
        ...

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        """Deletes the records before this offset. Returns the log start offset. Raises `OffsetOutOfRange`."""
        ...

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The offset of the first committed record with this time or a later one; None if there is none."""
        ...

    def wait(self, positions: Mapping[TopicPartition, int], timeout_s: float) -> bool:
        """Waits until a partition has a committed record at or after its position; False after `timeout_s`."""
        ...

    def advanced(
        self, positions: Mapping[TopicPartition, int], timeout_s: float
    ) -> Mapping[TopicPartition, int | None]:
        """Waits as `wait` does, and returns the last stable offset of each partition that has such a record. None for a
        partition that cannot be waited for: reading it raises the reason."""
        ...

    def committed_offsets(self, group: str) -> Mapping[TopicPartition, int]:
        """The group's committed offsets; empty for an unknown group."""
        ...

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Durable on return. Raises `UnknownTopic` if a partition does not exist, after committing the others."""
        ...

    def transactional_producer(self, transactional_id: str) -> TransactionalProducer:
        """Increments the epoch of this id, which fences older producers. Before it returns, it completes a transaction
        that they left open: commits it if it was prepared, else aborts it."""
        ...

    def forget_producer(self, transactional_id: str) -> None:
        """Call it for an id that will not be used again: it aborts the id's open transaction and fences its producer.
        In a node's process this removes the id completely. Over the network the id expires after
        `transactional_id_expiration_ms`, like every unused id."""
        ...

    def forget_group(self, group: str) -> None:
        """Deletes the group's committed offsets. An unknown group is no error. Raises `LogError` while the group has
        members."""
        ...

    def close(self) -> None: ...
