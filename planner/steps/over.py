"""Window functions: functions OVER the rows of a partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ...sql.functions.over_functions import OVER_FUNCTIONS
from ...sql.types import BIGINT
from ..expressions.typed import Typed
from ..insight.lineage_rows import LineageRows, Value, indirect
from ..insight.stall import Cause, OperatorSeen, counted
from ..logical import LogicalPlan, Unary, names_of, read_by
from ..lowering import Lowering, sql_over
from ..schema import Column, Schema
from ..specs import KeyWindow, Kind, SqlExpression
from .over_calls import ROW_NUMBER_COLUMN, LogicalOverCall, OverCall, value_of_call
from .step import Step, Text
from .top_rows import LogicalTopRows, can_rank


@dataclass(frozen=True, slots=True)
class Lateness:
    """A stream's rows that are more than `grace_ms` behind the stream time of their task are dropped. No frame reaches
    further from its row than `before_ms` and `after_ms`, so old rows need not be stored."""

    grace_ms: int
    before_ms: int
    after_ms: int

    @property
    def final_after_ms(self) -> int:
        """The results of a row that is this far behind stream time can no longer change."""
        return self.grace_ms + self.after_ms

    @property
    def kept_ms(self) -> int:
        """No result that can still change reads a row that is this far behind stream time."""
        return self.final_after_ms + self.before_ms


@dataclass(frozen=True, slots=True)
class LogicalOver(Unary):
    """A column per call, over the rows with the same key. `identity`: the columns that identify a row of a table; the
    rows of a stream get the column `#row` instead, which is their order of arrival. `arrival`: such a column of the
    input. `bound`: the reader needs only rows with at most this value in the column of a call."""

    calls: tuple[LogicalOverCall, ...]
    identity: tuple[Typed, ...] = ()
    bound: tuple[str, int] | None = None
    lateness: Lateness | None = None
    arrival: Typed | None = None

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

    def wants_old_rows(self, wanted: bool) -> tuple[bool, ...]:
        return (True,)

    def columns_read(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        order = () if self.arrival is None else (self.arrival,)
        read = read_by((*self.identity, *order, *(typed for call in self.calls for typed in call.inputs)))
        return (needed | names_of(self.input.schema.key) | read,)

    def bounded(self, column: str, largest: int) -> LogicalPlan:
        if column not in (call.name for call in self.calls):
            return self
        if len(self.calls) == 1 and can_rank(self.calls[0], largest):
            call = self.calls[0].with_whole_order(self.arrival)
            return LogicalTopRows(self.input, call, largest, not self.identity, identity=self.identity)
        if not self._can_be_bounded:
            return self
        return self if self.bound is not None and self.bound[1] <= largest else replace(self, bound=(column, largest))

    @property
    def _can_be_bounded(self) -> bool:
        """Whether rows beyond a bound never matter: a stream's rows are never deleted, and ranks depend only on earlier
        rows."""
        ranks = all(OVER_FUNCTIONS[call.function].ranks for call in self.calls)
        return not self.identity and ranks and len({repr(call.order) for call in self.calls}) == 1

    def lower(self, lowering: Lowering) -> Over:
        step, read = self.input.lower(lowering), self.input.schema
        calls = tuple(call.lower(read) for call in self.calls)
        identity = tuple(sql_over(read, typed) for typed in self.identity)
        bound = None
        if self.bound is not None:
            name, largest = self.bound
            bound = next(i for i, call in enumerate(self.calls) if call.name == name), largest
        arrival = None if self.arrival is None else sql_over(read, self.arrival)
        return Over(lowering.id("over"), step, calls, self.schema, identity, bound, self.lateness, arrival=arrival)


@dataclass(frozen=True, slots=True)
class Over(Step):
    """Functions OVER partitions; the partitions are the keys of the input.

    In:    a stream's rows; or a table's changes with their old rows, where `identity` identifies a row.
    Out:   the input's key and values, a value per call, and for a stream a number that identifies a row. The changes of
           the results are emitted at -1 and +1: for a stream, all of a partition and batch under one `_seq`; for a
           table, whose rows may move between partitions, all of the batch.
    `bound`: only rows for which that call's result is at most this are needed; of a stream no others are stored.
    `lateness`: rows of a stream that come too late are dropped, and rows that are no longer read are not stored.
    `arrival`: the order of a stream's rows that are equal in ORDER BY; without it, their order of arrival here.
    `numbered`: a table's rows get a number, too. Only older plans have it: a table's rows were then ordered by the
    arrival of their last changes (and calls had no `ties`). A table does not show that order, so a pull query gave
    other numbers.
    """

    input: Step
    calls: tuple[OverCall, ...]
    schema: Schema
    identity: tuple[SqlExpression, ...] = ()
    bound: tuple[int, int] | None = None  # the call's position, the largest result
    lateness: Lateness | None = None
    numbered: bool = False
    arrival: SqlExpression | None = None

    @property
    def expressions(self) -> tuple[SqlExpression, ...]:
        order = () if self.arrival is None else (self.arrival,)
        return (*self.identity, *order, *(each for call in self.calls for each in call.expressions))

    @property
    def gives_number(self) -> bool:
        """Whether the last value is a number that identifies a row."""
        return self.numbered or not self.identity

    @property
    def gives(self) -> Kind:
        return "TABLE"

    @property
    def passes_columns(self) -> bool:
        return True

    def nets_batches(self, every_change: bool) -> bool:
        return bool(self.identity)

    @property
    def stateful(self) -> bool:
        return True

    @property
    def asks_stream_time(self) -> bool:
        return self.lateness is not None

    @property
    def word(self) -> str:
        return "window functions"

    @property
    def first_result(self) -> int:
        """The position of the first call's result among the values."""
        return len(self.schema.value) - len(self.calls) - self.gives_number

    def describe(self, text: Text = str) -> str:
        keys = ", ".join(f"k{i}" for i in range(len(self.schema.key))) or "nothing"
        bound = "" if self.bound is None else f", rows with v{self.first_result + self.bound[0]} <= {self.bound[1]}"
        late = "" if self.lateness is None else f", late by {self.lateness.grace_ms} ms"
        calls = ", ".join(call.describe(text) for call in self.calls)
        return f"OVER partitions by {keys}: {calls}{bound}{late} | {self.schema}"

    def stall(self, seen: OperatorSeen, covered: Sequence[Step]) -> Iterator[Cause]:
        if self.lateness is not None and seen.late_rows:
            grace_ms = self.lateness.grace_ms
            yield Cause(
                "LATE_ROWS",
                f"{seen.late_rows} of {counted(seen.rows_in, 'row')} came more than {grace_ms} ms late.",
                "A longer GRACE PERIOD accepts them, and stores rows longer.",
                blocks=seen.late_rows == seen.rows_in,
                figures={"step": self.id, "late": seen.late_rows, "rowsIn": seen.rows_in, "graceMs": grace_ms},
            )
        else:
            yield from Step.stall(self, seen, covered)

    def lineage(self, *below: LineageRows) -> LineageRows:
        (rows,) = below
        values, first = dict(rows.values), self.first_result
        partition = sum((indirect(value.influences, "WINDOW", value.text) for value in rows.keys.values()), ())
        for i, call in enumerate(self.calls):
            values[f"v{first + i}"] = value_of_call(call, rows, partition)
        if self.gives_number:
            values[f"v{first + len(self.calls)}"] = Value("a number")
        if self.bound is None:
            return LineageRows(values, rows.influences)
        position, largest = self.bound
        bound = values[f"v{first + position}"]
        return LineageRows(values, rows.influences + indirect(bound.influences, "FILTER", f"{bound.text} <= {largest}"))
