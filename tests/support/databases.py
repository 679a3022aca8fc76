"""DuckDB for a test: a database that is as good as new, and costs nearly nothing.

Opening DuckDB takes 25 ms of CPU, most of it for the collations of all languages. The tests of operators need it
thousands of times. Another empty database in a DuckDB that is open takes 1 ms.
"""

from __future__ import annotations

import functools
import itertools

import duckdb

_numbers = itertools.count()


def new_database(*, python: bool = False) -> duckdb.DuckDBPyConnection:
    """A connection whose tables, prepared statements and inputs are its own; its settings are shared.

    In: `python`: functions of Python are registered with it. Those go with the connection that registered them, and
    DuckDB would look for them in memory that is free by then: such a connection gets a DuckDB of its own.
    """
    if python:
        return _open()
    connection = new_connection()
    name = f"test_{next(_numbers)}"
    connection.execute(f"ATTACH ':memory:' AS {name}")
    connection.execute(f"USE {name}")
    return connection


def new_connection() -> duckdb.DuckDBPyConnection:
    """For statements that keep nothing: what is registered on it is its own."""
    return _duckdb().cursor()


@functools.cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    return _open()


def _open() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 2})
