"""Evaluates the arguments and filters of an aggregation's calls, as columns beside the rows.

Only computed expressions go through DuckDB, and each distinct text only once. In Nexmark's q15, twelve calls have two
distinct arguments and three distinct filters. A statement with one column for each took 8 % of the query's processor
time, and the code after it evaluated nine filters instead of three.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa

from ....planner.schema import Schema
from ....planner.specs import SqlExpression
from ....planner.steps.aggregate import AggregateCall
from ....sql.types import SqlType
from ...state.connection import Guard
from ..chains.chain_text import WORD
from ..chains.failing_rows import FailingRows, suspected
from ..chains.guarded_statement import GuardedStatement
from ..columns import Bools, flat


class Arguments:
    """In: `types`: the types that each call's arguments are cast to. `kept`: further columns of the rows to pass on."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        calls: Sequence[AggregateCall],
        types: Sequence[Sequence[SqlType]],
        schema: Schema,
        input_schema: pa.Schema,
        kept: Sequence[str],
        guard: Guard,
    ) -> None:
        self._schema = input_schema
        self._computed: dict[str, str] = {}  # texts → columns
        self._of_calls = [
            [self._argument(argument, type_) for argument, type_ in zip(call.arguments, of_call, strict=False)]
            for call, of_call in zip(calls, types, strict=True)
        ]
        self._filters = [None if call.filter is None else self._filter(call.filter) for call in calls]
        columns = [*kept, *(name for of_call in self._of_calls for name in of_call if name in input_schema.names)]
        self._passed = list(dict.fromkeys(columns))
        self._statement: GuardedStatement | None = None
        self._read: list[str] = []
        if self._computed:
            words = {"_null", *(word for text in self._computed for word in WORD.findall(text))}
            self._read = [name for name in input_schema.names if name in words]
            suspects = suspected(_expressions(calls), schema)
            self._statement = GuardedStatement(
                connection,
                f"SELECT {', '.join(f'{text} AS {name}' for text, name in self._computed.items())} FROM {{input}}",
                pa.schema([input_schema.field(name) for name in self._read]),
                lambda aside: FailingRows(connection, aside, input_schema, schema, suspects),
                guard,
            )

    def beside(self, rows: pa.Table) -> pa.Table:
        """The kept columns of these rows, and the columns that the methods below read."""
        passed = rows.select(self._passed)
        if self._statement is None:
            return passed
        given = self._statement.run(rows.select(self._read), rows)
        return pa.table([*passed.columns, *given.columns], names=[*self._passed, *given.column_names])

    def columns(self, rows: pa.Table, call: int) -> list[pa.Array]:
        return [flat(rows, name) for name in self._of_calls[call]]

    def filter_of(self, call: int) -> str | None:
        """The name of the call's filter; calls with the same filter have the same name. None if it has no filter."""
        return self._filters[call]

    def passes(self, rows: pa.Table, call: int) -> Bools | None:
        """The rows that pass the call's filter; None if it has no filter."""
        name = self._filters[call]
        return None if name is None else flat(rows, name).to_numpy(zero_copy_only=False)

    def _argument(self, argument: SqlExpression, type_: SqlType) -> str:
        name = argument.sql
        if name in self._schema.names and self._schema.field(name).type.equals(type_.arrow):
            return name
        return self._column(argument, f"({name})::{type_.duckdb}")

    def _filter(self, condition: SqlExpression) -> str:
        return self._column(condition, f"coalesce({condition.sql}, false)")

    def _column(self, expression: SqlExpression, text: str) -> str:
        """The column for this text. Trailing spaces keep texts apart that are equal but may give different values."""
        if expression.may_differ:
            text += " " * len(self._computed)
        return self._computed.setdefault(text, f"c{len(self._computed)}")


def _expressions(calls: Sequence[AggregateCall]) -> list[tuple[str, SqlExpression]]:
    """The expressions that may fail, each with its purpose."""
    return [
        (f"the {what} of {call.function}", each)
        for call in calls
        for what, each in (*(("argument", a) for a in call.arguments), ("filter", call.filter))
        if each is not None
    ]
