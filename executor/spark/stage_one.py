"""The first stage of a subplan: reads ranges of lanes, runs the stateless steps on the rows, and splits them by bucket.
Rows that another subplan wrote have already passed these steps, so they are only split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np
import pyarrow as pa

from ...logcore.client import LogClient, TopicPartition
from ...planner.steps.source import Source
from ..batch import KEYED, ChangeBatch
from ..figures import Meters, OperatorCounts
from ..operators.columns import Ints, ints, with_columns
from ..partitioning import RekeyPartitioner, split_by_partition
from ..pipeline import Pipeline
from ..queries.known_topics import digest_of
from ..queries.query import DATA_ERRORS, SIZE_ERRORS
from ..record_error import RecordError, located
from ..sources.same_topic import another_topic
from ..sources.source_reader import ReadBatch, SourceReader, times_only
from ..sources.time_order import BEFORE_ALL, running_maximum, tables_first
from ..state.connection import MEMORY, EngineSettings
from ..state.databases import of_this_process
from ..tasks import spread
from .lanes import LaneRange
from .pieces import ORDER, RECORD_HEADERS, Piece, PieceHead
from .repartition import read_rows
from .stages import Chain, Stages, Subplan, read_before

READ_BYTES = 16 * 1024 * 1024


class StageOne:
    """Runs the chains of a subplan. Not thread-safe."""

    def __init__(self, stages: Stages, subplan: Subplan, log: LogClient) -> None:
        self._stages = stages
        self._subplan = subplan
        self._log = log
        self._meters = Meters()
        self._database = of_this_process().open(MEMORY, EngineSettings(threads=1))
        self._connection = self._database.connection
        with self._database.closed_on_error():
            self._pipelines = {
                chain.source.id: Pipeline(
                    chain.plan, self._connection, partitioner=RekeyPartitioner(), meters=self._meters
                )
                for chain in subplan.chains
                if chain.plan is not None
            }

    def close(self) -> None:
        self._database.close()

    def read(self, ranges: Sequence[LaneRange], topics: Mapping[str, int]) -> Iterator[tuple[int, Piece]]:
        """The pieces of these ranges, each with its bucket; the pieces of a lane are in offset order. Use no piece
        before the iterator has ended: only its end proves that the pieces come from `topics`, the topics of the batch.
        Raises `PositionLost`, and the errors of the log."""
        for lane_range in ranges:
            if lane_range.lane.topic == self._stages.repartition_topic:
                yield from self._read_rows(lane_range)
            else:
                yield from self._read_topic(lane_range)
        for topic in {lane_range.lane.topic for lane_range in ranges} & topics.keys():
            id = topics[topic]
            # A recreated topic may have enough records for the ranges, so reading it raised nothing.
            if id and digest_of(self._log, topic) != id:
                raise another_topic(topic)

    def _read_rows(self, lane_range: LaneRange) -> Iterator[tuple[int, Piece]]:
        """Splits the rows that a bucket of another subplan wrote."""
        lane = lane_range.lane
        leaf = self._stages.subplan_of(lane.partition).name
        for rows, end in read_rows(self._log, lane_range):
            split = _Split()
            split.add(self._subplan, leaf, rows)
            yield from split.pieces(lane, end)

    def _read_topic(self, lane_range: LaneRange) -> Iterator[tuple[int, Piece]]:
        lane = lane_range.lane
        chains = [chain for chain in self._subplan.chains if chain.source.topic == lane.topic]
        before = read_before(self._stages, self._subplan, lane.topic)
        reader = self._reader([chain.source for chain in chains], lane_range)
        lane_time = int(BEFORE_ALL)
        for start, batch in self._batches(reader, lane_range):
            if batch is not None:
                if before:
                    batch = self._not_counted_again(batch, before, LaneRange(lane, start, batch.positions[lane]))
                split = self._split(chains, batch, lane, lane_time)
                lane_time = max(lane_time, int(batch.times.max()))
                yield from split.pieces(lane, batch.positions[lane])

    def _batches(self, reader: SourceReader, lane_range: LaneRange) -> Iterator[tuple[int, ReadBatch | None]]:
        """The batches up to the end of the range, each with its start offset. Raises `PositionLost` if the lane ends
        before the range does: the whole range existed when the batch was planned."""
        lane, end = lane_range.lane, lane_range.end
        while (start := reader.fetch_positions[lane]) < end:
            batch = reader.read(READ_BYTES, {lane: end})
            stands = batch is None and reader.fetch_positions[lane] == start
            if stands and self._log.offsets(*lane).last_stable_offset < end:
                raise another_topic(lane.topic)
            yield start, batch

    def _reader(self, sources: Sequence[Source], lane_range: LaneRange) -> SourceReader:
        """A reader of the sources. If several sources of the plan read one topic, the times of the first one set the
        order everywhere. So that source is added here, for its times only, if it is not among `sources`."""
        topic = lane_range.lane.topic
        (first, *_) = (each for each in tables_first(self._stages.plan.sources()) if each.topic == topic)
        if all(source.id != first.id for source in sources):
            sources = [times_only(first), *sources]
        return SourceReader(self._log, sources, {lane_range.lane: lane_range.start}, time_order=False, short=True)

    def _not_counted_again(self, batch: ReadBatch, before: Sequence[Source], lane_range: LaneRange) -> ReadBatch:
        """The batch without the counts and errors that the sources of another subplan report for the same records."""
        known: set[int] = set()
        if batch.errors:
            reader = self._reader(before, lane_range)
            for _, read in self._batches(reader, lane_range):
                known.update(error.offset for error in (read.errors if read is not None else ()))
        errors = [error for error in batch.errors if error.offset not in known]
        return replace(batch, errors=errors, record_count=0, byte_count=0)

    def _split(self, chains: Sequence[Chain], batch: ReadBatch, lane: TopicPartition, lane_time: int) -> _Split:
        split = _Split()
        errors = list(batch.errors)
        running = running_maximum(batch.times, lane_time)
        for chain in chains:
            read = spread(batch.inputs[chain.source.id], chain.source.task_count)
            order = running[batch.place(ints(read.rows, "_seq"))]
            changes, failed = self._run(chain, read, batch)
            errors += failed
            for task, time in changes.stream_time_ms.items():
                split.bucket(self._subplan.bucket_of(task)).times.setdefault(chain.source.id, {})[task] = time
            rows = _with_origin(changes.rows, read.rows, order, lane, batch)
            split.add(self._subplan, chain.source.id, rows)
        if batch.record_count or errors:
            home = split.bucket(self._subplan.bucket_of(lane.partition))
            home.record_count, home.byte_count, home.errors = batch.record_count, batch.byte_count, errors
        # The counts may go to any bucket, because they are added up. Without a bucket, the next batch reports them.
        for first in islice(split.buckets.values(), 1):
            first.operators = tuple(self._meters.take())
            times = [batch.inputs[chain.source.id].stream_time_ms for chain in chains]
            first.largest_ms = max((time for each in times for time in each.values()), default=None)
        return split

    def _run(self, chain: Chain, read: ChangeBatch, batch: ReadBatch) -> tuple[ChangeBatch, list[RecordError]]:
        """Runs the chain on the rows. If a record makes all rows fail, or memory is too small, it runs each half
        separately, down to a single row."""
        pipeline = self._pipelines.get(chain.source.id)
        if pipeline is None:
            return read, []
        try:
            return pipeline.process({chain.source.id: read}), located(pipeline.take_failures(), batch.origin)
        except (*DATA_ERRORS, *SIZE_ERRORS) as error:
            if read.rows.num_rows <= 1:
                if isinstance(error, SIZE_ERRORS):  # there may be enough memory later
                    raise
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
    operators: tuple[OperatorCounts, ...] = ()
    largest_ms: int | None = None


@dataclass(slots=True)
class _Split:
    buckets: dict[int, _Bucket] = field(default_factory=dict)

    def bucket(self, number: int) -> _Bucket:
        return self.buckets.setdefault(number, _Bucket())

    def add(self, subplan: Subplan, source_id: str, rows: pa.Table) -> None:
        """Puts each row into the bucket of its task."""
        if rows.num_rows:
            tasks = ints(rows, "_part").astype(np.int32) % subplan.bucket_count
            for part in split_by_partition(tasks):
                self.bucket(subplan.bucket_of(part.partition)).rows[source_id] = part.of(rows)

    def pieces(self, lane: TopicPartition, end: int) -> Iterator[tuple[int, Piece]]:
        for number, bucket in self.buckets.items():
            head = PieceHead(
                lane=lane,
                end=end,
                times=bucket.times,
                record_count=bucket.record_count,
                byte_count=bucket.byte_count,
                errors=tuple(bucket.errors),
                operators=bucket.operators,
                largest_ms=bucket.largest_ms,
            )
            yield number, Piece(head, bucket.rows)


def failed_record(batch: ReadBatch, rows: pa.Table, error: Exception) -> RecordError:
    """The processing log entry for the first of these input rows."""
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
    """Adds to each row the offset, partition, time order and headers of its record."""
    same = rows is read
    origin = slice(None) if same else np.searchsorted(ints(read, "_seq"), ints(rows, "_seq"))
    columns: dict[str, pa.Array] = {
        "_offset": pa.array(ints(read, "_offset")[origin]),
        "_rowpartition": pa.array(np.full(rows.num_rows, lane.partition, np.int32)),
        ORDER: pa.array(order[origin]),
    }
    if KEYED in read.column_names:
        columns[KEYED] = pa.array(read[KEYED].to_numpy()[origin])
    if batch.headers is not None and rows.num_rows:
        columns[RECORD_HEADERS] = batch.headers.of(rows["_seq"].combine_chunks())
    return with_columns(rows, columns)
