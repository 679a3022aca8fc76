"""A SELECT whose expressions may fail, with and without TRY."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import cached_property, partial

import duckdb
import pyarrow as pa

from ....sql.functions.failures import Failures
from ....sql.functions.udf import failures_of
from ...state.connection import Guard, SideConnections
from ...work_pool import slices, work_pool
from ..statement import BatchStatement
from .failing_rows import ROW_FAILURES, FailingRows, without_try

Connections = Callable[[int], Sequence[duckdb.DuckDBPyConnection]]


class GuardedStatement:
    """Gives NULL where an expression fails, and adds the reason to the failures of the query (`failing_rows.py`).

    In: `sql`: over the columns of `schema`. `find`: makes the search for the rows that fail.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        sql: str,
        schema: pa.Schema,
        find: Callable[[SideConnections], FailingRows],
        guard: Guard,
    ) -> None:
        aside, side = guard.aside or SideConnections(connection), guard.side
        self._failures: Failures = failures_of(connection)
        self._find = partial(find, aside)
        self._with_try = _Divided(_first_of(connection, side), sql, schema, divides=side is not None)
        self._bare = without_try(sql)
        self._make_bare = partial(_Divided, aside.first, self._bare, schema, divides=side is not None)
        self._can_fail = self._bare != sql
        self._tries_bare = self._can_fail and not guard.interruptible
        self._failed = False  # whether rows of the last batch failed

    def run(self, rows: pa.Table, whole: pa.Table) -> pa.Table:
        """In: `rows`: with the columns of the `schema`; `whole`: the same rows with all columns, for the search for
        failing rows."""
        if self._tries_bare and not self._failed and self._without_try is not None:
            mark = self._failures.mark()
            try:
                return self._without_try.run(rows)
            except ROW_FAILURES:
                self._failures.back_to(mark)
        result = self._with_try.run(rows)
        if self._can_fail:
            self._failed = self._failing_rows.note(whole, self._failures)
        return result

    # When it plans a statement, DuckDB calls functions that read no columns. It has already done so for the statement
    # with TRY, so failures are not counted again here.

    @cached_property
    def _without_try(self) -> _Divided | None:
        """None if DuckDB fails to plan it."""
        with contextlib.suppress(*ROW_FAILURES), self._failures.unchanged():
            return self._make_bare()
        return None

    @cached_property
    def _failing_rows(self) -> FailingRows:
        with self._failures.unchanged():
            return self._find()


class _Divided:
    """A statement that is prepared on several connections, so that slices of a batch can be computed in parallel."""

    def __init__(self, connections: Connections, sql: str, schema: pa.Schema, *, divides: bool) -> None:
        self._connections = connections
        self._sql = sql
        self._inputs = {"input": schema}
        self._divides = divides
        self._statements: list[BatchStatement] = []
        self._prepare(1)

    def run(self, rows: pa.Table) -> pa.Table:
        parts = slices(len(rows)) if self._divides else []
        if len(parts) < 2:
            return self._statements[0].run(input=rows)
        self._prepare(len(parts))
        calls = [
            partial(statement.run, input=rows.slice(begin, end - begin))
            for statement, (begin, end) in zip(self._statements, parts, strict=False)
        ]
        return pa.concat_tables(work_pool().side_by_side(calls))

    def _prepare(self, count: int) -> None:
        for connection in self._connections(count)[len(self._statements) :]:
            self._statements.append(BatchStatement(connection, self._sql, self._inputs))


def _first_of(connection: duckdb.DuckDBPyConnection, side: SideConnections | None) -> Connections:
    return lambda count: [connection, *(side.first(count - 1) if side is not None else ())]
