"""Computes the rows of a `SourceReading` where its topic is read: in Spark's tasks.

A pull query returns the same rows, because it uses the same decoder and the same SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import duckdb
import pyarrow as pa

from millstream.errors import QueryError

from ...logcore.client import LogClient, TopicPartition
from ...logcore.errors import OffsetOutOfRange
from ...planner.source_reading import SourceReading
from ...sql.functions.catalog import register_udfs
from ..batch import ChangeBatch
from ..errors import QueryFailed
from ..formats.wire import SchemaLookup
from ..operators.statement import fetch, readable
from ..record_error import RecordError
from ..sources.source_reader import SourceReader
from ..state.connection import MEMORY, EngineSettings
from ..state.databases import of_this_process
from .current_rows import CurrentRows

READ_BYTES: Final = 16 * 1024 * 1024
ANSWER_ROWS: Final = 100_000  # rows of a table per result


class SourceRows:
    """Reads ranges of partitions of one topic. A context manager; not thread-safe.

    In: `left_out`: called with the errors of each batch that has some; it may raise. `schemas`: looks up schemas of the
    registry.
    """

    def __init__(
        self,
        reading: SourceReading,
        log: LogClient,
        left_out: Callable[[Sequence[RecordError]], None],
        schemas: SchemaLookup | None = None,
    ) -> None:
        self._reading = reading
        self._log = log
        self._left_out = left_out
        self._schemas = schemas or (lambda number: reading.schemas.get(str(number)))
        self._database = of_this_process().open(MEMORY, EngineSettings(threads=1))
        self._connection = self._database.connection
        with self._database.closed_on_error():
            register_udfs(self._connection, reading.udfs)

    def read(self, lane: TopicPartition, start: int, end: int) -> Iterator[pa.Table]:
        """The rows of the reading for these offsets, `end` exclusive, in the columns of its schema. For a table (unless
        its changes are wanted) these are the rows at `end`. Raises `OffsetOutOfRange`, `QueryFailed`."""
        source = self._reading.source
        if source.kind == "TABLE" and not self._reading.changes:
            yield from self._current(lane, start, end)
            return
        for changes in self._changes(lane, start, end):
            rows = changes.rows
            if source.kind == "STREAM":
                rows = rows.filter(pa.compute.invert(rows["_null"]))
            yield self._answer(rows)

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> SourceRows:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _current(self, lane: TopicPartition, start: int, end: int) -> Iterator[pa.Table]:
        """The current rows of a table. If retention overtakes the reading, it begins again, because rows of deleted
        records no longer belong to the table."""
        while True:
            current = CurrentRows(self._connection, self._reading.source)
            try:
                for changes in self._changes(lane, start, end):
                    current.add(changes.rows, changes.stream_time_ms)
                break
            except OffsetOutOfRange:
                begin = self._log.offsets(*lane).log_start_offset
                if begin <= start:
                    raise
                start = begin
        rows = current.rows()
        for begin in range(0, rows.num_rows, ANSWER_ROWS):
            yield self._answer(rows.slice(begin, ANSWER_ROWS))

    def _changes(self, lane: TopicPartition, start: int, end: int) -> Iterator[ChangeBatch]:
        source = self._reading.source
        reader = SourceReader(self._log, [source], {lane: start}, time_order=False, schemas=self._schemas, short=True)
        while reader.fetch_positions[lane] < end:
            batch = reader.read(READ_BYTES, {lane: end})
            if batch is not None:
                if batch.errors:
                    self._left_out(batch.errors)
                yield batch.inputs[source.id]

    def _answer(self, rows: pa.Table) -> pa.Table:
        schema = self._reading.schema
        self._connection.register("source", readable(rows))
        try:
            found = fetch(self._connection, self._reading.sql)
        except (duckdb.Error, QueryError) as error:
            raise QueryFailed(f"a row of {self._reading.source.name} cannot be computed: {error}") from error
        finally:
            self._connection.unregister("source")
        return found.select(range(len(schema.columns))).rename_columns([column.name for column in schema])
