"""Constant expressions (of INSERT VALUES) made into Arrow values, on a DuckDB connection of their own."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import duckdb
import pyarrow as pa

from millstream.errors import InvalidStatement

from ...executor.state.connection import lock, open_connection
from ...planner.specs import SqlExpression
from ...sql.functions.catalog import register_udfs
from ...sql.functions.udf import failures_of


class ConstantEvaluator:
    """May be used from any thread. The connection opens at the first use and sees no data."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._registered: set[str] = set()

    def evaluate(self, expressions: Sequence[SqlExpression]) -> list[pa.Array]:
        """One array of length 1 per expression, of its type. Raises `InvalidStatement` where one cannot be computed."""
        if not expressions:
            return []
        with self._lock:
            connection = self._open()
            self._register(connection, {name for expression in expressions for name in expression.udfs})
            items = ", ".join(f'({expression.sql}) AS "c{index}"' for index, expression in enumerate(expressions))
            try:
                table = connection.sql(f"SELECT {items}").to_arrow_table()
            except duckdb.Error as error:
                raise InvalidStatement(f"a value cannot be computed: {_first_line(error)}") from error
            failed = failures_of(connection).take()
            if failed:
                raise InvalidStatement(f"a value cannot be computed: {failed[0].message}")
        return [
            _cast(table.column(index).combine_chunks(), expression.type.arrow)
            for index, expression in enumerate(expressions)
        ]

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _open(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            self._connection = open_connection()
            lock(self._connection)
            self._registered = set()
        return self._connection

    def _register(self, connection: duckdb.DuckDBPyConnection, names: set[str]) -> None:
        missing = names - self._registered
        if missing:
            register_udfs(connection, sorted(missing))
            self._registered |= missing


def _cast(array: pa.Array | pa.ChunkedArray, type_: pa.DataType) -> pa.Array:
    whole = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    return whole if whole.type == type_ else whole.cast(type_)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
