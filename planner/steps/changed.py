"""CHANGED(TABLE readings PARTITION BY sensor, DESCRIPTOR(status)): the rows that differ from the previous one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ...sql import ast
from ..expressions.typed import column
from ..insight.lineage_rows import LineageRows, indirect
from ..insight.stall import Cause, OperatorSeen, counted
from ..logical import Named, Unary, names_of
from ..lowering import Lowering, sql_over
from ..planning import PlanningContext
from ..schema import Column, Schema
from ..select.origin import Origin
from ..select.table_functions import TableFunction, compared, stream_rows
from ..specs import SqlExpression
from .project import under_key_of, with_key_as_value
from .repartition import Repartition
from .step import NOTHING, Step, Text


class ChangedFunction(TableFunction):
    """Keeps the columns and the key. Of each partition, it keeps the rows whose DESCRIPTOR columns differ from the
    previous row."""

    name = "CHANGED"
    shape = "k+d+"
    example = "CHANGED(TABLE readings PARTITION BY sensor, DESCRIPTOR(status, mode))"

    def over(self, call: ast.TableFunctionCall, origin: Origin, context: PlanningContext) -> Origin:
        rows = stream_rows(call, origin, "A table has the current row of each key; its changes are those of its topic.")
        by = compared(call, "PARTITION BY", call.partition_by, origin, context)
        values = compared(call, "DESCRIPTOR", call.descriptors, origin, context)
        key = tuple(Named(f"#by {typed.column}", typed) for typed in by)
        watched = tuple(Column(typed.column or "", typed.type) for typed in values)
        changed = LogicalChanged(Repartition(with_key_as_value(rows), key), watched)
        return replace(origin, plan=under_key_of(rows, changed), partitioning=None, beyond=True)


@dataclass(frozen=True, slots=True)
class LogicalChanged(Unary):
    """The rows whose `watched` columns differ from the previous row of their key. Its input is keyed by the PARTITION
    BY columns."""

    watched: tuple[Column, ...]

    @property
    def scattered(self) -> bool:
        """The rows get the stream's key back, but stay in the tasks of the PARTITION BY key."""
        return True

    def columns_read(self, needed: frozenset[str]) -> tuple[frozenset[str], ...]:
        return (needed | names_of(self.input.schema.key) | names_of(self.watched),)

    def lower(self, lowering: Lowering) -> Changed:
        step = self.input.lower(lowering)
        watched = tuple(sql_over(self.schema, column(each.name, each.type)) for each in self.watched)
        return Changed(lowering.id("changed"), step, watched, Schema((*self.schema.key, *self.watched)), self.schema)


@dataclass(frozen=True, slots=True)
class Changed(Step):
    """Keeps the rows of a key that differ from the previous one.

    In:    a stream's rows under the key that they are partitioned by; a NULL in it is equal to NULL.
    Out:   of the rows with a value, in order of arrival: the first of each key, and those whose `watched` columns
           differ from the key's previous row. NULL differs from all values, but not from NULL.

    `remembered`: the key and the watched columns, with their names in SQL.
    """

    input: Step
    watched: tuple[SqlExpression, ...]
    remembered: Schema
    schema: Schema

    @property
    def expressions(self) -> tuple[SqlExpression, ...]:
        return self.watched

    @property
    def passes_columns(self) -> bool:
        return True

    @property
    def stateful(self) -> bool:
        return True

    @property
    def state_identity(self) -> Step | None:
        """The positions of the watched columns do not matter, nor do other columns."""
        return Changed(self.id, NOTHING, (), self.remembered, self.remembered)

    @property
    def word(self) -> str:
        return "changed"

    def describe(self, text: Text = str) -> str:
        keys = ", ".join(text(f"k{i}") for i in range(len(self.schema.key)))
        return f"CHANGED by {keys}: {', '.join(text(each.sql) for each in self.watched)} | {self.schema}"

    def lineage(self, *below: LineageRows) -> LineageRows:
        (rows,) = below
        read = [*rows.keys.values(), *(rows.values[each.sql] for each in self.watched)]
        decided = (indirect(value.influences, "FILTER", f"CHANGED by {value.text}") for value in read)
        return replace(rows, influences=sum(decided, rows.influences))

    def stall(self, seen: OperatorSeen, covered: Sequence[Step]) -> Iterator[Cause]:
        if seen.rows_in and not seen.rows_out:
            yield Cause(
                "NOTHING_PASSES",
                f"{counted(seen.rows_in, 'row')} went into {self.describe_readably()}, and none came out.",
                "Each of them is as the previous row of its key, or has no value.",
                figures={"step": self.id},
            )
