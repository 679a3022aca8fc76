"""PRINT: the records of a topic as lines of text, as they come."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from millstream.errors import ServerError, did_you_mean

from ...executor.columnar import ARROW
from ...executor.formats.wire import SchemaLookup, no_schemas
from ...logcore.client import FetchedColumns, FetchedRows, LogClient, TopicPartition
from ...planner.catalog import Catalog
from ...sql.ast import PrintTopic
from ...sql.functions.java.calendar_days import timestamp_text
from .guessed_formats import common_format, guess
from .topic_records import TopicRecord, decode_run, shown

_WAKE_UP_S = 0.2
_LOOKED_AT: Final = 20  # number of records of a partition from which a format is guessed
_LOOKED_AT_BYTES: Final = 1 << 16


class UnknownTopicPrinted(ServerError):
    """PRINT of a topic that does not exist."""

    code = "PRINT_UNKNOWN_TOPIC"


class PrintFeed:
    """Iterate over it for lines. It waits for records until LIMIT is reached or any thread calls `close`."""

    def __init__(
        self, statement: PrintTopic, log: LogClient, catalog: Catalog, schemas: SchemaLookup = no_schemas
    ) -> None:
        topics = log.topics()
        if statement.topic not in topics:
            raise UnknownTopicPrinted(
                f"Could not find topic '{statement.topic}', or the KSQL user does not have permissions to list the "
                "topic. Topic names are case-sensitive.",
                span=statement.span,
                hint=did_you_mean(statement.topic, topics),
            )
        self._statement = statement
        self._log = log
        self._schemas = schemas
        self._source = next((s for s in catalog.sources.values() if s.topic == statement.topic), None)
        self._closed = False
        self._positions: dict[TopicPartition, int] = {}
        for partition in range(topics[statement.topic].partition_count):
            bounds = log.offsets(statement.topic, partition)
            begin = bounds.log_start_offset if statement.from_beginning else bounds.last_stable_offset
            self._positions[TopicPartition(statement.topic, partition)] = begin

    def __iter__(self) -> Iterator[str]:
        key_format, value_format = self._formats()
        yield f"Key format: {key_format}"
        yield f"Value format: {value_format}"
        limit, interval = self._statement.limit, self._statement.interval or 1
        seen = printed = 0
        for partition, record in self._records():
            if limit is not None and printed >= limit:
                return
            if seen % interval == 0:
                yield _line(partition, record)
                printed += 1
            seen += 1
            if limit is not None and printed >= limit:
                return

    def close(self) -> None:
        """Ends the iteration within a fraction of a second."""
        self._closed = True

    def _formats(self) -> tuple[str, str]:
        """The formats of keys and of values. If no stream or table declares them, they are guessed from the newest
        records, so that they can be printed before new records come."""
        if self._source is not None:
            return self._source.key_format.name, self._source.value_format.name
        found: dict[Literal["key", "value"], list[str]] = {"key": [], "value": []}
        schemas = functools.cache(self._schemas)
        for at in self._positions:
            for run in self._looked_at(at):
                if isinstance(run, FetchedRows):
                    for part, formats in found.items():
                        rows = run.table[part].to_pylist()
                        formats += [guess(data, schemas).format for data in rows if data is not None]
                else:
                    found["value"].append(ARROW)
        return common_format(found["key"]), common_format(found["value"])

    def _looked_at(self, at: TopicPartition) -> Sequence[FetchedRows | FetchedColumns]:
        """The newest records; the oldest ones if there are none at the newest offsets: transaction markers and
        compacted records use offsets, too."""
        bounds = self._log.offsets(at.topic, at.partition)
        newest = max(bounds.log_start_offset, bounds.last_stable_offset - _LOOKED_AT)
        found = self._log.fetch(at.topic, at.partition, newest, max_bytes=_LOOKED_AT_BYTES).runs
        if found or newest == bounds.log_start_offset:
            return found
        return self._log.fetch(at.topic, at.partition, bounds.log_start_offset, max_bytes=_LOOKED_AT_BYTES).runs

    def _records(self) -> Iterator[tuple[int, TopicRecord]]:
        while not self._closed:
            for at in self._positions:
                fetched = self._log.fetch(at.topic, at.partition, self._positions[at])
                self._positions[at] = fetched.next_offset
                for run in fetched.runs:
                    for _, record in decode_run(run, self._source, self._schemas, unreadable_as_text=True):
                        yield at.partition, record
            self._log.wait(self._positions, _WAKE_UP_S)


def _line(partition: int, record: TopicRecord) -> str:
    day, _, clock = timestamp_text(record["timestamp"]).partition("T")
    rowtime = f"{day[0]}{day[1:].replace('-', '/')} {clock} Z"
    key = _or_null(shown(record["key"]))
    window = record["window"]
    if window is not None:
        key = f"[{key}@{window['start']}/{window['end']}]"
    return f"rowtime: {rowtime}, key: {key}, value: {_or_null(shown(record['value']))}, partition: {partition}"


def _or_null(text: str | None) -> str:
    return "<null>" if text is None else text
