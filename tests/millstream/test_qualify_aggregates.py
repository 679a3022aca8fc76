"""QUALIFY may name aggregates that SELECT does not have."""

from __future__ import annotations

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
