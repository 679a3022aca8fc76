"""The first stage: reads stretches of lanes, runs the stateless steps over them, and splits the rows by bucket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ...logcore.client import LogClient, TopicPartition
from ..batch import ChangeBatch
from ..operators.columns import Ints, ints, with_columns
from ..partitioning import RekeyPartitioner, split_by_partition
from ..pipeline import Pipeline
from ..queries.query import DATA_ERRORS
from ..record_error import RecordError
from ..sources.source_reader import ReadBatch, SourceReader
from ..sources.time_order import BEFORE_ALL, running_maximum
from ..state.connection import EngineSettings, lock, open_connection
from ..tasks import spread
from .lanes import LaneRange
from .pieces import ORDER, RECORD_HEADERS, Piece, PieceHead
from .stages import Chain, Stages

READ_BYTES = 16 * 1024 * 1024


class StageOne:
    """Runs the chains of a plan. Not for several threads at once."""

    def __init__(self, stages: Stages, log: LogClient) -> None:
        self._stages = stages
        self._log = log
        self._connection = open_connection(settings=EngineSettings(threads=1))
        self._pipelines = {
            chain.source.id: Pipeline(chain.plan, self._connection, partitioner=RekeyPartitioner())
            for chain in stages.chains
            if chain.plan is not None
        }
        lock(self._connection)

    def close(self) -> None:
        self._connection.close()

    def read(self, ranges: Sequence[LaneRange]) -> Iterator[tuple[int, Piece]]:
        """The pieces of these ranges, each with its bucket; a lane's in offset order. The log's errors pass through."""
        for lane_range in ranges:
            lane = lane_range.lane
            chains = [chain for chain in self._stages.chains if chain.source.topic == lane.topic]
            reader = SourceReader(
                self._log, [chain.source for chain in chains], {lane: lane_range.start}, time_order=False
            )
            lane_time = int(BEFORE_ALL)
            while reader.fetch_positions[lane] < lane_range.end:
                batch = reader.read(READ_BYTES, {lane: lane_range.end})
                if batch is not None:
                    split = self._split(chains, batch, lane, lane_time)
                    lane_time = max(lane_time, int(batch.times.max()))
                    yield from split.pieces(lane, batch.positions[lane])

    def _split(self, chains: Sequence[Chain], batch: ReadBatch, lane: TopicPartition, lane_time: int) -> _Split:
        split = _Split()
        home = split.bucket(self._stages.bucket_of(lane.partition))
        home.record_count, home.byte_count = batch.record_count, batch.byte_count
        home.errors = list(batch.errors)
        running = running_maximum(batch.times, lane_time)
        for chain in chains:
            read = spread(batch.inputs[chain.source.id], chain.source.task_count)
            order = running[batch.place(ints(read.rows, "_seq"))]
            changes, errors = self._run(chain, read, batch)
            home.errors += errors
            rows = _with_origin(changes.rows, read.rows, order, lane, batch)
            for task, time in changes.stream_time_ms.items():
                split.bucket(self._stages.bucket_of(task)).times.setdefault(chain.source.id, {})[task] = time
            if rows.num_rows:
                tasks = ints(rows, "_part").astype(np.int32) % self._stages.bucket_count
                for bucket, chosen in split_by_partition(tasks):
                    split.bucket(bucket).rows[chain.source.id] = rows if chosen is None else rows.take(chosen)
        return split

    def _run(self, chain: Chain, read: ChangeBatch, batch: ReadBatch) -> tuple[ChangeBatch, list[RecordError]]:
        """Where a record makes the rest fail, the halves are run, until it is alone."""
        pipeline = self._pipelines.get(chain.source.id)
        if pipeline is None:
            return read, []
        try:
            return pipeline.process({chain.source.id: read}), pipeline.take_failures()
        except DATA_ERRORS as error:
            if read.rows.num_rows <= 1:
                nothing = pipeline.process({chain.source.id: ChangeBatch(read.rows.slice(0, 0), read.stream_time_ms)})
                return nothing, [failed_record(batch, read.rows, error)]
            middle = read.rows.num_rows // 2
            first, errors = self._run(chain, ChangeBatch(read.rows.slice(0, middle), read.stream_time_ms), batch)
            second, more = self._run(chain, ChangeBatch(read.rows.slice(middle), read.stream_time_ms), batch)
            both = pa.concat_tables([first.rows, second.rows])
            return ChangeBatch(both, first.stream_time_ms), errors + more


@dataclass(slots=True)
class _Bucket:
    rows: dict[str, pa.Table] = field(default_factory=dict)
    times: dict[str, dict[int, int]] = field(default_factory=dict)
    record_count: int = 0
    byte_count: int = 0
    errors: list[RecordError] = field(default_factory=list)


@dataclass(slots=True)
class _Split:
    buckets: dict[int, _Bucket] = field(default_factory=dict)

    def bucket(self, number: int) -> _Bucket:
        return self.buckets.setdefault(number, _Bucket())

    def pieces(self, lane: TopicPartition, end: int) -> Iterator[tuple[int, Piece]]:
        for number, bucket in self.buckets.items():
            head = PieceHead(
                lane=lane,
                end=end,
                times=bucket.times,
                record_count=bucket.record_count,
                byte_count=bucket.byte_count,
                errors=tuple(bucket.errors),
            )
            yield number, Piece(head, bucket.rows)


def failed_record(batch: ReadBatch, rows: pa.Table, error: Exception) -> RecordError:
    """The entry for the processing log about the first of these input rows."""
    row = rows.slice(0, 1).to_pylist()[0]
    topic, partition, offset = batch.origin(row["_seq"])
    values: Mapping[str, object] = {name: value for name, value in row.items() if not name.startswith("_")}
    return RecordError(
        kind="compute",
        message=str(error),
        topic=topic,
        partition=partition,
        offset=offset,
        value=repr(values).encode(),
    )


def _with_origin(rows: pa.Table, read: pa.Table, order: Ints, lane: TopicPartition, batch: ReadBatch) -> pa.Table:
    """Adds to the rows what their records have: offset, partition, place in time, headers."""
    same = rows is read
    origin = slice(None) if same else np.searchsorted(ints(read, "_seq"), ints(rows, "_seq"))
    columns: dict[str, pa.Array] = {
        "_offset": pa.array(ints(read, "_offset")[origin]),
        "_rowpartition": pa.array(np.full(rows.num_rows, lane.partition, np.int32)),
        ORDER: pa.array(order[origin]),
    }
    if batch.headers is not None and rows.num_rows:
        columns[RECORD_HEADERS] = batch.headers.of(rows["_seq"].combine_chunks())
    return with_columns(rows, columns)
