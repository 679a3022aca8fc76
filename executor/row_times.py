"""The rowtimes that WITH (TIMESTAMP=…) takes from a column, for the records of a source or a sink."""

from __future__ import annotations

import re
import threading
from typing import Final, Protocol

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from ..planner.specs import SqlExpression
from .operators.columns import conform, flat
from .operators.statement import BatchStatement
from .state.databases import ExpressionConnection

_MICROS_PER_MS: Final = 1000
_NUMBERS = re.compile(r'"?([kv]\d+)"?')
_TIMES = re.compile(r'TRY\(EPOCH_MS\("?([kv]\d+)"?\)\)')


class RowTimes(Protocol):
    def of(self, table: pa.Table) -> pa.Array:
        """Each row's time in milliseconds, as int64; NULL if it has none. Thread-safe."""
        ...


def row_times(expression: SqlExpression) -> RowTimes:
    """A plain BIGINT or TIMESTAMP column is read without DuckDB: a statement for each run of records took a fifteenth
    of the CPU time of a query that does nothing else, and only one thread at a time can run it."""
    if (found := _NUMBERS.fullmatch(expression.sql)) is not None:
        return _Numbers(found[1])
    if (found := _TIMES.fullmatch(expression.sql)) is not None:
        return _Times(found[1])
    return _Computed(expression)


class _Numbers:
    def __init__(self, column: str) -> None:
        self._column = column

    def of(self, table: pa.Table) -> pa.Array:
        return flat(table, self._column).cast(pa.int64())


class _Times(_Numbers):
    def of(self, table: pa.Table) -> pa.Array:
        micros = super().of(table)
        half = pc.if_else(pc.less(micros, 0), -_MICROS_PER_MS // 2, _MICROS_PER_MS // 2)
        return pc.divide(pc.add(micros, half), _MICROS_PER_MS)  # rounded, as DuckDB's epoch_ms does


class _Computed:
    """Computed by DuckDB. Values that it cannot compute are NULL: the planner wraps what can fail in TRY."""

    def __init__(self, expression: SqlExpression) -> None:
        self._connection = ExpressionConnection(expression)
        self._in_use = threading.Lock()
        self._sql = expression.sql
        self._schema = pa.schema([])  # the columns that the expression reads
        self._prepared: tuple[duckdb.DuckDBPyConnection, BatchStatement] | None = None

    def of(self, table: pa.Table) -> pa.Array:
        with self._in_use, self._connection.in_use() as connection:
            if self._prepared is None or self._prepared[0] is not connection:
                self._prepared = connection, self._prepare(connection, table.schema)
            return flat(self._prepared[1].run(batch=conform(table, self._schema)), "t")

    def _prepare(self, connection: duckdb.DuckDBPyConnection, schema: pa.Schema) -> BatchStatement:
        read = set(re.findall(r"\w+", self._sql))
        self._schema = pa.schema([field for field in schema if field.name in {*read, "_ts"}])
        sql = f"SELECT CAST(({self._sql}) AS BIGINT) AS t FROM {{batch}}"
        return BatchStatement(connection, sql, {"batch": self._schema})
