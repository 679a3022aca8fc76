"""A bucket of a query: it applies its share of a batch exactly once, in one transaction of the log.

The transaction contains outputs, state changes, errors and the marker. The state is a cache of the changelog. It is
valid if it has the token of the last marker; otherwise the bucket brings it up to date or rebuilds it.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import structlog

from ...logcore.client import ColumnarRecords, LogClient, RowRecords, TransactionalProducer
from ...logcore.errors import ProducerFenced
from ...logcore.failpoints import fp
from .. import processing_log
from ..batch import ChangeBatch
from ..figures import Meters, OperatorCounts
from ..inspection import StateSeen
from ..partitioning import RekeyPartitioner
from ..pipeline import Pipeline
from ..queries.query import DATA_ERRORS, SIZE_ERRORS
from ..queries.query_log import changelog_topic, marker_topic, take_id
from ..queries.query_settings import QuerySettings
from ..queries.recovery import replay_changelog
from ..queries.recovery_watch import RecoveryWatch
from ..record_error import RecordError, left_out, located
from ..sink_writer import SinkWriter
from ..state.changelog import changelog_records
from ..state.databases import alone, of_this_process
from ..state.lost_state import check_ends, whole_state
from ..state.state_file import StateFile, open_state
from ..state.store import StoreChanges
from .causes import behind_all, causes_of, with_causes
from .failing_records import first_failing, parts_of, record_count, rows_with, without
from .markers import NOTHING_SENT, BatchId, SentRange, StateMarker, check_run
from .merging import BucketBatch, merge
from .pieces import Piece
from .repartition import records_of
from .spark_figures import BucketFigures, StateLooks
from .stage_one import failed_record
from .stages import Stages

log = structlog.get_logger("millstream.queries")


def bucket_id(query_id: str, bucket: int) -> str:
    """The transactional id under which a bucket writes."""
    return f"{query_id}-{bucket}"


@dataclass(frozen=True, slots=True)
class Report:
    """What a bucket did with its share of a batch. The counts are those of `QueryMetrics`."""

    bucket: int
    rows_in: int = 0
    rows_used: int = 0
    rows_failed: int = 0
    rows_out: int = 0
    bytes_in: int = 0
    sent_start: int = 0  # the rows that it wrote to its partition of the repartition topic are between these offsets
    sent_end: int = 0
    figures: str = ""  # `BucketFigures` as JSON; empty if the bucket had already done its share
    home: str = ""  # the address of the process that has its state (`homes/`); empty without one


@dataclass(frozen=True, slots=True)
class _Output:
    """`records`: for the sink, by partition; or `rows`: for the repartition topic."""

    records: Sequence[tuple[int, RowRecords | ColumnarRecords]]
    rows: pa.Table | None
    record_count: int = 0
    cause_count: int = 0
    errors: list[RecordError] = field(default_factory=list)


class BucketRuntime:
    """Applies batches to one bucket. Not thread-safe.

    In: `cache_directory`: the query's folder for caches; None keeps the state in memory.
    """

    def __init__(
        self,
        stages: Stages,
        bucket: int,
        run: str,
        client: LogClient,
        properties: Mapping[str, str],
        cache_directory: Path | None = None,
    ) -> None:
        self.run = run
        self._stages = stages
        self._subplan = stages.subplan_of(bucket)
        self._bucket = bucket
        self._client = client
        own = {**properties, **stages.plan.properties}
        self._settings = QuerySettings.of(own, threads=1)  # Spark has given this task a core
        self._directory = None if cache_directory is None else cache_directory / f"bucket-{bucket}"
        self._query_id = stages.plan.query_id
        self._markers = marker_topic(self._query_id)
        self._changelog = changelog_topic(self._query_id)
        self._own_partitions = self._subplan.changelog_partitions(bucket)
        self._lane = None if self._subplan is stages.subplans[-1] else stages.lane_of(bucket)
        self._writer = SinkWriter(stages.sink)
        self._meters = Meters()
        self._looks = StateLooks()
        self._producer: TransactionalProducer | None = None
        self._marker: StateMarker | None = None
        self._state: StateFile | None = None
        self._pipeline: Pipeline | None = None

    def apply(self, pieces: Sequence[Piece], batch: BatchId) -> Report:
        """Does the bucket's share of the batch, unless it is already done. In: all pieces of the batch for this bucket;
        the pieces of a lane in offset order.

        After an exception either nothing or all of the share is done; the caller may call `apply` again. Raises
        `StaleRun`.
        """
        assert pieces
        try:
            producer = self._begin()
            assert self._marker is not None
            marker = self._marker
            if marker.batch.number >= batch.number:
                producer.abort()
                sent = marker.sent if marker.batch == batch else NOTHING_SENT
                return Report(self._bucket, sent_start=sent.start, sent_end=sent.end)
            after = replace(marker, batch=batch, sent=NOTHING_SENT, token=uuid.uuid4().hex, earlier=None)
            report, self._marker = self._apply(producer, merge(self._stages, self._subplan, pieces), after)
            return report
        except BaseException as error:
            self.close(error)
            raise

    def close(self, cause: BaseException | None = None) -> None:
        """Closes the cache. The bucket's next producer aborts an open transaction."""
        if self._state is not None:
            with contextlib.suppress(duckdb.Error):
                self._state.close(cause)
        self._state = self._pipeline = self._producer = self._marker = None

    # -------------------------------------------------------------- ownership

    def _begin(self) -> TransactionalProducer:
        """Begins a transaction, with the state as the last transaction left it."""
        if self._producer is not None:
            try:
                self._producer.begin()  # it is not fenced, so no other producer has written since
                return self._producer
            except ProducerFenced:
                pass
        producer = take_id(self._client, self._stages.plan, bucket_id(self._query_id, self._bucket))
        fp("spark.bucket_claimed")
        marker = check_run(self._client, self._markers, self._bucket, self.run)
        self._bring_up_to_date(producer, marker)
        self._producer, self._marker = producer, marker
        producer.begin()
        return producer

    def _bring_up_to_date(self, producer: TransactionalProducer, marker: StateMarker) -> None:
        known = self._marker.token if self._marker is not None else None
        if self._state is not None and known == marker.token:
            return
        with whole_state(self._query_id):
            ends = {
                partition: self._client.offsets(self._changelog, partition).last_stable_offset
                for partition in self._own_partitions
            }
        noted = marker.ends if self._subplan.stateful else {}  # the state of a plan that was replaced is not needed
        check_ends(self._query_id, noted, ends)
        if self._state is None:
            directory = self._directory if self._subplan.stateful else None
            plan, identity = self._stages.plan, marker.state
            settings = self._settings.engine
            database = of_this_process().open if directory is None else alone
            self._state = open_state(
                directory, plan, producer.epoch, ends, settings, identity=identity, open_database=database
            )
            self._pipeline = self._new_pipeline(self._state)
            self._state.lock()
        assert self._pipeline is not None
        replay_changelog(self._stages.plan, self._client, self._state, self._pipeline, ends, noted, RecoveryWatch())

    def _new_pipeline(self, state: StateFile) -> Pipeline:
        return Pipeline(
            self._subplan.rest,
            state.connection,
            emit=self._settings.emit,
            partitioner=RekeyPartitioner(),
            repartitioned=self._subplan.repartitioned,
            meters=self._meters,
            names_expired=not self._client.capabilities.columnar,
        )

    # -------------------------------------------------------------- one batch

    def _apply(
        self, producer: TransactionalProducer, batch: BucketBatch, after: StateMarker
    ) -> tuple[Report, StateMarker]:
        assert self._state is not None
        if self._subplan.stateful:
            self._state.connection.execute("BEGIN")
        output, changes, failed = self._compute(batch)
        fp("spark.bucket_processed")
        errors = [*batch.errors, *output.errors, *failed]
        self._settings.check_times(self._query_id, errors)
        seen = self._look()
        after = after if seen is None else replace(after, seen=seen)
        after, applied = self._write(producer, output, changes, errors, after)
        if self._subplan.stateful:
            self._state.commit(applied, sum(each.rows.num_rows for each in changes))
        fp("spark.bucket_done")
        report = Report(
            self._bucket,
            rows_in=batch.record_count,
            rows_used=output.cause_count,
            rows_failed=left_out(errors),
            rows_out=output.record_count,
            bytes_in=batch.byte_count,
            sent_start=after.sent.start,
            sent_end=after.sent.end,
            figures=BucketFigures([*batch.counted, *self._counted()], batch.largest_ms, seen).to_json(),
        )
        return report, after

    def _counted(self) -> list[OperatorCounts]:
        """The counts of its operators, without leaves whose rows another stage has already counted under the same
        ids."""
        elsewhere = self._subplan.counted_elsewhere
        return [counts for counts in self._meters.take() if counts.covers[-1] not in elsewhere]

    def _look(self) -> StateSeen | None:
        """What the state contains. None if the subplan has no state, or if looking now would take too much time."""
        if not self._subplan.stateful or not self._looks.is_due or self._pipeline is None:
            return None
        since = time.monotonic()
        seen = StateSeen.of(self._pipeline)
        self._looks.took(time.monotonic() - since)
        return seen

    def _write(
        self,
        producer: TransactionalProducer,
        output: _Output,
        changes: Sequence[StoreChanges],
        errors: Sequence[RecordError],
        after: StateMarker,
    ) -> tuple[StateMarker, dict[int, int]]:
        """Commits the transaction. Out: the marker in it, and for each changelog partition the offset up to which the
        state contains it."""
        for partition, records in output.records:
            producer.append(self._stages.sink.topic, partition, records)
        sent = self._send(producer, output.rows)
        applied: dict[int, int] = {}
        if changes:
            count = self._client.partition_count(self._changelog)
            columnar = self._client.capabilities.columnar
            for partition, records in changelog_records(changes, count, columnar=columnar):
                if partition not in applied:  # exact: nothing else writes this partition while the subplan runs
                    applied[partition] = self._client.offsets(self._changelog, partition).log_end_offset
                producer.append(self._changelog, partition, records)
                applied[partition] += records.row_count
        if errors:
            now_ms = int(time.time() * 1000)
            producer.append(processing_log.TOPIC, 0, processing_log.records_of(self._query_id, errors, now_ms))
        after = replace(after, sent=sent, ends={**after.ends, **applied})
        producer.append(self._markers, self._bucket, after.as_records())
        fp("spark.bucket_written")
        producer.commit()
        fp("spark.bucket_committed")
        return after, applied

    def _send(self, producer: TransactionalProducer, rows: pa.Table | None) -> SentRange:
        """Writes the rows for the next subplan. Out: their exact offsets: nothing else writes this partition."""
        if self._lane is None or rows is None or not rows.num_rows:
            return NOTHING_SENT
        start = self._client.offsets(*self._lane).log_end_offset
        end = start
        for records in records_of(rows, columnar=self._client.capabilities.columnar):
            producer.append(*self._lane, records)
            end += records.row_count
        return SentRange(start, end)

    def _compute(self, batch: BucketBatch) -> tuple[_Output, Sequence[StoreChanges], list[RecordError]]:
        """Runs the batch without the records that make it fail, and returns an error for each of them. If memory is too
        small, it runs the records in parts, and doubles the number of parts until they fit."""
        failed: list[RecordError] = []
        inputs, parts = batch.inputs, 1
        while True:
            try:
                return *self._run(inputs, batch, parts), failed
            except SIZE_ERRORS as error:
                if parts >= record_count(inputs):
                    raise
                self._start_again()
                parts *= 2
                self._log_failure("batch in parts", error)
            except DATA_ERRORS as error:
                self._log_failure("batch failed", error)
                self._start_again()
                sequence, cause = first_failing(inputs, error, partial(self._try, batch, parts))
                failed.append(failed_record(batch, rows_with(inputs, sequence), cause))
                inputs = without(inputs, sequence)

    def _log_failure(self, event: str, error: Exception) -> None:
        log.warning(event, query_id=self._query_id, bucket=self._bucket, error=str(error))

    def _run(
        self, inputs: Mapping[str, ChangeBatch], batch: BucketBatch, parts: int
    ) -> tuple[_Output, Sequence[StoreChanges]]:
        assert self._pipeline is not None
        outputs = [self._run_part(part, batch) for part in parts_of(inputs, parts)]
        return _joined(outputs), self._pipeline.take_changes()

    def _run_part(self, inputs: Mapping[str, ChangeBatch], batch: BucketBatch) -> _Output:
        assert self._pipeline is not None
        changes = self._pipeline.process(inputs)
        if self._lane is None:
            since = time.perf_counter_ns()
            encoded = self._writer.encode(changes, batch)
            meter = self._meters.of((self._stages.sink.id,))
            meter.count(changes.rows.num_rows, encoded.record_count, encoded.byte_count, since)
            output = _Output(encoded.records, None, encoded.record_count, encoded.cause_count, encoded.errors)
        else:
            output = _Output((), self._sent_rows(changes, batch))
        output.errors.extend(located(self._pipeline.take_failures(), batch.origin))
        return output

    def _sent_rows(self, changes: ChangeBatch, batch: BucketBatch) -> pa.Table:
        length, every_change = self._subplan.path_length, self._settings.emit == "every"
        if any(step.nets_batches(every_change) for step in self._subplan.rest.steps()):
            return behind_all(changes, length)
        return with_causes(changes, causes_of(batch.ordered, length), batch.headers)

    def _try(self, batch: BucketBatch, parts: int, inputs: Mapping[str, ChangeBatch]) -> None:
        """Raises one of DATA_ERRORS if the rows fail. The state does not change."""
        try:
            self._run(inputs, batch, parts)
        finally:
            self._start_again()

    def _start_again(self) -> None:
        """Restores the state from before the batch. The pipeline is replaced, because an error leaves its stores
        undefined."""
        assert self._state is not None
        if self._subplan.stateful:
            self._state.connection.execute("ROLLBACK")
            self._pipeline = self._new_pipeline(self._state)
            self._state.connection.execute("BEGIN")


def _joined(outputs: Sequence[_Output]) -> _Output:
    """Joins the outputs of the parts of a batch, in order."""
    if len(outputs) == 1:
        return outputs[0]
    tables = [output.rows for output in outputs if output.rows is not None]
    return _Output(
        records=[each for output in outputs for each in output.records],
        rows=pa.concat_tables(tables, promote_options="default") if tables else None,
        record_count=sum(output.record_count for output in outputs),
        cause_count=sum(output.cause_count for output in outputs),
        errors=[error for output in outputs for error in output.errors],
    )
