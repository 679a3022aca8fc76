"""A bounded search in the records of a topic: from an offset, a time or the end, filtered, or the latest of each key.

It reads no more than `SCANNED_MAX` records and `CHARACTERS_MAX` of text, for at most `SECONDS_MAX`, and returns where
it stopped, so that a client can continue.

Keys and values are texts: as JSON numbers, BIGINT and DECIMAL would lose digits in a browser.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from ...executor.formats.wire import SchemaLookup
from ...logcore.client import LogClient, Topic, TopicPartition
from ...planner.source_info import SourceInfo
from ..engine.topic_records import TopicRecord, decode_run, shown

SCANNED_MAX: Final = 200_000
CHARACTERS_MAX: Final = 64_000_000
SECONDS_MAX: Final = 3.0
TEXT_MAX: Final = 4_000
_OFFSETS_PER_RECORD: Final = 3
_FETCH_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin in each partition: at an offset, at the first record with this time or a later one, or (neither)
    far enough before the end to find the newest records."""

    offset: int | None = None
    time_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RecordText:
    """A key, a value or a header's value, shortened for display. `length`: of the whole text."""

    text: str
    length: int


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """`key`, `value`: None is NULL. `matches`: whether the whole texts match the filter."""

    partition: int
    offset: int
    timestamp_ms: int
    key: RecordText | None
    value: RecordText | None
    headers: tuple[tuple[str, RecordText | None], ...]
    matches: bool

    @property
    def order(self) -> tuple[int, int, int]:
        return self.timestamp_ms, self.partition, self.offset

    def as_json(self) -> dict[str, Any]:
        """`keyLength` and `valueLength` are only set for shortened texts."""
        found: dict[str, Any] = {
            "partition": self.partition,
            "offset": self.offset,
            "timestamp": self.timestamp_ms,
            "key": self.key and self.key.text,
            "value": self.value and self.value.text,
            "headers": [{"key": name, "value": value and value.text} for name, value in self.headers],
        }
        for name, part in (("keyLength", self.key), ("valueLength", self.value)):
            if part is not None and part.length > len(part.text):
                found[name] = part.length
        return found


class RecordSearch:
    """Call `run` once."""

    def __init__(
        self, log: LogClient, topic: Topic, source: SourceInfo | None, schemas: SchemaLookup, *,
        partition: int | None, start: Start, limit: int, contains: str, latest_per_key: bool, whole: bool,
    ) -> None:  # fmt: skip
        """In: `partition`: None: all. `contains`: in the key or the value, in any case. `whole`: do not shorten
        texts."""
        self._log, self._source, self._schemas = log, source, schemas
        numbers = range(topic.partition_count) if partition is None else [partition]
        self._partitions = [TopicPartition(topic.name, number) for number in numbers]
        self._start, self._limit = start, limit
        self._text_max = None if whole else TEXT_MAX
        self._contains = contains.casefold()
        self._latest_per_key = latest_per_key
        self._deadline_s = time.monotonic() + SECONDS_MAX
        self._scanned = self._characters = 0
        self._stopped = False
        self._next: dict[int, int] = {}

    def run(self) -> dict[str, Any]:
        """The records by time, newest last. `next`: the offset of each partition at which a client should continue;
        `stopped`: a limit was reached before the end."""
        if self._latest_per_key:
            found = self._latest()
        else:
            found = self._newest() if self._start == Start() else self._first()
        return {
            "records": [record.as_json() for record in sorted(found, key=lambda record: record.order)],
            "scanned": self._scanned,
            "stopped": self._stopped,
            "next": [{"partition": partition, "offset": offset} for partition, offset in sorted(self._next.items())],
        }

    def _newest(self) -> list[FoundRecord]:
        found: list[FoundRecord] = []
        for at in self._partitions:
            found += deque((record for record in self._records(at) if record.matches), maxlen=self._limit)
        return heapq.nlargest(self._limit, found, key=lambda record: record.order)

    def _first(self) -> list[FoundRecord]:
        """The first records from an offset or a time on. Records beyond the limit are left for a continuation at
        `next`."""
        found: list[FoundRecord] = []
        for at in self._partitions:
            count = 0
            for record in self._records(at):
                count += record.matches
                if record.matches:
                    found.append(record)
                if count >= self._limit:
                    self._next[at.partition] = record.offset + 1
                    break
        found.sort(key=lambda record: record.order)
        for record in reversed(found[self._limit :]):
            self._next[record.partition] = min(self._next[record.partition], record.offset)
        return found[: self._limit]

    def _latest(self) -> list[FoundRecord]:
        """The newest record of each key among those read; deleted keys are left out."""
        latest: dict[tuple[int, RecordText | None], FoundRecord] = {}
        for at in self._partitions:
            for record in self._records(at):
                latest[at.partition, record.key] = record
        kept = (record for record in latest.values() if record.value is not None and record.matches)
        return heapq.nlargest(self._limit, kept, key=lambda record: record.order)

    def _records(self, at: TopicPartition) -> Iterator[FoundRecord]:
        position, end = self._bounds(at)
        self._next[at.partition] = position
        while position < end:
            if self._is_over():
                self._stopped = True
                return
            fetched = self._log.fetch(at.topic, at.partition, position, max_bytes=_FETCH_BYTES)
            for run in fetched.runs:
                for offset, record in decode_run(run, self._source, self._schemas, unreadable_as_text=True):
                    if position <= offset < end:
                        self._scanned += 1
                        yield self._found(at.partition, offset, record)
            if fetched.next_offset <= position:
                return
            position = self._next[at.partition] = fetched.next_offset

    def _bounds(self, at: TopicPartition) -> tuple[int, int]:
        offsets = self._log.offsets(at.topic, at.partition)
        first, end = offsets.log_start_offset, offsets.last_stable_offset
        if self._start.offset is not None:
            return max(first, self._start.offset), end
        if self._start.time_ms is not None:
            found = self._log.offset_at(at.topic, at.partition, self._start.time_ms)
            return (end if found is None else max(first, found)), end
        if self._contains or self._latest_per_key:
            return max(first, end - SCANNED_MAX // len(self._partitions)), end
        return max(first, end - self._limit * _OFFSETS_PER_RECORD), end  # transaction markers have offsets, too

    def _is_over(self) -> bool:
        reached = self._scanned >= SCANNED_MAX or self._characters >= CHARACTERS_MAX
        return reached or time.monotonic() > self._deadline_s

    def _found(self, partition: int, offset: int, record: TopicRecord) -> FoundRecord:
        key, window = shown(record["key"]), record["window"]
        if window is not None:
            key = f"{key} @ {window['start']}/{window['end']}"
        value = shown(record["value"])
        self._characters += len(key or "") + len(value or "")
        headers = tuple(
            (name, None if data is None else self._cut(data.decode(errors="replace")))
            for name, data in record["headers"]
        )
        matches = not self._contains or any(self._contains in (text or "").casefold() for text in (key, value))
        return FoundRecord(
            partition, offset, record["timestamp"], self._cut(key), self._cut(value), headers, matches=matches
        )

    def _cut(self, text: str | None) -> RecordText | None:
        return None if text is None else RecordText(text[: self._text_max], len(text))
