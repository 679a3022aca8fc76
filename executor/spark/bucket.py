"""A bucket of a query: it applies its share of a batch, once, in one transaction of the log.

The transaction holds outputs, state changes, errors and the marker. The state is a cache of the changelog: it is right
under the token of the last marker, and else it is brought up to date, or made anew.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import structlog

from ...logcore.client import LogClient, TransactionalProducer
from ...logcore.errors import ProducerFenced
from ...logcore.failpoints import fp
from .. import processing_log
from ..batch import ChangeBatch
from ..partitioning import RekeyPartitioner
from ..pipeline import Pipeline
from ..queries.query import DATA_ERRORS
from ..queries.query_log import changelog_topic, marker_topic
from ..queries.query_settings import QuerySettings
from ..queries.recovery import replay_changelog
from ..record_error import RecordError, left_out
from ..sink_writer import Output, SinkWriter
from ..sources.source_reader import ReadBatch
from ..state.changelog import changelog_records
from ..state.connection import lock
from ..state.lost_state import check_ends, whole_state
from ..state.state_file import StateFile, open_state
from ..state.store import StoreChanges
from .lanes import Positions
from .markers import StateMarker, check_run
from .merging import merge
from .pieces import Piece
from .stage_one import failed_record
from .stages import Stages

log = structlog.get_logger()


def bucket_id(query_id: str, bucket: int) -> str:
    """The transactional id under which a bucket writes."""
    return f"{query_id}-{bucket}"


@dataclass(frozen=True, slots=True)
class Report:
    """What a bucket did with its share of a batch, as `QueryMetrics` counts."""

    bucket: int
    rows_in: int = 0
    rows_used: int = 0
    rows_failed: int = 0
    rows_out: int = 0
    bytes_in: int = 0


class BucketRuntime:
    """Applies batches to one bucket. Not for several threads at once.

    In: `cache_directory`: of the query; None keeps the state in memory.
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
        self._bucket = bucket
        self._client = client
        own = {**properties, **stages.plan.properties}
        self._settings = QuerySettings.of(own, threads=1)  # Spark has given this task a core
        self._directory = None if cache_directory is None else cache_directory / f"bucket-{bucket}"
        self._query_id = stages.plan.query_id
        self._markers = marker_topic(self._query_id)
        self._changelog = changelog_topic(self._query_id)
        self._own_partitions = stages.changelog_partitions(bucket)
        self._writer = SinkWriter(stages.sink)
        self._producer: TransactionalProducer | None = None
        self._marker: StateMarker | None = None
        self._state: StateFile | None = None
        self._pipeline: Pipeline | None = None

    def apply(self, pieces: Sequence[Piece], ends: Positions) -> Report:
        """Does what of the pieces has not been done. In: all pieces of a batch for this bucket, a lane's in order;
        `ends`: where the batch ends, in every lane.

        After an exception nothing of the batch is done, or all of it; `apply` may be called again. Raises `StaleRun`.
        """
        assert pieces
        try:
            producer = self._begin()
            assert self._marker is not None
            marker = self._marker
            if all(marker.positions.get(lane, 0) >= end for lane, end in ends.items()):
                producer.abort()
                return Report(self._bucket)
            batch = merge(self._stages, pieces, ends, marker.positions)
            positions = {**marker.positions, **{k: max(end, marker.positions.get(k, 0)) for k, end in ends.items()}}
            after = replace(marker, positions=positions, token=uuid.uuid4().hex)
            report, self._marker = self._apply(producer, batch, after)
            return report
        except BaseException as error:
            self.close(error)
            raise

    def close(self, cause: BaseException | None = None) -> None:
        """Lets go of the cache. A transaction that is open is aborted by the bucket's next producer."""
        if self._state is not None:
            with contextlib.suppress(duckdb.Error):
                self._state.close(cause)
        self._state = self._pipeline = self._producer = self._marker = None

    # -------------------------------------------------------------- ownership

    def _begin(self) -> TransactionalProducer:
        """An open transaction, with the state as the last one left it."""
        if self._producer is not None:
            try:
                self._producer.begin()  # whoever is not fenced knows that nobody else has written since
                return self._producer
            except ProducerFenced:
                pass
        producer = self._client.transactional_producer(bucket_id(self._query_id, self._bucket))
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
        check_ends(self._query_id, marker.ends, ends)
        if self._state is None:
            directory = self._directory if self._stages.stateful else None
            plan, identity = self._stages.plan, marker.state
            settings = self._settings.engine
            self._state = open_state(directory, plan, producer.epoch, ends, settings, identity=identity)
            self._pipeline = self._new_pipeline(self._state)
            lock(self._state.connection)
        assert self._pipeline is not None
        replay_changelog(self._stages.plan, self._client, self._state, self._pipeline, ends, marker.ends)

    def _new_pipeline(self, state: StateFile) -> Pipeline:
        return Pipeline(
            self._stages.rest,
            state.connection,
            emit=self._settings.emit,
            partitioner=RekeyPartitioner(),
            repartitioned=self._stages.repartitioned,
        )

    # -------------------------------------------------------------- one batch

    def _apply(
        self, producer: TransactionalProducer, batch: ReadBatch, after: StateMarker
    ) -> tuple[Report, StateMarker]:
        assert self._state is not None
        if self._stages.stateful:
            self._state.connection.execute("BEGIN")
        output, changes, failed = self._compute(batch)
        fp("spark.bucket_processed")
        errors = [*batch.errors, *output.errors, *failed]
        after, applied = self._write(producer, output, changes, errors, after)
        if self._stages.stateful:
            self._state.commit(applied)
        fp("spark.bucket_done")
        report = Report(
            self._bucket,
            rows_in=batch.record_count,
            rows_used=output.cause_count,
            rows_failed=left_out(errors),
            rows_out=output.record_count,
            bytes_in=batch.byte_count,
        )
        return report, after

    def _write(
        self,
        producer: TransactionalProducer,
        output: Output,
        changes: Sequence[StoreChanges],
        errors: Sequence[RecordError],
        after: StateMarker,
    ) -> tuple[StateMarker, dict[int, int]]:
        """Commits the transaction. Out: the marker in it, and the offset in each changelog partition up to which the
        state is contained."""
        for partition, records in output.records:
            producer.append(self._stages.sink.topic, partition, records)
        applied: dict[int, int] = {}
        if changes:
            count = self._client.partition_count(self._changelog)
            for partition, records in changelog_records(changes, count):
                if partition not in applied:  # exact: nobody else writes this partition
                    applied[partition] = self._client.offsets(self._changelog, partition).log_end_offset
                producer.append(self._changelog, partition, records)
                applied[partition] += records.batch.num_rows
        if errors:
            now_ms = int(time.time() * 1000)
            producer.append(processing_log.TOPIC, 0, processing_log.records_of(self._query_id, errors, now_ms))
        after = replace(after, ends={**after.ends, **applied})
        producer.append(self._markers, self._bucket, after.as_records())
        fp("spark.bucket_written")
        producer.commit()
        fp("spark.bucket_committed")
        return after, applied

    def _compute(self, batch: ReadBatch) -> tuple[Output, Sequence[StoreChanges], list[RecordError]]:
        """Leaves out the records that make the rest fail, and says which."""
        failed: list[RecordError] = []
        inputs = batch.inputs
        while True:
            try:
                return *self._run(inputs, batch), failed
            except DATA_ERRORS as error:
                log.warning("batch failed", query_id=self._query_id, bucket=self._bucket, error=str(error))
                self._start_again()
                sequence, cause = self._first_failing(inputs, batch, error)
                failed.append(failed_record(batch, _rows_with(inputs, sequence), cause))
                inputs = _without(inputs, sequence)

    def _run(self, inputs: Mapping[str, ChangeBatch], batch: ReadBatch) -> tuple[Output, Sequence[StoreChanges]]:
        assert self._pipeline is not None
        changes = self._pipeline.process(inputs)
        output = self._writer.encode(changes, batch)
        output.errors.extend(self._pipeline.take_failures())
        return output, self._pipeline.take_changes()

    def _first_failing(
        self, inputs: Mapping[str, ChangeBatch], batch: ReadBatch, error: Exception
    ) -> tuple[int, Exception]:
        """The number of the first record with which the batch fails, and why."""
        numbers = np.unique(np.concatenate([changes.rows["_seq"].to_numpy() for changes in inputs.values()]))
        if not len(numbers):
            raise error
        good, bad = 0, len(numbers)  # so many of the first records do, or do not, pass
        while bad - good > 1:
            middle = (good + bad) // 2
            try:
                self._run(_up_to(inputs, int(numbers[middle - 1])), batch)
                good = middle
            except DATA_ERRORS as found:
                bad, error = middle, found
            self._start_again()
        return int(numbers[bad - 1]), error

    def _start_again(self) -> None:
        """The state as it was before the batch. An error leaves the pipeline's stores undefined."""
        assert self._state is not None
        if self._stages.stateful:
            self._state.connection.execute("ROLLBACK")
            self._pipeline = self._new_pipeline(self._state)
            self._state.connection.execute("BEGIN")


def _up_to(inputs: Mapping[str, ChangeBatch], sequence: int) -> dict[str, ChangeBatch]:
    return {
        name: ChangeBatch(
            changes.rows.filter(pa.array(changes.rows["_seq"].to_numpy() <= sequence)), changes.stream_time_ms
        )
        for name, changes in inputs.items()
    }


def _without(inputs: Mapping[str, ChangeBatch], sequence: int) -> dict[str, ChangeBatch]:
    return {
        name: ChangeBatch(
            changes.rows.filter(pa.array(changes.rows["_seq"].to_numpy() != sequence)), changes.stream_time_ms
        )
        for name, changes in inputs.items()
    }


def _rows_with(inputs: Mapping[str, ChangeBatch], sequence: int) -> pa.Table:
    tables = [changes.rows.filter(pa.array(changes.rows["_seq"].to_numpy() == sequence)) for changes in inputs.values()]
    return next(table for table in tables if table.num_rows)
