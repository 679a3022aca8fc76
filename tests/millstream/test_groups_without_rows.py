"""A group of a table's rows disappears with its last row in every query that ksqlDB refuses. In its own queries it
stays, as there."""

from __future__ import annotations

import pytest

from millstream.testing import Sandbox

DECLARED = """
    CREATE TABLE t (k INT PRIMARY KEY, g STRING, x INT) WITH (kafka_topic='t', format='JSON', partitions=2);
    INSERT INTO t VALUES (1, 'a', 2), (2, 'b', 3), (3, 'c', 4), (4, 'c', NULL);
"""
GONE = [
    "COUNT(DISTINCT x)",
    "COUNT(*) FILTER (WHERE x > 2)",
    "MIN(x)",
    "SUM(x) + MAX(x)",
    "SUM(x) FILTER (WHERE x > 2)",
]


def groups(aggregate: str, having: str = "") -> list[str]:
    """The groups that the table has after all rows of A were deleted, and those of C but one."""
    properties = {"auto.offset.reset": "earliest", "millstream.pull.full.sql": "true"}
    with Sandbox(properties=properties) as sandbox:
        sandbox.execute(DECLARED)
        sandbox.execute(f"CREATE TABLE o AS SELECT g, {aggregate} AS v FROM t GROUP BY g {having};")
        sandbox.drain()
        sandbox.execute("DELETE FROM t WHERE k = 1; INSERT INTO t VALUES (3, 'b', 4);")
        sandbox.drain()
        return sorted(row["row"]["columns"][0] for row in sandbox.query("SELECT g FROM o;") if "row" in row)


@pytest.mark.parametrize("aggregate", GONE)
def test_a_group_is_gone_with_its_last_row(aggregate: str) -> None:
    assert groups(aggregate) == ["b", "c"]


def test_an_aggregate_in_having_counts_too() -> None:
    assert groups("COUNT(*)", "HAVING COALESCE(MAX(x), 9) > 0") == ["b", "c"]


def test_a_query_of_ksqldb_keeps_the_group() -> None:
    assert groups("SUM(x)") == ["a", "b", "c"]
