"""UNION ALL of two streams."""

from __future__ import annotations

from dataclasses import dataclass

from ..insight.lineage_rows import LineageRows, Value
from ..logical import LogicalPlan, names_of
from ..lowering import Lowering
from ..schema import Schema
from ..specs import Kind
from .step import Step, Text


@dataclass(frozen=True, slots=True)
class LogicalUnion(LogicalPlan):
    """The rows of two streams with the same columns, in the order of their times."""

    left: LogicalPlan
    right: LogicalPlan

    @property
    def schema(self) -> Schema:
        return self.left.schema

    @property
    def kind(self) -> Kind:
        return "STREAM"

    @property
    def scattered(self) -> bool:
        return True

    def wants_old_rows(self, wanted: bool) -> tuple[bool, ...]:
        return False, False

    def columns_read(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        read = needed | names_of(self.schema.key)
        return read, read

    def lower(self, lowering: Lowering) -> Union:
        left, right = self.left.lower(lowering), self.right.lower(lowering)
        return Union(lowering.id("union"), left, right, self.schema)


@dataclass(frozen=True, slots=True)
class Union(Step):
    """The rows of both inputs, which have the same columns, in the order of `_seq`; each stays in its task."""

    left: Step
    right: Step
    schema: Schema

    @property
    def gives(self) -> Kind:
        return "STREAM"

    @property
    def word(self) -> str:
        return "union"

    def describe(self, text: Text = str) -> str:
        return f"UNION ALL | {self.schema}"

    def lineage(self, *below: LineageRows) -> LineageRows:
        left, right = below
        values = {
            name: Value(value.text, value.influences + right.influences_of(name)) for name, value in left.values.items()
        }
        return LineageRows(values, left.influences + right.influences)
