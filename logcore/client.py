"""The door to the log: what the executor, the server and people use, in process or over the network alike.

`open_log` (in `logcore.log`) gives a `LogClient` for a directory of this process, `RemoteLog` (in `logcore.remote`) one
over the network. `Producer`, `Consumer` and `Admin` are the comfortable way to use either.
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
    """The clients stand above this module, so they are loaded when somebody asks for them."""
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
"""What a fetch gives for records in row form. On append, `offset` is absent and `headers` may be."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int


TopicConfig = Mapping[str, str] | None
"""What differs from the defaults, by Kafka's property names; None is nothing."""


@dataclass(frozen=True, slots=True)
class Topic:
    """`config` holds what differs from the defaults, by Kafka's property names."""

    name: str
    partition_count: int
    config: Mapping[str, str] = field(default_factory=dict)
    replication_factor: int = 1


@dataclass(frozen=True, slots=True)
class RowRecords:
    """Records to append: a table with `timestamp`, `key`, `value` and, optionally, `headers` (see ROWS)."""

    table: pa.Table | pa.RecordBatch


@dataclass(frozen=True, slots=True)
class ColumnarRecords:
    """One columnar batch to append: any columns, one row per record.

    On disk it is a Kafka record batch with one record, whose value is an Arrow IPC stream of this batch. It uses
    one offset per row. `timestamp_ms` is the largest rowtime in it.
    """

    batch: pa.RecordBatch
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class FetchedRows:
    """A run of records in row form, in the shape ROWS; neighbouring record batches come as one table."""

    table: pa.Table


@dataclass(frozen=True, slots=True)
class FetchedColumns:
    """One columnar batch; rows below the asked offset are already cut off.

    `offsets`: of each row, where compaction took rows out between them; else row i has offset `base_offset + i`.
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
    """`next_offset` is where to go on (it skips control records and aborted ones)."""

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
    """Writes that become visible together. Not for several threads at once.

    Every method raises `ProducerFenced` once a newer producer has taken the transactional id.
    """

    @property
    def producer_id(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    def begin(self) -> None:
        """Starts a transaction."""
        ...

    def append(self, topic: str, partition: int, records: RowRecords | ColumnarRecords) -> None:
        """Writes records that nobody with `read_committed` sees before `commit`."""
        ...

    def append_batch(self, topic: str, partition: int, batch: EncodedBatch) -> int:
        """The same of a batch that somebody else has encoded. Returns its first offset."""
        ...

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Makes these committed offsets of `group` part of the transaction."""
        ...

    def commit(self) -> None:
        """Returns once the outcome is durable and visible."""
        ...

    def abort(self) -> None:
        """Drops what was written since `begin`."""
        ...


class LogAdmin(Protocol):
    """What an administrator does with the topics of a log."""

    def alter_topic(self, name: str, config: Mapping[str, str], *, only_check: bool = False) -> None:
        """Sets the topic's whole configuration anew. Raises `UnknownTopic`, `InvalidTopic`."""
        ...

    def add_partitions(self, name: str, partition_count: int, *, only_check: bool = False) -> None:
        """The topic has so many partitions then. Raises `UnknownTopic`, `InvalidTopic` where it has as many already."""
        ...

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        """Nobody sees records before this offset any more; returns the log start offset. Raises `OffsetOutOfRange`."""
        ...


class LogClient(Protocol):
    """A log. Methods may be called from any thread."""

    @property
    def capabilities(self) -> LogCapabilities:
        """What it can do. It may ask the log, once. Raises `LogUnavailable`."""
        ...

    def create_topic(self, name: str, partition_count: int, config: TopicConfig = None, replicas: int = 0) -> None:
        """In: `replicas`: 0 is what the log does by default. Raises `TopicExists`, `InvalidTopic` for a
        name that Kafka would refuse, `InvalidReplicationFactor` for more replicas than there are nodes."""
        ...

    def delete_topic(self, name: str) -> None:
        """Raises `UnknownTopic`."""
        ...

    def topics(self) -> Mapping[str, Topic]:
        """All topics, internal ones (names that begin with `_`) included, with their settings: over the network that
        takes long where there are many."""
        ...

    def topic(self, name: str) -> Topic | None:
        """None where there is none of that name."""
        ...

    def topic_id(self, name: str) -> uuid.UUID | None:
        """Another one where the topic was deleted and created again. None where there is no such topic, or the server
        gives it no id."""
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
        """What there is from `offset` on, at least one record batch where there is one; never waits.

        Raises `UnknownTopic`, `OffsetOutOfRange`.
        """
        ...

    def offsets(self, topic: str, partition: int) -> Offsets:
        """Raises `UnknownTopic`."""
        ...

    def delete_records(self, topic: str, partition: int, offset: int) -> int:
        """Nobody sees records before this offset any more; returns the log start offset. Raises `OffsetOutOfRange`."""
        ...

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """Of the first committed record with this time or a later one; None where there is none."""
        ...

    def wait(self, positions: Mapping[TopicPartition, int], timeout_s: float) -> bool:
        """Waits until a partition has a committed record at or after its position; False after `timeout_s`."""
        ...

    def advanced(
        self, positions: Mapping[TopicPartition, int], timeout_s: float
    ) -> Mapping[TopicPartition, int | None]:
        """Waits as `wait` does, and gives the last stable offsets of the partitions that have such a record; None where
        a partition cannot be waited for: who reads it finds out why."""
        ...

    def committed_offsets(self, group: str) -> Mapping[TopicPartition, int]:
        """The group's committed offsets; empty for an unknown group."""
        ...

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Durable on return. Raises `UnknownTopic` where a partition does not exist; the others are committed then."""
        ...

    def transactional_producer(self, transactional_id: str) -> TransactionalProducer:
        """Raises the epoch of this id, which fences older producers, and decides a transaction they left open
        (committed if it was prepared, else aborted) before it returns."""
        ...

    def forget_producer(self, transactional_id: str) -> None:
        """For an id that nobody is going to use again: aborts what is open of it, and fences its producer. In the
        process of a node nothing is left of it. Over the network the id expires after
        `transactional_id_expiration_ms`, as every id that nobody uses."""
        ...

    def forget_group(self, group: str) -> None:
        """Drops what the group has committed; an unknown group is fine. Raises `LogError` while it has members."""
        ...

    def close(self) -> None: ...
