"""Hides constant parts of an expression that fail for every row: `1 / 0`, `CAST('x' AS INT)`.

DuckDB computes constants when it plans. In a comparison, CASE, LIKE or AND it does so outside the TRY around the
expression, and refuses the statement. So such a part is made to depend on a column, which hides it from the optimizer.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from typing import Final

import duckdb
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB

_DUCKDB: Final = DuckDB()
_FAILURES: Final = (duckdb.ConversionException, duckdb.InvalidInputException, duckdb.OutOfRangeException)
_NO_VALUES: Final = (exp.Literal, exp.Null, exp.Boolean, exp.DataType, exp.Identifier, exp.Lambda, exp.PropertyEQ)
_PATIENCE_S: Final = 0.5  # an expression that takes longer counts as not failing
_guard = threading.Lock()


def fails_always(tree: exp.Expr) -> bool:
    """Whether the expression reads no column and its evaluation fails."""
    return tree.find(exp.Column) is None and _fails(tree.sql(dialect=_DUCKDB))


def hide_failing_constants(tree: exp.Expr, column: exp.Column) -> None:
    """Makes each part that always fails depend on the column, without changing its meaning."""
    for part in list(_constants(tree)):
        if _fails(part.sql(dialect=_DUCKDB)):
            absent = exp.Is(this=column.copy(), expression=exp.Null())
            part.replace(exp.Case(ifs=[exp.If(this=absent, true=part.copy())], default=part.copy()))


def _constants(tree: exp.Expr) -> Iterator[exp.Expr]:
    """The largest parts that are values and read no column. It uses a loop, because chains of AND are deep."""
    reading: set[int] = set()
    for column in tree.find_all(exp.Column):
        node: exp.Expr | None = column
        while node is not None and id(node) not in reading:
            reading.add(id(node))
            node = node.parent
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if id(node) not in reading and _is_value(node):
            yield node
        elif not isinstance(node, _NO_VALUES):
            waiting.extend(node.iter_expressions())


def _is_value(node: exp.Expr) -> bool:
    is_branch = isinstance(node, exp.If) and isinstance(node.parent, exp.Case)
    return isinstance(node, exp.Condition) and not isinstance(node, _NO_VALUES) and not is_branch


@functools.lru_cache(maxsize=1_000)
def _fails(sql: str) -> bool:
    """Whether the evaluation fails. An expression that calls functions of a query cannot be computed here, and counts
    as not failing."""
    with _guard:
        connection = _connection()
        patience = threading.Timer(_PATIENCE_S, connection.interrupt)
        patience.start()
        try:
            connection.execute(f"SELECT {sql}").fetchall()
        except _FAILURES:
            return True
        except duckdb.Error:
            return False
        finally:
            patience.cancel()
    return False


@functools.cache
def _connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 1, "memory_limit": "128MB", "enable_external_access": False})
    connection.execute("SET lock_configuration = true")
    return connection
