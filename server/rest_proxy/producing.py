"""Writes records of requests to topics: chooses partitions, and returns an offset or an error for each record.

The log trusts the engine, so a topic's requirements for clients' records are checked here: size, keys if it is
compacted, timestamps. A broker of an external log checks them again.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from millstream.errors import LogError

from ...logcore.client import HEADERS, LogClient, RowRecords, Topic
from ...logcore.errors import InvalidRecords, InvalidTimestamps, RecordsTooLarge
from ...logcore.murmur2 import partition_of
from ...logcore.topic_settings import TopicSettings, settings_of

_CHUNK_BYTES: Final = 256 * 1024
_CHUNK_RECORDS: Final = 500  # a chunk has to be one batch, whose offsets are consecutive
_RECORD_BYTES: Final = 36  # upper bound of lengths, timestamp and attributes
_BATCH_BYTES: Final = 61


@dataclass(frozen=True, slots=True)
class NewRecord:
    """`partition`: None: by the key, or any. `timestamp_ms`: None: now."""

    key: bytes | None
    value: bytes | None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def size(self) -> int:
        in_headers = sum(len(name) * 4 + len(value or b"") + 10 for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + in_headers + _RECORD_BYTES


@dataclass(frozen=True, slots=True)
class Written:
    partition: int
    offset: int
    timestamp_ms: int


Result = Written | LogError


class ProxiedWriter:
    """Any thread may call it; it waits for the disk. State: a counter that distributes keyless records over the
    partitions."""

    def __init__(self, log: LogClient, clock: Callable[[], float] = time.time) -> None:
        self._log = log
        self._clock = clock
        self._turns = itertools.count()

    def write(self, topic: Topic, records: Sequence[NewRecord]) -> list[Result]:
        """The results, in the order of the records. All keyless records of one call go to the same partition."""
        now_ms = int(self._clock() * 1000)
        settings = settings_of(topic.config)
        keyless = next(self._turns) % topic.partition_count
        results: list[Result | None] = [None] * len(records)
        by_partition: dict[int, list[int]] = {}
        for number, record in enumerate(records):
            problem = _problem(topic, record, settings, now_ms)
            if problem is not None:
                results[number] = problem
                continue
            partition = record.partition
            if partition is None:
                partition = keyless if record.key is None else partition_of(record.key, topic.partition_count)
            by_partition.setdefault(partition, []).append(number)
        for partition, numbers in by_partition.items():
            for chunk in _chunks(records, numbers, settings.message_bytes_max):
                self._append(topic.name, partition, records, chunk, now_ms, results)
        return [result for result in results if result is not None]

    def _append(
        self,
        topic: str,
        partition: int,
        records: Sequence[NewRecord],
        chunk: list[int],
        now_ms: int,
        results: list[Result | None],
    ) -> None:
        times = [now_ms if records[number].timestamp_ms is None else records[number].timestamp_ms for number in chunk]
        columns = {
            "timestamp": pa.array(times, pa.int64()),
            "key": pa.array([records[number].key for number in chunk], pa.binary()),
            "value": pa.array([records[number].value for number in chunk], pa.binary()),
        }
        if any(records[number].headers for number in chunk):
            rows = [[{"key": name, "value": value} for name, value in records[number].headers] for number in chunk]
            columns["headers"] = pa.array(rows, HEADERS)
        try:
            first = self._log.append(topic, partition, RowRecords(pa.table(columns)))
        except LogError as error:
            for number in chunk:
                results[number] = error
            return
        for place, number in enumerate(chunk):
            results[number] = Written(partition, first + place, times[place] or 0)


def _problem(topic: Topic, record: NewRecord, settings: TopicSettings, now_ms: int) -> LogError | None:
    """Why the topic refuses the record; None if it accepts it."""
    if record.partition is not None and not 0 <= record.partition < topic.partition_count:
        return InvalidRecords(f'topic "{topic.name}" has no partition {record.partition}')
    if record.size + _BATCH_BYTES > settings.message_bytes_max:
        most = settings.message_bytes_max
        return RecordsTooLarge(f'the record has more than the {most} bytes that topic "{topic.name}" takes')
    if settings.compacted and record.key is None:
        return InvalidRecords(f'topic "{topic.name}" is compacted: its records need a key')
    bounds = settings.times(now_ms)
    if bounds is not None and record.timestamp_ms is not None:
        earliest, latest = bounds
        if not earliest <= record.timestamp_ms <= latest:
            return InvalidTimestamps(f'topic "{topic.name}" takes times from {earliest} to {latest} now')
    return None


def _chunks(records: Sequence[NewRecord], numbers: list[int], bytes_max: int) -> Iterator[list[int]]:
    """Runs of records that are one batch each, within the topic's size limit."""
    chunk: list[int] = []
    size = _BATCH_BYTES
    for number in numbers:
        more = records[number].size
        if chunk and (len(chunk) >= _CHUNK_RECORDS or size + more > min(_CHUNK_BYTES, bytes_max)):
            yield chunk
            chunk, size = [], _BATCH_BYTES
        chunk.append(number)
        size += more
    if chunk:
        yield chunk
