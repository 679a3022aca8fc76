"""A bounded look at the records of a topic: from an offset, a time or the end, filtered, or the latest of each key.

Reads at most `SCANNED_MAX` records and `SECONDS_MAX` seconds, and says where it stopped, so that a client can go on.
Keys and values are texts: JSON numbers of BIGINT and DECIMAL would lose digits in a browser.
"""

from __future__ import annotations

import heapq
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson

from ...executor.formats.wire import SchemaLookup
from ...logcore.client import LogClient, Topic, TopicPartition
from ...planner.source_info import SourceInfo
from ..engine.topic_records import TopicRecord, decode_run

SCANNED_MAX: Final = 200_000
SECONDS_MAX: Final = 3.0
TEXT_MAX: Final = 4_000
_FETCH_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin in each partition: at an offset, at the first record of a time or later, or (neither) so far
    before the end that the newest records are found."""

    offset: int | None = None
    time_ms: int | None = None


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """`key`, `value`: their texts; None is NULL."""

    at: TopicPartition
    offset: int
    timestamp_ms: int
    key: str | None
    value: str | None
    headers: list[tuple[str, bytes | None]]

    @property
    def order(self) -> tuple[int, int, int]:
        return self.timestamp_ms, self.at.partition, self.offset


class RecordSearch:
    """`run` once."""

    def __init__(
        self, log: LogClient, topic: Topic, source: SourceInfo | None, schemas: SchemaLookup, *,
        partition: int | None, start: Start, limit: int, contains: str, latest_per_key: bool, whole: bool,
    ) -> None:  # fmt: skip
        """In: `partition`: None: all. `contains`: in the key or the value, in any case. `whole`: texts are not cut."""
        self._log, self._topic, self._source, self._schemas = log, topic, source, schemas
        numbers = range(topic.partition_count) if partition is None else [partition]
        self._partitions = [TopicPartition(topic.name, number) for number in numbers]
        self._start, self._limit, self._whole = start, limit, whole
        self._contains = contains.casefold()
        self._latest_per_key = latest_per_key
        self._scanned = 0
        self._deadline_s = time.monotonic() + SECONDS_MAX
        self._stopped = False
        self._next: dict[int, int] = {}

    def run(self) -> dict[str, Any]:
        """The records by time, the newest last; `next`: the first offset of each partition that was not looked at."""
        found = self._latest() if self._latest_per_key else self._wanted()
        return {
            "records": [self._json(record) for record in sorted(found, key=lambda record: record.order)],
            "scanned": self._scanned,
            "stopped": self._stopped,
            "next": [{"partition": partition, "offset": offset} for partition, offset in sorted(self._next.items())],
        }

    def _wanted(self) -> list[FoundRecord]:
        """The newest ones, or, from an offset or a time on, the first ones of each partition."""
        at_end = self._start == Start()
        found: list[FoundRecord] = []
        for at in self._partitions:
            matching: list[FoundRecord] = []
            for record in self._records(at):
                if self._matches(record):
                    matching.append(record)
                    if not at_end and len(matching) >= self._limit:
                        self._next[at.partition] = record.offset + 1
                        break
            found += matching[-self._limit :] if at_end else matching
        return heapq.nlargest(self._limit, found, key=lambda record: record.order) if at_end else found

    def _latest(self) -> list[FoundRecord]:
        """Of each key, the newest record of those looked at; keys that were deleted are left out."""
        latest: dict[tuple[int, str | None], FoundRecord] = {}
        for at in self._partitions:
            for record in self._records(at):
                latest.pop((at.partition, record.key), None)  # so that the dict is in the order of the last change
                latest[at.partition, record.key] = record
        kept = [record for record in latest.values() if record.value is not None and self._matches(record)]
        return heapq.nlargest(self._limit, kept, key=lambda record: record.order)

    def _records(self, at: TopicPartition) -> Iterator[FoundRecord]:
        position, end = self._bounds(at)
        while position < end:
            self._next[at.partition] = position
            if self._is_over():
                self._stopped = True
                return
            fetched = self._log.fetch(at.topic, at.partition, position, max_bytes=_FETCH_BYTES)
            for run in fetched.runs:
                for offset, record in decode_run(run, self._source, self._schemas, unreadable_as_text=True):
                    if position <= offset < end:
                        self._scanned += 1
                        yield _found(at, offset, record)
            if fetched.next_offset <= position:
                break
            position = fetched.next_offset
        self._next[at.partition] = max(position, end)

    def _bounds(self, at: TopicPartition) -> tuple[int, int]:
        offsets = self._log.offsets(at.topic, at.partition)
        first, end = offsets.log_start_offset, offsets.last_stable_offset
        if self._start.offset is not None:
            return max(first, self._start.offset), end
        if self._start.time_ms is not None:
            found = self._log.offset_at(at.topic, at.partition, self._start.time_ms)
            return (end if found is None else max(first, found)), end
        share = SCANNED_MAX // len(self._partitions) if self._contains or self._latest_per_key else self._limit
        return max(first, end - share), end

    def _is_over(self) -> bool:
        return self._scanned >= SCANNED_MAX or time.monotonic() > self._deadline_s

    def _matches(self, record: FoundRecord) -> bool:
        if not self._contains:
            return True
        return any(self._contains in text.casefold() for text in (record.key, record.value) if text is not None)

    def _json(self, record: FoundRecord) -> dict[str, Any]:
        headers = [{"key": key, "value": None if value is None else self._cut(value.decode(errors="replace"))}
                   for key, value in record.headers]  # fmt: skip
        found: dict[str, Any] = {
            "partition": record.at.partition, "offset": record.offset, "timestamp": record.timestamp_ms,
            "key": self._cut(record.key), "value": self._cut(record.value), "headers": headers,
        }  # fmt: skip
        for name, text in (("keyLength", record.key), ("valueLength", record.value)):
            if text is not None and len(text) > TEXT_MAX and not self._whole:
                found[name] = len(text)
        return found

    def _cut(self, text: str | None) -> str | None:
        return text if text is None or self._whole else text[:TEXT_MAX]


def _found(at: TopicPartition, offset: int, record: TopicRecord) -> FoundRecord:
    key, window = _text(record["key"]), record["window"]
    if window is not None:
        key = f"{key} @ {window['start']}/{window['end']}"
    return FoundRecord(at, offset, record["timestamp"], key, _text(record["value"]), record["headers"])


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    try:
        return orjson.dumps(value, default=str).decode()
    except TypeError:  # nested deeper than it likes, or half a surrogate pair: formats allow more
        return json.dumps(value, default=str, separators=(",", ":"))
