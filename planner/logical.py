"""The analyzed plan: names, types and keys are known, topics and stores are not.

A node's expressions read the columns of its input by their logical names; names are unique within a node's schema.
Next to its schema's columns a node has the pseudo columns (ROWTIME, …). `lowering.py` turns names into positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..sql.types import BIGINT
from .catalog import SourceInfo
from .physical import FormatSpec, JoinKind, KeyWindow, WindowSpec
from .schema import Column, Schema
from .typed import Typed

Kind = Literal["STREAM", "TABLE"]


@dataclass(frozen=True, slots=True)
class Named:
    """A column to be: its name and what it is computed from."""

    name: str
    expression: Typed

    def column(self, role: Literal["KEY", "VALUE"]) -> Column:
        return Column(self.name, self.expression.type, role)


@dataclass(frozen=True, slots=True)
class LogicalPlan:
    """Base of all nodes."""

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
        """Whether rows of one key may lie in several tasks."""
        return False

    @property
    def key_may_be_null(self) -> bool:
        """Whether a table's row may have a key of NULLs. Groups and the rows of declared tables have none."""
        return False


@dataclass(frozen=True, slots=True)
class Scan(LogicalPlan):
    """The rows of a stream or table. `needed`: the names that somebody reads, None while unknown.
    `with_old_rows`: a table's changes come with the row they replace."""

    source: SourceInfo
    timestamp: Typed | None = None
    needed: frozenset[str] | None = None
    with_old_rows: bool = False

    @property
    def schema(self) -> Schema:
        return self.source.schema

    @property
    def kind(self) -> Kind:
        return self.source.kind

    @property
    def key_window(self) -> KeyWindow | None:
        return self.source.key_window


@dataclass(frozen=True, slots=True)
class _Unary(LogicalPlan):
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


@dataclass(frozen=True, slots=True)
class Filter(_Unary):
    """Keeps the rows for which `predicate` is true; NULL counts as false."""

    predicate: Typed


@dataclass(frozen=True, slots=True)
class Project(_Unary):
    """New value columns; new names for the key columns where `key` is not None (their values stay).

    `drop_key`: the rows have no key afterwards.
    """

    values: tuple[Named, ...]
    key: tuple[Named, ...] | None = None

    @property
    def schema(self) -> Schema:
        key = self.input.schema.key if self.key is None else tuple(named.column("KEY") for named in self.key)
        return Schema((*key, *(named.column("VALUE") for named in self.values)))


@dataclass(frozen=True, slots=True)
class Repartition(_Unary):
    """A new key; values stay. Rows without a key go on, unless `drop_null_key`.

    `partition_count`: over how many partitions the new keys spread; None is as many as the first source has.
    `key_format`: whose bytes decide about the partition, where rows of a topic with such keys are to be met.
    `keeps_window`: the key stays what it is, with its window, and only lies elsewhere.
    """

    key: tuple[Named, ...]
    drop_null_key: bool = False
    partition_count: int | None = None
    key_format: FormatSpec | None = None
    keeps_window: bool = False

    @property
    def schema(self) -> Schema:
        return Schema((*(named.column("KEY") for named in self.key), *self.input.schema.value))

    @property
    def key_window(self) -> KeyWindow | None:
        return self.input.key_window if self.keeps_window else None

    @property
    def scattered(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Call:
    """An aggregate call: `name` is the column its result gets. Only rows for which `filter` is true count, with
    `distinct` only the first of equal arguments."""

    name: str
    function: str
    arguments: tuple[Typed, ...]
    constants: tuple[str | int | bool | float | None, ...]
    column: Column
    filter: Typed | None = None
    distinct: bool = False

    @property
    def inputs(self) -> tuple[Typed, ...]:
        """Every expression over the rows that it reads."""
        return self.arguments if self.filter is None else (*self.arguments, self.filter)


@dataclass(frozen=True, slots=True)
class Aggregate(_Unary):
    """One row per key (and window) with a column per call. `emit_old`: changes come with the row they replace."""

    calls: tuple[Call, ...]
    window: WindowSpec | None = None
    emit: Literal["CHANGES", "FINAL"] = "CHANGES"
    emit_old: bool = False

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema.key, *(call.column for call in self.calls)))

    @property
    def kind(self) -> Kind:
        return "TABLE"

    @property
    def key_window(self) -> KeyWindow | None:
        if self.window is None:
            return self.input.key_window
        return self.window.of_keys


@dataclass(frozen=True, slots=True)
class SortKey:
    """An expression of ORDER BY in OVER."""

    expression: Typed
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class OverCall:
    """A function OVER its partition; `name` is the column its result gets, `frame` generated SQL."""

    name: str
    function: str
    arguments: tuple[Typed, ...]
    order: tuple[SortKey, ...]
    column: Column
    frame: str = ""
    filter: Typed | None = None
    distinct: bool = False

    @property
    def inputs(self) -> tuple[Typed, ...]:
        """Every expression over the rows that it reads."""
        condition = () if self.filter is None else (self.filter,)
        return (*self.arguments, *(key.expression for key in self.order), *condition)


ROW_NUMBER_COLUMN = "#row"


@dataclass(frozen=True, slots=True)
class Over(_Unary):
    """A column per call, over the rows with the same key. `identity`: what tells the rows of a table apart; the rows of
    a stream get the column `#row`. `bound`: only rows with at most this in the column of a call matter."""

    calls: tuple[OverCall, ...]
    identity: tuple[Typed, ...] = ()
    bound: tuple[str, int] | None = None

    @property
    def schema(self) -> Schema:
        number = () if self.identity else (Column(ROW_NUMBER_COLUMN, BIGINT),)
        return Schema((*self.input.schema.columns, *(call.column for call in self.calls), *number))

    @property
    def kind(self) -> Kind:
        return "TABLE"

    @property
    def key_may_be_null(self) -> bool:
        return True

    @property
    def key_window(self) -> KeyWindow | None:
        return None


@dataclass(frozen=True, slots=True)
class StreamTableJoin(LogicalPlan):
    """Each row of `left` with the row of `right` that has its key at that moment."""

    left: LogicalPlan
    right: LogicalPlan
    join: Literal["INNER", "LEFT"]

    @property
    def schema(self) -> Schema:
        right_key = tuple(Column(column.name, column.type) for column in self.right.schema.key)
        return Schema((*self.left.schema.key, *self.left.schema.value, *right_key, *self.right.schema.value))

    @property
    def kind(self) -> Kind:
        return "STREAM"

    @property
    def key_window(self) -> KeyWindow | None:
        return self.left.key_window


@dataclass(frozen=True, slots=True)
class _Join(LogicalPlan):
    """Rows of both sides with one key; the key columns are named alike."""

    left: LogicalPlan
    right: LogicalPlan
    join: JoinKind

    @property
    def schema(self) -> Schema:
        return Schema((*self.left.schema.key, *self.left.schema.value, *self.right.schema.value))

    @property
    def kind(self) -> Kind:
        return self.left.kind

    @property
    def key_window(self) -> KeyWindow | None:
        return self.left.key_window


@dataclass(frozen=True, slots=True)
class StreamStreamJoin(_Join):
    """A left row at t with the right rows in [t - before, t + after]. `grace_ms` None: rows without a partner are given
    out at once."""

    before_ms: int
    after_ms: int
    grace_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TableTableJoin(_Join):
    """Rows with equal primary keys. `emit_old`: changes come with the row they replace."""

    emit_old: bool = False


@dataclass(frozen=True, slots=True)
class ForeignKeyJoin(_Join):
    """Rows of the left table, under their foreign key, with the right table's row of that key. `left_key` names the
    columns that hold the left table's primary key."""

    left_key: tuple[str, ...]
    emit_old: bool = False


@dataclass(frozen=True, slots=True)
class RowJoin(_Join):
    """Rows of both sides, tables or streams, that agree in the key they lie under, whatever that is. Any change of
    either side takes results back and gives new ones. `left_key`, `right_key` name the columns by which the rows of a
    side are told apart."""

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


@dataclass(frozen=True, slots=True)
class Union(LogicalPlan):
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


@dataclass(frozen=True, slots=True)
class Explode(_Unary):
    """One row per element of `arrays`, side by side; the value columns stay in front."""

    arrays: tuple[Named, ...]

    @property
    def schema(self) -> Schema:
        elements = tuple(Column(named.name, named.expression.type) for named in self.arrays)
        return Schema((*self.input.schema.columns, *elements))
