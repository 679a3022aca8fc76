"""Writes to topics: single records, which are collected into batches, or whole Arrow tables."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from ..client import HEADERS, ColumnarRecords, LogClient, RowRecords, TopicPartition, TransactionalProducer
from ..errors import InvalidRecords, InvalidTransactionState
from ..murmur2 import partition_of, partitions_of

_GATHERED_BYTES: Final = 1024 * 1024
_GATHERED_RECORDS: Final = 50_000

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(slots=True)
class _Gathered:
    """Unsent records of one partition."""

    timestamps: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)
    size_bytes: int = 0

    def add(self, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        self.timestamps.append(timestamp_ms)
        self.keys.append(key)
        self.values.append(value)
        self.headers.append(headers)
        self.size_bytes += len(key or b"") + len(value or b"") + 16

    def records(self) -> RowRecords:
        columns = {
            "timestamp": pa.array(self.timestamps, pa.int64()),
            "key": pa.array(self.keys, pa.binary()),
            "value": pa.array(self.values, pa.binary()),
        }
        if any(self.headers):
            rows = [[{"key": key, "value": value} for key, value in headers] for headers in self.headers]
            columns["headers"] = pa.array(rows, HEADERS)
        return RowRecords(pa.table(columns))


class Producer:
    """Writes to a log of this process or over the network: `Producer(open_log(path))`, `Producer(RemoteLog(address))`.

    A key always goes to the same partition, the one that every Kafka client would choose. Records without a key go to
    the partitions in turn. Records of `send` are durable after `flush`. With a `transactional_id`, records become
    visible together:

        with producer.transaction():
            producer.send("orders", b"…", key=b"…")

    Only one thread at a time may use it. State: the unsent records, and the open transaction.
    """

    def __init__(
        self,
        log: LogClient,
        transactional_id: str | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._log = log
        self._clock = clock
        self._transactional: TransactionalProducer | None = None
        if transactional_id is not None:
            self._transactional = log.transactional_producer(transactional_id)
        self._in_transaction = False
        self._gathered: dict[TopicPartition, _Gathered] = {}
        self._partition_counts: dict[str, int] = {}
        self._turns = itertools.count()
        self._offsets: dict[TopicPartition, int] = {}

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Adds a record to those to be sent; a value of None deletes its key. Raises `LogError` if sending fails."""
        self._check_state()
        if partition is None:
            count = self._count_of(topic)
            partition = next(self._turns) % count if key is None else partition_of(key, count)
        where = TopicPartition(topic, partition)
        gathered = self._gathered.setdefault(where, _Gathered())
        now_ms = int(self._clock() * 1000) if timestamp_ms is None else timestamp_ms
        gathered.add(now_ms, key, value, headers)
        if gathered.size_bytes >= _GATHERED_BYTES or len(gathered.values) >= _GATHERED_RECORDS:
            self._send_gathered(where)

    def send_table(self, topic: str, table: pa.Table, *, partition: int | None = None) -> None:
        """Sends a table with the column `value` and, optionally, `key`, `timestamp` (ms) and `headers` (see
        `client.ROWS`). Without `partition`, the key of a row decides its partition. Durable on return; in a
        transaction, with its commit. Raises `InvalidRecords`."""
        self._check_state()
        self.flush()
        rows = self._completed(table)
        if partition is not None:
            self._append(TopicPartition(topic, partition), RowRecords(rows))
            return
        numbers = self._partitions_of(topic, rows)
        for number in np.unique(numbers):
            part = rows.filter(pa.array(numbers == number))
            self._append(TopicPartition(topic, int(number)), RowRecords(part))

    def send_columns(self, topic: str, batch: pa.RecordBatch, timestamp_ms: int, *, partition: int) -> None:
        """Sends a columnar batch: readers get the columns as they were sent, and nothing is parsed."""
        self._check_state()
        self.flush()
        self._append(TopicPartition(topic, partition), ColumnarRecords(batch, timestamp_ms))

    def flush(self) -> Mapping[TopicPartition, int]:
        """Sends all unsent records; durable on return. Returns the first offset of this producer's last append to each
        partition, outside of transactions."""
        for where in list(self._gathered):
            self._send_gathered(where)
        return dict(self._offsets)

    # Transactions

    @contextmanager
    def transaction(self) -> Generator[Producer]:
        """Commits at the end of the block. Aborts if the block raises an exception, or its records are refused."""
        self.begin()
        try:
            yield self
            self.flush()
        except BaseException:
            self.abort()
            raise
        self.commit()

    def begin(self) -> None:
        self._transactional_one().begin()
        self._in_transaction = True

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits the offsets of consumed records together with the written records."""
        self._transactional_one().send_offsets(group, offsets)

    def commit(self) -> None:
        """Returns once the outcome is durable and visible."""
        self.flush()
        self._in_transaction = False
        self._transactional_one().commit()

    def abort(self) -> None:
        self._gathered.clear()
        self._in_transaction = False
        self._transactional_one().abort()

    def _transactional_one(self) -> TransactionalProducer:
        if self._transactional is None:
            raise InvalidTransactionState(
                "this producer has no transactional id", hint="Give one: Producer(log, transactional_id=…)."
            )
        return self._transactional

    def _check_state(self) -> None:
        if self._transactional is not None and not self._in_transaction:
            raise InvalidTransactionState(
                "a producer with a transactional id writes in transactions only",
                hint="Write inside `with producer.transaction():`.",
            )

    # Sending

    def _send_gathered(self, where: TopicPartition) -> None:
        gathered = self._gathered.pop(where, None)
        if gathered is not None:
            self._append(where, gathered.records())

    def _append(self, where: TopicPartition, records: RowRecords | ColumnarRecords) -> None:
        if self._transactional is not None:
            self._transactional.append(*where, records)
        else:
            self._offsets[where] = self._log.append(*where, records)

    def _completed(self, table: pa.Table) -> pa.Table:
        if "value" not in table.column_names:
            raise InvalidRecords('a table of records needs a column "value"')
        count = table.num_rows
        columns: dict[str, pa.Array | pa.ChunkedArray] = {
            "timestamp": pa.repeat(pa.scalar(int(self._clock() * 1000), pa.int64()), count),
            "key": pa.nulls(count, pa.binary()),
        }
        for name in ("timestamp", "key", "value"):
            if name in table.column_names:
                kind = pa.int64() if name == "timestamp" else pa.binary()
                columns[name] = table.column(name).cast(kind)
        if "headers" in table.column_names:
            columns["headers"] = table.column("headers").cast(HEADERS)
        return pa.table(columns)

    def _partitions_of(self, topic: str, rows: pa.Table) -> np.ndarray:
        count = self._count_of(topic)
        numbers = np.array(partitions_of(rows.column("key").combine_chunks(), count), np.int64)
        keyless = numbers < 0
        numbers[keyless] = (next(self._turns) + np.arange(int(keyless.sum()))) % count
        return numbers

    def _count_of(self, topic: str) -> int:
        if topic not in self._partition_counts:
            self._partition_counts[topic] = self._log.partition_count(topic)
        return self._partition_counts[topic]

    def close(self) -> None:
        """Sends all unsent records; aborts an open transaction. The log stays open."""
        if self._in_transaction:
            self.abort()
        else:
            self.flush()

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._gathered.clear()
        self.close()
