"""Calls of functions OVER partitions, in the analyzed plan and in steps."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...sql.functions.over_functions import OVER_FUNCTIONS
from ...sql.types import SqlType
from ..expressions.readable import with_names
from ..expressions.typed import Typed
from ..insight.lineage_rows import Influence, LineageRows, Value, shortened
from ..lowering import sql_over
from ..schema import Column, Schema
from ..specs import SqlExpression
from .step import Text

ROW_NUMBER_COLUMN = "#row"


@dataclass(frozen=True, slots=True)
class LogicalSortKey:
    """An expression of ORDER BY in OVER."""

    expression: Typed
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class LogicalOverCall:
    """A function OVER its partition; `name` is the column of its result, `frame` generated SQL. `ties`: as in
    `OverCall`."""

    name: str
    function: str
    arguments: tuple[Typed, ...]
    order: tuple[LogicalSortKey, ...]
    column: Column
    frame: str = ""
    filter: Typed | None = None
    distinct: bool = False
    measured: bool = False
    ties: tuple[Typed, ...] = ()

    @property
    def inputs(self) -> tuple[Typed, ...]:
        """Every expression over the rows that it reads."""
        condition = () if self.filter is None else (self.filter,)
        return (*self.arguments, *(key.expression for key in self.order), *condition, *self.ties)

    @property
    def breaks_ties(self) -> bool:
        """Whether the result depends on the order of rows that are equal in ORDER BY."""
        return OVER_FUNCTIONS[self.function].breaks_ties or self.frame.startswith("ROWS")

    def with_whole_order(self, arrival: Typed | None) -> LogicalOverCall:
        """The call of a ranking function, with `ties` or `arrival` added to its order, so that no rows are equal."""
        if not self.breaks_ties:
            return self
        last = self.ties or (() if arrival is None else (arrival,))
        keys = (LogicalSortKey(each, descending=False, nulls_first=False) for each in last)
        return replace(self, order=(*self.order, *keys), ties=())

    def lower(self, read: Schema) -> OverCall:
        return OverCall(
            self.function,
            tuple(sql_over(read, argument) for argument in self.arguments),
            tuple(SortKey(sql_over(read, key.expression), key.descending, key.nulls_first) for key in self.order),
            self.column.type,
            self.frame,
            None if self.filter is None else sql_over(read, self.filter),
            self.distinct,
            self.breaks_ties,
            self.measured,
            tuple(sql_over(read, each) for each in self.ties) if self.breaks_ties else (),
        )


@dataclass(frozen=True, slots=True)
class SortKey:
    """An expression of ORDER BY in OVER."""

    expression: SqlExpression
    descending: bool = False
    nulls_first: bool = False

    def describe(self, text: Text = str) -> str:
        direction, nulls = " DESC" if self.descending else "", " NULLS FIRST" if self.nulls_first else ""
        return f"{text(self.expression.sql)}{direction}{nulls}"


@dataclass(frozen=True, slots=True)
class OverCall:
    """A function OVER the rows of its partition: its name, and `frame` as generated SQL; empty: the default frame.

    `breaks_ties`: rows that are equal in ORDER BY are ordered by `ties`, or without `ties` by their arrival.
    `measured`: the frame is bounded by distances, in the smallest units of the ORDER BY column.
    """

    function: str
    arguments: tuple[SqlExpression, ...]
    order: tuple[SortKey, ...]
    type: SqlType
    frame: str = ""
    filter: SqlExpression | None = None
    distinct: bool = False
    breaks_ties: bool = True
    measured: bool = False
    ties: tuple[SqlExpression, ...] = ()

    @property
    def ranged(self) -> bool:
        """Whether rows that are equal in ORDER BY are always in a frame together."""
        return self.frame.startswith("RANGE")

    @property
    def conditions(self) -> tuple[SqlExpression, ...]:
        return () if self.filter is None else (self.filter,)

    @property
    def sorted_by(self) -> tuple[SqlExpression, ...]:
        return tuple(key.expression for key in self.order)

    @property
    def expressions(self) -> tuple[SqlExpression, ...]:
        """All expressions that it computes over a row of the input."""
        return (*self.arguments, *self.sorted_by, *self.conditions, *self.ties)

    def describe(self, text: Text = str) -> str:
        arguments = ", ".join(text(e.sql) for e in self.arguments)
        condition = "" if self.filter is None else f" FILTER (WHERE {text(self.filter.sql)})"
        order = ", ".join(key.describe(text) for key in self.order)
        ties = f"equal rows by {', '.join(text(e.sql) for e in self.ties)}" if self.ties else ""
        parts = [f"ORDER BY {order}" if order else "", self.frame, ties]
        head = f"{self.function}({'DISTINCT ' if self.distinct else ''}{arguments}){condition}"
        return f"{head} OVER ({' '.join(part for part in parts if part)})"


def value_of_call(call: OverCall, rows: LineageRows, partition: tuple[Influence, ...]) -> Value:
    text = with_names(shortened(call.describe(rows.full_text)))
    direct = rows.used_by(call.arguments, "AGGREGATION", text)
    decided = rows.deciding(call.sorted_by, "SORT") + rows.deciding(call.conditions, "FILTER")
    return Value(text, direct + partition + decided)
