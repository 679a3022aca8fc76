"""The analyzed plan: names, types and keys are known, topics and stores are not.

A node's expressions read the columns of its input by their logical names; names are unique within a node's schema.
Besides its schema's columns a node has the pseudo columns (ROWTIME, …). `LogicalPlan.lower` turns names into positions.
The nodes are in `steps/`; the rewrites in `optimize.py` call their methods and need no list of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Literal, Self

from .expressions.typed import Typed
from .lowering import Lowering
from .schema import Column, Schema
from .specs import KeyWindow, Kind
from .steps.step import Step


@dataclass(frozen=True, slots=True)
class Named:
    """A computed column: its name and its expression."""

    name: str
    expression: Typed

    def column(self, role: Literal["KEY", "VALUE"]) -> Column:
        return Column(self.name, self.expression.type, role)


@dataclass(frozen=True, slots=True)
class LogicalPlan:
    """Base of all nodes: the methods that others call on a node, with the default that fits most nodes."""

    @property
    def schema(self) -> Schema:
        raise AssertionError(f"{type(self).__name__} has no schema")

    @property
    def kind(self) -> Kind:
        raise AssertionError(f"{type(self).__name__} has no kind")

    @property
    def key_window(self) -> KeyWindow | None:
        """The window in the key of its rows."""
        return None

    @property
    def scattered(self) -> bool:
        """Whether rows of one key may be in several tasks."""
        return False

    @property
    def only_adds(self) -> bool:
        """Whether it never retracts or replaces a row: a stream, or a table of final results."""
        return self.kind == "STREAM"

    @property
    def key_may_be_null(self) -> bool:
        """Whether a table's row may have a key of NULLs. Groups and rows of declared tables never have one."""
        return False

    # ------------------------------------------------------------------ the tree

    @property
    def inputs(self) -> tuple[LogicalPlan, ...]:
        """The nodes that it reads, left to right."""
        return tuple(getattr(self, name) for name in _input_fields(type(self)))

    def with_inputs(self, *inputs: LogicalPlan) -> Self:
        """The node with other inputs, as many as it has."""
        names = _input_fields(type(self))
        return replace(self, **dict(zip(names, inputs, strict=True))) if names else self

    # ------------------------------------------------------------------ for rewrites

    def giving_old_rows(self, wanted: bool) -> LogicalPlan:
        """The node for a reader that wants, or does not want, the replaced row with each change of a table."""
        return self

    def wants_old_rows(self, wanted: bool) -> tuple[bool, ...]:
        """Whether it wants replaced rows from each of its inputs, given whether its reader wants them."""
        return tuple(wanted for _ in self.inputs)

    def giving(self, needed: frozenset[str]) -> LogicalPlan:
        """The node reduced to what it computes or reads for the columns `needed`."""
        return self

    def columns_read(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        """The columns that it reads of each input if its own reader needs the columns `needed`."""
        raise AssertionError(f"{type(self).__name__} does not say what it reads")

    def before(self, condition: Typed) -> Typed | None:
        """A condition over the rows of the input that is true exactly when `condition` is true for the node's own rows;
        None if there is no such condition."""
        return None

    @property
    def keeps_sides(self) -> bool:
        """Whether it is a join that emits all pairs of all rows that it ever read. Then a filter after the join may be
        moved before it."""
        return False

    def as_rank(self, needed: frozenset[str]) -> LogicalPlan:
        """The node, of which the columns `needed` are read. If it joins rows with their own greatest or least value, it
        becomes a filter of the rows with rank 1."""
        return self

    def bounded(self, column: str, largest: int) -> LogicalPlan:
        """The node for a reader that needs only rows with at most `largest` in `column`."""
        return self

    def largest_rank(self, column: str) -> int | None:
        """The largest value of a column of ranks (from 1); None for other columns."""
        return None

    # ------------------------------------------------------------------ the physical plan

    def lower(self, lowering: Lowering) -> Step:
        """The steps of the plan; their expressions read the columns of their input batch."""
        raise AssertionError(f"{type(self).__name__} cannot be lowered")


@dataclass(frozen=True, slots=True)
class Unary(LogicalPlan):
    """A node with one input, which keeps the key of the input's rows."""

    input: LogicalPlan

    @property
    def schema(self) -> Schema:
        return self.input.schema

    @property
    def kind(self) -> Kind:
        return self.input.kind

    @property
    def key_window(self) -> KeyWindow | None:
        return self.input.key_window

    @property
    def scattered(self) -> bool:
        return self.input.scattered

    @property
    def key_may_be_null(self) -> bool:
        return self.input.key_may_be_null


def read_by(expressions: Iterable[Typed]) -> frozenset[str]:
    """The columns that any of the expressions reads."""
    return frozenset(name for expression in expressions for name in expression.columns())


def names_of(columns: Iterable[Column]) -> frozenset[str]:
    return frozenset(column.name for column in columns)


@cache
def _input_fields(node_type: type[LogicalPlan]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(node_type) if field.type == "LogicalPlan")
