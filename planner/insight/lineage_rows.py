"""Where the columns of a step come from: the values of lineage, and how expressions change them.

A DIRECT influence goes into a value. An INDIRECT one decides which rows exist, or which value is taken: filters, join
keys, groups, windows and conditions. The terms are those of OpenLineage. Each step derives its rows from those of its
inputs (`Step.lineage`); `lineage.py` calls this for the steps of a plan, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..expressions.readable import readable, used_columns, with_names
from ..specs import SqlExpression

Directness = Literal["DIRECT", "INDIRECT"]
Subtype = Literal[
    "IDENTITY", "TRANSFORMATION", "AGGREGATION", "FILTER", "JOIN", "GROUP_BY", "SORT", "WINDOW", "CONDITIONAL"
]

_STRENGTH: tuple[Subtype, ...] = ("IDENTITY", "TRANSFORMATION", "AGGREGATION")
_TEXT_MAX = 400  # characters of an expression; a longer one is named by its column


@dataclass(frozen=True, slots=True, order=True)
class LineageField:
    """A column of a stream or table, under the names that users see."""

    source: str
    column: str

    def __str__(self) -> str:
        return f"{self.source}.{self.column}"


@dataclass(frozen=True, slots=True)
class Influence:
    """How one column of a source influences a result. `description`: the expression, condition or key."""

    field: LineageField
    kind: Directness
    subtype: Subtype
    description: str = ""

    def changed(self, subtype: Subtype, text: str) -> Influence:
        """The influence after an expression used the value."""
        if self.kind == "INDIRECT":
            return self
        return replace(self, subtype=stronger(self.subtype, subtype), description=text)


@dataclass(frozen=True, slots=True)
class Value:
    """A column inside the plan: its expression over the sources' columns, and what influences it."""

    text: str
    influences: tuple[Influence, ...] = ()

    def through(self, template: str) -> Value:
        """The value inside an expression: `template`, in which `{}` is the value's own expression."""
        text = template.format(self.text)
        return Value(text, tuple(each.changed("TRANSFORMATION", text) for each in self.influences))


@dataclass(frozen=True, slots=True)
class LineageRows:
    """The columns of a step's output, by their names in batches, and what influenced its rows."""

    values: Mapping[str, Value]
    influences: tuple[Influence, ...] = ()

    @property
    def keys(self) -> dict[str, Value]:
        return {name: value for name, value in self.values.items() if name[0] == "k"}

    @property
    def pseudo(self) -> dict[str, Value]:
        return {name: value for name, value in self.values.items() if name[0] == "_"}

    def first_values(self, count: int) -> list[Value]:
        """The value columns by position; an empty value for columns that are not read."""
        return [self.values.get(f"v{i}", Value("")) for i in range(count)]

    def influences_of(self, name: str) -> tuple[Influence, ...]:
        found = self.values.get(name)
        return () if found is None else found.influences

    def text(self, sql: str) -> str:
        """Generated SQL as a person would write it, over the sources' columns."""
        return shortened(self.full_text(sql))

    def full_text(self, sql: str) -> str:
        return with_names(readable(sql, lambda name: self.values[name].text if name in self.values else name))

    def computed(self, expression: SqlExpression) -> Value:
        """The value of an expression over these rows."""
        sql = expression.sql
        used = used_columns(sql)
        if used.values and sql.strip("()") == used.values[0]:
            return self.values[used.values[0]]
        text = self.text(sql)
        return Value(text, self.used_by([expression], "TRANSFORMATION", text))

    def keyed(self, key: Sequence[SqlExpression]) -> dict[str, Value]:
        """The columns of a key that is computed over these rows."""
        return {f"k{i}": self.computed(expression) for i, expression in enumerate(key)}

    def used_by(self, expressions: Iterable[SqlExpression], subtype: Subtype, text: str) -> tuple[Influence, ...]:
        """The influences on a value that is computed from these expressions."""
        found: tuple[Influence, ...] = ()
        for expression in expressions:
            used = used_columns(expression.sql)
            for name in used.values:
                found += tuple(each.changed(subtype, text) for each in self.influences_of(name))
            for name in used.conditions:
                found += indirect(self.influences_of(name), "CONDITIONAL", text)
        return found

    def deciding(self, expressions: Iterable[SqlExpression], subtype: Subtype) -> tuple[Influence, ...]:
        """The influences of expressions that decide something, and whose values go into no column."""
        found: tuple[Influence, ...] = ()
        for expression in expressions:
            used, text = used_columns(expression.sql), self.text(expression.sql)
            for name in (*used.values, *used.conditions):
                found += indirect(self.influences_of(name), subtype, text)
        return found


def stronger(one: Subtype, other: Subtype) -> Subtype:
    """The one of two DIRECT subtypes that changes a value more."""
    return one if _STRENGTH.index(one) >= _STRENGTH.index(other) else other


def indirect(influences: Iterable[Influence], subtype: Subtype, text: str) -> tuple[Influence, ...]:
    return tuple(Influence(each.field, "INDIRECT", subtype, text) for each in influences)


def shortened(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX - 1]}…"
