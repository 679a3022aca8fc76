"""Evaluates constant expressions (of INSERT VALUES) to Arrow values, on separate DuckDB connections."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import duckdb
import pyarrow as pa

from millstream.errors import InvalidStatement

from ...executor.state.databases import BROKEN, for_expressions, for_functions
from ...planner.specs import SqlExpression
from ...sql.functions.catalog import register_udfs
from ...sql.functions.udf import failures_of


class ConstantEvaluator:
    """Any thread may use it. The connections open at first use and see no data."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._with_functions: duckdb.DuckDBPyConnection | None = None  # with functions in Python
        self._registered: set[str] = set()

    def evaluate(self, expressions: Sequence[SqlExpression]) -> list[pa.Array]:
        """An array of length 1 for each expression, of its type. Raises `InvalidStatement` if evaluation fails."""
        if not expressions:
            return []
        with self._lock:
            connection = self._knowing({name for expression in expressions for name in expression.udfs})
            items = ", ".join(f'({expression.sql}) AS "c{index}"' for index, expression in enumerate(expressions))
            try:
                table = connection.sql(f"SELECT {items}").to_arrow_table()
            except duckdb.Error as error:
                if isinstance(error, BROKEN):
                    self._close()
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
            self._close()

    def _close(self) -> None:
        for connection in (self._connection, self._with_functions):
            if connection is not None:
                connection.close()
        self._connection = self._with_functions = None

    def _knowing(self, functions: set[str]) -> duckdb.DuckDBPyConnection:
        """A connection with these functions. In: names of functions written in Python."""
        if not functions:
            self._connection = self._connection or for_expressions()
            return self._connection
        if self._with_functions is None:
            self._with_functions = for_functions(())
            self._registered = set()
        register_udfs(self._with_functions, sorted(functions - self._registered))
        self._registered |= functions
        return self._with_functions


def _cast(array: pa.Array | pa.ChunkedArray, type_: pa.DataType) -> pa.Array:
    whole = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    return whole if whole.type == type_ else whole.cast(type_)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
