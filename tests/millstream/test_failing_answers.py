"""A query whose result does not fit its type fails as a statement does, not with an error of DuckDB's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.errors import QueryError
from millstream.testing import Sandbox

LARGEST = "9" * 38


CREATED = f"""
    CREATE STREAM d (k INT KEY, v DECIMAL(38, 0)) WITH (kafka_topic='d', value_format='JSON', partitions=1);
    INSERT INTO d VALUES (1, CAST('{LARGEST}' AS DECIMAL(38, 0))), (1, CAST('{LARGEST}' AS DECIMAL(38, 0)));
"""


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(properties={"auto.offset.reset": "earliest", "millstream.pull.full.sql": "true"}) as sandbox:
        sandbox.execute(CREATED)
        yield sandbox


def test_a_sum_of_decimals_that_is_too_large_is_a_query_error(sandbox: Sandbox) -> None:
    with pytest.raises(QueryError, match="Exception caught in process: "):
        list(sandbox.query("SELECT k, SUM(v) AS s FROM d GROUP BY k;"))


def test_over_a_partition_such_a_sum_is_null_and_the_mean_is_there(sandbox: Sandbox) -> None:
    """As in a persistent query, which it does not end."""
    found = list(sandbox.query("SELECT SUM(v) OVER (PARTITION BY k) AS s, AVG(v) OVER (PARTITION BY k) AS a FROM d;"))
    assert [each["row"]["columns"] for each in found if "row" in each] == [[None, 1e38]] * 2


def test_a_persistent_query_that_has_failed_does_not_go_on_in_a_sandbox(sandbox: Sandbox) -> None:
    """Its state is that from the middle of a batch: what it gave after that would be wrong."""
    sandbox.execute("CREATE TABLE t AS SELECT k, SUM(v) AS s FROM d GROUP BY k;")
    for _ in range(2):
        with pytest.raises(QueryError, match="Numeric field overflow"):
            sandbox.drain()
        sandbox.execute("INSERT INTO d VALUES (1, 5);")
    assert sandbox.consume("T") == []
