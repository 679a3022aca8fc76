"""Small plans and batches for tests of operators and pipelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from databases import new_database

from millstream.executor.batch import ChangeBatch
from millstream.executor.operators.columns import batch_schema, key_names, value_names
from millstream.executor.pipeline import Pipeline
from millstream.planner.physical import PhysicalPlan
from millstream.planner.schema import Column, Schema
from millstream.planner.specs import FormatSpec, SqlExpression, WindowSpec
from millstream.planner.steps.aggregate import Aggregate, AggregateCall
from millstream.planner.steps.repartition import Rekey
from millstream.planner.steps.sink import Sink
from millstream.planner.steps.source import Source
from millstream.planner.steps.step import Step
from millstream.sql.functions.aggregation.aggregates import AGGREGATES
from millstream.sql.types import BIGINT, DOUBLE, STRING, SqlType

JSON = FormatSpec("JSON")


def schema(keys: Sequence[SqlType], values: Sequence[SqlType]) -> Schema:
    return Schema(
        (
            *(Column(f"K{i}", type_, "KEY") for i, type_ in enumerate(keys)),
            *(Column(f"V{i}", type_) for i, type_ in enumerate(values)),
        )
    )


def stream(
    keys: Sequence[SqlType] = (STRING,), values: Sequence[SqlType] = (BIGINT, DOUBLE, STRING), **options: Any
) -> Source:
    options = {"id": "source", "topic": "t", "kind": "STREAM", "key_format": JSON, "value_format": JSON, **options}
    return Source(schema=schema(keys, values), **options)


def table(keys: Sequence[SqlType] = (STRING,), values: Sequence[SqlType] = (STRING, BIGINT), **options: Any) -> Source:
    return stream(keys, values, **{"id": "table", "kind": "TABLE", "materialized": True, **options})


def expression(sql: str, type_: SqlType) -> SqlExpression:
    return SqlExpression(sql, type_)


def call(function: str, *arguments: SqlExpression, constants: tuple[Any, ...] = ()) -> AggregateCall:
    signature = AGGREGATES[function].resolve([argument.type for argument in arguments], constants)
    return AggregateCall(function, arguments, constants, signature.return_type)


def aggregate(
    source: Step, calls: Sequence[AggregateCall], keys: Sequence[SqlType] = (STRING,), **options: Any
) -> Aggregate:
    result = schema(keys, [each.type for each in calls])
    return Aggregate("aggregate", input=source, calls=tuple(calls), schema=result, **options)


def rekey(source: Step, key: SqlExpression, values: Sequence[SqlType], partition_count: int = 1) -> Rekey:
    return Rekey("rekey", source, (key,), schema([key.type], values), JSON, partition_count, drop_null_key=True)


def tumbling(size_ms: int, grace_ms: int, **options: Any) -> WindowSpec:
    return WindowSpec("TUMBLING", size_ms, grace_ms=grace_ms, **options)


def plan(root: Step, properties: Mapping[str, str] | None = None) -> PhysicalPlan:
    if not isinstance(root, Sink):
        root = Sink("sink", root, "OUT", "TABLE", "out", getattr(root, "schema", schema([], [])), JSON, JSON, 1)
    return PhysicalPlan("query", root, dict(properties or {}))


def rows_of(source: Source, rows: Sequence[Mapping[str, Any]], first: int = 0) -> ChangeBatch:
    """Records as dicts of k0…, v0…, and `ts`, `part`, `seq`; no v column at all is a null value."""
    full = batch_schema(source.schema, ("_ws", "_we") if source.key_window else ())
    values = value_names(source.schema)
    columns: dict[str, list[Any]] = {
        "_seq": [row.get("seq", first + i) for i, row in enumerate(rows)],
        "_sub": [0] * len(rows),
        "_part": [row.get("part", 0) for row in rows],
        "_ts": [row.get("ts", 0) for row in rows],
        "_weight": [1] * len(rows),
        "_null": [not any(name in row for name in values) for row in rows],
        "_ws": [row.get("ws") for row in rows],
        "_we": [row.get("we") for row in rows],
    }
    columns |= {name: [row.get(name) for row in rows] for name in (*key_names(source.schema), *values)}
    parts = sorted(set(columns["_part"]))
    times = {part: max(row.get("ts", 0) for row in rows if row.get("part", 0) == part) for part in parts}
    return ChangeBatch(pa.table([pa.array(columns[f.name], f.type) for f in full], schema=full), times)


def open_pipeline(physical: PhysicalPlan, **options: Any) -> Pipeline:
    python = any(each.udfs for step in physical.steps() for each in step.expressions)
    return Pipeline(physical, new_database(python=python), **options)


def run(
    physical: PhysicalPlan, rows: Sequence[Mapping[str, Any]], ends: Sequence[int] = (), **options: Any
) -> list[dict[str, Any]]:
    """The output rows of one source's records, in batches that end before the given positions."""
    pipeline = open_pipeline(physical, **options)
    (source,) = physical.sources()
    out: list[dict[str, Any]] = []
    for start, end in zip([0, *ends], [*ends, len(rows)], strict=True):
        batch = rows_of(source, rows[start:end], start)
        out += shown(pipeline.process({source.id: replace(batch)}))
    return out


def shown(batch: ChangeBatch) -> list[dict[str, Any]]:
    """The rows of a batch without what only orders them."""
    sequence = list(zip(batch.rows["_seq"].to_pylist(), batch.rows["_sub"].to_pylist(), strict=True))
    assert sequence == sorted(sequence), sequence
    assert len(set(sequence)) == len(sequence), sequence
    return batch.rows.drop_columns(["_seq", "_sub"]).to_pylist()


def brief(rows: Sequence[Mapping[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]
