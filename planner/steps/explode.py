"""Table functions in SELECT, such as EXPLODE."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...sql.types import Array
from ..insight.lineage_rows import LineageRows
from ..logical import Named, Unary, read_by
from ..lowering import Lowering, sql_over
from ..schema import Column, Schema
from ..specs import SqlExpression
from .step import Step, Text


@dataclass(frozen=True, slots=True)
class LogicalExplode(Unary):
    """One row per element of `arrays`, which are read side by side; the value columns come first."""

    arrays: tuple[Named, ...]

    @property
    def schema(self) -> Schema:
        elements = tuple(Column(named.name, named.expression.type) for named in self.arrays)
        return Schema((*self.input.schema.columns, *elements))

    def columns_read(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (needed | read_by(named.expression for named in self.arrays),)

    def lower(self, lowering: Lowering) -> Explode:
        """The node's expressions have the type of an element; those of the step have the array type."""
        step, read = self.input.lower(lowering), self.input.schema
        arrays = tuple(
            replace(sql_over(read, named.expression), type=Array(named.expression.type)) for named in self.arrays
        )
        return Explode(lowering.id("explode"), step, arrays, self.schema)


@dataclass(frozen=True, slots=True)
class Explode(Step):
    """Table functions: one row per element; several arrays are zipped, and shorter ones are padded with NULL.

    `arrays` are expressions of ARRAY types; out: the input's value columns followed by one column each.
    """

    input: Step
    arrays: tuple[SqlExpression, ...]
    schema: Schema

    @property
    def expressions(self) -> tuple[SqlExpression, ...]:
        return self.arrays

    @property
    def stateless(self) -> bool:
        return True

    @property
    def multiplies(self) -> bool:
        return True

    @property
    def word(self) -> str:
        return "explode"

    def describe(self, text: Text = str) -> str:
        return f"EXPLODE {', '.join(text(e.sql) for e in self.arrays)} | {self.schema}"

    def lineage(self, *below: LineageRows) -> LineageRows:
        (rows,) = below
        first = len(self.schema.value) - len(self.arrays)
        elements = {f"v{first + i}": rows.computed(e).through("EXPLODE({})") for i, e in enumerate(self.arrays)}
        return replace(rows, values={**rows.values, **elements})
