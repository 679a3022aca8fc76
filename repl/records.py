"""Shows and reads topics and records: `millstream topic`, `produce` and `consume`, with any log client."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa

from millstream.errors import LogError, did_you_mean

from ..logcore.client import FetchedColumns, FetchedRows, LogClient, RowRecords, Topic, TopicPartition
from ..logcore.clients.client_groups import GroupLog
from ..logcore.clients.consumer import Consumer, Reset
from ..logcore.errors import UnknownTopic
from ..logcore.murmur2 import partitions_of
from .text.tables import render_table

BATCH_LINES: Final = 5000
BATCH_BYTES: Final = 4 * 1024 * 1024
_WAKE_UP_S: Final = 0.2


class BadLine(LogError):
    """A line of the input is not a record."""

    code = "BAD_LINE"


def topic_table(log: LogClient, width_max: int | None = None) -> list[str]:
    """The topics of users, as lines of a table."""
    rows = [[name, topic.partition_count] for name, topic in sorted(log.topics().items()) if not name.startswith("_")]
    return render_table(["Topic", "Partitions"], rows, width_max)


def find_topic(log: LogClient, name: str) -> Topic:
    """The topic of this name. Raises `UnknownTopic` with a hint."""
    topic = log.topic(name)
    if topic is None:
        hint = did_you_mean(name, log.topics()) or f"Create it with `millstream topic create {name}`."
        raise UnknownTopic(f'topic "{name}" does not exist', hint=hint)
    return topic


def produce_lines(log: LogClient, topic: str, lines: Iterable[bytes], key_member: str | None) -> int:
    """Appends each line as the value of a record and returns the number of records. Empty lines are skipped.

    In: `key_member`: each line is a JSON object, and this member becomes the key, as text; without it, records have no
    keys. The hash of the key chooses the partition, as in Kafka's clients; records without a key take the partitions in
    turn.
    """
    partition_count = find_topic(log, topic).partition_count
    total = 0
    for number, batch in _batches(lines):
        keys = [None if key_member is None else _key(number + at, line, key_member) for at, line in batch]
        _append(log, topic, partition_count, keys, [line for _, line in batch], total)
        total += len(batch)
    return total


def consume_lines(log: LogClient, topic: str, *, from_beginning: bool, limit: int | None) -> Iterator[str]:
    """A JSON object for each record: partition, offset, timestamp, key, value. Continues until `limit`."""
    positions: dict[TopicPartition, int] = {}
    for partition in range(find_topic(log, topic).partition_count):
        bounds = log.offsets(topic, partition)
        begin = bounds.log_start_offset if from_beginning else bounds.last_stable_offset
        positions[TopicPartition(topic, partition)] = begin
    left = limit
    while left is None or left > 0:
        for at in positions:
            fetched = log.fetch(topic, at.partition, positions[at])
            positions[at] = fetched.next_offset
            for run in fetched.runs:
                for record in _records(at.partition, run):
                    if left == 0:
                        return
                    left = None if left is None else left - 1
                    yield orjson.dumps(record, default=str).decode()
        if left != 0:
            log.wait(positions, _WAKE_UP_S)


def consume_as_member(
    log: GroupLog, topic: str, group: str, *, from_beginning: bool, limit: int | None
) -> Iterator[str]:
    """Like `consume_lines`, as a member of a group that shares the topic; a line counts as read when it was taken.

    In: `from_beginning`: applies if the group has not committed anything yet.
    """
    find_topic(log, topic)
    reset: Reset = "earliest" if from_beginning else "latest"
    left = limit
    with Consumer(log, group, reset=reset, commit_every_ms=None) as consumer:
        consumer.subscribe(topic)
        taken: dict[TopicPartition, int] = {}
        try:
            while left is None or left > 0:
                for consumed in consumer.poll(_WAKE_UP_S):
                    for record in _records(consumed.partition.partition, consumed.run):
                        if left == 0:
                            return
                        left = None if left is None else left - 1
                        yield orjson.dumps(record, default=str).decode()
                        taken[consumed.partition] = record["offset"] + 1
                if taken:
                    consumer.commit(taken)
                    taken.clear()
        finally:
            if taken:
                consumer.commit(taken)


def _batches(lines: Iterable[bytes]) -> Iterator[tuple[int, list[tuple[int, bytes]]]]:
    """Batches: the number of the first line of each batch, and its lines with their distance from the first."""
    batch: list[tuple[int, bytes]] = []
    first = size = 0
    for number, raw in enumerate(lines, 1):
        line = raw.strip()
        if not line:
            continue
        first = first if batch else number
        batch.append((number - first, line))
        size += len(line)
        if len(batch) == BATCH_LINES or size >= BATCH_BYTES:
            yield first, batch
            batch, size = [], 0
    if batch:
        yield first, batch


def _key(number: int, line: bytes, member: str) -> bytes | None:
    try:
        value = orjson.loads(line)
    except ValueError as error:
        raise BadLine(f"line {number} is not valid JSON: {error}") from None
    if not isinstance(value, dict) or member not in value:
        raise BadLine(f'line {number} is not a JSON object with "{member}"')
    key = value[member]
    if key is None:
        return None
    return key.encode() if isinstance(key, str) else orjson.dumps(key)


def _append(
    log: LogClient, topic: str, partition_count: int, keys: list[bytes | None], values: list[bytes], turn: int
) -> None:
    key_array = pa.array(keys, pa.binary())
    partitions = partitions_of(key_array, partition_count)
    turns = ((np.arange(len(keys)) + turn) % partition_count).astype(np.int32)
    partitions = np.where(partitions < 0, turns, partitions)
    timestamps = pa.array([time.time_ns() // 1_000_000] * len(keys), pa.int64())
    table = pa.table({"timestamp": timestamps, "key": key_array, "value": pa.array(values, pa.binary())})
    for partition in np.unique(partitions):
        log.append(topic, int(partition), RowRecords(table.filter(pa.array(partitions == partition))))


def _records(partition: int, run: FetchedRows | FetchedColumns) -> Iterator[dict[str, Any]]:
    if isinstance(run, FetchedColumns):  # written by a query for other queries: the value is all columns
        for offset, value in zip(run.row_offsets.tolist(), run.batch.to_pylist(), strict=True):
            yield {
                "partition": partition,
                "offset": offset,
                "timestamp": run.timestamp_ms,
                "value": value,
            }
        return
    for row in run.table.to_pylist():
        yield {
            "partition": partition,
            "offset": row["offset"],
            "timestamp": row["timestamp"],
            "key": _text(row["key"]),
            "value": _value(row["value"]),
        }


def _value(data: bytes | None) -> Any:
    """JSON stays as it is, anything else becomes text."""
    if data is None:
        return None
    try:
        orjson.loads(data)
    except ValueError:
        return _text(data)
    return orjson.Fragment(data)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")
