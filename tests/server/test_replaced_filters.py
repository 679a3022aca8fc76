"""CREATE OR REPLACE of a table's filter: a row that is written or deleted from then on is as the new filter says, also
where the old one had let it through."""

from __future__ import annotations

from random import Random

import pytest
from drawn import checkered

from millstream.testing import Sandbox

DECLARED = """
CREATE TABLE t (k INT PRIMARY KEY, v INT) WITH (kafka_topic='t', value_format='JSON', partitions={0});
CREATE TABLE u (k INT PRIMARY KEY, n STRING) WITH (kafka_topic='u', value_format='JSON', partitions={0});
CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions={0});
"""
EVERY = {"auto.offset.reset": "earliest"}
LAST = {**EVERY, "ksql.streams.cache.max.bytes.buffering": "1000000"}


def _columns(sandbox: Sandbox, query: str) -> dict[int, int]:
    return {line["row"]["columns"][0]: line["row"]["columns"][1] for line in sandbox.query(query) if "row" in line}


def _begin(partitions: int, properties: dict[str, str]) -> Sandbox:
    sandbox = Sandbox(properties=properties)
    sandbox.execute(DECLARED.format(partitions))
    return sandbox


@pytest.mark.parametrize(("seed", "partitions", "properties"), checkered(range(3), [1, 3], [EVERY, LAST]))
def test_a_copied_table_has_what_its_filter_lets_through(
    seed: int, partitions: int, properties: dict[str, str]
) -> None:
    rng = Random(seed)
    held, expected = dict[int, int](), dict[int, int]()
    with _begin(partitions, properties) as sandbox:
        sandbox.execute("CREATE TABLE o AS SELECT k, v FROM t;")
        for bound in [-1, *(rng.randrange(-1, 9) for _ in range(4))]:
            sandbox.execute(
                f"CREATE OR REPLACE TABLE o AS SELECT k, v FROM t {f'WHERE v > {bound}' if bound + 1 else ''};"
            )
            for _ in range(10):
                k, v = rng.randrange(6), rng.choice([None, *range(9)])
                sandbox.produce("t", k, None if v is None else {"V": v})
                held.pop(k, None)
                expected.pop(k, None)
                if v is not None:
                    held[k] = v
                    expected |= {k: v} if v > bound else {}
                if rng.random() < 0.3:
                    sandbox.drain()
            sandbox.drain()
            assert _columns(sandbox, "SELECT k, v FROM o;") == expected


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_filter_over_joined_tables_deletes_what_the_one_before_let_through(partitions: int) -> None:
    joined = "SELECT t.k AS k, v, n FROM t JOIN u ON t.k = u.k"
    with _begin(partitions, EVERY) as sandbox:
        sandbox.execute(f"CREATE TABLE o AS {joined} WHERE v > 0;")
        for k in range(4):
            sandbox.produce("u", k, {"N": "n"})
            sandbox.produce("t", k, {"V": k + 1})
        sandbox.drain()
        sandbox.execute(f"CREATE OR REPLACE TABLE o AS {joined} WHERE v > 2;")
        sandbox.produce("t", 0, {"V": 2})
        sandbox.produce("t", 1, None)
        sandbox.produce("u", 3, {"N": "m"})
        sandbox.drain()
        assert _columns(sandbox, "SELECT k, v FROM o;") == {2: 3, 3: 4}


@pytest.mark.parametrize("window", ["", "WINDOW TUMBLING (SIZE 1 HOUR)"])
def test_a_group_that_the_new_having_does_not_let_through_leaves_the_table(window: str) -> None:
    counted = f"SELECT k, COUNT(*) AS n FROM s {window} GROUP BY k HAVING COUNT(*) >"
    with _begin(1, EVERY) as sandbox:
        sandbox.execute(f"CREATE TABLE o AS {counted} 1;")
        for k in (1, 1, 2, 2):
            sandbox.produce("s", k, {"V": 1})
        sandbox.drain()
        sandbox.execute(f"CREATE OR REPLACE TABLE o AS {counted} 3;")
        sandbox.produce("s", 1, {"V": 1})
        sandbox.drain()
        assert _columns(sandbox, "SELECT k, n FROM o;") == {2: 2}
        sandbox.produce("s", 1, {"V": 1})
        sandbox.drain()
        assert _columns(sandbox, "SELECT k, n FROM o;") == {1: 4, 2: 2}


def test_a_query_that_is_not_replaced_or_keeps_its_filter_deletes_nothing_that_was_not_there() -> None:
    filtered = "TABLE o AS SELECT k, v FROM t WHERE v > 2;"
    with _begin(1, EVERY) as sandbox:
        sandbox.execute(f"CREATE {filtered}")
        sandbox.produce("t", 1, {"V": 1})
        sandbox.drain()
        sandbox.execute(f"CREATE OR REPLACE {filtered}")
        sandbox.produce("t", 2, {"V": 1})
        sandbox.produce("t", 3, {"V": 3})
        sandbox.drain()
        assert [(record["key"], record["value"]) for record in sandbox.consume("O")] == [(3, {"V": 3})]
