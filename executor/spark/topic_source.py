"""`spark.read.format("millstream")`: a topic of the log as rows, in batch and as a stream, for use on its own.

    spark.dataSource.register(TopicSource)
    spark.read.format("millstream").option("bootstrap", "127.0.0.1:9092").option("topic", "clicks").load()

Options: `bootstrap` (HOST:PORT), `topic`, and `startingOffsets`: `earliest` (default) or `latest`. A topic in row form
has the columns of TOPIC_SCHEMA; one in columnar form has its own columns, then `_partition` and `_offset`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from millstream.errors import InvalidProperty

from ...logcore.client import HEADERS, FetchedColumns, FetchedRows, LogClient, TopicPartition
from ...logcore.remote import log_at
from .lanes import LaneRange, Positions, positions_from_json, positions_to_json, ranges_between

TOPIC_SCHEMA = (
    "partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


class TopicSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        return "millstream"

    def schema(self) -> str | StructType:
        topic = self._topic
        with log_at(self._bootstrap) as log:
            for partition in range(log.partition_count(topic)):
                found = log.fetch(topic, partition, log.offsets(topic, partition).log_start_offset, max_bytes=1).runs
                if found and isinstance(found[0], FetchedColumns):
                    return from_arrow_schema(_with_place(found[0].batch.schema))
                if found:
                    break
        return TOPIC_SCHEMA

    def reader(self, schema: StructType) -> TopicReader:
        return TopicReader(self._bootstrap, self._topic, self._from_latest, to_arrow_schema(schema, timezone="UTC"))

    def streamReader(self, schema: StructType) -> TopicStreamReader:
        return TopicStreamReader(
            self._bootstrap, self._topic, self._from_latest, to_arrow_schema(schema, timezone="UTC")
        )

    @property
    def _bootstrap(self) -> str:
        return self._option("bootstrap", "127.0.0.1:9092")

    @property
    def _topic(self) -> str:
        return self._option("topic", None)

    @property
    def _from_latest(self) -> bool:
        found = self._option("startingOffsets", "earliest").lower()
        if found not in ("earliest", "latest"):
            raise InvalidProperty(f"startingOffsets is {found!r}", hint="Set it to earliest or latest.")
        return found == "latest"

    def _option(self, name: str, default: str | None) -> str:
        found = self.options.get(name, default)
        if found is None:
            raise InvalidProperty(f"the option {name} is missing", hint=f'Add .option("{name}", …).')
        return found


@dataclass
class TopicRange(InputPartition):
    """What one task reads."""

    range: LaneRange


@dataclass(frozen=True)
class _Topic:
    """What both readers do."""

    bootstrap: str
    topic: str
    from_latest: bool
    schema: pa.Schema

    def begin(self, log: LogClient) -> Positions:
        return self._bounds(log, at_end=self.from_latest)

    def end(self, log: LogClient) -> Positions:
        return self._bounds(log, at_end=True)

    def _bounds(self, log: LogClient, *, at_end: bool) -> Positions:
        found: Positions = {}
        for partition in range(log.partition_count(self.topic)):
            bounds = log.offsets(self.topic, partition)
            at = TopicPartition(self.topic, partition)
            found[at] = bounds.last_stable_offset if at_end else bounds.log_start_offset
        return found

    def rows(self, lane_range: LaneRange) -> Iterator[pa.RecordBatch]:
        lane, position = lane_range.lane, lane_range.start
        with log_at(self.bootstrap) as log:
            while position < lane_range.end:
                fetched = log.fetch(*lane, position)
                for run in fetched.runs:
                    table = _rows(run, lane.partition)
                    table = table.filter(pa.array(table.column(_OFFSET[type(run)]).to_numpy() < lane_range.end))
                    yield from table.select(self.schema.names).cast(self.schema).to_batches()
                if fetched.next_offset <= position:
                    return
                position = fetched.next_offset


class TopicReader(DataSourceReader):
    """Reads what is committed when the query begins."""

    def __init__(self, bootstrap: str, topic: str, from_latest: bool, schema: pa.Schema) -> None:
        self._topic = _Topic(bootstrap, topic, from_latest, schema)

    def partitions(self) -> Sequence[InputPartition]:
        with log_at(self._topic.bootstrap) as log:
            return [TopicRange(part) for part in ranges_between(self._topic.begin(log), self._topic.end(log))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TopicRange)
        return self._topic.rows(partition.range)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the topic."""

    def __init__(self, bootstrap: str, topic: str, from_latest: bool, schema: pa.Schema) -> None:
        self._topic = _Topic(bootstrap, topic, from_latest, schema)
        self._until: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:
        with log_at(self._topic.bootstrap) as log:
            return positions_to_json(self._topic.begin(log))

    def prepareForTriggerAvailableNow(self) -> None:
        with log_at(self._topic.bootstrap) as log:
            self._until = positions_to_json(self._topic.end(log))

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        if self._until is not None:
            return self._until
        with log_at(self._topic.bootstrap) as log:
            return positions_to_json(self._topic.end(log))

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [TopicRange(part) for part in ranges_between(positions_from_json(start), positions_from_json(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TopicRange)
        return self._topic.rows(partition.range)


_OFFSET: dict[type, str] = {FetchedRows: "offset", FetchedColumns: "_offset"}


def _with_place(schema: pa.Schema) -> pa.Schema:
    return schema.append(pa.field("_partition", pa.int32())).append(pa.field("_offset", pa.int64()))


def _rows(run: FetchedRows | FetchedColumns, partition: int) -> pa.Table:
    if isinstance(run, FetchedColumns):
        table = pa.Table.from_batches([run.batch])
        offsets = run.row_offsets
        partitions = pa.array(np.full(len(table), partition, np.int32))
        return table.append_column("_partition", partitions).append_column("_offset", pa.array(offsets))
    table = run.table
    times = table["timestamp"].cast(pa.timestamp("ms", "UTC"))
    table = table.set_column(table.column_names.index("timestamp"), "timestamp", times)
    if "headers" not in table.column_names:
        table = table.append_column("headers", pa.nulls(len(table), HEADERS))
    return table.append_column("partition", pa.array(np.full(len(table), partition, np.int32)))
