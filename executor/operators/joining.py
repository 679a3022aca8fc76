"""The node of a join: two inputs, and a joiner that finds matching rows."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from ...planner.schema import Schema
from ...planner.specs import KeyWindow
from ...planner.steps.step import Step, schema_of
from ..batch import ChangeBatch
from ..building import Building, Joiner, PipelineNode
from ..figures import OperatorMeter
from ..window_times import window_ends
from .columns import WINDOW, batch_schema, conform, ints, with_columns


@dataclass(slots=True)
class JoinNode:
    """`window`: of the left side's keys, if they are windowed. Right windows with the same start count as equal."""

    left: PipelineNode
    right: PipelineNode
    joiner: Joiner
    window: KeyWindow | None
    schema: Schema
    extra: tuple[str, ...]
    columns: Sequence[str] | None
    meter: OperatorMeter
    _given: pa.Schema = field(init=False)  # the schema of the pairs

    def __post_init__(self) -> None:
        self._given = batch_schema(self.schema, self.extra, self.columns)

    def evaluate(self, inputs: Mapping[str, ChangeBatch]) -> ChangeBatch:
        return self._joined(self.left.evaluate(inputs), self.right.evaluate(inputs))

    def _joined(self, left: ChangeBatch, right: ChangeBatch) -> ChangeBatch:
        since = time.perf_counter_ns()
        if self.window is not None and self.window.size_ms is not None and len(right.rows):
            starts = ints(right.rows, "_ws")
            ends = {"_we": pa.array(window_ends(starts, self.window.size_ms, self.window.timezone))}
            right = replace(right, rows=with_columns(right.rows, ends))
        joined = self.joiner.process(left, right)
        rows = conform(joined.rows, self._given)
        self.meter.add(left.rows.num_rows + right.rows.num_rows, rows, since)
        return ChangeBatch(rows, joined.stream_time_ms, left.elapsed_ms)

    def of_nothing(self) -> ChangeBatch | None:
        left, right = self.left.of_nothing(), self.right.of_nothing()
        if left is None and right is None:
            return None
        return self._joined(left or no_rows_of(self.left), right or no_rows_of(self.right))


def no_rows_of(node: PipelineNode) -> ChangeBatch:
    return ChangeBatch(batch_schema(node.schema, node.extra, node.columns).empty_table())


def window_columns(left: PipelineNode, right: PipelineNode) -> tuple[str, ...]:
    """The bounds of the window, if the keys of both sides are windowed; else nothing."""
    return tuple(WINDOW) if "_ws" in left.extra and "_ws" in right.extra else ()


def join_node(
    building: Building, step: Step, joiner: Joiner, left: PipelineNode, right: PipelineNode, *, extra: tuple[str, ...]
) -> JoinNode:
    """In: `extra`: the columns of a pair other than key and values."""
    meter = building.meter(step)
    building.keep(joiner, meter)
    window = step.window_of_keys if window_columns(left, right) and set(WINDOW) <= set(extra) else None
    return JoinNode(left, right, joiner, window, schema_of(step), extra, None, meter)
