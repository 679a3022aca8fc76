"""A key of several columns that are all NULL is a key; a record without a key is none. A copy keeps the difference."""

from __future__ import annotations

from typing import Any

import pytest
from staged_sandbox import StagedSandbox

from millstream.testing import Sandbox

EMPTY: dict[str, Any] = {"A": None, "B": None}


@pytest.mark.parametrize("query", ["SELECT * FROM s", "SELECT b, v + 0 AS v, a FROM s WHERE v > 0"])
@pytest.mark.parametrize(
    ("format", "executor"),
    [
        ("JSON", "duckdb"),
        ("AVRO", "duckdb"),
        ("JSON_SR", "duckdb"),
        ("JSON", "spark"),
    ],
)
def test_a_copy_of_a_stream_keeps_its_keys(format: str, executor: str, query: str) -> None:
    with StagedSandbox(executor, properties={"auto.offset.reset": "earliest"}) as sandbox:
        sandbox.execute(
            f"CREATE STREAM s (a INT KEY, b STRING KEY, v INT) WITH (kafka_topic='s', format='{format}', partitions=1);"
            f"CREATE STREAM o WITH (partitions=1) AS {query};"
        )
        keys = [EMPTY, None, {"A": 1, "B": None}, EMPTY]
        for number, key in enumerate(keys):
            sandbox.produce("s", key, {"V": number + 1})
        sandbox.drain()
        assert [record["key"] for record in sandbox.consume("O")] == keys


def test_a_query_reads_the_keys_of_nulls_that_another_wrote() -> None:
    with Sandbox(properties={"auto.offset.reset": "earliest"}) as sandbox:
        sandbox.execute(
            """
            CREATE STREAM s (a INT, b STRING, v INT) WITH (kafka_topic='s', format='JSON', partitions=1);
            CREATE STREAM o WITH (partitions=1) AS SELECT * FROM s PARTITION BY a, b;
            CREATE STREAM p WITH (partitions=1) AS SELECT * FROM o;
            CREATE STREAM e WITH (partitions=1) AS SELECT a, b, EXPLODE(ARRAY[1, 2]) AS n FROM o;
            """
        )
        sandbox.produce("s", None, {"V": 1})
        sandbox.drain()
        assert [record["key"] for record in sandbox.consume("P")] == [EMPTY]
        assert [record["key"] for record in sandbox.consume("E")] == [EMPTY, EMPTY]
