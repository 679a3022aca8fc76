"""Rows of a table that leave one partition of a function OVER for another stay in the result."""

from __future__ import annotations

import random
from collections.abc import Iterator

import duckdb
import pytest

from millstream.testing import Sandbox

SETUP = """
    CREATE TABLE stock (sku INT PRIMARY KEY, grp INT, qty INT)
      WITH (kafka_topic='stock', value_format='JSON', partitions=2);
"""

QUERIES = {
    "the value before": "SELECT sku, LAG(qty) OVER (PARTITION BY grp ORDER BY qty, sku) AS r FROM stock",
    "the best two": (
        "SELECT sku, qty AS r FROM stock QUALIFY DENSE_RANK() OVER (PARTITION BY grp ORDER BY qty DESC NULLS LAST) <= 2"
    ),
    "several partitions": (
        "SELECT sku, COUNT(*) OVER (PARTITION BY grp) * 100 + RANK() OVER (PARTITION BY qty ORDER BY sku) AS r "
        "FROM stock"
    ),
}


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as sandbox:
        sandbox.execute(SETUP)
        sandbox.execute("SET 'auto.offset.reset' = 'earliest';")
        yield sandbox


@pytest.mark.parametrize("name", QUERIES)
def test_a_row_that_moves_to_another_partition_is_not_lost(sandbox: Sandbox, name: str) -> None:
    sandbox.execute(f"CREATE TABLE result AS {QUERIES[name]};")
    rng = random.Random(name)
    stock: dict[int, tuple[int | None, int | None]] = {}
    for _ in range(6):
        for _ in range(8):
            sku, row = rng.randrange(7), (rng.choice((1, 2, 3, None)), rng.choice((1, 2, 5, None)))
            stock[sku] = row
            sandbox.produce("stock", sku, {"GRP": row[0], "QTY": row[1]}, timestamp=1)
        sandbox.drain()
        assert _final(sandbox) == _batch_answer(QUERIES[name], stock)


def _final(sandbox: Sandbox) -> dict[int, int | None]:
    latest = {record["key"]: record["value"] for record in sandbox.consume("RESULT")}
    return {key: value["R"] for key, value in latest.items() if value is not None}


def _batch_answer(query: str, stock: dict[int, tuple[int | None, int | None]]) -> dict[int, int | None]:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE stock (sku INT, grp INT, qty INT)")
        connection.executemany("INSERT INTO stock VALUES (?, ?, ?)", [[sku, *row] for sku, row in stock.items()])
        return dict(connection.sql(query).fetchall())
