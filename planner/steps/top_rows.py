"""Top-n: the first rows of each partition, with their ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...sql.functions.over_functions import OVER_FUNCTIONS
from ...sql.types import BIGINT, Array, Map, Struct
from ..expressions.typed import Typed
from ..insight.lineage_rows import LineageRows, Value, indirect
from ..logical import LogicalPlan, Unary, names_of, read_by
from ..lowering import Lowering, sql_over
from ..schema import Column, Schema
from ..specs import KeyWindow, Kind, SqlExpression
from .over_calls import ROW_NUMBER_COLUMN, LogicalOverCall, OverCall, value_of_call
from .step import Step, Text


@dataclass(frozen=True, slots=True)
class LogicalTopRows(Unary):
    """The rows whose rank, by `call`, is at most `largest` among the rows of their key. `numbered`: with the column
    `#row`, which identifies a row of a stream; `identity` identifies a row of a table. `emit_old`: changes include the
    row that they replace; for a table they always do."""

    call: LogicalOverCall
    largest: int
    numbered: bool = True
    emit_old: bool = False
    identity: tuple[Typed, ...] = ()

    @property
    def schema(self) -> Schema:
        number = (Column(ROW_NUMBER_COLUMN, BIGINT),) if self.numbered else ()
        return Schema((*self.input.schema.columns, self.call.column, *number))

    @property
    def kind(self) -> Kind:
        return "TABLE"

    @property
    def key_may_be_null(self) -> bool:
        return True

    @property
    def key_window(self) -> KeyWindow | None:
        return None

    def giving(self, needed: frozenset[str]) -> LogicalTopRows:
        return replace(self, numbered=ROW_NUMBER_COLUMN in needed and not self.identity)

    def giving_old_rows(self, wanted: bool) -> LogicalTopRows:
        return replace(self, emit_old=self.emit_old or wanted)

    def wants_old_rows(self, wanted: bool) -> tuple[bool, ...]:
        return (True,)

    def columns_read(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (needed | names_of(self.input.schema.key) | read_by((*self.identity, *self.call.inputs)),)

    def bounded(self, column: str, largest: int) -> LogicalPlan:
        return replace(self, largest=largest) if column == self.call.name and 1 <= largest < self.largest else self

    def largest_rank(self, column: str) -> int | None:
        return self.largest if column == self.call.name else None

    def lower(self, lowering: Lowering) -> TopRows:
        step, call = self.input.lower(lowering), self.call.lower(self.input.schema)
        # If the numbers are not read, partition and rank are the key: a new row replaces the previous one.
        emit_old = self.emit_old or self.numbered or bool(self.identity)
        # Rows that are never deleted need neither be stored nor identified if they are beyond the bound.
        told_apart = () if self.input.only_adds and not self.call.breaks_ties else self.identity
        identity = tuple(sql_over(self.input.schema, typed) for typed in told_apart)
        return TopRows(lowering.id("top"), step, call, self.schema, self.largest, self.numbered, emit_old, identity)


def can_rank(call: LogicalOverCall, largest: int) -> bool:
    """Whether the call is a ranking whose rows can be ordered by the values of their sort keys."""
    sorted_by = (*(key.expression for key in call.order), *(call.ties if call.breaks_ties else ()))
    nested = any(isinstance(each.type, Array | Map | Struct) for each in sorted_by)
    return OVER_FUNCTIONS[call.function].ranks and largest >= 1 and not nested


@dataclass(frozen=True, slots=True)
class TopRows(Step):
    """The first rows of each partition; the partitions are the keys of the input.

    In:  rows that are never deleted (of a stream, or final results); or a table's changes with their old rows, where
         `identity` identifies a row.
    Out: the input's key and values, the rank, and with `numbered` a number that identifies a row. Of the rows with a
         rank up to `largest`, those whose rank changes are emitted. The changes that one row causes in its partition
         have its `_seq`: first -1 rows, then +1 rows; either for every row, or for all rows of a batch together. There
         are -1 rows only with `emit_old`; otherwise the next row with the same rank replaces the previous one. For a
         table, whose rows may move between partitions, the changes of all partitions that one change, or a batch,
         touches are emitted together.
    """

    input: Step
    call: OverCall
    schema: Schema
    largest: int
    numbered: bool = True
    emit_old: bool = True
    identity: tuple[SqlExpression, ...] = ()

    @property
    def expressions(self) -> tuple[SqlExpression, ...]:
        return (*self.identity, *self.call.expressions)

    @property
    def gives(self) -> Kind:
        return "TABLE"

    @property
    def passes_columns(self) -> bool:
        return True

    def nets_batches(self, every_change: bool) -> bool:
        return bool(self.identity) and not every_change

    @property
    def stateful(self) -> bool:
        return True

    @property
    def word(self) -> str:
        return "window functions"

    @property
    def rank_position(self) -> int:
        """The position of the rank among the values."""
        return len(self.schema.value) - 1 - self.numbered

    def describe(self, text: Text = str) -> str:
        keys = ", ".join(f"k{i}" for i in range(len(self.schema.key))) or "nothing"
        rank = f"v{self.rank_position} <= {self.largest}"
        return f"TOP ROWS of partitions by {keys}: {self.call.describe(text)}, {rank} | {self.schema}"

    def lineage(self, *below: LineageRows) -> LineageRows:
        (rows,) = below
        values, position = dict(rows.values), self.rank_position
        partition = sum((indirect(value.influences, "WINDOW", value.text) for value in rows.keys.values()), ())
        rank = value_of_call(self.call, rows, partition)
        values[f"v{position}"] = rank
        if self.numbered:
            values[f"v{position + 1}"] = Value("a number")
        decided = indirect(rank.influences, "FILTER", f"{rank.text} <= {self.largest}")
        return LineageRows(values, rows.influences + decided)
