"""Tables joined by a key of one side of a FULL join, which is the result's key or NULL.

Rows come, change and go, and in the end the result is DuckDB's answer over what the tables hold."""

from __future__ import annotations

import random
import traceback

import duckdb
import pytest
from drawn import checkered

from millstream.errors import InvalidStatement
from millstream.testing import Sandbox

TABLES = "abcd"
COLUMNS = "a.k AS ak, b.k AS bk, c.k AS ck, a.v AS av, b.v AS bv, c.v AS cv"
ALL = f"{COLUMNS}, d.k AS dk, d.v AS dv"
JOINS = {
    "LEFT": (COLUMNS, "a FULL JOIN b ON a.k = b.k LEFT JOIN c ON a.k = c.k"),
    "LEFT, by the second key": (COLUMNS, "a FULL JOIN b ON a.k = b.k LEFT JOIN c ON c.k = b.k"),
    "INNER": (COLUMNS, "a FULL JOIN b ON a.k = b.k JOIN c ON a.k = c.k"),
    "RIGHT": (COLUMNS, "a FULL JOIN b ON a.k = b.k RIGHT JOIN c ON b.k = c.k"),
    "twice": (ALL, "a FULL JOIN b ON a.k = b.k LEFT JOIN c ON a.k = c.k LEFT JOIN d ON b.k = d.k"),
    "by what a LEFT join found": (ALL, "a FULL JOIN b ON a.k = b.k LEFT JOIN c ON a.k = c.k JOIN d ON c.k = d.k"),
    "after two": (ALL, "a FULL JOIN b ON a.k = b.k FULL JOIN c ON ROWKEY = c.k LEFT JOIN d ON c.k = d.k"),
}


def sandbox(partitions: int) -> Sandbox:
    made = Sandbox(properties={"auto.offset.reset": "earliest"})
    for name in TABLES:
        made.execute(
            f"CREATE TABLE {name} (k INT PRIMARY KEY, v INT) "
            f"WITH (kafka_topic='{name}', format='JSON', partitions={partitions});"
        )
    return made


def held(rows: dict[str, dict[int, int]], query: str) -> list[tuple[int | None, ...]]:
    """DuckDB's answer over what the tables hold."""
    with duckdb.connect() as database:
        for name, table in rows.items():
            database.execute(f"CREATE TABLE {name} (k INT, v INT)")
            for pair in table.items():
                database.execute(f"INSERT INTO {name} VALUES (?, ?)", pair)
        return database.execute(query).fetchall()


@pytest.mark.parametrize(("name", "partitions"), checkered(JOINS, [1, 3]))
def test_the_result_is_duckdb_s(name: str, partitions: int) -> None:
    columns, tables = JOINS[name]
    generator = random.Random(f"{name} {partitions}")
    rows: dict[str, dict[int, int]] = {table: {} for table in TABLES}
    with sandbox(partitions) as engine:
        engine.execute(f"CREATE TABLE o AS SELECT ROWKEY, {columns} FROM {tables};")
        for time in range(120):
            table, k, v = generator.choice(TABLES), generator.randrange(8), generator.randrange(9)
            gone = generator.random() < 0.3
            engine.produce(table, k, None if gone else {"V": v}, timestamp=time)
            if gone:
                rows[table].pop(k, None)
            else:
                rows[table][k] = v
        engine.drain()
        found = [tuple(each["row"]["columns"][1:]) for each in engine.query("SELECT * FROM o;") if "row" in each]
    answer = held(rows, f"SELECT {columns} FROM {tables.replace('ROWKEY', 'coalesce(a.k, b.k)')}")
    assert sorted(found, key=str) == sorted(answer, key=str)


def test_a_full_join_by_such_a_key_would_have_no_key_and_is_told_what_to_write() -> None:
    query = "SELECT ROWKEY, a.v FROM a FULL JOIN b ON a.k = b.k FULL JOIN c ON a.k = c.k"
    with sandbox(1) as engine, pytest.raises(InvalidStatement) as raised:
        engine.execute(f"CREATE TABLE o AS {query};")
    assert "hint: Join on ROWKEY" in "".join(traceback.format_exception(raised.value))
