"""A log that remembers the order in which records were appended, across topics and partitions. For the Sandbox.

The records that a script inserts, by a statement or by `produce`, are one sequence. The records that queries write are
kept apart, because queries run on request and not when a row arrives.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ...logcore.client import ColumnarRecords, LogClient, RowRecords, TopicPartition, TransactionalProducer


class RecordPlace(NamedTuple):
    """The position of one record."""

    at: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One append. `by_query`: whether a query wrote it, not the script. `count`: 0 after the topic was deleted."""

    at: TopicPartition
    first_offset: int
    count: int
    by_query: bool

    def places(self, begin: int = 0) -> Iterator[RecordPlace]:
        """The records from offset `begin` on."""
        for offset in range(max(begin, self.first_offset), self.first_offset + self.count):
            yield RecordPlace(self.at, offset)


class JournaledLog:
    """A `LogClient` that passes all other calls to the log behind it."""

    def __init__(self, log: LogClient) -> None:
        self._log = log
        self._queries_run = False
        self.entries: list[JournalEntry] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    @contextlib.contextmanager
    def queries_run(self) -> Generator[None]:
        """Records appended during the block count as written by queries."""
        self._queries_run = True
        try:
            yield
        finally:
            self._queries_run = False

    def append(self, topic: str, partition: int, records: RowRecords | ColumnarRecords) -> int:
        """As `LogClient.append`."""
        offset = self._log.append(topic, partition, records)
        self.note(TopicPartition(topic, partition), offset, records.row_count)
        return offset

    def note(self, at: TopicPartition, first_offset: int, count: int) -> None:
        """Notes these records as appended now."""
        self.entries.append(JournalEntry(at, first_offset, count, self._queries_run))

    def script(
        self, positions: Mapping[TopicPartition, int], begin: int = 0, end: int | None = None
    ) -> list[RecordPlace]:
        """The records that the script has inserted from these positions on, in its order. In: `begin`, `end`: a range
        of the entries."""
        return self._places(positions, [entry for entry in self.entries[begin:end] if not entry.by_query])

    def written(self, positions: Mapping[TopicPartition, int], begin: int = 0) -> list[RecordPlace]:
        """The records that queries have written from these positions on, in order. In: `begin`: as above."""
        return self._places(positions, [entry for entry in self.entries[begin:] if entry.by_query])

    @staticmethod
    def _places(positions: Mapping[TopicPartition, int], entries: Sequence[JournalEntry]) -> list[RecordPlace]:
        known = [entry for entry in entries if entry.at in positions]
        return [place for entry in known for place in entry.places(positions[entry.at])]

    def ends(self, lanes: Iterable[TopicPartition], end: int | None = None) -> dict[TopicPartition, int]:
        """The end of each lane, if the script had only inserted the records of the entries before `end`."""
        found = {lane: self.offsets(*lane).last_stable_offset for lane in lanes}
        for entry in self.entries[len(self.entries) if end is None else end :]:
            if not entry.by_query and entry.count and entry.at in found:
                found[entry.at] = min(found[entry.at], entry.first_offset)
        return found

    def delete_topic(self, name: str) -> None:
        """As `LogClient.delete_topic`. The topic's entries become empty, because a new topic of this name begins
        without records; all entries keep their numbers."""
        self._log.delete_topic(name)
        self.entries[:] = [replace(entry, count=0) if entry.at.topic == name else entry for entry in self.entries]

    def transactional_producer(self, transactional_id: str) -> JournaledProducer:
        """As `LogClient.transactional_producer`. Records count as appended when they are committed."""
        return JournaledProducer(self, self._log.transactional_producer(transactional_id))


class JournaledProducer:
    """A `TransactionalProducer` that adds its records to the journal when it commits."""

    def __init__(self, journal: JournaledLog, producer: TransactionalProducer) -> None:
        self._journal = journal
        self._producer = producer
        self._open: list[tuple[TopicPartition, int, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def append(self, topic: str, partition: int, records: RowRecords | ColumnarRecords) -> None:
        """As `TransactionalProducer.append`."""
        first = self._journal.offsets(topic, partition).log_end_offset
        self._producer.append(topic, partition, records)
        self._open.append((TopicPartition(topic, partition), first, records.row_count))

    def commit(self) -> None:
        """As `TransactionalProducer.commit`."""
        self._producer.commit()
        for appended in self._open:
            self._journal.note(*appended)
        self._open = []

    def abort(self) -> None:
        """As `TransactionalProducer.abort`."""
        self._producer.abort()
        self._open = []
