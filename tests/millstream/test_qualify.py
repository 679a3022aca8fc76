"""QUALIFY may name aggregates that SELECT does not have, and what SELECT calls by a name of its own."""

from __future__ import annotations

import duckdb
import pytest

from millstream.errors import MillstreamError
from millstream.testing import Sandbox

ROWS = ((1, 5), (1, 7), (2, 9), (2, 1), (3, 4))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT k, COUNT(*) AS n FROM s GROUP BY k QUALIFY ROW_NUMBER() OVER (ORDER BY MAX(v) DESC) = 1", [[2, 2]]),
        ("SELECT k, COUNT(*) AS n FROM s GROUP BY k QUALIFY SUM(MAX(v)) OVER (ORDER BY k) > 7", [[2, 2], [3, 1]]),
        ("SELECT k, COUNT(*) AS n FROM s GROUP BY k QUALIFY RANK() OVER (PARTITION BY MIN(v) + 1) = MAX(v) - 3",
         [[3, 1]]),
        ("SELECT k FROM s GROUP BY k QUALIFY RANK() OVER (ORDER BY COUNT(*) DESC, MIN(v)) <= 2", [[1], [2]]),
        ("SELECT k, MAX(v) AS m, RANK() OVER (ORDER BY MAX(v)) AS r FROM s GROUP BY k QUALIFY r = MIN(v) - 3",
         [[1, 7, 2], [3, 4, 1]]),
    ],
)  # fmt: skip
def test_qualify_takes_aggregates_of_its_own(query: str, expected: list[list[int]]) -> None:
    with Sandbox(properties={"auto.offset.reset": "earliest", "millstream.pull.full.sql": "true"}) as sandbox:
        sandbox.execute("CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);")
        for key, value in ROWS:
            sandbox.produce("s", key, {"V": value}, timestamp=0)
        assert sorted(line["row"]["columns"] for line in sandbox.query(query + ";") if "row" in line) == expected
        if "n FROM" in query:
            sandbox.execute(f"CREATE TABLE o AS {query};")
            sandbox.drain()
            written = [line["row"]["columns"] for line in sandbox.query("SELECT * FROM o;") if "row" in line]
            assert sorted(written) == expected


@pytest.mark.parametrize(
    ("column", "message"),
    [("v", "Non-aggregate QUALIFY expression not part of GROUP BY: V"), ("w", "QUALIFY column 'W' cannot be resolved")],
)
def test_a_column_of_qualify_is_grouped_or_aggregated(column: str, message: str) -> None:
    with Sandbox() as sandbox:
        sandbox.execute("CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);")
        with pytest.raises(MillstreamError, match=message):
            sandbox.execute(
                "CREATE TABLE o AS SELECT k, COUNT(*) AS n FROM s GROUP BY k"
                f" QUALIFY RANK() OVER (ORDER BY {column}) = 1;"
            )


COLUMNS = "SELECT id, {} FROM t QUALIFY {}"
GROUPS = "SELECT {} FROM t GROUP BY {} QUALIFY {}"


@pytest.mark.parametrize(
    "query",
    [
        COLUMNS.format("x * 2 AS y", "ROW_NUMBER() OVER (PARTITION BY g ORDER BY y, id) = 1"),
        COLUMNS.format("10 - x AS y", "ROW_NUMBER() OVER (PARTITION BY g ORDER BY x, id) = 1 AND y * 2 > 12"),
        COLUMNS.format("0 - x AS x", "ROW_NUMBER() OVER (PARTITION BY g ORDER BY x, id) = 1"),
        COLUMNS.format("x % 2 AS y, RANK() OVER (PARTITION BY g ORDER BY x % 2, id) AS r", "r = 1 AND y = 0"),
        COLUMNS.format("x AS y", "RANK() OVER (PARTITION BY t.g ORDER BY t.x, id) <= LEN(CAST(y AS {STRING})) - 1"),
        GROUPS.format("g, SUM(x) AS s", "g", "ROW_NUMBER() OVER (ORDER BY s DESC, g) = 1"),
        GROUPS.format("g, SUM(x) AS s", "g", "ROW_NUMBER() OVER (ORDER BY g DESC) <= 2 AND s > 12"),
        GROUPS.format("g + 1 AS h, COUNT(*) AS n", "g + 1", "RANK() OVER (ORDER BY n, h) = 1"),
    ],
)
def test_qualify_knows_the_names_that_select_gives_as_duckdb_does(query: str) -> None:
    rows = [(i, i % 3, i * i % 7 + 6 * (i == 4)) for i in range(10)]
    batch = duckdb.connect()
    batch.execute("CREATE TABLE t (id INT, g INT, x INT)")
    batch.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    expected = sorted(batch.execute(query.replace("{STRING}", "TEXT")).fetchall())
    names = ", ".join(column[0] for column in batch.description or [])
    with Sandbox(properties={"auto.offset.reset": "earliest", "millstream.pull.full.sql": "true"}) as sandbox:
        sandbox.execute(
            "CREATE STREAM t (id INT KEY, g INT, x INT) WITH (kafka_topic='t', format='JSON', partitions=1);"
        )
        for id_, group, x in rows:
            sandbox.produce("t", id_, {"G": group, "X": x}, timestamp=0)
        sql = query.replace("{STRING}", "STRING")
        assert sorted(tuple(line["row"]["columns"]) for line in sandbox.query(sql + ";") if "row" in line) == expected
        sandbox.execute(f"CREATE TABLE o AS {sql};")
        sandbox.drain()
        written = [tuple(line["row"]["columns"]) for line in sandbox.query(f"SELECT {names} FROM o;") if "row" in line]
        assert sorted(written) == expected


def test_a_lambdas_parameter_is_not_an_alias() -> None:
    with Sandbox(properties={"auto.offset.reset": "earliest"}) as sandbox:
        sandbox.execute(
            "CREATE STREAM t (id INT KEY, l ARRAY<INT>) WITH (kafka_topic='t', value_format='JSON', partitions=1);"
            "CREATE TABLE o AS SELECT id, l[1] * 100 AS v FROM t"
            " QUALIFY ROW_NUMBER() OVER (PARTITION BY id ORDER BY REDUCE(l, 0, (s, v) => s + v) DESC) = 1;"
        )
        sandbox.produce("t", 1, {"L": [1, 1]}, timestamp=0)
        sandbox.produce("t", 1, {"L": [0, 3]}, timestamp=1)
        sandbox.drain()
        assert [line["row"]["columns"] for line in sandbox.query("SELECT id, v FROM o;") if "row" in line] == [[1, 0]]
