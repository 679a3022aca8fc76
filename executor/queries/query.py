"""QueryRuntime: a persistent query that processes its input batch by batch, each exactly once.

One transaction of the log holds a batch's output, its state changes, the records it left out and its offsets. The local
state file follows the log (`state_commits.py`); if it cannot, it is replayed from the changelog (`recovery.py`). Under
load, four batches are in progress at once: one is read and decoded, one computed, one encoded, one written. They are
written in order, and a failure in one of them restarts all of them. `query_worker.py` handles pausing and retries.

Several threads share reading, decoding and encoding (`work_pool.py`). Two stages run on one thread each and limit what
more cores gain. The table shows their share of the processor time (eight partitions, every change emitted, profiled on
one core):

| stage       | why                                                    | filter | aggregate | stream-table join |
| ----------- | ------------------------------------------------------ | ------ | --------- | ----------------- |
| transaction | a producer numbers its records; commits have an order  | 17 %   | 20 %      | 17 %              |
| operators   | rows update one state in order (parallel: hashes,      | 1 %    | 12 %      | 12 %              |
|             | statements, finding new tasks)                         |        |           |                   |

So eight cores reach at most five to six times the rate of one. Commits of the state file run in parallel to all this
(`state_commits.py`). Sharding the state by key would parallelize the operators, at a cost: splitting 125,000 rows and
putting their results back in order takes 9 ms of processor time; all operators of the aggregate take 16 ms.

For a batch of one record, the cost is the number of Python calls: 2,000 for a filter, 3,000 for an aggregate; no single
call takes 3 %. In a filter, the transaction takes half of the processor time (commit a third, of which the syncs are a
tenth; markers, offsets and the decision are small steps of coordinators and replicas), reading a third (fetching and
decoding a tenth each), encoding a twelfth. The operators take little, because rows are filtered without a DuckDB
statement, which took a fifth of the total (`column_conditions.py`).
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import structlog

from millstream.errors import LogError

from ...logcore.client import ColumnarRecords, LogClient, RowRecords, TopicPartition
from ...logcore.failpoints import fp
from ...planner.physical import PhysicalPlan
from ...planner.steps.sink import Sink
from ...sql.functions.bounds import CallTooLarge
from .. import processing_log
from ..batch import ChangeBatch
from ..errors import TimestampFailed
from ..executor import QueryMetrics
from ..figures import Meters, PartitionTimes, QueryFigures
from ..inspection import StateSeen, inspected
from ..record_error import RecordError, left_out, located
from ..sink_writer import Output, SinkWriter
from ..sources.idle import IdleTime
from ..sources.shared_reading import SharedReading
from ..sources.source_reader import PARTITIONS_S, ReadBatch, SourceReader
from ..state.changelog import append_changes, changelog_records
from ..state.databases import OpenDatabase, alone
from ..state.lost_state import with_ends
from ..state.state_commits import Settlements
from ..state.store import StoreChanges
from ..tasks import in_tasks, moved_keys, needs_time_order, partitions_share_tasks
from ..work_pool import Work, work_pool
from .known_topics import KnownTopics
from .query_log import changelog_topic, offset_group
from .query_settings import QuerySettings
from .recovery import RecoveredQuery, TakeOver, recover
from .recovery_watch import RecoveryWatch

log = structlog.get_logger("millstream.queries")

MAX_BATCH_BYTES = 16 * 1024 * 1024
ALONE_BATCH_BYTES = 2 * MAX_BATCH_BYTES  # with half the calls per row: a sixth less CPU, a third less time with the GIL
READ_AHEAD_RECORDS = 2_000  # a smaller batch takes less time than waking another thread
OFFSETS_S = 2.0  # commit delay of offsets after batches without output: reading these again has no output either
WRITES = 2  # the most batches handed to other threads: one to encode, one to write

DATA_ERRORS = (duckdb.DataError, duckdb.InvalidInputException, ArithmeticError, ValueError, CallTooLarge)
"""Errors that a single record can cause; pyarrow's `ArrowInvalid` is a ValueError."""

SIZE_ERRORS = (MemoryError, duckdb.OutOfMemoryException, pa.ArrowCapacityError)
"""Errors that a smaller batch may avoid. pyarrow's `ArrowMemoryError` is a MemoryError."""

_BATCH_ERRORS = (*DATA_ERRORS, *SIZE_ERRORS, TimestampFailed)


class _BadBatch(Exception):
    """The batch failed because of its rows or their number, before anything was written."""

    def __init__(self, batch: ReadBatch, cause: Exception) -> None:
        super().__init__(str(cause))
        self.batch, self.cause = batch, cause


@dataclass(frozen=True, slots=True)
class _Changelog:
    """A batch's state changes, as records for the partitions of the changelog, and the number of rows."""

    records: Sequence[tuple[int, ColumnarRecords | RowRecords]] = ()
    row_count: int = 0


@dataclass(frozen=True, slots=True)
class _Computed:
    """The operators' result for a batch: the rows for the sink, the failures, and the state changes. `settlements`: if
    a commit of the state file is due, the changes to apply to it once the batch is written."""

    batch: ReadBatch
    changes: ChangeBatch
    failures: list[RecordError]
    state_changes: Sequence[StoreChanges]
    settlements: Settlements | None = None


class QueryRuntime:
    """Runs one plan whose root is a Sink. Not thread-safe.

    In: `state_directory`: the query's own directory; None keeps its state in memory. `properties`: the session's
    settings over the server's; the plan's own properties override both. `take_over`: acquires the transactional id of a
    query that may have run on another executor. `open_database`: opens the database for the state, unless the query
    needs its own. `shared`: reading shared with other queries. `watch`: of its recoveries, which it may end
    early with `RecoveryInterrupted`.
    """

    def __init__(
        self,
        plan: PhysicalPlan,
        client: LogClient,
        state_directory: Path | None,
        properties: Mapping[str, str] | None = None,
        *,
        clock: Callable[[], float] = time.time,
        take_over: TakeOver | None = None,
        open_database: OpenDatabase = alone,
        shared: SharedReading | None = None,
        watch: RecoveryWatch | None = None,
    ) -> None:
        assert isinstance(plan.root, Sink)
        self.plan = plan
        self.metrics = QueryMetrics()
        self._meters = Meters()
        self._times: dict[TopicPartition, PartitionTimes] = {}
        self._client = client
        self._state_directory = state_directory
        self._settings = QuerySettings.of({**(properties or {}), **plan.properties}, threads=1)
        self._clock = clock
        self._take_over = take_over
        self._open_database = open_database
        self._shared = shared
        self._watch = watch or RecoveryWatch()
        self._idle = IdleTime(self._settings.idle_ms, clock)
        self._sink = plan.root
        self._writer = SinkWriter(plan.root)
        self._ahead: Work[ReadBatch | None] | None = None
        self._writing: list[Work[None]] = []  # oldest first
        self._encoding = threading.Lock()  # only one thread may use the writer at a time
        self._max_records: int | None = None  # set while searching for the record that makes a batch fail
        self._recovered: RecoveredQuery | None = None
        self._topics = KnownTopics(client, plan)
        self._sink_id: uuid.UUID | None = None
        self._moved: dict[str, int] = {}
        self._partitions_due_s = 0.0
        self._passed: dict[TopicPartition, int] = {}  # from the committed offsets up to here, nothing is left to do
        self._gave_nothing_since_s = math.inf  # time of the first batch whose offsets are not yet committed
        self._changelog_count: int | None = None
        self._recover()

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """Where the next batch begins: the committed offsets, or later if the records after them had no output."""
        return {**self._positions, **self._passed}

    def lag(self) -> dict[TopicPartition, int]:
        """Records per source partition that are readable and not yet processed."""
        return {
            at: max(0, self._client.offsets(*at).last_stable_offset - offset) for at, offset in self.positions.items()
        }

    def figures(self, *, with_state: bool) -> QueryFigures:
        """The query's measurements. `with_state`: also measure its state; only on the query's own thread, or while that
        thread has no batch in progress."""
        if with_state and self._recovered is not None:
            self.rest()
        run = self._recovered if with_state else None
        state = None if run is None else StateSeen.of(run.pipeline)
        return inspected(self._meters, self._times, state, writing=bool(self._writing))

    @property
    def fetch_positions(self) -> dict[TopicPartition, int]:
        """The positions to wait for after `step` found nothing to read."""
        return self._reader.fetch_positions

    @property
    def moves_by_itself(self) -> bool:
        """Whether `step` may have work without new records, because time passes."""
        return self._settings.idle_ms > 0

    @property
    def has_more(self) -> bool:
        """Whether the last `step` saw that there is more to do."""
        under_way = self._ahead is not None or bool(self._writing) or self._recovered is None
        return under_way or self._reader.has_more

    @property
    def has_news(self) -> bool:
        """Whether the log has more than was fetched. This check is much cheaper than a fetch that returns nothing.
        Raises `PositionLost` if a topic was created again."""
        with self._topics.said():
            self._reader.check_topics()
        if self._has_new_partitions():
            return True
        try:
            fetched = self.fetch_positions.items()
            return any(self._client.offsets(*at).last_stable_offset > position for at, position in fetched)
        except LogError:  # `step` will raise the cause
            return True

    def step(self, max_bytes: int | None = None) -> bool:
        """Processes one batch; False if there was nothing to read. If more records are waiting, the batch may not be
        written yet on return; the next call then raises its errors.

        After an exception the next call first recovers from the log. Raises `ProducerFenced` when another runtime has
        taken over the query: this one must not continue. In: `max_bytes`: with None the query chooses, and takes less
        while other queries wait for their turn.
        """
        if max_bytes is None:
            max_bytes = MAX_BATCH_BYTES if work_pool().others_wait else ALONE_BATCH_BYTES
        self._ensure_recovered()
        with self._recovery_on_failure():
            if self._has_new_partitions():
                self._begin_anew()
            batch = self._next_batch(max_bytes)
            if batch is None:
                if not self._all_written():
                    return True
                self._pass_over()
                return self._process_idle()
            self._idle.came()
            self._process(batch, may_go_on=batch.more and self._is_large(batch))
            return True

    def _has_new_partitions(self) -> bool:
        """New partitions are not announced. Asking a remote log each time would cost as much as a fetch."""
        if time.monotonic() < self._partitions_due_s:
            return False
        found = self._reader.has_grown
        if not found:
            self._partitions_due_s = time.monotonic() + PARTITIONS_S
        return found

    def _begin_anew(self) -> None:
        """Restarts as after a stop, with all partitions that exist now."""
        self.rest()
        self._give_up()
        self._recover()

    def _process_idle(self) -> bool:
        """Advances stream time if no record has come for a long time and windows wait for it."""
        assert self._recovered is not None
        elapsed_ms = self._idle.take()
        if not elapsed_ms or not self._recovered.pipeline.waits_for_time:
            return False
        self._process(ReadBatch({}, {}, elapsed_ms=elapsed_ms))
        return True

    def _pass_over(self) -> None:
        """Skips offsets without records to read: markers and aborted transactions. They are not a batch of their own;
        otherwise each transaction in a source could cause two transactions of the query."""
        reached = self._reader.positions
        self._passed = {at: offset for at, offset in reached.items() if offset > self._positions.get(at, offset)}

    @property
    def rest_due_s(self) -> float:
        """An idle query need not call `rest` before this time (`time.monotonic`): it has little to write."""
        if self._recovered is None:
            return 0.0
        waits = not math.isinf(self._gave_nothing_since_s)
        return max(self._recovered.commits.due_s, self._gave_nothing_since_s + OFFSETS_S if waits else 0.0)

    def rest(self) -> None:
        """Returns once all computed batches are written, the committed offsets are where the next batch begins, and the
        local state has caught up with the log."""
        with self._recovery_on_failure():
            self._all_written()
            if self._recovered is not None:
                if self._passed:
                    self._commit_to_log(self._recovered, ReadBatch({}, self._passed), Output(), _Changelog(), ())
                self._recovered.commits.commit()

    def step_in_order(self, order: Sequence[TopicPartition]) -> bool:
        """Processes the next records of these partitions in exactly this order, as one batch."""
        self._ensure_recovered()
        with self._recovery_on_failure():
            batch = self._reader.read_in_order(order)
            if batch is None:
                return False
            self._process(batch)
            return True

    def close(self) -> None:
        """Releases the state file. Nothing is lost, and a later `step` continues."""
        try:
            self.rest()
        except Exception as error:  # the log has everything that is needed to recover
            log.warning("state not settled", query_id=self.plan.query_id, error=str(error))
        self._give_up()

    def _ensure_recovered(self) -> None:
        if self._recovered is None:
            self.metrics = replace(self.metrics, restarts=self.metrics.restarts + 1)
            self._recover()

    def _recover(self) -> None:
        self._topics.check()
        self._sink_id = self._client.topic_id(self._sink.topic)
        with self._watch.recovering():
            recovered = recover(
                self.plan,
                self._client,
                self._state_directory,
                self._settings,
                self._watch,
                self._meters,
                self._take_over,
                self._open_database,
            )
        try:
            self._reader = self._reader_from(recovered.positions)
        except BaseException as error:  # nothing else would close it, and an open state file cannot be opened again
            recovered.state.close(error)
            raise
        self._positions, self._passed = dict(recovered.positions), {}
        self._warn_of_moved_keys()
        self._partitions_due_s = time.monotonic() + PARTITIONS_S
        self._gave_nothing_since_s = math.inf
        self._recovered = recovered

    def _warn_of_moved_keys(self) -> None:
        """Warns once: a topic that has gained partitions does not lose them again."""
        moved, self._moved = self._moved, moved_keys(self.plan, self._positions)
        if self._moved and self._moved != moved:
            why = "keys with records from before and after have wrong results: write the records to a new topic"
            log.warning("keys have moved to other tasks", query_id=self.plan.query_id, partitions=self._moved, why=why)

    def _reader_from(self, positions: Mapping[TopicPartition, int]) -> SourceReader:
        in_time_order = needs_time_order(self.plan) or partitions_share_tasks(self.plan, positions)
        return SourceReader(self._client, self.plan.sources(), positions, time_order=in_time_order, shared=self._shared)

    @contextlib.contextmanager
    def _recovery_on_failure(self) -> Generator[None]:
        try:
            with self._topics.said():
                yield
        except BaseException as error:
            self._give_up(error)
            raise

    def _give_up(self, cause: BaseException | None = None) -> None:
        """Drops everything that is not in the log. Closing DuckDB rolls back what it has not committed."""
        if self._ahead is not None:
            self._ahead.drop()
        for writing in reversed(self._writing):  # the last one first: it must not see its predecessor dropped
            writing.drop()
        self._ahead, self._writing = None, []
        if self._recovered is not None:
            self._reader.close()
            self._recovered.commits.drop()
            self._recovered.state.close(cause)
            self._recovered = None

    def _next_batch(self, max_bytes: int) -> ReadBatch | None:
        if self._ahead is not None:
            batch = self._ahead.result()
            self._ahead = None
        else:
            batch = self._reader.read(max_bytes, max_records=self._max_records)
        if batch is not None and batch.more and self._is_large(batch):
            self._ahead = work_pool().begin(partial(self._reader.read, max_bytes))
        return batch

    def _is_large(self, batch: ReadBatch) -> bool:
        return batch.record_count >= READ_AHEAD_RECORDS and self._max_records is None

    def _process(self, batch: ReadBatch, *, may_go_on: bool = False) -> None:
        """`may_go_on`: the batch may be left to another thread to encode and write."""
        try:
            self._advance(batch, may_go_on=may_go_on)
        except _BadBatch as failure:
            self._isolate(failure.batch, failure.cause)

    def _advance(self, batch: ReadBatch, *, may_go_on: bool) -> None:
        """Raises `_BadBatch` for this batch or an earlier one; all batches before the bad one are then written."""
        assert self._recovered is not None
        run = self._recovered
        run.commits.begin()
        try:
            computed = self._compute(run, batch)
        except _BadBatch:
            self._finish()
            raise
        fp("query.processed")
        computed = replace(computed, settlements=run.commits.settle())
        before = self._writing[-1] if self._writing else None
        write = partial(self._write, run, computed, before, may_go_on=may_go_on)
        if may_go_on:
            self._finish(but=WRITES - 1)
            self._writing.append(work_pool().begin(write))
        else:
            write()
            self._finish()

    def _finish(self, but: int = 0) -> None:
        """Waits until at most `but` batches are still being written. Raises the error of a batch that failed."""
        while len(self._writing) > but:
            self._writing.pop(0).result()

    def _all_written(self) -> bool:
        """Waits until all batches are written; False if one was bad: the records after it are then read again."""
        try:
            self._finish()
        except _BadBatch as failure:
            self._isolate(failure.batch, failure.cause)
            return False
        return True

    def _write(self, run: RecoveredQuery, computed: _Computed, before: Work[None] | None, *, may_go_on: bool) -> None:
        """Encodes the batch, waits until `before` is written, then writes it or raises `_BadBatch`."""
        failure: _BadBatch | None = None
        output, changelog = Output(), _Changelog()
        try:
            output = self._encode(computed)
            changelog = self._changelog(computed.state_changes)
        except _BATCH_ERRORS as error:
            failure = _BadBatch(computed.batch, error)
        if before is not None:
            before.result()
        if failure is not None:
            raise failure from failure.cause
        applied = self._commit(run, computed.batch, output, changelog)
        run.commits.contain(applied, changelog.row_count, computed.settlements, may_go_on=may_go_on)

    def _encode(self, computed: _Computed) -> Output:
        with self._encoding:
            since = time.perf_counter_ns()
            output = self._writer.encode(computed.changes, computed.batch)
            self._settings.check_times(self.plan.query_id, output.errors)
            meter = self._meters.of((self._sink.id,))
            meter.count(computed.changes.rows.num_rows, output.record_count, output.byte_count, since)
        output.errors.extend(computed.failures)
        return output

    def _changelog(self, state_changes: Sequence[StoreChanges]) -> _Changelog:
        if not state_changes:
            return _Changelog()
        if self._changelog_count is None:  # asked once: if the count changed, keys would have to move
            self._changelog_count = self._client.partition_count(changelog_topic(self.plan.query_id))
        columnar = self._client.capabilities.columnar
        return _Changelog(
            changelog_records(state_changes, self._changelog_count, columnar=columnar),
            sum(change.rows.num_rows for change in state_changes),
        )

    def _commit(
        self, run: RecoveredQuery, batch: ReadBatch, output: Output, changelog: _Changelog
    ) -> Mapping[int, int]:
        """Commits the batch if it has output or its offsets are due. Out: as for `_commit_to_log`."""
        errors = [*batch.errors, *output.errors]
        applied: Mapping[int, int] = {}
        if output.records or changelog.records or errors or self._offsets_are_due():
            applied = self._commit_to_log(run, batch, output, changelog, errors)
            fp("query.before_store_commit")
        else:
            self._passed = {**self._passed, **batch.positions}
        self._count(batch, output.record_count, output.cause_count, left_out(errors))
        if self._max_records is not None:
            self._max_records = None if self._max_records > MAX_BATCH_BYTES // 100 else self._max_records * 2
        return applied

    def _offsets_are_due(self) -> bool:
        """A transaction costs more than the rest of a small batch. If a hundred queries each select a few records of a
        topic, each of them would write one transaction for every record."""
        now = time.monotonic()
        self._gave_nothing_since_s = min(self._gave_nothing_since_s, now)
        return now >= self._gave_nothing_since_s + OFFSETS_S

    def _compute(self, run: RecoveredQuery, batch: ReadBatch) -> _Computed:
        self._meters.of((self._sink.id,))  # created here: `_encode` may run on another thread
        self._meters.sample()
        try:
            self._settings.check_times(self.plan.query_id, batch.errors)
            if batch.elapsed_ms:
                changes = run.pipeline.process_idle(batch.elapsed_ms)
            else:
                changes = run.pipeline.process(in_tasks(self.plan, batch.inputs))
            return _Computed(
                batch, changes, located(run.pipeline.take_failures(), batch.origin), run.pipeline.take_changes()
            )
        except _BATCH_ERRORS as error:
            raise _BadBatch(batch, error) from error

    def _commit_to_log(
        self,
        run: RecoveredQuery,
        batch: ReadBatch,
        output: Output,
        changelog: _Changelog,
        errors: Sequence[RecordError],
    ) -> dict[int, int]:
        """Out: for each changelog partition written, the offset up to which it now contains the state."""
        self._topics.check_sink(self._sink_id)
        producer = run.producer
        producer.begin()
        for partition, records in output.records:
            producer.append(self._sink.topic, partition, records)
            fp("query.appended")
        applied = append_changes(self._client, producer, changelog_topic(self.plan.query_id), changelog.records)
        if errors:
            producer.append(
                processing_log.TOPIC, 0, processing_log.records_of(self.plan.query_id, errors, self._now_ms())
            )
        moved = {at: offset for at, offset in batch.positions.items() if self._positions.get(at) != offset}
        producer.send_offsets(offset_group(self.plan.query_id), with_ends(moved, self.plan.query_id, applied))
        producer.commit()
        self._positions.update(moved)
        self._passed = {}
        self._gave_nothing_since_s = math.inf
        return applied

    def _isolate(self, batch: ReadBatch, error: Exception) -> None:
        """Handles a record that makes the batch fail. Batches get smaller until the record is alone; then it goes to
        the processing log. An error for lack of memory is raised instead: there may be enough memory later. So is one
        that ends the query.

        Nothing was committed, so everything since the last commit is dropped and read again.
        """
        self._give_up()
        count = batch.record_count
        log.warning("batch failed", query_id=self.plan.query_id, records=count, error=str(error))
        self._ensure_recovered()
        if count > 1:
            self._max_records = max(1, count // 2)
            return
        if isinstance(error, (*SIZE_ERRORS, TimestampFailed)):
            raise error
        assert self._recovered is not None
        failure = self._failed_record(batch, error)
        self._commit_to_log(self._recovered, batch, Output(), _Changelog(), [*batch.errors, failure])
        self._reader.close()
        self._reader = self._reader_from(self._positions)
        self._count(batch, 0, 0, len(batch.errors) + 1)

    def _failed_record(self, batch: ReadBatch, error: Exception) -> RecordError:
        """In: a batch of one record."""
        rows = next((changes.rows for changes in batch.inputs.values() if changes.rows.num_rows), None)
        if rows is None:  # the record itself could not be decoded; what failed is a computation that it triggered
            return RecordError(kind="compute", message=str(error), topic="", partition=-1, offset=-1)
        row = rows.slice(0, 1).to_pylist()[0]
        topic, partition, offset = batch.origin(row["_seq"])
        return RecordError(
            kind="compute",
            message=str(error),
            topic=topic,
            partition=partition,
            offset=offset,
            value=repr({name: value for name, value in row.items() if not name.startswith("_")}).encode(),
        )

    def _count(self, batch: ReadBatch, out: int, used: int, failed: int) -> None:
        old = self.metrics
        self._note_times(batch)
        self.metrics = replace(
            old,
            rows_in=old.rows_in + batch.record_count,
            rows_used=old.rows_used + used,
            rows_failed=old.rows_failed + failed,
            rows_dropped=old.rows_dropped + batch.record_count - used - failed,
            rows_out=old.rows_out + out,
            bytes_in=old.bytes_in + batch.byte_count,
            batches=old.batches + 1,
        )

    def _note_times(self, batch: ReadBatch) -> None:
        now = self._now_ms()
        for source_id, changes in batch.inputs.items():
            for partition, time_ms in changes.stream_time_ms.items():
                at = TopicPartition(batch.topics[source_id], partition)
                before = self._times.get(at)
                self._times[at] = PartitionTimes(max(time_ms, before.largest_ms) if before else time_ms, now)

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)
