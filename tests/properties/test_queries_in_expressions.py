"""Queries inside expressions: a persistent query, a pull query of the same SELECT and DuckDB agree, NULLs included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from batch_answers import sandbox

from millstream.testing import Sandbox

QUERIES = (
    "SELECT s.k AS k, s.x AS x FROM s WHERE x NOT IN (SELECT y FROM t)",
    "SELECT s.k AS k, s.x AS x FROM s WHERE x NOT IN (SELECT y FROM t WHERE t.id = s.k)",
    "SELECT s.k AS k, s.x AS x FROM s WHERE x IN (SELECT y FROM t) OR k = 2",
    "SELECT s.k AS k, s.x AS x FROM s WHERE x = (SELECT SUM(y) FROM t)",
    "SELECT s.k AS k, s.x AS x FROM s WHERE 0 = (SELECT COUNT(*) FROM t WHERE t.id = s.k)",
    "SELECT s.k AS k, s.x AS x FROM s WHERE NOT EXISTS (SELECT id FROM t WHERE t.id = s.k)",
    "SELECT s.k AS k, (SELECT MAX(y) FROM t) AS a, (SELECT COUNT(*) + 1 FROM t WHERE t.id = s.k) AS b FROM s",
    "SELECT s.k AS k, x IN (SELECT y FROM t) AS a, x NOT IN (SELECT id FROM t) AS b FROM s",
)  # fmt: skip
MORE = (
    "SELECT s.k AS k, s.x AS x FROM s WHERE x IN (SELECT y FROM t)",
    "SELECT s.k AS k, s.x AS x FROM s WHERE NOT (x NOT IN (SELECT y FROM t))",
    "SELECT s.k AS k, s.x AS x FROM s WHERE x NOT IN (SELECT y FROM t WHERE y > 15)",
    "SELECT s.k AS k, s.x AS x FROM s WHERE x > (SELECT MIN(y) FROM t)",
    "SELECT s.k AS k, s.x AS x FROM s WHERE x <> (SELECT MAX(y) FROM t)",
    "SELECT s.k AS k, s.x AS x FROM s WHERE k > (SELECT COUNT(y) FROM t)",
    "SELECT s.k AS k, s.x AS x FROM s WHERE EXISTS (SELECT id FROM t WHERE y = 20)",
    "SELECT s.k AS k, x - (SELECT MIN(y) FROM t) AS a FROM s WHERE x >= (SELECT MIN(y) FROM t)",
)  # fmt: skip
SUMMED = ("= (SELECT SUM(y)", "= (SELECT CAST(SUM(y) AS INT)")  # a SUM of INTs is an INT here and a HUGEINT there
STREAM = [(1, 10), (2, None), (3, 30), (4, 20)]
STEPS: tuple[dict[int, int | str | None], ...] = (
    {},
    {1: 10, 2: 20},
    {3: None},
    {3: "gone", 1: 30},
    {1: "gone", 2: None},
)


EVERY_CHANGE, LAST_CHANGE = "0", "10000000"
PULLED_AT = 4  # a NULL is among the values


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    buffering = getattr(request, "param", EVERY_CHANGE)
    bounds = {"ksql.streams.cache.max.bytes.buffering": buffering, "millstream.query.pull.max.seconds": "600"}
    with sandbox(**bounds) as made:
        made.execute(
            "SET 'millstream.pull.full.sql'='true'; SET 'auto.offset.reset'='earliest';"
            "CREATE STREAM s (k INT KEY, x INT) WITH (kafka_topic='s', format='JSON', partitions=2);"
            "CREATE TABLE t (id INT PRIMARY KEY, y INT) WITH (kafka_topic='t', format='JSON', partitions=3);"
        )
        yield made


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("engine", "queries"), [(EVERY_CHANGE, QUERIES[::2]), (LAST_CHANGE, QUERIES[1::2])], indirect=["engine"]
)
def test_all_three_agree_after_each_change(engine: Sandbox, queries: tuple[str, ...]) -> None:
    _check(engine, queries)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", [EVERY_CHANGE, LAST_CHANGE], indirect=True)
def test_all_three_agree_for_every_query(engine: Sandbox) -> None:
    _check(engine, (*QUERIES, *MORE))


def test_a_stream_looks_into_a_table_and_keeps_its_key(engine: Sandbox) -> None:
    for number, condition in enumerate(
        (
            "k IN (SELECT id FROM t WHERE y < 25)",
            "x IN (SELECT id FROM t)",
            "k NOT IN (SELECT id FROM t)",
            "EXISTS (SELECT 1 FROM t WHERE t.id = s.k)",
        )
    ):
        engine.execute(f"CREATE STREAM o{number} AS SELECT * FROM s WHERE {condition};")
    engine.produce("t", 1, {"Y": 10}, 1)
    engine.produce("t", 2, {"Y": 30}, 1)
    engine.produce("s", 1, {"X": 2}, 2)
    engine.produce("s", 2, {"X": 7}, 3)
    engine.produce("t", 1, None, 4)
    engine.produce("s", 1, {"X": 1}, 5)
    engine.produce("s", 3, {"X": None}, 6)
    engine.drain()
    wanted = ([(1, 2)], [(1, 2)], [(1, 1), (3, None)], [(1, 2), (2, 7)])
    for number, rows in enumerate(wanted):
        records = [(record["key"], record["value"]["X"]) for record in engine.consume(f"O{number}")]
        assert sorted(records, key=str) == sorted(rows, key=str), number


def _check(engine: Sandbox, queries: tuple[str, ...]) -> None:
    for number, query in enumerate(queries):
        engine.execute(f"CREATE TABLE o{number} AS {query};")
    for k, x in STREAM:
        engine.produce("s", k, {"X": x}, 1)
    table: dict[int, int | None] = {}
    for time, step in enumerate(STEPS, start=2):
        for key, value in step.items():
            if value == "gone":
                engine.produce("t", key, None, time)
                del table[key]
            else:
                assert not isinstance(value, str)
                engine.produce("t", key, {"Y": value}, time)
                table[key] = value
        engine.drain()
        for number, query in enumerate(queries):
            wanted = _batch(query, table)
            names = ", ".join(["k", "x"] if " AS x " in query else ["k", "a"] + ["b"] * (" AS b " in query))
            assert _pulled(engine, f"SELECT {names} FROM o{number};") == wanted, (query, table)
            if time == PULLED_AT:
                assert _pulled(engine, f"{query};") == wanted, (query, table)


def _pulled(engine: Sandbox, query: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(message["row"]["columns"]) for message in engine.query(query) if "row" in message)


def _batch(query: str, table: dict[int, int | None]) -> Counter[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE s (k INT, x INT); CREATE TABLE t (id INT, y INT)")
        connection.executemany("INSERT INTO s VALUES (?, ?)", STREAM)
        if table:
            connection.executemany("INSERT INTO t VALUES (?, ?)", list(table.items()))
        return Counter(connection.execute(query.replace(*SUMMED)).fetchall())
