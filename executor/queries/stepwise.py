"""An executor that does nothing by itself: queries run when they are told to, in the caller's thread, in a fixed order.

The Sandbox stands on it. It uses the parts of the DuckDB executor (reader, pipeline, sink writer) and leaves out what
needs time or luck: threads, transactions, recovery. All partitions count as one task, so results do not depend on
how keys are spread.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import cast

import duckdb
import numpy as np
import pyarrow as pa

from millstream.errors import QueryError

from ...logcore.client import LogClient, RowRecords
from ...planner.catalog import PersistentQuery
from ...planner.physical import PhysicalPlan
from ...planner.planning import PlannedPush
from ...planner.steps.sink import Sink
from .. import processing_log
from ..answers.left_out import LeftOut
from ..batch import ChangeBatch
from ..columnar import ARROW
from ..errors import QueryFailed, UnknownQuery
from ..executor import QueryMetrics, QueryStatus
from ..figures import Meters, QueryFigures
from ..inspection import StateSeen, inspected
from ..partitioning import RekeyPartitioner, sink_partitions
from ..pipeline import Pipeline
from ..record_error import left_out, located
from ..sink_writer import Output, SinkWriter
from ..sources.arrivals import Ends, stops
from ..sources.journal import JournaledLog, RecordPlace
from ..sources.source_reader import ReadBatch, SourceReader
from ..state.connection import MEMORY
from ..state.databases import Database, of_this_process
from ..tasks import in_one_task, needs_time_order, spread
from ..updates import settle
from .query_log import forget_query, offset_group, start_positions
from .query_settings import QuerySettings
from .recovery_watch import RecoveryWatch
from .script_rounds import ScriptRounds
from .store_filling import StoreFilling

_READ_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Computed:
    """One batch of input, and what it gave."""

    changes: ChangeBatch
    batch: ReadBatch


class StepwisePlan:
    """One plan, and how far it has read. It begins where it has stopped, at first where `auto.offset.reset` says.

    In: `state`: the rows of its stores, as `kept_state` of the plan that it replaces gave them.
    """

    def __init__(
        self,
        plan: PhysicalPlan,
        log: JournaledLog,
        properties: Mapping[str, str],
        state: Mapping[str, pa.Table] | None = None,
    ) -> None:
        self.plan = in_one_task(plan)
        self._merges = needs_time_order(plan)  # else only what `consume` lists depends on the order of partitions
        self._state = dict(state or {})
        self._log = log
        self.settings = QuerySettings.of({**properties, **plan.properties})
        self._begin = start_positions(cast(LogClient, log), plan, self.settings.start)
        self._positions = dict(self._begin)  # after everything that `advance` has given out
        self._seen = 0  # entries of the journal
        self._seen_written = 0
        self._there: Ends | None = None  # up to where it catches up
        self._silent_ms = 0
        self._reader: SourceReader | None = None
        self._database: Database | None = None
        self._pipeline: Pipeline | None = None
        self._meters = Meters()
        self.catch_up()

    def figures(self) -> QueryFigures:
        """What it measures, and what lies in its state."""
        return inspected(self._meters, {}, StateSeen.of(self._open()[0]), writing=False)

    def advance(self, script_end: int | None = None) -> Iterator[Computed]:
        """Reads what has come since the last time: first what the script has inserted, then what queries have written.
        What was there when the query began comes before both, as to any query that catches up.

        In: `script_end`: of the script only what the journal's entries before that say.
        """
        lanes = list(self._positions)
        there, self._there = self._there, None
        if there is not None:
            yield from self._read_to(there)
        script = self._log.script(self._positions, self._seen, script_end)
        self._seen = max(self._seen, len(self._log.entries) if script_end is None else script_end)
        yield from self._read_in_order(script)
        ends = self._log.ends(lanes, script_end)
        if not self._merges:
            written = self._log.written(self._positions, self._seen_written)
            yield from self._read_in_order([place for place in written if place.offset < ends[place.at]])
        self._seen_written = self._seen
        yield from self._read_to(ends)

    def catch_up(self) -> None:
        """What is there now has not been waited for: it counts as one."""
        if self._merges:
            self._there = self._log.ends(self._positions)
            self._seen = len(self._log.entries)

    def kept_state(self) -> dict[str, pa.Table]:
        """The rows of its stores; what it was given and has not opened counts."""
        if self._pipeline is None:
            return self._state
        return {name: store.rows() for name, store in self._pipeline.stores.items()}

    def commit_positions(self) -> None:
        """Notes in the log how far it has read, for the query of this id that comes next."""
        self._log.commit_offsets(offset_group(self.plan.query_id), self._positions)

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = self._pipeline = None

    def _read_in_order(self, places: Sequence[RecordPlace]) -> Iterator[Computed]:
        for stop in stops(cast(LogClient, self._log), self.plan.sources(), self._positions, places):
            yield from self._read_to(stop)

    def _read_to(self, end: Ends) -> Iterator[Computed]:
        reader = self._reader
        if reader is None:
            reader = self._reader = SourceReader(cast(LogClient, self._log), self.plan.sources(), self._begin)
        before = None
        while before != reader.fetch_positions:
            before = reader.fetch_positions
            while (batch := reader.read(_READ_BYTES, end)) is not None:
                self._silent_ms = 0
                yield self._compute(batch)
        self._positions = {lane: max(offset, end[lane]) for lane, offset in self._positions.items()}

    def idle(self, elapsed_ms: int) -> Computed | None:
        """Nothing came for so long: what that gives, where the properties ask for it and windows wait for time."""
        wanted_ms = self.settings.idle_ms
        self._silent_ms += elapsed_ms
        if not wanted_ms or self._silent_ms < wanted_ms or not self._open()[0].waits_for_time:
            return None
        elapsed_ms, self._silent_ms = self._silent_ms, 0
        return self._compute(ReadBatch({}, {}, elapsed_ms=elapsed_ms))

    def _compute(self, batch: ReadBatch) -> Computed:
        if batch.errors and self.settings.stops_on_bad_record:
            raise QueryFailed(f"query {self.plan.query_id}: {batch.errors[0].message}")
        self.settings.check_times(self.plan.query_id, batch.errors)
        pipeline, connection = self._open()
        self._meters.sample()
        connection.execute("BEGIN")
        try:
            if batch.elapsed_ms:
                changes = pipeline.process_idle(batch.elapsed_ms)
            else:
                changes = pipeline.process({name: spread(rows, 1) for name, rows in batch.inputs.items()})
            pipeline.take_changes()
            failures = located(pipeline.take_failures(), batch.origin)
        except BaseException as error:
            with contextlib.suppress(duckdb.Error):
                connection.execute("ROLLBACK")
            if isinstance(error, duckdb.Error | pa.ArrowException | ArithmeticError | ValueError):
                raise QueryFailed(f"query {self.plan.query_id}: Exception caught in process: {error}") from error
            raise
        connection.execute("COMMIT")
        return Computed(changes, replace(batch, errors=[*batch.errors, *failures]))

    def _open(self) -> tuple[Pipeline, duckdb.DuckDBPyConnection]:
        if self._pipeline is not None and self._database is not None:
            return self._pipeline, self._database.connection
        database = of_this_process().open(MEMORY, self.settings.engine)
        with database.closed_on_error():
            pipeline = Pipeline(
                self.plan,
                database.connection,
                emit=self.settings.emit,
                partitioner=RekeyPartitioner(),
                meters=self._meters,
            )
            for store_id, rows in self._state.items():
                alive = pa.array(np.zeros(len(rows), np.bool_))
                pipeline.restore(store_id, rows.append_column("_deleted", alive))
            self._fill_new_stores(pipeline)
        self._database, self._pipeline = database, pipeline
        return pipeline, database.connection

    def _fill_new_stores(self, pipeline: Pipeline) -> None:
        log = cast(LogClient, self._log)
        filling = StoreFilling.of(log, self.plan)
        if filling is not None:
            for change in itertools.chain.from_iterable(filling.changes(log, self.settings.engine, RecoveryWatch())):
                pipeline.restore(change.store, change.rows)
            filling.note(log)


class StepwiseQuery:
    """A persistent query: a plan whose rows go to its sink."""

    def __init__(
        self,
        query: PersistentQuery,
        log: JournaledLog,
        properties: Mapping[str, str],
        state: Mapping[str, pa.Table] | None = None,
    ) -> None:
        assert isinstance(query.plan.root, Sink)
        self.paused = query.paused
        self.metrics = QueryMetrics()
        self._sink = query.plan.root
        self._log = log
        self._plan = StepwisePlan(query.plan, log, properties, state)
        self._writer: SinkWriter | None = None
        self._failure: QueryError | None = None  # its stores are undefined since then

    def figures(self) -> QueryFigures:
        return self._plan.figures()

    @property
    def plan(self) -> PhysicalPlan:
        return self._plan.plan

    def run(self, script_end: int) -> bool:
        """Processes what there is, see `StepwisePlan.advance`; False if there was nothing. Raises `QueryError`:
        the same one again in a query that has failed."""
        worked = False
        with self._unless_failed():
            for computed in self._plan.advance(script_end):
                worked = True
                self._write(computed)
        return worked

    def idle(self, elapsed_ms: int) -> None:
        with self._unless_failed():
            computed = self._plan.idle(elapsed_ms)
            if computed is not None:
                self._write(computed)

    def resume(self) -> None:
        if self.paused:
            self.paused = False
            self._plan.catch_up()

    def stop(self) -> dict[str, pa.Table]:
        """Ends it so that a query of the same id goes on where it was; gives its state."""
        state = self._plan.kept_state()
        self._plan.commit_positions()
        self.close()
        return state

    def close(self) -> None:
        self._plan.close()

    @contextlib.contextmanager
    def _unless_failed(self) -> Generator[None]:
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except QueryError as failure:
            self._failure = failure
            raise

    def _write(self, computed: Computed) -> None:
        output = self._open_writer().encode(computed.changes, computed.batch)
        unwritten = next((error for error in output.errors if error.kind == "encode"), None)
        if unwritten is not None:
            message = f"Exception caught in process: Unable to serialize record: {unwritten.message}"
            raise QueryFailed(f"query {self.plan.query_id}: {message}")
        self._plan.settings.check_times(self.plan.query_id, output.errors)
        for partition, records in output.records:
            if isinstance(records, RowRecords):
                self._append(pa.table(records.table))
            else:
                self._log.append(self._sink.topic, partition, records)
        errors = [*computed.batch.errors, *output.errors]
        if errors:
            processing_log.create_topic(cast(LogClient, self._log))
            records = processing_log.records_of(self._plan.plan.query_id, errors, 0)
            self._log.append(processing_log.TOPIC, 0, records)
        self._count(computed.batch.record_count, output, left_out(errors))

    def _open_writer(self) -> SinkWriter:
        """One partition, so that the rows stay in their order; `_append` spreads them. Columns are spread by it."""
        if self._writer is None:
            in_rows = self._sink.value_format.name != ARROW
            self._writer = SinkWriter(replace(self._sink, partition_count=1) if in_rows else self._sink)
        return self._writer

    def _append(self, table: pa.Table) -> None:
        """Appends the rows in their order, each to the partition of its key."""
        keys = table["key"].combine_chunks()
        tasks = pa.array(np.zeros(len(keys), np.int32))
        partitions = sink_partitions(keys, tasks, self._sink.partition_count, self._sink.key_window)
        borders = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(partitions)]
        for begin, end in pairwise(borders):
            self._log.append(self._sink.topic, int(partitions[begin]), RowRecords(table.slice(begin, end - begin)))

    def _count(self, record_count: int, output: Output, failed: int) -> None:
        old = self.metrics
        self.metrics = replace(
            old,
            rows_in=old.rows_in + record_count,
            rows_used=old.rows_used + output.cause_count,
            rows_failed=old.rows_failed + failed,
            rows_dropped=old.rows_dropped + record_count - output.cause_count - failed,
            rows_out=old.rows_out + output.record_count,
            batches=old.batches + 1,
        )


class StepwiseFeed:
    """A push query: iterate over it to get the rows that there are; it ends when nothing is left to read."""

    def __init__(self, planned: PlannedPush, log: JournaledLog, properties: Mapping[str, str]) -> None:
        self._plan = StepwisePlan(planned.plan, log, properties)
        self._left_out = LeftOut(cast(LogClient, log), planned.plan.query_id)

    @property
    def left_out(self) -> int:
        return self._left_out.count

    def __iter__(self) -> Iterator[pa.Table]:
        for computed in self._plan.advance():
            self._left_out.note(computed.batch.errors)
            if computed.changes.rows.num_rows:
                yield settle(computed.changes.rows)

    def close(self) -> None:
        self._plan.close()


class StepwiseExecutor:
    """Implements `Executor`, and `drain`."""

    def __init__(self, log: JournaledLog, properties: Mapping[str, str]) -> None:
        self._log = log
        self._properties = dict(properties)
        self._queries: dict[str, StepwiseQuery] = {}
        self._rounds = ScriptRounds(log)
        self._states: dict[str, dict[str, pa.Table]] = {}  # of stopped queries, by id

    def drain(self) -> None:
        """Runs every query until no input is left, in the order in which they were created. Raises `QueryError`."""
        running = [query for query in self._queries.values() if not query.paused]
        self._rounds.run([(query.plan, query.run) for query in running])

    def idle(self, elapsed_ms: int) -> None:
        """Lets time pass in which the sources of the queries bring nothing, after what they have brought."""
        self.drain()
        with self._log.queries_run():
            for query in [query for query in self._queries.values() if not query.paused]:
                query.idle(elapsed_ms)
        self.drain()

    def open_feed(self, planned: PlannedPush, properties: Mapping[str, str]) -> StepwiseFeed:
        """Starts a push query."""
        return StepwiseFeed(planned, self._log, {**self._properties, **properties})

    def start(self, query: PersistentQuery) -> None:
        if query.id not in self._queries:
            state = self._states.pop(query.id, None)
            self._queries[query.id] = StepwiseQuery(query, self._log, self._properties, state)

    def stop(self, query_id: str) -> None:
        found = self._queries.pop(query_id, None)
        if found is not None:
            self._states[query_id] = found.stop()

    def drop(self, query_id: str) -> None:
        self.stop(query_id)
        self._states.pop(query_id, None)
        forget_query(cast(LogClient, self._log), query_id)

    def pause(self, query_id: str) -> None:
        self._query(query_id).paused = True

    def resume(self, query_id: str) -> None:
        self._query(query_id).resume()

    def status(self, query_id: str) -> QueryStatus:
        query = self._query(query_id)
        return QueryStatus(query_id, "PAUSED" if query.paused else "RUNNING", query.metrics, executor="duckdb")

    def figures(self, query_id: str) -> QueryFigures | None:
        return self._query(query_id).figures()

    def close(self) -> None:
        for query in self._queries.values():
            query.close()
        self._queries.clear()

    def _query(self, query_id: str) -> StepwiseQuery:
        found = self._queries.get(query_id)
        if found is None:
            raise UnknownQuery(f"query {query_id} does not run here", hint="SHOW QUERIES lists the queries.")
        return found
