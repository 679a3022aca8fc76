"""Parts of an expression that fail for every row stop no statement, and fail in every row."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.planner.serde import plan_to_json
from millstream.testing import Sandbox

SOURCE = "CREATE STREAM s (k STRING KEY, v INT) WITH (KAFKA_TOPIC='s', FORMAT='JSON', PARTITIONS=1);"


def results(expression: str) -> list[Any]:
    """For v = 1, 2 and NULL."""
    with Sandbox() as sandbox:
        sandbox.execute(f"{SOURCE} CREATE STREAM o AS SELECT k, {expression} AS x FROM s;")
        for value in ("1", "2", "NULL"):
            sandbox.execute(f"INSERT INTO s (k, v) VALUES ('a', {value});")
        sandbox.drain()
        return [record["value"]["X"] for record in sandbox.consume("O")]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("1/0", [None, None, None]),
        ("CASE WHEN 1/0 = 1 THEN 'a' ELSE 'b' END", [None, None, None]),
        ("CASE WHEN 1/0 = 1 THEN v ELSE 3 END", [None, None, None]),
        ("CASE WHEN v = 1 THEN 5 WHEN 1/0 = v THEN 6 ELSE 7 END", [5, None, None]),
        ("CASE WHEN v = 1 THEN 1/0 ELSE v END", [None, 2, None]),
        ("(1/0) = 1 AND v > 0", [None, None, None]),
        ("NULLIF(1/0, 1)", [None, None, None]),
        ("CASE WHEN CAST('x' AS INT) = 1 THEN 1 ELSE v END", [None, None, None]),
        ("(1/0) IS NULL", [None, None, None]),
        # It is the smallest part that is hidden: DuckDB computes what is inside of the larger ones.
        ("CASE WHEN v = 1 THEN SUBSTRING('abc', 2147483647 + 1) ELSE 'b' END", [None, "b", "b"]),
        ("CASE WHEN v = 1 THEN -(2147483647 + 1) ELSE v END", [None, 2, None]),
        ("CASE WHEN v = 1 THEN SLICE(ARRAY[1], 1, 2147483647 + 1) END", [None, None, None]),
        ("CASE WHEN v = 1 THEN REDUCE(ARRAY[1], 2147483647 + 1, (s, x) => s + x) ELSE 2 END", [None, 2, 2]),
        ("CASE WHEN v = 1 THEN REDUCE(ARRAY['a'], 0, (s, x) => s + CAST(x AS INT)) ELSE 2 END", [None, 2, 2]),
        (
            "CASE WHEN v = 1 THEN TO_JSON_STRING(REDUCE(ARRAY['a'], 0, (s, x) => s + CAST(x AS INT))) ELSE 'b' END",
            [None, "b", "b"],
        ),
        ("LPAD(CAST(DATEADD(DAYS, 2147483647 + 1, CAST('2020-01-01' AS DATE)) AS STRING), v, 'a')", [None, None, None]),
        ("TRANSFORM(ARRAY[v], x => CASE WHEN x = 1 THEN -(2147483647 + 1) ELSE x END)", [None, [2], [None]]),
        # DuckDB takes only a constant for the format in which a TIMESTAMP becomes a text.
        ("CAST(CAST(CAST('2024-10-05' AS TIMESTAMP) AS STRING) AS INT)", [None, None, None]),
        ("PARSE_DATE(CAST(CAST('2024-10-05' AS TIMESTAMP) AS STRING), 'HH')", [None, None, None]),
        ("v + CAST('7' AS INT)", [8, 9, None]),
        ("CASE WHEN 1/1 = 1 THEN v ELSE 3 END", [1, 2, None]),
    ],
)
def test_what_fails_in_every_row_gives_null_where_it_is_reached(expression: str, expected: list[Any]) -> None:
    assert results(expression) == expected


def test_a_condition_that_always_fails_lets_nothing_pass() -> None:
    with Sandbox() as sandbox:
        sandbox.execute(f"{SOURCE} CREATE STREAM o AS SELECT * FROM s WHERE 1/0 = 1 OR v > 5;")
        sandbox.execute("INSERT INTO s (k, v) VALUES ('a', 1);")
        sandbox.drain()
        assert sandbox.consume("O") == []


def test_a_long_chain_of_conditions_is_planned() -> None:
    chain = " OR ".join(f"(v = {number} AND 1/0 = v)" for number in range(2, 150))
    assert results(f"CASE WHEN v > 0 AND ({chain}) THEN 1 ELSE 2 END") == [2, None, 2]


def test_comparisons_inside_of_each_other_grow_by_the_same_amount() -> None:
    """Each hides its own CASE from DuckDB, not again those of the comparisons inside."""

    def length_of(depth: int) -> int:
        expression = "v / 2"
        for number in range(depth):
            expression = f"CASE WHEN {expression} = {number} THEN 1 ELSE 0 END"
        with Sandbox() as sandbox:
            sandbox.execute(f"{SOURCE} CREATE STREAM o AS SELECT k, {expression} AS x FROM s;")
            (query,) = sandbox.engine.catalog.queries.values()
            return len(plan_to_json(query.plan))

    lengths = [length_of(depth) for depth in (10, 20, 30)]
    assert lengths[2] - lengths[1] == lengths[1] - lengths[0]
