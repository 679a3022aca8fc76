"""The rows of a stream or table as a relation for pull queries, updated from the topic."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Mapping, Sequence

import pyarrow as pa

from ...logcore.client import LogClient
from ...planner.source_info import SourceInfo
from ...planner.specs import SqlExpression
from ...planner.steps.source import Source
from ...sql.functions.catalog import register_udfs
from ..sources.source_reader import ReadBatch
from ..state.connection import MEMORY, EngineSettings
from ..state.databases import OpenDatabase, of_this_process
from .followed_topic import FollowedTopic
from .left_out import LeftOut
from .pull_limits import Deadline, PullLimits
from .relation import RELATION, SourceRelation


class Materialization:
    """The relation `source` (its columns are those of `SourceRelation`): for a table the latest row per key (and
    window), for a stream all rows. Rows of records that retention has deleted are removed, so a kept materialization
    and a new one give the same answer. Methods may be called from any thread.

    In: `timestamp`: the source's TIMESTAMP column, if it has one, as an expression over the row's columns. `query_id`:
    the first query that uses this; skipped records are logged under this name. `open_database`: opens the database for
    the rows; None: in an instance that this process has.

    `left_out`: the number of skipped records.
    """

    def __init__(
        self,
        source: SourceInfo,
        client: LogClient,
        properties: Mapping[str, str] | None = None,
        *,
        timestamp: SqlExpression | None = None,
        query_id: str = "",
        open_database: OpenDatabase | None = None,
    ) -> None:
        self._left_out = LeftOut(client, query_id or f"pull_{source.name}")
        self._source = source_step(source, timestamp)
        self._topic = FollowedTopic(self._source, client)
        self._guard = threading.Lock()
        open_database = open_database or of_this_process().open
        self._database = open_database(MEMORY, EngineSettings.of(properties or {}))
        self._connection = self._database.connection
        with self._database.closed_on_error():
            self._relation = SourceRelation(self._connection, self._source)

    def catch_up(self, deadline: Deadline | None = None) -> None:
        """Applies everything that is committed at the moment of the call. After an error the next call continues.
        Raises `PullLimitExceeded` when the deadline has passed."""
        with self._held(deadline):
            bounds = self._topic.bounds()
            for batch in self._topic.batches(bounds):
                self._take_in(batch)
                if deadline is not None:
                    deadline.check()
            for at, found in bounds.items():
                self._relation.forget_before(at.partition, found.log_start_offset)
            self._relation.compact()

    @property
    def topic_id(self) -> uuid.UUID | None:
        """The id of the topic from which this reads."""
        return self._topic.topic_id

    @property
    def left_out(self) -> int:
        return self._left_out.count

    def query(
        self,
        sql: str,
        udfs: Sequence[str] = (),
        limits: PullLimits | None = None,
        deadline: Deadline | None = None,
    ) -> pa.Table:
        """The answer to generated SQL over `source`. Raises `PullLimitExceeded`, and `QueryError` if an expression
        fails."""
        with self._held(deadline):
            register_udfs(self._connection, udfs)
            limits = limits or PullLimits()
            with limits.watch(self._connection, deadline):
                answer = limits.fetch(self._connection, sql)
            self._database.clear_laid_aside()
            return answer

    def rows(self, deadline: Deadline | None = None) -> pa.Table:
        """All rows in time order, with the columns of the relation."""
        with self._held(deadline):
            sql = f"SELECT * FROM {RELATION} ORDER BY _ts, _rowpartition, _offset"
            return self._connection.sql(sql).to_arrow_table()

    def _held(self, deadline: Deadline | None) -> contextlib.AbstractContextManager[object]:
        return self._guard if deadline is None else deadline.holding(self._guard)

    def interrupt(self) -> None:
        """Ends a query of another thread, which then raises `duckdb.InterruptException`."""
        self._connection.interrupt()

    def close(self) -> None:
        with self._guard:
            self._database.close()

    def _take_in(self, batch: ReadBatch) -> None:
        self._relation.apply(batch.inputs[self._source.id])
        self._topic.taken()  # before any step that may be interrupted: these rows must not be applied again
        self._database.clear_laid_aside()
        self._left_out.note(batch.errors)
        self._relation.compact()  # after `taken`: an interrupt here must not cause rows to be applied again


def record_count(client: LogClient, topic: str) -> int:
    """The number of the topic's offsets, which is at least its number of records."""
    partitions = range(client.partition_count(topic))
    bounds = [client.offsets(topic, partition) for partition in partitions]
    return sum(each.last_stable_offset - each.log_start_offset for each in bounds)


def source_step(source: SourceInfo, timestamp: SqlExpression | None = None) -> Source:
    """A step that reads a whole stream or table."""
    return Source(
        id="source",
        topic=source.topic,
        kind=source.kind,
        schema=source.schema,
        key_format=source.key_format,
        value_format=source.value_format,
        key_window=source.key_window,
        timestamp=timestamp,
        partition_count=source.partition_count,
        name=source.name,
        ttl_ms=source.ttl_ms if source.created_by is None else None,
    )
