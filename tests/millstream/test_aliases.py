"""GROUP BY and HAVING know the names that SELECT gives, and the same query in DuckDB has the same rows."""

from __future__ import annotations

import duckdb
import pytest

from millstream.errors import MillstreamError
from millstream.testing import Sandbox

ROWS = [(i, i % 3, i * i % 7 + 6 * (i == 4)) for i in range(10)]
CREATED = "CREATE STREAM t (id INT KEY, g INT, x INT) WITH (kafka_topic='t', format='JSON', partitions=1);"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT g, SUM(x) AS s FROM t GROUP BY g HAVING s > 12",
        "SELECT g AS h, SUM(x) AS s FROM t GROUP BY g HAVING h * 2 < s - 1",
        "SELECT x % 3 AS r, COUNT(*) AS n FROM t GROUP BY r",
        "SELECT x % 3 AS r, COUNT(*) AS n FROM t GROUP BY r HAVING n > 2 AND r < 2",
        "SELECT g + 1 AS a, x % 2 AS b, COUNT(*) AS n FROM t GROUP BY b, a",
        "SELECT t.g AS h, MAX(t.x) AS x FROM t GROUP BY h HAVING MAX(x) > 3",
        # A column of FROM comes first.
        "SELECT g, 0 - SUM(x) AS x FROM t GROUP BY g HAVING MIN(x) > 0",
        "SELECT g, id % 2 AS x, COUNT(*) AS n FROM t GROUP BY g, id % 2",
        "SELECT CASE WHEN x > 3 THEN 1 ELSE 0 END AS large, COUNT(*) AS n FROM t GROUP BY large HAVING large = 1",
        "SELECT g AS h, SUM(x) AS s FROM t GROUP BY h HAVING s > 9 QUALIFY RANK() OVER (ORDER BY s, h) = 1",
    ],
)
def test_aliases_mean_what_they_mean_in_duckdb(query: str) -> None:
    batch = duckdb.connect()
    batch.execute("CREATE TABLE t (id INT, g INT, x INT)")
    batch.executemany("INSERT INTO t VALUES (?, ?, ?)", ROWS)
    expected = sorted(batch.execute(query).fetchall())
    names = ", ".join(column[0] for column in batch.description or [])
    with Sandbox(properties={"auto.offset.reset": "earliest", "millstream.pull.full.sql": "true"}) as sandbox:
        sandbox.execute(CREATED)
        for id_, group, x in ROWS:
            sandbox.produce("t", id_, {"G": group, "X": x}, timestamp=0)
        sandbox.execute(f"CREATE TABLE o AS {query};")
        sandbox.drain()
        for answered in (query, f"SELECT {names} FROM o"):
            rows = [tuple(line["row"]["columns"]) for line in sandbox.query(answered + ";") if "row" in line]
            assert sorted(rows) == expected


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT id AS x, COUNT(*) FROM t GROUP BY x", "Non-aggregate SELECT expression"),
        ("SELECT SUM(x) AS s, COUNT(*) FROM t GROUP BY s", "GROUP BY does not support aggregate functions: SUM"),
        ("SELECT g, COUNT(*), RANK() OVER (ORDER BY g) AS r FROM t GROUP BY g HAVING r = 1", "OVER can only stand"),
        ("SELECT g, COUNT(*) AS n FROM t GROUP BY g HAVING m = 1", "HAVING column 'M' cannot be resolved"),
        ("SELECT g, COUNT(*) AS n FROM t GROUP BY g HAVING t.n = 1", "HAVING column 'T.N' cannot be resolved"),
        ("SELECT g AS h, COUNT(*) AS n FROM t WHERE h = 1 GROUP BY g", "WHERE column 'H' cannot be resolved"),
    ],
)
def test_what_an_alias_cannot_be(query: str, message: str) -> None:
    with Sandbox() as sandbox:
        sandbox.execute(CREATED)
        with pytest.raises(MillstreamError, match=message):
            sandbox.execute(f"CREATE TABLE o AS {query};")
