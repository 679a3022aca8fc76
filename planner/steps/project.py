"""SELECT: new columns for each row."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..expressions.substitution import computed_from
from ..expressions.typed import Typed, column
from ..insight.lineage_rows import LineageRows
from ..logical import LogicalPlan, Named, Unary, names_of, read_by
from ..lowering import Lowering, is_key_column, sql_over
from ..schema import Schema
from ..specs import SqlExpression
from .step import Step, Text


@dataclass(frozen=True, slots=True)
class LogicalProject(Unary):
    """New value columns; new names for the key columns if `key` is not None (their values stay)."""

    values: tuple[Named, ...]
    key: tuple[Named, ...] | None = None

    @property
    def schema(self) -> Schema:
        key = self.input.schema.key if self.key is None else tuple(named.column("KEY") for named in self.key)
        return Schema((*key, *(named.column("VALUE") for named in self.values)))

    @property
    def only_adds(self) -> bool:
        return self.input.only_adds

    def giving(self, needed: frozenset[str]) -> LogicalProject:
        return replace(self, values=tuple(named for named in self.values if named.name in needed) or self.values[:1])

    def columns_read(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        kept = names_of(self.input.schema.key) if self.key is None else frozenset[str]()
        return (read_by(named.expression for named in (*self.values, *(self.key or ()))) | kept,)

    def before(self, condition: Typed) -> Typed | None:
        return computed_from(condition, self.schema, {n.name: n.expression for n in (*self.values, *(self.key or ()))})

    def bounded(self, column: str, largest: int) -> LogicalPlan:
        below = self._named(column)
        return self if below is None else replace(self, input=self.input.bounded(below, largest))

    def largest_rank(self, column: str) -> int | None:
        below = self._named(column)
        return None if below is None else self.input.largest_rank(below)

    def _named(self, column: str) -> str | None:
        """The input's column that has this name here; None if it is computed."""
        named = next((n for n in (*self.values, *(self.key or ())) if n.name == column), None)
        return None if named is None else named.expression.column

    def lower(self, lowering: Lowering) -> Project:
        step, read = self.input.lower(lowering), self.input.schema
        values = tuple(sql_over(read, named.expression) for named in self.values)
        key = None if self.key is None else tuple(sql_over(read, named.expression) for named in self.key)
        own = tuple(f"k{i}" for i in range(len(read.key)))
        if key is not None and tuple(expression.sql for expression in key) == own:
            key = None
        return Project(lowering.id("project"), step, values, key, self.schema)


def with_key_as_value(plan: LogicalPlan) -> LogicalPlan:
    """The same rows, with the key columns also as value columns, so that a new key does not lose them."""
    values = (*plan.schema.value, *plan.schema.key)
    key = tuple(Named(f"#old{i}", column(c.name, c.type)) for i, c in enumerate(plan.schema.key))
    return LogicalProject(plan, tuple(Named(c.name, column(c.name, c.type)) for c in values), key)


def under_key_of(rows: LogicalPlan, changed: LogicalPlan) -> LogicalPlan:
    """Restores the columns and the key of `rows`. In: `changed`: made of `with_key_as_value(rows)` under another key.
    The rows are not moved."""
    values, key = (
        tuple(Named(c.name, column(c.name, c.type)) for c in columns)
        for columns in (rows.schema.value, rows.schema.key)
    )
    return LogicalProject(changed, values, key)


@dataclass(frozen=True, slots=True)
class Project(Step):
    """New value columns (`v0`…), and new key columns if `key` is not None; otherwise the key is kept.

    A stream's row whose value is null (`_null`) stays null: only its key and time are passed on.
    """

    input: Step
    values: tuple[SqlExpression, ...]
    key: tuple[SqlExpression, ...] | None
    schema: Schema

    @property
    def expressions(self) -> tuple[SqlExpression, ...]:
        return (*self.values, *(self.key or ()))

    def result_column(self, index: int) -> str:
        sql = self.values[index].sql
        if self.key is None:
            return sql if is_key_column(sql) else f"v{index}"
        key = [expression.sql for expression in self.key]
        return f"k{key.index(sql)}" if sql in key else f"v{index}"

    @property
    def new_key(self) -> tuple[SqlExpression, ...] | None:
        return self.key

    @property
    def stateless(self) -> bool:
        return True

    @property
    def last_conditions(self) -> tuple[SqlExpression, ...]:
        return self.input.last_conditions if self.key is None else ()

    def deleting_failed(self) -> Step:
        return replace(self, input=self.input.deleting_failed()) if self.key is None else self

    def forgetting(self, ttl_ms: int) -> Step | None:
        forgetting = self.input.forgetting(ttl_ms)
        return None if forgetting is None else replace(self, input=forgetting)

    def describe(self, text: Text = str) -> str:
        key = "" if self.key is None else f"key {', '.join(text(e.sql) for e in self.key) or 'none'}; "
        return f"PROJECT {key}{', '.join(text(e.sql) for e in self.values)} | {self.schema}"

    def lineage(self, *below: LineageRows) -> LineageRows:
        (rows,) = below
        values = {f"v{i}": rows.computed(expression) for i, expression in enumerate(self.values)}
        keys = rows.keys if self.key is None else rows.keyed(self.key)
        return LineageRows({**rows.pseudo, **keys, **values}, rows.influences)
