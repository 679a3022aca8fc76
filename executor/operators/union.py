"""UNION ALL: the rows of two inputs, in order of arrival."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ...planner.schema import Schema
from ...planner.steps.union import Union
from ..batch import ChangeBatch
from ..building import Building, PipelineNode, builds
from ..figures import OperatorMeter
from .columns import batch_schema, conform, ints, take
from .joining import no_rows_of
from .stream_time import merged


@dataclass(slots=True)
class UnionNode:
    left: PipelineNode
    right: PipelineNode
    schema: Schema
    extra: tuple[str, ...]
    columns: Sequence[str] | None
    meter: OperatorMeter

    def evaluate(self, inputs: Mapping[str, ChangeBatch]) -> ChangeBatch:
        return self._united(self.left.evaluate(inputs), self.right.evaluate(inputs))

    def _united(self, left: ChangeBatch, right: ChangeBatch) -> ChangeBatch:
        schema = batch_schema(self.schema, self.extra, self.columns)
        since = time.perf_counter_ns()
        out = united(left, right, schema)
        self.meter.add(left.rows.num_rows + right.rows.num_rows, out.rows, since)
        return out

    def of_nothing(self) -> ChangeBatch | None:
        left, right = self.left.of_nothing(), self.right.of_nothing()
        if left is None and right is None:
            return None
        return self._united(left or no_rows_of(self.left), right or no_rows_of(self.right))


@builds(Union)
def build(step: Union, building: Building) -> UnionNode:
    left, right = building.node(step.left), building.node(step.right)
    extra = tuple(name for name in left.extra if name in right.extra)
    return UnionNode(left, right, step.schema, extra, left.columns, building.meter(step))


def united(left: ChangeBatch, right: ChangeBatch, schema: pa.Schema) -> ChangeBatch:
    """The rows of both, ordered by `_seq`. Stream times are merged per task: both inputs share their tasks."""
    times = merged(left.stream_time_ms, right.stream_time_ms)
    rows = [conform(batch.rows, schema) for batch in (left, right) if len(batch.rows)]
    if len(rows) < 2:
        return ChangeBatch(rows[0] if rows else schema.empty_table(), times, left.elapsed_ms)
    both = pa.concat_tables(rows)
    return ChangeBatch(take(both, np.argsort(ints(both, "_seq"), kind="stable")), times)
