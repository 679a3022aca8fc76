"""A log that remembers in which order records were appended, across topics and partitions. For the Sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..logcore.client import ColumnarRecords, LogClient, RowRecords, TopicPartition


class Place(NamedTuple):
    """Where one record stands."""

    at: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One append. `produced`: by the Sandbox's `produce`, not by a statement or a query."""

    at: TopicPartition
    first_offset: int
    count: int
    produced: bool

    def places(self, begin: int = 0) -> Iterator[Place]:
        """The records from offset `begin` on."""
        for offset in range(max(begin, self.first_offset), self.first_offset + self.count):
            yield Place(self.at, offset)


class JournaledLog:
    """A `LogClient`: what it does not say itself, the log behind it does."""

    def __init__(self, log: LogClient) -> None:
        self._log = log
        self.entries: list[Entry] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def append(self, topic: str, partition: int, records: RowRecords | ColumnarRecords) -> int:
        """As `LogClient.append`."""
        return self._append(topic, partition, records, produced=False)

    def produce(self, topic: str, partition: int, records: RowRecords) -> int:
        """As `append`, for records that come from outside."""
        return self._append(topic, partition, records, produced=True)

    def _append(self, topic: str, partition: int, records: RowRecords | ColumnarRecords, *, produced: bool) -> int:
        offset = self._log.append(topic, partition, records)
        count = records.table.num_rows if isinstance(records, RowRecords) else records.batch.num_rows
        self.entries.append(Entry(TopicPartition(topic, partition), offset, count, produced))
        return offset
