"""A join of any two relations on any equalities, which stores the rows of both sides."""

from __future__ import annotations

from dataclasses import dataclass

from ..insight.lineage_rows import LineageRows
from ..logical import LogicalPlan
from ..lowering import Lowering, positions
from ..schema import Schema
from ..specs import KeyWindow, Kind
from .join import JoinStep, LogicalJoin, Side, pairs
from .own_extremes import ranked_rows
from .step import Step, Text


@dataclass(frozen=True, slots=True)
class LogicalRowJoin(LogicalJoin):
    """Pairs of rows of tables or streams with an equal join key, which need not be a key of either side. A change of
    either side retracts results and emits new ones. `left_key`, `right_key`: the columns that identify a row of each
    side."""

    left_key: tuple[str, ...]
    right_key: tuple[str, ...]

    @property
    def kind(self) -> Kind:
        return "TABLE"

    @property
    def key_window(self) -> KeyWindow | None:
        return None

    @property
    def scattered(self) -> bool:
        return True

    @property
    def key_may_be_null(self) -> bool:
        return True

    def wants_old_rows(self, wanted: bool) -> tuple[bool, ...]:
        """Rows may move to other tasks."""
        return True, True

    @property
    def own_columns(self) -> frozenset[str]:
        return frozenset((*self.left_key, *self.right_key))

    @property
    def keeps_sides(self) -> bool:
        return self.join == "INNER"

    def as_rank(self, needed: frozenset[str]) -> LogicalPlan:
        found = ranked_rows(self.left, self.right, self.left_key, needed) if self.join == "INNER" else None
        return self if found is None else found

    def lower(self, lowering: Lowering) -> RowJoin:
        left, right = self.left.lower(lowering), self.right.lower(lowering)
        keys = positions(self.left.schema, self.left_key), positions(self.right.schema, self.right_key)
        schemas = self.schema, self.left.schema, self.right.schema
        return RowJoin(lowering.id("join"), left, right, *keys, *schemas, outer=self.join == "LEFT")


@dataclass(frozen=True, slots=True)
class RowJoin(JoinStep):
    """Pairs of rows of tables or streams under the same join key, which identifies the rows of neither side.

    In: a stream's rows, or a table's changes with their old rows; `left_key`, `right_key`: the value columns that
    identify a row of each side. Out: the join key, the left value columns, then the right ones; a pair that ends is
    emitted at -1. `outer`: left rows without a partner are emitted, too, with NULLs.
    """

    left: Step
    right: Step
    left_key: tuple[int, ...]
    right_key: tuple[int, ...]
    schema: Schema
    left_schema: Schema
    right_schema: Schema
    outer: bool = False

    @property
    def gives(self) -> Kind:
        return "TABLE"

    def nets_batches(self, every_change: bool) -> bool:
        return not every_change

    def describe(self, text: Text = str) -> str:
        keys = ", ".join(f"left v{i}" for i in self.left_key), ", ".join(f"right v{i}" for i in self.right_key)
        kind = "LEFT JOIN" if self.outer else "JOIN"
        return f"{kind} rows told apart by {keys[0]}, {keys[1]} | {self.schema}"

    def lineage(self, *below: LineageRows) -> LineageRows:
        left, right = below
        kind = "LEFT" if self.outer else "INNER"
        return pairs(Side(left, self.left_schema), Side(right, self.right_schema), kind)
