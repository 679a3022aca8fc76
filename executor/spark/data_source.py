"""The source of a query's Structured Streaming query, and its sink: Python data sources with rows of encoded batches.

The source's `read` is the first stage. The sink does no more than commit the offsets of a batch that all buckets have
done: what the query writes is written by the second stage. Spark loads this module in about eight processes per query,
of which three do something: those load `source_work` then (0.5 s of CPU time each).
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from .lanes import LaneRange, Positions, positions_from_json, positions_to_json
from .rows import PIECE_SCHEMA, REPORT_SCHEMA, ends_row

if TYPE_CHECKING:
    from .source_work import BatchPlanner

SOURCE = "millstream_changes"
SINK = "millstream_progress"


class ChangesSource(DataSource):
    """Option `spec`: a `RunSpec` as JSON."""

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> str:
        return PIECE_SCHEMA

    def streamReader(self, schema: StructType) -> ChangesReader:
        return ChangesReader(self.options["spec"])


@dataclass
class ReadTask(InputPartition):
    """What one task reads of a batch. `first`: it also says where the batch ends."""

    ranges: list[LaneRange]
    starts: Positions
    ends: Positions
    first: bool


class ChangesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches in a process beside the driver, and reads them in tasks. How long a batch gets is in the spec."""

    def __init__(self, spec_json: str) -> None:
        self._spec_json = spec_json
        self._planner: BatchPlanner | None = None

    def initialOffset(self) -> dict[str, int]:
        return json.loads(self._spec_json)["start"]

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._planning().stop_at_what_is_there()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return positions_to_json(self._planning().end_of(positions_from_json(start)))

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        starts, ends = positions_from_json(start), positions_from_json(end)
        groups = self._planning().tasks(starts, ends)
        return [ReadTask(group, starts, ends, number == 0) for number, group in enumerate(groups)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ReadTask)
        if partition.first:
            yield ends_row(positions_to_json(partition.ends))
        yield from _work().read(self._spec_json, partition.ranges, partition.starts, partition.ends)

    def _planning(self) -> BatchPlanner:
        if self._planner is None:
            planner: BatchPlanner = _work().BatchPlanner(self._spec_json)
            self._planner = planner
        return self._planner


class ProgressSink(DataSource):
    """Option `spec`: a `RunSpec` as JSON. Takes the reports of the second stage."""

    @classmethod
    def name(cls) -> str:
        return SINK

    def schema(self) -> str:
        return REPORT_SCHEMA

    def streamWriter(self, schema: StructType, overwrite: bool) -> ProgressWriter:
        return ProgressWriter(self.options["spec"])


@dataclass
class BatchEnd(WriterCommitMessage):
    """Where the batch ends, from the task that knows it."""

    ends: dict[str, int] | None


class ProgressWriter(DataSourceStreamArrowWriter):
    """Commits the offsets of a batch once all its tasks have ended."""

    def __init__(self, spec_json: str) -> None:
        self._spec_json = spec_json

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        found: dict[str, int] | None = None
        for batch in iterator:
            for ends in batch["ends"].drop_null().to_pylist():
                found = json.loads(ends)
        return BatchEnd(found)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        for message in messages:
            if isinstance(message, BatchEnd) and message.ends is not None:
                _work().commit_offsets(self._spec_json, positions_from_json(message.ends))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to undo: each bucket has done its share or not."""


def _work() -> Any:
    return importlib.import_module("millstream.executor.spark.source_work")
