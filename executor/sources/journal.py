"""A log that remembers in which order records were appended, across topics and partitions. For the Sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ...logcore.client import ColumnarRecords, LogClient, RowRecords, TopicPartition, TransactionalProducer


class RecordPlace(NamedTuple):
    """Where one record stands."""

    at: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One append. `produced`: by the Sandbox's `produce`, not by a statement or a query. `count`: 0 once the topic is
    deleted."""

    at: TopicPartition
    first_offset: int
    count: int
    produced: bool

    def places(self, begin: int = 0) -> Iterator[RecordPlace]:
        """The records from offset `begin` on."""
        for offset in range(max(begin, self.first_offset), self.first_offset + self.count):
            yield RecordPlace(self.at, offset)


class JournaledLog:
    """A `LogClient`: what it does not say itself, the log behind it does."""

    def __init__(self, log: LogClient) -> None:
        self._log = log
        self.entries: list[JournalEntry] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def append(self, topic: str, partition: int, records: RowRecords | ColumnarRecords) -> int:
        """As `LogClient.append`."""
        return self._append(topic, partition, records, produced=False)

    def produce(self, topic: str, partition: int, records: RowRecords) -> int:
        """As `append`, for records that come from outside."""
        return self._append(topic, partition, records, produced=True)

    def delete_topic(self, name: str) -> None:
        """As `LogClient.delete_topic`; a new topic of this name begins with no records. Entries keep their numbers."""
        self._log.delete_topic(name)
        self.entries[:] = [replace(entry, count=0) if entry.at.topic == name else entry for entry in self.entries]

    def transactional_producer(self, transactional_id: str) -> JournaledProducer:
        """As `LogClient.transactional_producer`; records count as appended once they are committed."""
        return JournaledProducer(self, self._log.transactional_producer(transactional_id))

    def _append(self, topic: str, partition: int, records: RowRecords | ColumnarRecords, *, produced: bool) -> int:
        offset = self._log.append(topic, partition, records)
        self.entries.append(JournalEntry(TopicPartition(topic, partition), offset, _count(records), produced))
        return offset


class JournaledProducer:
    """A `TransactionalProducer` whose records go to the journal when it commits."""

    def __init__(self, journal: JournaledLog, producer: TransactionalProducer) -> None:
        self._journal = journal
        self._producer = producer
        self._open: list[JournalEntry] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def append(self, topic: str, partition: int, records: RowRecords | ColumnarRecords) -> None:
        """As `TransactionalProducer.append`."""
        first = self._journal.offsets(topic, partition).log_end_offset
        self._producer.append(topic, partition, records)
        self._open.append(JournalEntry(TopicPartition(topic, partition), first, _count(records), produced=False))

    def commit(self) -> None:
        """As `TransactionalProducer.commit`."""
        self._producer.commit()
        self._journal.entries += self._open
        self._open = []

    def abort(self) -> None:
        """As `TransactionalProducer.abort`."""
        self._producer.abort()
        self._open = []


def _count(records: RowRecords | ColumnarRecords) -> int:
    return records.table.num_rows if isinstance(records, RowRecords) else records.batch.num_rows
