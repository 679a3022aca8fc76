"""Queries inside the expressions of a query over a join: what DuckDB gives for the rows that have come so far."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import pytest
from drawn import sampled

from millstream.errors import MillstreamError
from millstream.testing import Sandbox

Change = tuple[str, int, tuple[int | None, ...] | None]
"""A table, a key, and the values of its row; None deletes it."""

COLUMNS = {"a": ("id", "g", "x"), "b": ("g", "y"), "c": ("k", "z")}
CHANGES: Sequence[Sequence[Change]] = [
    [("b", 0, (9,)), ("b", 1, (12,)), ("c", 0, (3,)), ("c", 1, (6,)), ("c", 2, (7,))],
    [("a", i, (i % 3, i * i % 7)) for i in range(8)],
    [("b", 2, (12,)), ("c", 1, None), ("c", 0, (5,)), ("a", 3, None), ("a", 4, (1, 30)), ("a", 9, (None, 8))],
    [("b", 1, None), ("c", 2, (None,)), ("c", 1, (1,)), ("a", 1, (2, 9))],
]

QUERIES = [
    "SELECT a.id, a.x, b.y FROM a JOIN b ON a.g = b.g WHERE a.x > (SELECT AVG(z) - 2 FROM c)",
    "SELECT a.id, x, y FROM a JOIN b ON a.g = b.g WHERE x > (SELECT MAX(z) - 4 FROM c WHERE c.k = b.g)",
    "SELECT a.id, y, (SELECT MAX(z) FROM c WHERE c.k = a.g) AS m FROM a LEFT JOIN b ON a.g = b.g",
    "SELECT a.id, b.g AS h FROM a JOIN b ON a.g = b.g WHERE EXISTS (SELECT * FROM c WHERE c.k = b.g AND z > 4)",
    "SELECT a.id, y FROM a JOIN b ON a.g = b.g WHERE NOT EXISTS (SELECT * FROM c WHERE c.k = a.g) OR x < 3",
    "SELECT a.id, y FROM a JOIN b ON a.g = b.g WHERE a.g IN (SELECT k FROM c WHERE z > 2)",
    "SELECT a.id, d.y FROM a JOIN b d ON a.g = d.g WHERE d.y > (SELECT MIN(y) FROM b WHERE b.g = d.g) - a.x",
    (
        "SELECT b.g AS h, d.y AS v, z FROM b JOIN c ON b.g = c.k LEFT JOIN b d ON b.g = d.g"
        " WHERE b.y > (SELECT MIN(x) FROM a)"
    ),
    (
        "SELECT b.g AS h, COUNT(*) AS n FROM a JOIN b ON a.g = b.g GROUP BY b.g"
        " HAVING COUNT(*) > (SELECT MIN(z) - 2 FROM c)"
    ),
    (
        "SELECT a.g AS h, MAX(y) AS m FROM a JOIN b ON a.g = b.g GROUP BY a.g"
        " HAVING SUM(x) > (SELECT MAX(z) FROM c WHERE k = a.g)"
    ),
    "SELECT y, COUNT(*) AS n, (SELECT MAX(z) FROM c) AS m FROM a JOIN b ON a.g = b.g WHERE x > 0 GROUP BY b.y",
    (
        "SELECT y + 1 AS v, SUM(x) AS s FROM a JOIN b ON a.g = b.g WHERE x > (SELECT MIN(z) FROM c) GROUP BY v"
        " HAVING s > (SELECT MIN(z) FROM c)"
    ),
    (
        "SELECT a.id, x, (SELECT MIN(z) FROM c) AS m FROM a JOIN b ON a.g = b.g"
        " QUALIFY ROW_NUMBER() OVER (PARTITION BY a.g ORDER BY x, a.id) = 1"
    ),
]


@pytest.mark.parametrize("number", sampled(range(len(QUERIES)), 2))
def test_tables_give_what_duckdb_gives(number: int) -> None:
    query = QUERIES[number]
    with tables("TABLE", "TABLE", 1 + number % 2) as (sandbox, batch):
        sandbox.execute(f"CREATE TABLE o AS {query};")
        for changes in CHANGES:
            make(changes, sandbox, batch)
            expected = rows_of(batch, query)
            names = ", ".join(column[0] for column in batch.description or [])
            assert answer(sandbox, f"SELECT {names} FROM o") == expected
            assert answer(sandbox, query) == expected


APPENDED: Sequence[Sequence[Change]] = [
    [("b", 0, (9,)), ("b", 1, (12,)), ("b", 2, (4,)), ("c", 0, (3,)), ("c", 1, (6,)), ("c", 2, (7,))],
    [("a", i, (i % 3, i * i % 7)) for i in range(8)],
    [("c", 1, None), ("c", 0, (5,)), ("a", 8, (1, 30)), ("a", 9, (None, 8))],
    [("c", 2, (None,)), ("c", 1, (1,)), ("a", 10, (2, 9))],
]
"""Streams get new rows only, and `c`, which only queries inside read, changes."""


@pytest.mark.parametrize(
    ("number", "kind"), [(0, "STREAM"), (1, "TABLE"), (6, "STREAM"), (9, "TABLE"), (11, "STREAM"), (12, "TABLE")]
)
def test_streams_give_what_duckdb_gives(number: int, kind: str) -> None:
    query = QUERIES[number]
    with tables("STREAM", kind, 2 - number % 2) as (sandbox, batch):
        timed = query.replace(" ON a.g", " WITHIN 1 DAY ON a.g") if kind == "STREAM" else query
        sandbox.execute(f"CREATE TABLE o AS {timed};")
        for changes in APPENDED:
            make(changes, sandbox, batch)
            expected = rows_of(batch, query)
            names = ", ".join(column[0] for column in batch.description or [])
            assert answer(sandbox, f"SELECT {names} FROM o") == expected


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_stream_that_looks_into_a_table_stays_a_stream(partitions: int) -> None:
    with tables("STREAM", "TABLE", partitions) as (sandbox, batch):
        sandbox.execute(
            "CREATE STREAM o AS SELECT a.id, y FROM a JOIN b ON a.g = b.g WHERE a.g IN (SELECT k FROM c WHERE z > 2);"
        )
        for changes in APPENDED[:3]:
            make(changes, sandbox, batch)
        found = sandbox.query("SELECT id, y FROM o EMIT CHANGES LIMIT 8;")
        assert rows(found) == [(0, 9), (1, 12), (2, 4), (3, 9), (4, 12), (5, 4), (6, 9), (7, 12)]


def test_windows_and_arguments_of_lambdas_are_no_columns_of_the_join() -> None:
    with tables("STREAM", "STREAM", 1) as (sandbox, batch):
        sandbox.execute(
            "CREATE TABLE o AS SELECT a.g AS h, WINDOWSTART AS starts,"
            " SUM(REDUCE(ARRAY[1, 2], 0, (p, q) => p + q * a.x)) AS s"
            " FROM a JOIN b WITHIN 1 DAY ON a.g = b.g WINDOW TUMBLING (SIZE 10 MILLISECONDS) GROUP BY a.g"
            " HAVING COUNT(*) > (SELECT MIN(z) FROM c);"
        )
        make([("b", 1, (9,)), ("c", 1, (1,)), ("a", 1, (1, 2))], sandbox, batch)
        assert answer(sandbox, "SELECT h, starts, s FROM o") == []
        make([("a", 2, (1, 5))], sandbox, batch)
        assert answer(sandbox, "SELECT h, starts, s FROM o") == [(1, 0, 21)]


def test_no_column_of_the_join_is_needed() -> None:
    with tables("STREAM", "TABLE", 1) as (sandbox, batch):
        sandbox.execute("CREATE TABLE o AS SELECT (SELECT MAX(z) FROM c) AS m FROM a JOIN b ON a.g = b.g;")
        make([("b", 1, (9,)), ("c", 1, (4,)), ("a", 1, (1, 2)), ("a", 2, (1, 2))], sandbox, batch)
        assert answer(sandbox, "SELECT m FROM o") == [(4,), (4,)]


def test_columns_have_the_names_that_they_have_without_queries() -> None:
    with tables("STREAM", "STREAM", 1) as (sandbox, _):
        for name, condition in (("plain", "1"), ("asking", "(SELECT COUNT(*) FROM c)")):
            sandbox.execute(
                f"CREATE TABLE {name} AS SELECT a.g, b.g, a.ROWTIME, b.y AS v, a.x + 1, COUNT(*) FROM a"
                f" JOIN b WITHIN 1 DAY ON a.g = b.g GROUP BY a.g, b.g, a.ROWTIME, b.y, a.x + 1"
                f" HAVING COUNT(*) >= {condition};"
            )
        names = [field["name"] for field in described(sandbox, "asking")]
        assert names == [field["name"] for field in described(sandbox, "plain")]


@pytest.mark.parametrize("kind", ["STREAM", "TABLE"])
def test_the_rows_keep_the_key_of_the_join(kind: str) -> None:
    with tables("STREAM", kind, 2) as (sandbox, _):
        star = f"SELECT * FROM a JOIN b {'WITHIN 1 DAY' if kind == 'STREAM' else ''} ON a.g = b.g"
        sandbox.execute(
            f"CREATE STREAM plain AS {star}; CREATE STREAM asking AS {star} WHERE a.x IN (SELECT k FROM c);"
        )
        plain, asking = ({f["name"]: f.get("type") for f in described(sandbox, name)} for name in ("plain", "asking"))
        assert asking == plain
        assert plain["A_G"] == "KEY"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT a.id, q FROM a JOIN b ON a.g = b.g WHERE x > (SELECT MAX(z) FROM c)", "SELECT column 'Q' cannot be"),
        (
            "SELECT a.id FROM a JOIN b ON a.g = b.g WHERE g > (SELECT MAX(z) FROM c)",
            "Column 'G' is ambiguous. Could be",
        ),
        (
            "SELECT a.id FROM a JOIN b ON a.g = b.g WHERE d.x > (SELECT MAX(z) FROM c)",
            "'D' is not a valid stream/table",
        ),
        (
            "SELECT a.id FROM a JOIN b ON a.g = b.g WHERE x > (SELECT MAX(z) FROM c WHERE k = a.q)",
            "WHERE column 'A.Q' cannot be resolved",
        ),
        (
            "SELECT a.id, b.y FROM a JOIN b ON a.g = b.g GROUP BY a.id HAVING COUNT(*) > (SELECT MAX(z) FROM c)",
            "not part of GROUP BY: B.Y",
        ),
        (
            "SELECT a.g FROM a JOIN b ON a.g = b.g GROUP BY a.g HAVING COUNT(*) > (SELECT MAX(z) FROM c WHERE k = a.x)",
            "not part of GROUP BY: A.X",
        ),
    ],
)
def test_what_is_refused(query: str, message: str) -> None:
    with tables("TABLE", "TABLE", 1) as (sandbox, _), pytest.raises(MillstreamError, match=message):
        sandbox.execute(f"CREATE TABLE o AS {query};")


# ------------------------------------------------------------------ the same rows here and in DuckDB


@contextmanager
def tables(a: str, b: str, partitions: int) -> Generator[tuple[Sandbox, duckdb.DuckDBPyConnection]]:
    """In: what `a` and `b` are. `c` is a table."""
    batch = duckdb.connect()
    properties = {"auto.offset.reset": "earliest", "millstream.pull.full.sql": "true"}
    with Sandbox(properties=properties) as sandbox:
        for name, kind in (("a", a), ("b", b), ("c", "TABLE")):
            key, *others = COLUMNS[name]
            values = ", ".join(f"{other} INT" for other in others)
            sandbox.execute(
                f"CREATE {kind} {name} ({key} INT {'PRIMARY KEY' if kind == 'TABLE' else 'KEY'}, {values})"
                f" WITH (kafka_topic='{name}', format='JSON', partitions={partitions});"
            )
            batch.execute(f"CREATE TABLE {name} ({key} INT, {values})")
        yield sandbox, batch


def make(changes: Sequence[Change], sandbox: Sandbox, batch: duckdb.DuckDBPyConnection) -> None:
    for table, key, values in changes:
        own, *others = COLUMNS[table]
        batch.execute(f"DELETE FROM {table} WHERE {own} = ?", [key])
        if values is not None:
            batch.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * (1 + len(values)))})", [key, *values])
        value = None if values is None else dict(zip(map(str.upper, others), values, strict=True))
        sandbox.produce(table, key, value, timestamp=0)
    sandbox.drain()


def rows_of(batch: duckdb.DuckDBPyConnection, query: str) -> list[tuple[object, ...]]:
    return sorted(batch.execute(query).fetchall(), key=repr)


def answer(sandbox: Sandbox, query: str) -> list[tuple[object, ...]]:
    return sorted(rows(sandbox.query(f"{query};")), key=repr)


def rows(lines: Iterable[dict[str, Any]]) -> list[tuple[object, ...]]:
    return [tuple(line["row"]["columns"]) for line in lines if "row" in line]


def described(sandbox: Sandbox, name: str) -> list[dict[str, str]]:
    (found,) = sandbox.execute(f"DESCRIBE {name};")
    return found["sourceDescription"]["fields"]
