"""The readers that Spark calls: of existing rows, and of new rows."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from millstream.errors import InvalidProperty
from millstream.executor.errors import PositionLost, QueryFailed
from millstream.executor.spark.batch_ends import shares
from millstream.executor.spark.lanes import LaneRange
from millstream.logcore.client import TopicPartition
from millstream.logcore.errors import OffsetOutOfRange

from .offset_ranges import Offsets, check_topic, offsets_at, parts_between, topic_bounds, without_lost
from .pushed_filters import filtered, usable
from .row_kinds import RowKind, reached_log
from .source_options import SourceOptions

ANSWER_ROWS: Final = 50_000  # in one Arrow batch


@dataclass
class TopicPart(InputPartition):
    """The input of one task."""

    part: LaneRange


@dataclass(frozen=True)
class ReadParts:
    """The work of a task. `schema`: the data frame's, in Arrow."""

    kind: RowKind
    options: SourceOptions
    schema: pa.Schema
    filters: Sequence[Any] = ()

    def rows(self, part: LaneRange) -> Iterator[pa.RecordBatch]:
        with reached_log(self.kind.bootstrap) as log:
            check_topic(log, self.kind)
            try:
                for table in self.kind.read(log, part):
                    yield from filtered(self._shown(table), self.filters).to_batches(max_chunksize=ANSWER_ROWS)
            except OffsetOutOfRange as error:
                lane = part.lane
                raise PositionLost(
                    f"partition {lane.partition} of the topic {lane.topic} lost records while the job read them: "
                    f"{error.message}",
                    hint="Run the job again, from a later offset; or have the topic keep its records longer.",
                ) from error
            check_topic(log, self.kind)

    def _shown(self, table: pa.Table) -> pa.Table:
        try:
            return table.select(self.schema.names).cast(self.schema)
        except pa.ArrowInvalid as error:
            raise QueryFailed(
                f"a value does not fit Spark's type of its column: {error}",
                hint="Leave the column out (option columns), or read it as text: CAST(column AS STRING) AS column.",
            ) from error


class BatchReader(DataSourceReader):
    """Reads the rows that exist when the job is planned."""

    def __init__(self, parts: ReadParts) -> None:
        self.parts = parts

    def partitions(self) -> Sequence[InputPartition]:
        kind, options = self.parts.kind, self.parts.options
        with reached_log(kind.bootstrap) as log:
            bounds = topic_bounds(log, kind)
            start, end = (offsets_at(log, place, bounds) for place in (options.starting, options.ending))
        start = without_lost(start, bounds, fail=options.fail_on_data_loss)
        parts_min = 0 if kind.whole_partitions else options.min_partitions
        return [TopicPart(part) for part in parts_between(kind.topic, start, end, parts_min)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TopicPart)
        return self.parts.rows(partition.part)


class FilteringBatchReader(BatchReader):
    """The same with Spark's filters. Spark refuses readers with filters if its settings disable them."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Returns all filters, because Spark checks them, too."""
        chosen = usable(filters, self.parts.schema)
        self.parts = ReadParts(self.parts.kind, self.parts.options, self.parts.schema, chosen)
        return filters


def batch_reader(parts: ReadParts) -> BatchReader:
    """The reader for the calling Spark process: the process that pushes filters down runs a separate module."""
    module = "pyspark.sql.worker.data_source_pushdown_filters"
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    pushes = module in sys.modules or (main is not None and main.name == module)
    return (FilteringBatchReader if pushes else BatchReader)(parts)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the topic. Spark stores the offsets in the query's checkpoint: `topic`, `id` (of the topic) and `offsets`
    by partition. State: `_until`: the end, if the query has to end there."""

    def __init__(self, parts: ReadParts) -> None:
        self._parts = parts
        self._until: Offsets | None = None

    def initialOffset(self) -> dict[str, Any]:
        kind, options = self._parts.kind, self._parts.options
        with reached_log(kind.bootstrap) as log:
            bounds = topic_bounds(log, kind)
            start = offsets_at(log, options.starting, bounds)
        return self._told(without_lost(start, bounds, fail=options.fail_on_data_loss))

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._parts.options.offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = self._ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = self._heard(start)
        ends = self._ends() if self._until is None else self._until
        if isinstance(limit, ReadMaxRows):
            waiting = {
                TopicPartition(self._parts.kind.topic, number): max(0, end - begin.get(number, 0))
                for number, end in ends.items()
            }
            most = shares(waiting, limit.max_rows)
            ends = {at.partition: begin.get(at.partition, 0) + most[at] for at in waiting}
        return self._told({**begin, **{number: max(end, begin.get(number, 0)) for number, end in ends.items()}})

    def reportLatestOffset(self) -> dict[str, Any]:
        return self._told(self._ends())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """A partition that was added to the topic meanwhile is read from its beginning."""
        begin, until = self._heard(start), self._heard(end)
        kind, options = self._parts.kind, self._parts.options
        with reached_log(kind.bootstrap) as log:
            bounds = topic_bounds(log, kind)
        read = {number: offset for number, offset in begin.items() if until[number] > offset}
        known = without_lost(read, bounds, fail=options.fail_on_data_loss)
        starts = {number: known.get(number, begin.get(number, bounds.starts.get(number, 0))) for number in until}
        parts = parts_between(kind.topic, starts, until, options.min_partitions)
        return [TopicPart(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TopicPart)
        return self._parts.rows(partition.part)

    def _ends(self) -> Offsets:
        with reached_log(self._parts.kind.bootstrap) as log:
            return topic_bounds(log, self._parts.kind).ends

    def _told(self, offsets: Offsets) -> dict[str, Any]:
        """Partitions in order, because Spark compares the text."""
        kind = self._parts.kind
        listed = {str(number): offset for number, offset in sorted(offsets.items())}
        return {"topic": kind.topic, "id": kind.topic_id, "offsets": listed}

    def _heard(self, told: dict[str, Any]) -> Offsets:
        """Raises `PositionLost` for a checkpoint of another topic."""
        kind = self._parts.kind
        if (told.get("topic"), told.get("id")) != (kind.topic, kind.topic_id):
            raise PositionLost(
                f"the checkpoint is about the topic {told.get('topic')}, id {told.get('id')}, but the stream or table "
                f"is on the topic {kind.topic}, id {kind.topic_id}: it was created anew, or the query reads another",
                hint="Start the query anew, with another checkpointLocation.",
            )
        return {int(number): offset for number, offset in told["offsets"].items()}


def stream_reader(parts: ReadParts) -> TopicStreamReader:
    """Raises `InvalidProperty` if there are no changes to follow."""
    options = parts.options
    if parts.kind.whole_partitions:
        raise InvalidProperty(
            f"{options.name} is a table: what can be followed is its changes",
            hint='Add .option("changes", "true"): a row per change; ROWDELETED marks deletions.',
        )
    if options.positions_given in ("endingOffsets", "endingTimestamp"):
        raise InvalidProperty(
            f"a stream has no end, and {options.positions_given} is given",
            hint="Leave it out; with .trigger(availableNow=True) the query ends at what is there at its start.",
        )
    return TopicStreamReader(parts)
