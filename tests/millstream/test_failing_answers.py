"""A pull query whose result does not fit its type fails as a statement does, not with an error of DuckDB's."""

from __future__ import annotations

import pytest

from millstream.errors import QueryError
from millstream.testing import Sandbox

LARGEST = "9" * 38


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, SUM(v) AS s FROM d GROUP BY k",
        "SELECT k, SUM(v) OVER (PARTITION BY k) AS s FROM d",
        "SELECT k, AVG(v) OVER (PARTITION BY k ORDER BY k) AS s FROM d",
    ],
)
def test_a_sum_of_decimals_that_is_too_large_is_a_query_error(query: str) -> None:
    with Sandbox(properties={"auto.offset.reset": "earliest", "millstream.pull.full.sql": "true"}) as sandbox:
        sandbox.execute(f"""
            CREATE STREAM d (k INT KEY, v DECIMAL(38, 0)) WITH (kafka_topic='d', value_format='JSON', partitions=1);
            INSERT INTO d VALUES (1, CAST('{LARGEST}' AS DECIMAL(38, 0))), (1, CAST('{LARGEST}' AS DECIMAL(38, 0)));
        """)
        with pytest.raises(QueryError, match="Exception caught in process: "):
            list(sandbox.query(f"{query};"))
