"""Joins a table with the table that its foreign key refers to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ..insight.lineage_rows import LineageRows
from ..lowering import Lowering, positions
from .join import JoinOfTables, LogicalJoin, Side, pairs
from .step import Step, Text


@dataclass(frozen=True, slots=True)
class LogicalForeignKeyJoin(LogicalJoin):
    """Rows of the left table, under their foreign key, with the right table's row of that key. `left_key`: the columns
    of the left table's primary key."""

    left_key: tuple[str, ...]
    emit_old: bool = False

    def giving_old_rows(self, wanted: bool) -> LogicalForeignKeyJoin:
        return replace(self, emit_old=wanted)

    def wants_old_rows(self, wanted: bool) -> tuple[bool, ...]:
        """A left row may move from one task to another."""
        return True, False

    @property
    def own_columns(self) -> frozenset[str]:
        return frozenset(self.left_key)

    def lower(self, lowering: Lowering) -> ForeignKeyJoin:
        assert self.join in ("INNER", "LEFT"), "analysis refuses the others"
        left, right = self.left.lower(lowering), self.right.lower(lowering)
        left_key = positions(self.left.schema, self.left_key)
        schemas = self.schema, self.left.schema, self.right.schema
        return ForeignKeyJoin(lowering.id("join"), left, right, *schemas, self.join, left_key, emit_old=self.emit_old)


@dataclass(frozen=True, slots=True)
class ForeignKeyJoin(JoinOfTables):
    """Each row of the left table with the right table's row that its foreign key refers to.

    In: the left table's changes with their old rows, under the foreign key and in the right table's tasks; `left_key`:
    the value columns of its primary key. Out: the foreign key as key, the left value columns, then the right ones.
    A row that is deleted, or that loses its partner in an INNER join, is emitted at -1; with `emit_old`, also a row
    that is replaced.
    """

    kind: Literal["INNER", "LEFT"]
    left_key: tuple[int, ...]

    def without_kept_columns(self) -> Step | None:
        """The positions of the key depend on the columns."""
        return JoinOfTables.without_kept_columns(replace(self, left_key=()))

    def describe(self, text: Text = str) -> str:
        old = ", with old rows" if self.emit_old else ""
        return f"JOIN {self.kind} table with table by foreign key{old} | {self.schema}"

    def lineage(self, *below: LineageRows) -> LineageRows:
        left, right = below
        return pairs(Side(left, self.left_schema), Side(right, self.right_schema), self.kind)
