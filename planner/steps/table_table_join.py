"""Joins two tables on their primary keys."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..insight.lineage_rows import LineageRows
from ..lowering import Lowering
from ..schema import Column, Schema
from ..specs import JoinKind
from .join import JoinStep, LogicalJoin, Side, fillable, pairs
from .step import Step, Text


@dataclass(frozen=True, slots=True)
class LogicalTableTableJoin(LogicalJoin):
    """Rows with equal primary keys. `emit_old`: changes include the row that they replace."""

    emit_old: bool = False

    def giving_old_rows(self, wanted: bool) -> LogicalTableTableJoin:
        return replace(self, emit_old=wanted)

    def lower(self, lowering: Lowering) -> TableTableJoin:
        left, right = self.left.lower(lowering), self.right.lower(lowering)
        schemas = self.schema, self.left.schema, self.right.schema
        return TableTableJoin(lowering.id("join"), left, right, self.join, *schemas, emit_old=self.emit_old)


@dataclass(frozen=True, slots=True)
class TableTableJoin(JoinStep):
    """The rows of two tables with the same primary key; a change of either side changes the result.

    In: changes of both sides, with or without old rows. Out: the columns of StreamStreamJoin. A result that ends is
    emitted at -1; with `emit_old`, also a result that is replaced.
    """

    left: Step
    right: Step
    kind: JoinKind
    schema: Schema
    left_schema: Schema
    right_schema: Schema
    emit_old: bool = False

    @property
    def state_identity(self) -> Step | None:
        """What it emits of its state may change: a WHERE needs old rows."""
        return replace(self.without_inputs(), emit_old=False, renewal=0)

    @property
    def kept_columns(self) -> tuple[Column, ...]:
        return (*self.left_schema.value, *self.right_schema.value)

    def without_kept_columns(self) -> Step | None:
        left, right = Schema(self.left_schema.key), Schema(self.right_schema.key)
        bare = replace(self, schema=left, left_schema=left, right_schema=right, emit_old=False, renewal=0)
        return bare.without_inputs()

    @property
    def filled_by(self) -> tuple[Step, ...]:
        return fillable(self.left, self.right)

    @property
    def repeatable(self) -> bool:
        return True

    def describe(self, text: Text = str) -> str:
        old = ", with old rows" if self.emit_old else ""
        return f"JOIN {self.kind} table with table{old} | {self.schema}"

    def lineage(self, *below: LineageRows) -> LineageRows:
        left, right = below
        return pairs(Side(left, self.left_schema), Side(right, self.right_schema), self.kind)
