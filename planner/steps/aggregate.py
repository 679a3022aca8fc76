"""GROUP BY: aggregates the rows of a group, and of its window, into one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from millstream.errors import InvalidProperty

from ...sql.functions.aggregation.aggregates import AGGREGATES
from ...sql.types import SqlType
from ..expressions.readable import with_names
from ..expressions.typed import Typed
from ..insight.lineage_rows import LineageRows, Value, indirect, shortened
from ..insight.stall import Cause, OperatorSeen, counted
from ..logical import Unary, names_of, read_by
from ..lowering import Lowering, sql_over
from ..schema import Column, Schema
from ..specs import KeyWindow, Kind, SqlExpression, WindowSpec
from .step import Step, Text, reads_times

Emit = Literal["CHANGES", "FINAL"]
Constant = str | int | bool | float | None


@dataclass(frozen=True, slots=True)
class Call:
    """An aggregate call: `name` is the column of its result. Only rows for which `filter` is true count; with
    `distinct`, only the first of equal arguments."""

    name: str
    function: str
    arguments: tuple[Typed, ...]
    constants: tuple[Constant, ...]
    column: Column
    filter: Typed | None = None
    distinct: bool = False

    @property
    def inputs(self) -> tuple[Typed, ...]:
        """Every expression over the rows that it reads."""
        return self.arguments if self.filter is None else (*self.arguments, self.filter)

    def lower(self, read: Schema, *, retracts: bool) -> AggregateCall:
        return AggregateCall(
            self.function,
            tuple(sql_over(read, argument) for argument in self.arguments),
            self.constants,
            self.column.type,
            None if self.filter is None else sql_over(read, self.filter),
            self.distinct,
            ordered=retracts and AGGREGATES[self.function].picks is not None,
        )


@dataclass(frozen=True, slots=True)
class LogicalAggregate(Unary):
    """One row per key (and window) with a column per call. `emit_old`: changes include the row that they replace.
    `of_all`: without GROUP BY; the rows are one group, which has a result even if there are none."""

    calls: tuple[Call, ...]
    window: WindowSpec | None = None
    emit: Emit = "CHANGES"
    emit_old: bool = False
    of_all: bool = False

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema.key, *(call.column for call in self.calls)))

    @property
    def kind(self) -> Kind:
        return "TABLE"

    @property
    def key_window(self) -> KeyWindow | None:
        return self.input.key_window if self.window is None else self.window.of_keys

    @property
    def only_adds(self) -> bool:
        return self.emit == "FINAL"

    def giving_old_rows(self, wanted: bool) -> LogicalAggregate:
        return replace(self, emit_old=self.emit_old or wanted)

    def wants_old_rows(self, wanted: bool) -> tuple[bool, ...]:
        return (True,)

    def columns_read(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (names_of(self.input.schema.key) | read_by(typed for call in self.calls for typed in call.inputs),)

    def lower(self, lowering: Lowering) -> Aggregate:
        step, retracts = self.input.lower(lowering), self.input.kind == "TABLE"
        return Aggregate(
            lowering.id("aggregate"),
            step,
            tuple(call.lower(self.input.schema, retracts=retracts) for call in self.calls),
            self.schema,
            self.window,
            retracts=retracts,
            emit_old=self.emit_old,
            emit=self.emit,
            of_all=self.of_all,
        )


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One aggregate: the function's name in the catalog, arguments over the input's columns, and result type.

    `constants` are the literal initial arguments (k of TOPK, ignoreNulls), as Python values. Only rows for which
    `filter` is true count; with `distinct`, only the first of equal arguments. With `ordered`, the group's values are
    kept in a store, because the result is one of the values (by their order), and rows may be retracted.
    """

    function: str
    arguments: tuple[SqlExpression, ...]
    constants: tuple[Constant, ...]
    type: SqlType
    filter: SqlExpression | None = None
    distinct: bool = False
    ordered: bool = False

    @property
    def conditions(self) -> tuple[SqlExpression, ...]:
        return () if self.filter is None else (self.filter,)

    def describe(self, text: Text = str) -> str:
        arguments = ", ".join([text(e.sql) for e in self.arguments] + [repr(c) for c in self.constants])
        condition = "" if self.filter is None else f" FILTER (WHERE {text(self.filter.sql)})"
        return f"{self.function}({'DISTINCT ' if self.distinct else ''}{arguments}){condition}"


@dataclass(frozen=True, slots=True)
class Aggregate(Step):
    """Aggregates the rows of each key (and window) into one.

    In:    rows with the grouping key in `k0`…; a stream's +1 rows, or a table's changes (`retracts`).
    Out:   the input's `k0`…, `_ws`/`_we` if windowed, and a value column per call, in order. Each input row emits the
           old result at -1 (only with `emit_old`) and the new one at +1. SESSION: a merged session's old rows are
           always emitted at -1. `emit` FINAL: one +1 row per window when it closes (stream time ≥ end + grace), and
           nothing before.
    `repeats`: emit every change, also a result that replaces an equal one.
    `of_all`: the rows are one group, which has a result even if there are none: a COUNT of 0.
    `ttl_ms`: a group whose largest rowtime is this far behind stream time is emitted at -1, and starts again.
    Rows older than the window's end plus grace are dropped. Rows whose value is null (`_null`) or with a NULL key part
    are ignored.
    """

    input: Step
    calls: tuple[AggregateCall, ...]
    schema: Schema
    window: WindowSpec | None = None
    retracts: bool = False
    emit_old: bool = False
    emit: Emit = "CHANGES"
    ttl_ms: int | None = None
    repeats: bool = True
    of_all: bool = False

    @property
    def expressions(self) -> tuple[SqlExpression, ...]:
        return tuple(each for call in self.calls for each in (*call.arguments, *call.conditions))

    @property
    def function_names(self) -> tuple[str, ...]:
        return tuple(call.function for call in self.calls)

    @property
    def gives(self) -> Kind:
        return "TABLE"

    @property
    def window_of_keys(self) -> KeyWindow | None:
        return self.input.window_of_keys if self.window is None else self.window.of_keys

    @property
    def grouping_window(self) -> WindowSpec | None:
        return self.window

    @property
    def stateful(self) -> bool:
        return True

    @property
    def asks_stream_time(self) -> bool:
        """For windows, true only if they are emitted when they close: then records that a filter drops must advance the
        time, too. Otherwise only rows that arrive here advance it, as in Kafka Streams."""
        return self.ttl_ms is not None if self.window is None else self.final and not self.lossy

    @property
    def lossy(self) -> bool:
        """Whether a window that is older than its retention when it closes is lost, as in ksqlDB."""
        return self.final and self.window is not None and self.window.retention_ms is not None

    @property
    def passes_stream_time(self) -> bool:
        return False

    @property
    def final(self) -> bool:
        return self.emit == "FINAL"

    def forgetting(self, ttl_ms: int) -> Step | None:
        """Groups without a window start again. Windows need no TTL here: `Expire` deletes their rows once nothing can
        change them."""
        if self.window is None:
            return replace(self, ttl_ms=ttl_ms)
        open_ms = self.window.size_ms + self.window.grace_ms
        if ttl_ms < open_ms:
            raise InvalidProperty(
                f"TTL is shorter than a window stays open ({open_ms} ms, its size and grace period).",
                hint="Give the window a shorter GRACE PERIOD, or the table a longer TTL.",
            )
        return None

    @property
    def state_identity(self) -> Step | None:
        """What it emits of its state may change: a HAVING needs old rows."""
        return replace(self.without_inputs(), repeats=True, emit_old=False)

    def kept_values(self, *below: LineageRows) -> tuple[str, ...]:
        return tuple(value.text for value in self.lineage(*below).values.values())  # of its calls

    def without_repeats(self, unwanted: bool = False) -> Step:
        """Like Flink's aggregates, it then emits no result that replaces an equal one. For example, only a few bids on
        an auction raise its highest bid: of the values that Nexmark's q4 averages, four fifths repeated the previous
        one."""
        if self.window is not None or self.ttl_ms is not None:
            return self
        below = self.input.without_repeats(unwanted=not reads_times(self.expressions))
        return replace(self, input=below, repeats=not (unwanted and self.emit_old))

    def stall(self, seen: OperatorSeen, covered: Sequence[Step]) -> Iterator[Cause]:
        if seen.late_rows:
            assert self.window is not None, "nothing is late without a window"
            yield Cause(
                "LATE_ROWS",
                f"{seen.late_rows} of {counted(seen.rows_in, 'row')} came too late for their window: it had closed "
                f"({self.window.grace_text}).",
                "A longer GRACE PERIOD accepts them, and delays final results.",
                blocks=seen.late_rows == seen.rows_in,
                figures={
                    "step": self.id,
                    "late": seen.late_rows,
                    "rowsIn": seen.rows_in,
                    "graceMs": self.window.grace_ms,
                },
            )
        elif seen.rows_in and not seen.rows_out and not self.final:
            yield Cause(
                "NOTHING_TO_GROUP",
                f"{counted(seen.rows_in, 'row')} reached the aggregate, and none was counted.",
                "Rows with a NULL value or key are skipped.",
                figures={"step": self.id},
            )

    @property
    def word(self) -> str:
        return "aggregate"

    def describe(self, text: Text = str) -> str:
        window = "" if self.window is None else f" {self.window}"
        emit = " EMIT FINAL" if self.final else ""
        ttl = "" if self.ttl_ms is None else f", TTL {self.ttl_ms} ms"
        calls = ", ".join(call.describe(text) for call in self.calls)
        return f"AGGREGATE{window} {calls}{emit}{ttl} | {self.schema}"

    def lineage(self, *below: LineageRows) -> LineageRows:
        (rows,) = below
        values = {f"v{i}": _value(call, rows) for i, call in enumerate(self.calls)}
        influences = rows.influences
        for value in rows.keys.values():
            influences += indirect(value.influences, "GROUP_BY", value.text)
        bounds: dict[str, Value] = {}
        if self.window is not None:
            times = rows.influences_of("_ts")
            influences += indirect(times, "WINDOW", f"WINDOW {self.window.kind}")
            for name, text in (("_ws", "WINDOWSTART"), ("_we", "WINDOWEND")):
                bounds[name] = Value(text, tuple(each.changed("TRANSFORMATION", text) for each in times))
        return LineageRows({**rows.pseudo, **bounds, **rows.keys, **values}, influences)


def _value(call: AggregateCall, rows: LineageRows) -> Value:
    text = with_names(shortened(call.describe(rows.full_text).replace("COUNT()", "COUNT(*)")))
    return Value(text, rows.used_by(call.arguments, "AGGREGATION", text) + rows.deciding(call.conditions, "FILTER"))
