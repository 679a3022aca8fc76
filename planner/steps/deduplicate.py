"""DEDUPLICATE(TABLE clicks PARTITION BY id, INTERVAL '10' MINUTE): keeps the first row of each key within a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from millstream.errors import InvalidStatement

from ...sql import ast
from ..insight.lineage_rows import LineageRows, indirect
from ..insight.stall import Cause, OperatorSeen, counted
from ..limits import REMEMBERED_MS_MAX
from ..logical import Named, Unary, names_of
from ..lowering import Lowering
from ..planning import PlanningContext
from ..schema import Schema
from ..select.origin import Origin
from ..select.table_functions import TableFunction, compared, stream_rows
from .project import under_key_of, with_key_as_value
from .repartition import Repartition
from .step import NOTHING, Step, Text


class DeduplicateFunction(TableFunction):
    """Keeps the columns and the key. Rows that are the same event become one row.

    The first interval is the time within which rows with equal keys are duplicates. The second one is how late a row
    may come; its default is the first one.
    """

    name = "DEDUPLICATE"
    shape = "k+ii?"
    example = "DEDUPLICATE(TABLE bids PARTITION BY bidder, auction, INTERVAL '10' MINUTE)"

    def over(self, call: ast.TableFunctionCall, origin: Origin, context: PlanningContext) -> Origin:
        rows = stream_rows(call, origin, "A table has one row per key already.")
        if sum(call.intervals_ms) > REMEMBERED_MS_MAX:
            raise InvalidStatement("DEDUPLICATE remembers rows for 100 years at most", span=call.span)
        by = compared(call, "PARTITION BY", call.partition_by, origin, context)
        within_ms, late_ms = call.intervals_ms[0], call.intervals_ms[-1]
        key = tuple(Named(f"#by {typed.column}", typed) for typed in by)
        first = LogicalDeduplicate(Repartition(with_key_as_value(rows), key), within_ms, late_ms)
        return replace(origin, plan=under_key_of(rows, first), partitioning=None, beyond=True)


@dataclass(frozen=True, slots=True)
class LogicalDeduplicate(Unary):
    """The first row of each key within a time. Its input is keyed by the compared columns."""

    within_ms: int
    late_ms: int

    @property
    def scattered(self) -> bool:
        """The rows get the stream's key back, but stay in the tasks of the compared columns."""
        return True

    def columns_read(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (needed | names_of(self.input.schema.key),)

    def lower(self, lowering: Lowering) -> Deduplicate:
        step = self.input.lower(lowering)
        return Deduplicate(lowering.id("deduplicate"), step, self.within_ms, self.late_ms, self.schema)


@dataclass(frozen=True, slots=True)
class Deduplicate(Step):
    """Keeps the rows of a key that are not close to a row that was kept before.

    In:    a stream's rows under the compared key; a NULL in it is equal to NULL.
    Out:   in order of arrival, the rows whose time is at least `within_ms` earlier or later than that of every row of
           their key that was emitted before. Rows without a value, and rows more than `late_ms` behind the stream time
           of their task, are dropped: for a late row the earlier rows are no longer stored.
    """

    input: Step
    within_ms: int
    late_ms: int
    schema: Schema

    @property
    def passes_columns(self) -> bool:
        return True

    @property
    def stateful(self) -> bool:
        return True

    @property
    def state_identity(self) -> Step | None:
        """The state has only keys and times, so other columns do not matter."""
        return Deduplicate(self.id, NOTHING, self.within_ms, self.late_ms, Schema(self.schema.key))

    @property
    def asks_stream_time(self) -> bool:
        return True

    @property
    def word(self) -> str:
        return "deduplicate"

    def describe(self, text: Text = str) -> str:
        keys = ", ".join(text(f"k{i}") for i in range(len(self.schema.key)))
        return f"DEDUPLICATE by {keys} within {self.within_ms} ms, late by {self.late_ms} ms | {self.schema}"

    def lineage(self, *below: LineageRows) -> LineageRows:
        (rows,) = below
        compared = [value for name, value in rows.values.items() if name[0] == "k" or name == "_ts"]
        decided = (indirect(value.influences, "FILTER", f"DEDUPLICATE by {value.text}") for value in compared)
        return replace(rows, influences=sum(decided, rows.influences))

    def stall(self, seen: OperatorSeen, covered: Sequence[Step]) -> Iterator[Cause]:
        if seen.late_rows:
            yield Cause(
                "LATE_ROWS",
                f"{seen.late_rows} of {counted(seen.rows_in, 'row')} came more than {self.late_ms} ms late.",
                "A longer second interval of DEDUPLICATE accepts them, and stores more keys.",
                blocks=seen.late_rows == seen.rows_in,
                figures={"step": self.id, "late": seen.late_rows, "rowsIn": seen.rows_in, "graceMs": self.late_ms},
            )
        elif seen.rows_in and not seen.rows_out:
            yield Cause(
                "NOTHING_PASSES",
                f"{counted(seen.rows_in, 'row')} went into {self.describe_readably()}, and none came out.",
                "Each of them is a duplicate, or has no value.",
                figures={"step": self.id},
            )
