"""WHERE and HAVING: drops rows that do not meet a condition."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..expressions.conditions import at_once
from ..expressions.typed import Typed
from ..insight.lineage_rows import LineageRows
from ..logical import LogicalPlan, Unary
from ..lowering import Lowering, sql_over
from ..schema import Schema
from ..specs import SqlExpression
from .step import Step, Text, schema_of


@dataclass(frozen=True, slots=True)
class LogicalFilter(Unary):
    """Keeps the rows for which `predicate` is true; NULL counts as false."""

    predicate: Typed

    @property
    def only_adds(self) -> bool:
        return self.input.only_adds

    def wants_old_rows(self, wanted: bool) -> tuple[bool, ...]:
        return (True,)

    def columns_read(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (needed | self.predicate.columns(),)

    def before(self, condition: Typed) -> Typed | None:
        return condition

    def bounded(self, column: str, largest: int) -> LogicalPlan:
        return replace(self, input=self.input.bounded(column, largest))

    def largest_rank(self, column: str) -> int | None:
        return self.input.largest_rank(column)

    def lower(self, lowering: Lowering) -> Filter:
        step = self.input.lower(lowering)
        predicate = replace(self.predicate, tree=at_once(self.predicate.tree))
        return Filter(lowering.id("filter"), step, sql_over(self.input.schema, predicate))


@dataclass(frozen=True, slots=True)
class Filter(Step):
    """Keeps the rows for which `predicate` is true. With `retract_failed` it lets all -1 rows of a table through: an
    earlier filter may have let through the rows that they end."""

    input: Step
    predicate: SqlExpression
    retract_failed: bool = False

    @property
    def schema(self) -> Schema:
        return schema_of(self.input)

    @property
    def expressions(self) -> tuple[SqlExpression, ...]:
        return (self.predicate,)

    @property
    def condition(self) -> SqlExpression | None:
        return self.predicate

    @property
    def last_conditions(self) -> tuple[SqlExpression, ...]:
        return (self.predicate, *self.input.last_conditions)

    def deleting_failed(self) -> Step:
        return replace(self, input=self.input.deleting_failed(), retract_failed=True)

    @property
    def passes_columns(self) -> bool:
        return True

    @property
    def stateless(self) -> bool:
        return True

    def forgetting(self, ttl_ms: int) -> Step | None:
        forgetting = self.input.forgetting(ttl_ms)
        return None if forgetting is None else replace(self, input=forgetting)

    @property
    def word(self) -> str:
        return "filter"

    def describe(self, text: Text = str) -> str:
        return f"FILTER {text(self.predicate.sql)}"

    def lineage(self, *below: LineageRows) -> LineageRows:
        (rows,) = below
        return replace(rows, influences=rows.influences + rows.deciding([self.predicate], "FILTER"))
