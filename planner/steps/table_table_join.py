"""Joins two tables on their primary keys."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..insight.lineage_rows import LineageRows
from ..lowering import Lowering
from ..specs import JoinKind
from .join import JoinOfTables, LogicalJoin, Side, pairs
from .step import Text


@dataclass(frozen=True, slots=True)
class LogicalTableTableJoin(LogicalJoin):
    """Rows with equal primary keys. `emit_old`: changes include the row that they replace."""

    emit_old: bool = False

    def giving_old_rows(self, wanted: bool) -> LogicalTableTableJoin:
        return replace(self, emit_old=wanted)

    def lower(self, lowering: Lowering) -> TableTableJoin:
        left, right = self.left.lower(lowering), self.right.lower(lowering)
        schemas = self.schema, self.left.schema, self.right.schema
        return TableTableJoin(lowering.id("join"), left, right, *schemas, self.join, emit_old=self.emit_old)


@dataclass(frozen=True, slots=True)
class TableTableJoin(JoinOfTables):
    """The rows of two tables with the same primary key; a change of either side changes the result.

    In: changes of both sides, with or without old rows. Out: the columns of StreamStreamJoin. A result that ends is
    emitted at -1; with `emit_old`, also a result that is replaced.
    """

    kind: JoinKind

    def describe(self, text: Text = str) -> str:
        old = ", with old rows" if self.emit_old else ""
        return f"JOIN {self.kind} table with table{old} | {self.schema}"

    def lineage(self, *below: LineageRows) -> LineageRows:
        left, right = below
        return pairs(Side(left, self.left_schema), Side(right, self.right_schema), self.kind)
