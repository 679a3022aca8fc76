"""Queries inside SELECT and HAVING of a query with GROUP BY: what DuckDB gives for the rows that have come so far."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pytest

from millstream.errors import MillstreamError
from millstream.testing import Sandbox

ROWS = [(i, i % 3, i * i % 7 + 6 * (i == 4)) for i in range(10)]
BOUNDS: Sequence[Sequence[tuple[int, int | None]]] = [[(0, 9), (1, 12), (2, 30)], [(1, None), (2, 3), (5, 8)]]
"""The table's rows, and then its changes: a NULL deletes."""

QUERIES = [
    "SELECT g, SUM(x) AS s FROM t GROUP BY g HAVING SUM(x) > (SELECT AVG(y) - 2 FROM b)",
    "SELECT g, SUM(x) AS s FROM t GROUP BY g HAVING SUM(x) > (SELECT MAX(y) FROM b WHERE b.g = t.g)",
    "SELECT g, SUM(x) AS s, (SELECT MAX(y) FROM b WHERE b.g = t.g) AS m FROM t GROUP BY g",
    "SELECT g + 1 AS h, COUNT(*) AS n, (SELECT MAX(y) FROM b) AS m FROM t GROUP BY g + 1 HAVING COUNT(*) > 2",
    "SELECT g, COUNT(*) AS n FROM t GROUP BY g HAVING g IN (SELECT g FROM b WHERE y > 10) AND MIN(x) < 3",
    "SELECT g, COUNT(*) AS n FROM t GROUP BY g HAVING NOT EXISTS (SELECT * FROM b WHERE b.g = t.g AND y > 10)",
    "SELECT g, SUM(x) AS s FROM t GROUP BY g HAVING s > (SELECT AVG(y) - 2 FROM b)",
    (
        "SELECT g, COUNT(*) AS n FROM t WHERE x > (SELECT MIN(y) - 5 FROM b) GROUP BY g"
        " HAVING COUNT(*) > (SELECT MIN(y) - 8 FROM b)"
    ),
    (
        "SELECT t.g AS h, b.y, COUNT(*) AS n FROM t JOIN b ON t.g = b.g GROUP BY t.g, b.y"
        " HAVING COUNT(*) * 4 > (SELECT MIN(g) FROM b)"
    ),
    (
        "SELECT g, SUM(x) AS s, RANK() OVER (ORDER BY SUM(x), g) AS r FROM t GROUP BY g"
        " HAVING SUM(x) > (SELECT MIN(y) FROM b)"
    ),
    (
        "SELECT g, SUM(x) AS s FROM t GROUP BY g HAVING SUM(x) > (SELECT MIN(y) FROM b)"
        " QUALIFY ROW_NUMBER() OVER (ORDER BY s, g) = 1"
    ),
    "SELECT x % 3 AS r, COUNT(*) AS n FROM t GROUP BY r HAVING n * 4 > (SELECT MIN(y) FROM b) AND r < 2",
    "SELECT g AS h, MAX(x) + g AS n, (SELECT COUNT(*) FROM b WHERE y > 100) AS m FROM t GROUP BY h",
    "SELECT g AS h, SUM(x) AS s FROM t GROUP BY h HAVING s > (SELECT MAX(y) FROM b WHERE b.g = t.g) AND MIN(x) + h < 9",
    "SELECT DISTINCT COUNT(*) AS n, (SELECT MIN(y) FROM b) AS m FROM t GROUP BY g",
    "SELECT g AS h, SUM(x) AS s FROM t GROUP BY t.g HAVING SUM(x) > (SELECT MAX(y) FROM b WHERE b.g = t.g) AND t.g < 2",
]


@pytest.mark.parametrize(
    ("query", "partitions"),
    [
        pytest.param(query, partitions, marks=() if partitions == 1 + number % 2 else pytest.mark.soak)
        for number, query in enumerate(QUERIES)
        for partitions in (1, 2)
    ],
)
def test_the_result_is_duckdbs(query: str, partitions: int) -> None:
    # A stream that is joined with a table keeps what the table said when its rows came.
    with_its_time = " JOIN b " in query
    batch = duckdb.connect()
    batch.execute("CREATE TABLE t (id INT, g INT, x INT); CREATE TABLE b (g INT, y INT)")
    with Sandbox(properties={"auto.offset.reset": "earliest", "millstream.pull.full.sql": "true"}) as sandbox:
        properties = f"format='JSON', partitions={partitions}"
        sandbox.execute(
            f"CREATE STREAM t (id INT KEY, g INT, x INT) WITH (kafka_topic='t', {properties});"
            f"CREATE TABLE b (g INT PRIMARY KEY, y INT) WITH (kafka_topic='b', {properties});"
            f"CREATE TABLE o AS {query};"
        )
        for bounds, rows in zip(BOUNDS[:1] if with_its_time else BOUNDS, (ROWS[:6], ROWS[6:]), strict=False):
            for key, value in bounds:
                batch.execute("DELETE FROM b WHERE g = ?", [key])
                if value is not None:
                    batch.execute("INSERT INTO b VALUES (?, ?)", [key, value])
                sandbox.produce("b", key, None if value is None else {"Y": value}, timestamp=0)
            sandbox.drain()
            for id_, group, x in rows:
                batch.execute("INSERT INTO t VALUES (?, ?, ?)", [id_, group, x])
                sandbox.produce("t", id_, {"G": group, "X": x}, timestamp=0)
            sandbox.drain()
            expected = sorted(batch.execute(query).fetchall())
            names = ", ".join(column[0] for column in batch.description or [])
            assert answer(sandbox, f"SELECT {names} FROM o") == expected
            if not with_its_time:
                assert answer(sandbox, query) == expected


def answer(sandbox: Sandbox, query: str) -> list[tuple[object, ...]]:
    lines = sandbox.query(f"{query};")
    return sorted(tuple(line["row"]["columns"]) for line in lines if "row" in line)


@pytest.mark.parametrize(("emit", "sums"), [("CHANGES", [[0, 2, 5], [10, 1, 7]]), ("FINAL", [[0, 2, 5]])])
def test_a_group_has_its_window(emit: str, sums: list[list[int]]) -> None:
    with Sandbox(properties={"auto.offset.reset": "earliest"}) as sandbox:
        sandbox.execute(
            "CREATE STREAM t (id INT KEY, x INT) WITH (kafka_topic='t', format='JSON', partitions=1);"
            "CREATE TABLE b (g INT PRIMARY KEY, y INT) WITH (kafka_topic='b', format='JSON', partitions=1);"
            "CREATE TABLE o AS SELECT id, WINDOWSTART AS starts, COUNT(*) AS n, SUM(x) AS s FROM t"
            " WINDOW TUMBLING (SIZE 10 MILLISECONDS, GRACE PERIOD 0 MILLISECONDS)"
            f" GROUP BY id HAVING SUM(x) > (SELECT MIN(y) FROM b) EMIT {emit};"
        )
        sandbox.produce("b", 1, {"Y": 4}, timestamp=0)
        sandbox.drain()
        for time, x in ((0, 2), (1, 3), (12, 7)):
            sandbox.produce("t", 1, {"X": x}, timestamp=time)
        sandbox.drain()
        rows = sandbox.query("SELECT starts, n, s FROM o WHERE id = 1;")
        assert [line["row"]["columns"] for line in rows if "row" in line] == sums


def test_columns_have_the_names_that_they_have_without_queries() -> None:
    with Sandbox() as sandbox:
        sandbox.execute(
            "CREATE STREAM t (id INT KEY, p STRUCT<q INT>, x INT) WITH (kafka_topic='t', format='JSON', partitions=1);"
        )
        for name, condition in (("plain", "1"), ("asking", "(SELECT MIN(x) FROM t)")):
            sandbox.execute(
                f"CREATE TABLE {name} AS SELECT id, p->q, COUNT(*), SUM(x) * 2, x FROM t GROUP BY id, p->q, x"
                f" HAVING COUNT(*) >= {condition};"
            )
        assert columns(sandbox, "asking") == columns(sandbox, "plain")


def columns(sandbox: Sandbox, name: str) -> list[str]:
    (described,) = sandbox.execute(f"DESCRIBE {name};")
    return [field["name"] for field in described["sourceDescription"]["fields"]]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT g, x FROM t GROUP BY g HAVING SUM(x) > (SELECT MIN(x) FROM t u)", "not part of GROUP BY: X"),
        ("SELECT g + 1 AS x, COUNT(*) FROM t GROUP BY x HAVING COUNT(*) > (SELECT MIN(x) FROM t u)", "GROUP BY: G"),
        ("SELECT g, SUM(x) + s AS s FROM t GROUP BY g HAVING s > (SELECT MIN(x) FROM t u)", "not part of GROUP BY: S"),
        ("SELECT g, SUM(x) AS s, s + 1 AS z, (SELECT MIN(x) FROM t u) FROM t GROUP BY g", "not part of GROUP BY: S"),
        ("SELECT g FROM t GROUP BY g HAVING SUM(x) > (SELECT MIN(x) FROM t u WHERE u.x = t.x)", "GROUP BY: T.X"),
        ("SELECT g, SUM(x) FROM t GROUP BY SUM(x) HAVING g > (SELECT MIN(x) FROM t u)", "GROUP BY does not support"),
        (
            "SELECT g, WINDOWEND FROM t WINDOW TUMBLING (SIZE 1 DAY) GROUP BY g HAVING MAX(x) > (SELECT 1 FROM t u)",
            "Reserved column name in select: `WINDOWEND`. Please remove or alias the column.",
        ),
    ],
)
def test_what_is_refused(query: str, message: str) -> None:
    with Sandbox() as sandbox:
        sandbox.execute(
            "CREATE STREAM t (id INT KEY, g INT, x INT) WITH (kafka_topic='t', format='JSON', partitions=1);"
        )
        with pytest.raises(MillstreamError, match=message):
            sandbox.execute(f"CREATE TABLE o AS {query};")
