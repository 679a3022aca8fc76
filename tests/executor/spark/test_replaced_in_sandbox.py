"""CREATE OR REPLACE on Spark: the query goes on with the records that follow, as on DuckDB. Jobs run in process."""

from __future__ import annotations

from random import Random

import pytest
from staged_sandbox import StagedSandbox

from millstream.testing import Sandbox

EARLIEST = {"auto.offset.reset": "earliest"}
DECLARED = """
CREATE STREAM a (k INT KEY, v INT, w STRING) WITH (kafka_topic='a', value_format='JSON', partitions={0});
CREATE TABLE t (k INT PRIMARY KEY, n STRING, m INT) WITH (kafka_topic='t', value_format='JSON', partitions={0});
"""


def _insert(sandbox: Sandbox, first: int, end: int) -> None:
    rng = Random(first)
    for n in range(first, end):
        sandbox.produce("a", rng.randrange(3), {"V": n, "W": f"w{n % 3}"}, timestamp=n)
        row = None if rng.random() < 0.2 else {"N": f"n{n}", "M": rng.randrange(8)}
        sandbox.produce("t", rng.randrange(5), row, timestamp=n)
    sandbox.drain()


def _written(executor: str, partitions: int, selects: tuple[str, ...]) -> dict[object, list[tuple[object, int]]]:
    """By key: the values and times that the query and those that replaced it have written."""
    with StagedSandbox(executor, properties=EARLIEST) as sandbox:
        sandbox.execute(DECLARED.format(partitions))
        create = "CREATE"
        for number, select in enumerate(selects):
            sandbox.execute(f"{create} {'STREAM' if 'FROM a' in select else 'TABLE'} o AS {select};")
            _insert(sandbox, 8 * number, 8 * number + 8)
            create = "CREATE OR REPLACE"
        found: dict[object, list[tuple[object, int]]] = {}
        for record in sandbox.consume("O"):
            found.setdefault(record["key"], []).append((record["value"], record["timestamp"]))
        return found


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize(
    "selects",
    [
        ("SELECT * FROM t WHERE m > 2", "SELECT * FROM t", "SELECT * FROM t WHERE m > 3", "SELECT * FROM t"),
        ("SELECT * FROM t", "SELECT * FROM t WHERE m > 2", "SELECT * FROM t WHERE m < 5"),
        ("SELECT k, v FROM a", "SELECT v AS k, k AS v FROM a PARTITION BY v", "SELECT k, v + 1 AS v FROM a"),
        (
            "SELECT a.k AS k, v, n FROM a LEFT JOIN t ON a.k = t.k",
            "SELECT a.k AS k, v, n, w FROM a LEFT JOIN t ON a.k = t.k WHERE v > 9",
        ),
    ],
)
def test_a_replaced_query_writes_what_it_writes_on_duckdb(partitions: int, selects: tuple[str, ...]) -> None:
    assert _written("spark", partitions, selects) == _written("duckdb", partitions, selects)
