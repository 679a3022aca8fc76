"""Joins a stream with a table: looks up the table's current row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ..insight.lineage_rows import LineageRows
from ..insight.stall import OperatorSeen
from ..lowering import Lowering
from ..schema import Column, Schema
from ..specs import Kind
from .join import JoinStep, LogicalJoin, Side, fillable, pairs
from .step import Step, Text, store_id


@dataclass(frozen=True, slots=True)
class LogicalStreamTableJoin(LogicalJoin):
    """Each row of `left` with the row of `right` that has its key at that time; INNER or LEFT."""

    @property
    def schema(self) -> Schema:
        right_key = tuple(Column(column.name, column.type) for column in self.right.schema.key)
        return Schema((*self.left.schema.key, *self.left.schema.value, *right_key, *self.right.schema.value))

    @property
    def kind(self) -> Kind:
        return "STREAM"

    def lower(self, lowering: Lowering) -> StreamTableJoin:
        assert self.join in ("INNER", "LEFT"), "analysis refuses the others"
        left, right = self.left.lower(lowering), self.right.lower(lowering)
        schemas = self.schema, self.left.schema, self.right.schema
        return StreamTableJoin(lowering.id("join"), left, right, self.join, *schemas)


@dataclass(frozen=True, slots=True)
class StreamTableJoin(JoinStep):
    """Each stream row joins the table's row of the same key at that time.

    Out: the left key; as value columns those of the left side, then the right side's key, then its value columns.
    INNER drops rows without a match, LEFT pads them with NULL. Stream rows with a null value are dropped.
    """

    left: Step
    right: Step
    kind: Literal["INNER", "LEFT"]
    schema: Schema
    left_schema: Schema
    right_schema: Schema

    @property
    def gives(self) -> Kind:
        return "STREAM"

    @property
    def state_identity(self) -> Step | None:
        """It keeps rows of the table; what else it reads of the stream does not matter."""
        left = Schema(self.left_schema.key)
        return replace(self.without_inputs(), schema=self.right_schema, left_schema=left, renewal=0)

    def kept_keys(self, *below: LineageRows) -> tuple[str, ...]:
        return JoinStep.kept_keys(self, below[1])

    def kept_values(self, *below: LineageRows) -> tuple[str, ...]:
        return JoinStep.kept_values(self, below[1])

    @property
    def kept_columns(self) -> tuple[Column, ...]:
        return self.right_schema.value

    def without_kept_columns(self) -> Step | None:
        key = Schema(self.right_schema.key)
        left = Schema(self.left_schema.key)
        return replace(self.without_inputs(), schema=key, left_schema=left, right_schema=key, renewal=0)

    @property
    def filled_by(self) -> tuple[Step, ...]:
        return fillable(self.right)

    @property
    def partner_hint(self) -> str:
        return (
            "A stream's row meets the table as it was at that moment: the table's row must come before it, and the "
            "keys must be equal to the letter."
        )

    def kept(self, seen: OperatorSeen) -> list[int]:
        return [0, seen.kept.get(store_id(self), 0)]

    def describe(self, text: Text = str) -> str:
        return f"JOIN {self.kind} stream with table | {self.schema}"

    def lineage(self, *below: LineageRows) -> LineageRows:
        left, right = below
        return pairs(Side(left, self.left_schema), Side(right, self.right_schema), self.kind, right_key=True)
