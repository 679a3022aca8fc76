"""The leaves of a pipeline: they bring batches of a source into the form that their readers expect."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ...planner.schema import Schema
from ...planner.steps.source import Source
from ...planner.steps.step import store_id
from ..batch import ChangeBatch
from ..building import Building, Operator, builds
from ..figures import OperatorMeter
from .columns import WINDOW, batch_schema, conform
from .expiry import Expiry
from .stream_time import SourceTime
from .table_source import TableSource


@dataclass(slots=True)
class SourceNode:
    """`operators`: the operators that process the source's rows, in this order."""

    source: Source
    schema: Schema
    extra: tuple[str, ...]
    columns: Sequence[str] | None
    operators: Sequence[Operator]
    meter: OperatorMeter
    _given: pa.Schema = field(init=False)  # of the batches that the first operator gets

    def __post_init__(self) -> None:
        extra = [name for name in self.extra if name != "_st"]
        self._given = batch_schema(self.schema, extra, self.columns)

    def evaluate(self, inputs: Mapping[str, ChangeBatch]) -> ChangeBatch:
        since = time.perf_counter_ns()
        batch = inputs.get(self.source.id)
        count = 0 if batch is None else batch.rows.num_rows
        if batch is None:
            batch = ChangeBatch(self._given.empty_table())
        else:
            batch = batch.with_rows(conform(batch.rows, self._given))
        for operator in self.operators:
            batch = operator.process(batch)
        if self.source.kind == "TABLE" and not self.source.materialized:
            batch = batch.with_rows(_as_changes(batch.rows))
        self.meter.add(count, batch.rows, since)
        return batch

    def of_nothing(self) -> None:
        return None


@builds(Source)
def build(step: Source, building: Building) -> SourceNode:
    window = tuple(WINDOW) if step.key_window is not None else ()
    operators: list[Operator] = []
    extra = (*window, *building.pseudo)
    if step.id in building.timed:
        operators.append(SourceTime(building.connection, f"{step.id}.stream_time"))
        extra = (*extra, "_st")
    if step.kind == "TABLE" and step.ttl_ms is not None:
        operators.append(Expiry(building.connection, f"{step.id}.ttl", step.schema, extra, step.columns, step.ttl_ms))
    if step.kind == "TABLE" and step.materialized:
        operators.append(TableSource(building.connection, store_id(step), step.schema, bool(window), step.columns))
    meter = building.meter(step)
    for operator in operators:
        building.keep(operator, meter)
    return SourceNode(step, step.schema, extra, step.columns, operators, meter)


def _as_changes(rows: pa.Table) -> pa.Table:
    """A tombstone of a table removes the row: weight -1."""
    gone = rows.column("_null")
    if not gone.to_numpy().any():
        return rows
    weights = np.where(gone.to_numpy(), np.int8(-1), rows.column("_weight").to_numpy())
    return rows.set_column(rows.schema.get_field_index("_weight"), "_weight", pa.array(weights, pa.int8()))
