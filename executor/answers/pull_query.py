"""A pull query that runs a plan once as a batch: the pipeline processes what the sources contain now, tables first.

So a stream's row joins the current row of a table. Everything else is as in a persistent query: the operators, the time
order, the tasks of the partitions, late rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa

from ...logcore.client import LogClient, TopicPartition
from ...logcore.errors import OffsetOutOfRange
from ...planner.planning import PlannedBatch
from ...planner.steps.source import Source
from ..batch import ChangeBatch
from ..partitioning import RekeyPartitioner
from ..pipeline import Pipeline
from ..sources.source_reader import SourceReader, empty_rows
from ..state.connection import MEMORY, EngineSettings
from ..state.databases import OpenDatabase, one_at_a_time
from ..tasks import in_tasks
from .left_out import LeftOut
from .pull_answer import AnswerRelation
from .pull_limits import Deadline, PullLimits
from .scan_turns import scan_turns

MAX_BATCH_BYTES = 16 * 1024 * 1024
MAX_BATCH_ROWS = 500_000

TableRows = Callable[[Source], pa.Table]
"""The current rows of a table, as from `Materialization.rows`."""


class PullQuery:
    """Runs a plan once over what its sources contain when `answer` is called. `left_out`: the skipped records, without
    those of tables: the owner of a table's rows counts them."""

    def __init__(
        self,
        planned: PlannedBatch,
        client: LogClient,
        properties: Mapping[str, str],
        limits: PullLimits,
        open_database: OpenDatabase = one_at_a_time,
    ) -> None:
        self._planned = planned
        self._plan = planned.plan
        self._client = client
        self._limits = limits
        self.left_out = LeftOut(client, planned.plan.query_id)
        settings = EngineSettings.of(properties)
        if limits.memory:
            settings = replace(settings, memory_limit=limits.memory, shares=None)
        self._database = open_database(MEMORY, settings)
        self._connection = self._database.connection
        with self._database.closed_on_error():
            self._pipeline = Pipeline(
                self._plan,
                self._connection,
                partitioner=RekeyPartitioner(),
                emit="last",
                write_behind=True,
                interruptible=True,
            )
            self._answer = AnswerRelation(self._connection, self._pipeline.output_schema, keyed=planned.table)

    def answer(self, tables: TableRows, deadline: Deadline | None = None) -> pa.Table:
        """The rows of `planned.sql`. Call it only once. Raises `PullLimitExceeded`, `QueryError`."""
        with self._database, self._limits.watch(self._connection, deadline) as deadline:
            for source in self._plan.sources():
                if source.kind == "TABLE":
                    self._take_table(source, tables(source), deadline)
            self._take_streams([s for s in self._plan.sources() if s.kind == "STREAM"], deadline)
            self._answer.add(self._pipeline.of_nothing().rows)
            self._answer.settle()
            return self._limits.fetch(self._connection, self._planned.sql)

    def _take_table(self, source: Source, rows: pa.Table, deadline: Deadline) -> None:
        for begin in range(0, rows.num_rows, MAX_BATCH_ROWS):
            self._process({source.id: _as_changes(rows.slice(begin, MAX_BATCH_ROWS), source, begin)}, deadline)

    def _take_streams(self, sources: Sequence[Source], deadline: Deadline) -> None:
        """Processes what the streams contain now, merged by time. Scans take turns (`scan_turns.py`)."""
        if not sources:
            return
        begins, ends = self._bounds(sources)
        reader, turns = SourceReader(self._client, sources, begins), scan_turns()
        scan, turn = turns.begin(), contextlib.nullcontext[None]()
        while reader.has_more and not self._has_enough():
            with turn:
                try:
                    batch = reader.read(MAX_BATCH_BYTES, ends)
                except OffsetOutOfRange:
                    reader, batch = self._behind_retention(reader, sources), None
                if batch is not None:
                    self.left_out.note(batch.errors)
                    self._process(batch.inputs, deadline)
            turn = turns.turn(scan, deadline)

    def _behind_retention(self, reader: SourceReader, sources: Sequence[Source]) -> SourceReader:
        """A reader that goes on with the first records that are still there: retention has deleted some that this one
        has not read. Raises `OffsetOutOfRange` if it has not."""
        begins, _ = self._bounds(sources)
        behind = {at: max(position, begins[at]) for at, position in reader.positions.items()}
        if behind == reader.positions:
            raise OffsetOutOfRange(f"records of {', '.join(source.name for source in sources)} cannot be read")
        return SourceReader(self._client, sources, behind)

    def _has_enough(self) -> bool:
        return self._planned.enough is not None and self._answer.row_count >= self._planned.enough

    def _bounds(self, sources: Sequence[Source]) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """The first offset and the end of each partition."""
        begins: dict[TopicPartition, int] = {}
        ends: dict[TopicPartition, int] = {}
        for topic in dict.fromkeys(source.topic for source in sources):
            for partition in range(self._client.partition_count(topic)):
                bounds = self._client.offsets(topic, partition)
                begins[TopicPartition(topic, partition)] = bounds.log_start_offset
                ends[TopicPartition(topic, partition)] = bounds.last_stable_offset
        return begins, ends

    def _process(self, inputs: Mapping[str, ChangeBatch], deadline: Deadline) -> None:
        deadline.check()
        self._connection.execute("BEGIN")
        try:
            rows = self._pipeline.process(in_tasks(self._plan, inputs)).rows
            self._pipeline.take_changes()
            failures = self._pipeline.take_failures()
        except BaseException:
            with contextlib.suppress(duckdb.Error):
                self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")
        self.left_out.note(failures)
        self._answer.add(rows)


def _as_changes(rows: pa.Table, source: Source, first: int) -> ChangeBatch:
    """Rows of a table as one batch that adds each of them. `first`: the `_seq` of the first row."""
    count = rows.num_rows
    given: dict[str, pa.Array | pa.ChunkedArray] = {
        **{name: rows[name] for name in rows.column_names},
        "_seq": pa.array(np.arange(first, first + count, dtype=np.int64)),
        "_sub": pa.array(np.zeros(count, np.int32)),
        "_part": rows["_rowpartition"],
        "_weight": pa.array(np.ones(count, np.int8)),
        "_null": pa.array(np.zeros(count, np.bool_)),
    }
    shape = empty_rows(source).schema
    table = pa.table([given[field.name].cast(field.type) for field in shape], schema=shape)
    times = table["_ts"].to_numpy()
    parts = table["_part"].to_numpy()
    return ChangeBatch(table, {int(part): int(times[parts == part].max()) for part in np.unique(parts)})
