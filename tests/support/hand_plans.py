"""Physical plans that runtime tests write by hand, and the records that go with them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from millstream.logcore.client import FetchedColumns, LogClient, RowRecords
from millstream.planner.physical import PhysicalPlan
from millstream.planner.schema import Column, Schema
from millstream.planner.specs import FormatSpec, KeyWindow, SqlExpression, WindowSpec
from millstream.planner.steps.aggregate import Aggregate, AggregateCall
from millstream.planner.steps.filter import Filter
from millstream.planner.steps.project import Project
from millstream.planner.steps.repartition import Rekey
from millstream.planner.steps.sink import Sink
from millstream.planner.steps.source import Source
from millstream.planner.steps.step import Step
from millstream.sql.types import BIGINT, BOOLEAN, STRING

KAFKA, JSON, ARROW = FormatSpec("KAFKA"), FormatSpec("JSON"), FormatSpec("ARROW")
INPUT = Schema((Column("K", STRING, "KEY"), Column("V", BIGINT), Column("W", STRING)))
COUNTS = Schema((Column("K", STRING, "KEY"), Column("N", BIGINT), Column("S", BIGINT)))


def stream_source(topic: str = "input", partitions: int = 1, value_format: FormatSpec = JSON, id: str = "s0") -> Source:
    return Source(
        id=id,
        topic=topic,
        kind="STREAM",
        schema=INPUT,
        key_format=KAFKA,
        value_format=value_format,
        partition_count=partitions,
        name=topic.upper(),
    )


def filter_plan(
    query_id: str = "FILTER_1",
    topic: str = "input",
    sink: str = "filtered",
    partitions: int = 1,
    input_format: FormatSpec = JSON,
    output_format: FormatSpec = JSON,
    reset: str = "earliest",
) -> PhysicalPlan:
    """SELECT K, V * 2 AS V, W FROM input WHERE V >= 0."""
    source = stream_source(topic, partitions, input_format)
    kept = Filter("f", source, SqlExpression("v0 >= 0", BOOLEAN))
    values = (SqlExpression("TRY(v0 * 2)", BIGINT), SqlExpression("v1", STRING))
    root = sink_of(Project("p", kept, values, None, INPUT), sink, INPUT, partitions, output_format)
    return PhysicalPlan(query_id, root, {"auto.offset.reset": reset})


def count_plan(
    query_id: str = "COUNT_1",
    topic: str = "input",
    sink: str = "counts",
    partitions: int = 1,
    window_ms: int | None = None,
    cache: int = 0,
    value_format: FormatSpec = JSON,
    rekey: bool = False,
) -> PhysicalPlan:
    """SELECT K, COUNT(*) AS N, SUM(V) AS S FROM input [WINDOW TUMBLING] GROUP BY K (with `rekey`: GROUP BY W)."""
    step: Step = stream_source(topic, partitions, value_format)
    if rekey:
        step = Rekey("r", step, (SqlExpression("v1", STRING),), INPUT, KAFKA, partitions, drop_null_key=True)
    calls = (
        AggregateCall("COUNT", (), (), BIGINT),
        AggregateCall("SUM", (SqlExpression("v0", BIGINT),), (), BIGINT),
    )
    window = WindowSpec("TUMBLING", window_ms) if window_ms else None
    aggregate = Aggregate("a", step, calls, COUNTS, window)
    root = Sink(
        id="sink",
        input=aggregate,
        name=sink.upper(),
        kind="TABLE",
        topic=sink,
        schema=COUNTS,
        key_format=KAFKA,
        value_format=JSON,
        partition_count=partitions,
        key_window=KeyWindow("TUMBLING", window_ms) if window_ms else None,
    )
    properties = {"auto.offset.reset": "earliest", "ksql.streams.cache.max.bytes.buffering": str(cache)}
    return PhysicalPlan(query_id, root, properties)


def sink_of(step: Step, topic: str, schema: Schema, partitions: int = 1, value_format: FormatSpec = JSON) -> Sink:
    return Sink(
        id="sink",
        input=step,
        name=topic.upper(),
        kind="STREAM",
        topic=topic,
        schema=schema,
        key_format=KAFKA,
        value_format=value_format,
        partition_count=partitions,
    )


def rows(records: Iterable[tuple[str | None, bytes | Mapping[str, object] | None, int]]) -> RowRecords:
    """(key, value, timestamp) each; a dict becomes JSON."""
    keys, values, times = (list(column) for column in zip(*records, strict=True))
    return RowRecords(
        pa.table(
            {
                "timestamp": pa.array(times, pa.int64()),
                "key": pa.array([None if key is None else key.encode() for key in keys], pa.binary()),
                "value": pa.array(
                    [json.dumps(value).encode() if isinstance(value, dict) else value for value in values], pa.binary()
                ),
            }
        )
    )


def read_all(client: LogClient, topic: str, partitions: Sequence[int] = (0,)) -> list[dict[str, Any]]:
    """All committed records in row form: partition, offset, timestamp, key, value (JSON parsed), headers."""
    found: list[dict[str, Any]] = []
    for partition in partitions:
        offset = client.offsets(topic, partition).log_start_offset
        while True:
            fetched = client.fetch(topic, partition, offset)
            for run in fetched.runs:
                assert not isinstance(run, FetchedColumns)
                for record in run.table.to_pylist():
                    value = record["value"]
                    found.append({**record, "partition": partition, "value": value and json.loads(value)})
            if fetched.next_offset == offset:
                break
            offset = fetched.next_offset
    return found
