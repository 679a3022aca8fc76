"""FILTER and DISTINCT of aggregates: the last results are the batch query's answer, wherever batches end."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from planned import added_up, batch_answer, changes, plan_of, random_ends, same_rows

STREAM = "CREATE STREAM s (k INT KEY, a INT, x INT, d DOUBLE) WITH (kafka_topic='s', format='JSON', partitions=2);"
TABLE = (
    "CREATE TABLE s (k INT PRIMARY KEY, a INT, x INT, d DOUBLE) WITH (kafka_topic='s', format='JSON', partitions=1);"
)
COLUMNS = {"k": "INTEGER", "a": "INTEGER", "x": "INTEGER", "d": "DOUBLE", "ts": "BIGINT"}

# Written as in DuckDB; its sums of integers are wider, which DISTINCT and FILTER have nothing to do with.
CALLS = {
    "all_rows": "COUNT(*)",
    "some": "COUNT(*) FILTER (WHERE x > 2)",
    "sums": "SUM(CAST(x AS BIGINT)) FILTER (WHERE d IS NOT NULL)",
    "means": "AVG(d) FILTER (WHERE x IN (1, 2))",
    "values_": "COUNT(DISTINCT x)",
    "low": "COUNT(DISTINCT x) FILTER (WHERE x < 3)",
    "high": "COUNT(DISTINCT x) FILTER (WHERE x >= 3)",
    "doubles": "COUNT(DISTINCT d)",
    "sum_of_values": "SUM(DISTINCT x * 2)",
    "mean_of_values": "AVG(DISTINCT d)",
}
SELECTED = ", ".join(f"{call} AS {name}" for name, call in CALLS.items())


def answer(row: dict[str, Any]) -> dict[str, Any]:
    """A row of DuckDB's as ksqlDB's aggregates say it: sums and means of nothing are 0 (those with a FILTER, which
    ksqlDB does not have, are NULL), and sums keep their type."""
    zero = {"sum_of_values": 0, "mean_of_values": 0.0}
    row = {name: zero[name] if name in zero and value is None else value for name, value in row.items()}
    return {name: int(value) if name.startswith("sum") and value is not None else value for name, value in row.items()}


def random_rows(rng: Random, count: int) -> list[dict[str, Any]]:
    return [
        {
            "k": rng.randrange(12),
            "a": rng.choice((1, 2, 3)),
            "x": rng.choice((0, 1, 2, 3, 4, None)),
            "d": rng.choice((0.5, 1.25, -0.0, 0.0, None)),
            "ts": rng.randrange(20),
            "part": 0,
        }
        for _ in range(count)
    ]


def grouped(rows: list[dict[str, Any]], group: str, extra: str = "") -> list[dict[str, Any]]:
    found = batch_answer(rows, f"SELECT {group}, {SELECTED} FROM rows {extra} GROUP BY ALL", COLUMNS)
    return [answer(dict(row)) for row in found]


def last_rows(changed: list[dict[str, Any]], *key: str) -> list[dict[str, Any]]:
    """The last result of each key."""
    last = {tuple(row[name] for name in key): row for row in changed}
    return [{name: value for name, value in row.items() if not name.startswith("_")} for row in last.values()]


@pytest.mark.parametrize("seed", range(6))
def test_over_a_stream_the_last_results_are_the_batch_answer(seed: int) -> None:
    rng = Random(seed)
    rows = random_rows(rng, rng.choice((1, 30, 120)))
    plan = plan_of(f"{STREAM} CREATE TABLE t AS SELECT a, {SELECTED} FROM s GROUP BY a;")
    ends = random_ends(rng, len(rows))
    found = changes(plan, rows, ends, restart_at=rng.choice((None, len(ends))))
    same_rows(last_rows(found, "A"), grouped(rows, "a"))


@pytest.mark.parametrize("seed", range(6))
def test_over_a_table_what_is_replaced_or_deleted_counts_no_more(seed: int) -> None:
    rng = Random(seed)
    rows = random_rows(rng, rng.choice((1, 30, 120)))
    for row in rows:
        if rng.random() < 0.2:
            for column in ("a", "x", "d"):
                del row[column]
    plan = plan_of(f"{TABLE} CREATE TABLE t AS SELECT a, {SELECTED} FROM s GROUP BY a HAVING COUNT(*) > 0;")
    ends = random_ends(rng, len(rows))
    found = added_up(changes(plan, rows, ends, restart_at=rng.choice((None, len(ends)))))
    left = {row["k"]: row for row in rows}
    same_rows(found, grouped([row for row in left.values() if "a" in row], "a"))


@pytest.mark.parametrize("emit", ["CHANGES", "FINAL"])
def test_windows_have_their_own_distinct_values(emit: str) -> None:
    rng = Random(emit)
    rows = [*random_rows(rng, 80), {"k": 0, "a": 9, "x": 0, "d": None, "ts": 200, "part": 0}]
    one_task = STREAM.replace("partitions=2", "partitions=1")
    plan = plan_of(
        f"{one_task} CREATE TABLE t AS SELECT a, WINDOWSTART AS ws, {SELECTED} FROM s "
        f"WINDOW TUMBLING (SIZE 5 MILLISECONDS, GRACE PERIOD 100 MILLISECONDS) GROUP BY a EMIT {emit};"
    )
    found = [row for row in last_rows(changes(plan, rows, random_ends(rng, len(rows))), "A", "WS") if row["A"] != 9]
    same_rows(found, grouped(rows, "a, ts // 5 * 5 AS ws", "WHERE a <> 9"))


def test_sessions_join_their_distinct_values() -> None:
    times_and_values = [(0, 1), (3, 1), (20, 2), (22, 1), (12, 3), (11, None), (100, 5)]
    rows = [{"k": 0, "a": 1, "x": x, "d": None, "ts": ts, "part": 0} for ts, x in times_and_values]
    one_task = STREAM.replace("partitions=2", "partitions=1")
    plan = plan_of(
        f"{one_task} CREATE TABLE t AS SELECT a, WINDOWSTART AS ws, COUNT(DISTINCT x) AS n, SUM(DISTINCT x) AS s, "
        "COUNT(DISTINCT x) FILTER (WHERE x > 1) AS high FROM s "
        "WINDOW SESSION (9 MILLISECONDS, GRACE PERIOD 100 MILLISECONDS) GROUP BY a;"
    )
    *_, joined, alone = [row for row in changes(plan, rows) if row["_weight"] > 0]
    assert [(row["_ws"], row["_we"], row["N"], row["S"], row["HIGH"]) for row in (joined, alone)] == [
        (0, 22, 3, 6, 2),
        (100, 100, 1, 5, 1),
    ]
