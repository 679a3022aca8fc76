"""In a join on several columns a NULL among them equals nothing: an inner join leaves its row out, an outer join keeps
it alone. Only a row whose columns are all NULL is left out of both, as a NULL key is in ksqlDB."""

from __future__ import annotations

import json
from collections.abc import Iterator

import duckdb
import pytest

from millstream.testing import Sandbox

ROWS = [(1, "g", 1), (2, None, 1), (3, "g", None), (4, "h", 2), (5, "", 0)]
DECLARED = """
    CREATE STREAM s (k INT KEY, g STRING, x INT) WITH (kafka_topic='s', format='JSON', partitions=3);
    CREATE STREAM r (k INT KEY, g STRING, x INT) WITH (kafka_topic='r', format='JSON', partitions=3);
    CREATE TABLE t (g STRING PRIMARY KEY, x INT PRIMARY KEY, k INT) WITH (kafka_topic='t', format='JSON', partitions=3);
    CREATE TABLE u (g STRING PRIMARY KEY, x INT PRIMARY KEY, k INT) WITH (kafka_topic='u', format='JSON', partitions=3);
"""
CLOSING = 100_000_000  # a time at which all windows are closed
JOINS = {
    "streams": "FROM s a JOIN r b WITHIN 1 HOUR",
    "streams, LEFT": "FROM s a LEFT JOIN r b WITHIN 1 HOUR GRACE PERIOD 0 SECONDS",
    "streams, FULL": "FROM s a FULL JOIN r b WITHIN 1 HOUR GRACE PERIOD 0 SECONDS",
    "a stream and a table": "FROM s a JOIN t b",
    "a stream and a table, LEFT": "FROM s a LEFT JOIN t b",
    "tables": "FROM t a JOIN u b",
    "tables, LEFT": "FROM t a LEFT JOIN u b",
    "tables, RIGHT": "FROM t a RIGHT JOIN u b",
    "subqueries": "FROM (SELECT DISTINCT g, x, k FROM s) a JOIN t b",
}


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(properties={"auto.offset.reset": "earliest", "millstream.pull.full.sql": "true"}) as sandbox:
        sandbox.execute(DECLARED)
        for table in "tu":
            for k, g, x in ROWS:
                sandbox.produce(table, {"G": g, "X": x}, {"K": k})
        yield sandbox


@pytest.mark.parametrize("name", JOINS)
def test_a_null_among_the_columns_equals_nothing(sandbox: Sandbox, name: str) -> None:
    query = f"SELECT a.k AS ak, b.k AS bk {JOINS[name]} ON a.g = b.g AND a.x = b.x"
    kind = "STREAM" if name.startswith(("streams", "a stream")) else "TABLE"
    sandbox.execute(f"CREATE {kind} o AS {query};")
    for stream in "sr":
        for k, g, x in ROWS:
            sandbox.produce(stream, k, {"G": g, "X": x}, timestamp=1)
    for stream in "sr":
        sandbox.produce(stream, 9, {"G": stream, "X": None}, timestamp=CLOSING)
    sandbox.drain()
    kept = sandbox.query("SELECT ak, bk FROM o;")
    assert _pairs(row["row"]["columns"] for row in kept if "row" in row) == _batch(JOINS[name])
    asked = sandbox.query(f"{query};")
    assert _pairs(row["row"]["columns"] for row in asked if "row" in row) == _batch(JOINS[name])


def test_a_table_row_with_a_null_in_its_key_goes_again(sandbox: Sandbox) -> None:
    selected = "a.g AS g, a.x AS x, a.k AS ak, b.k AS bk"
    sandbox.execute(f"CREATE TABLE o AS SELECT {selected} FROM t a LEFT JOIN u b ON a.g = b.g AND a.x = b.x;")
    sandbox.drain()
    for table in "tu":
        sandbox.produce(table, {"G": "g", "X": None}, None)
    sandbox.drain()
    assert [record["value"] for record in sandbox.consume("O") if record["key"] == {"G": "g", "X": None}] == [
        {"AK": 3, "BK": None},
        None,
    ]


def _pairs(rows: object) -> list[str]:
    assert isinstance(rows, Iterator)
    return sorted(json.dumps(list(row)) for row in rows if 9 not in row)


def _batch(joined: str) -> list[str]:
    connection = duckdb.connect()
    for name in "srtu":
        connection.execute(f"CREATE TABLE {name} (k INT, g TEXT, x INT)")
        connection.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", [list(row) for row in ROWS])
    plain = joined.split(" WITHIN")[0]
    return _pairs(iter(connection.execute(f"SELECT a.k, b.k {plain} ON a.g = b.g AND a.x = b.x").fetchall()))
