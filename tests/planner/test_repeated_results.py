"""Aggregates of aggregates: what replaces an equal result is left out where nobody looks at its time."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from planned import added_up, batch_answer, changes, plan_of, random_ends, same_rows

from millstream.planner.physical import PhysicalPlan
from millstream.planner.serde import plan_from_json, plan_to_json
from millstream.planner.steps.aggregate import Aggregate

STREAM = "CREATE STREAM s (a INT, b INT, x INT, d DOUBLE) WITH (kafka_topic='s', format='JSON', partitions=2);"
COLUMNS = {"a": "INTEGER", "b": "INTEGER", "x": "INTEGER", "d": "DOUBLE"}
TOPS = "SELECT a, b, MAX(x) AS top, MIN(d) AS low FROM s GROUP BY a, b"
QUERY = "SELECT a, AVG(top) AS mean, SUM(top) AS total, COUNT(low) AS lows FROM ({tops}) q {where} GROUP BY a"
PLAIN = QUERY.format(tops=TOPS, where="")


def table(query: str, options: str = "") -> PhysicalPlan:
    return plan_of(f"{STREAM} CREATE TABLE t {options} AS {query};")


def repeats(plan: PhysicalPlan) -> list[bool]:
    """Of its aggregates, the innermost one first."""
    return [step.repeats for step in plan.steps() if isinstance(step, Aggregate)]


@pytest.mark.parametrize("where", ["", "WHERE top > 2", "WHERE b <> 1 AND low IS NOT NULL"])
def test_results_that_an_aggregate_takes_back_are_not_replaced_by_equal_ones(where: str) -> None:
    assert repeats(table(QUERY.format(tops=TOPS, where=where))) == [False, True]


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("SELECT a, MAX(x) AS top FROM s GROUP BY a", ""),
        ("SELECT a, MAX(top) AS top FROM (SELECT a, top, ROWTIME AS t FROM (" + TOPS + ") p) q GROUP BY a, t", ""),
        ("SELECT a, MAX(ROWTIME) AS top FROM (" + TOPS + ") q GROUP BY a", ""),
        (PLAIN, "WITH (ttl='1 DAY')"),
    ],
)
def test_whoever_goes_by_times_gets_all_of_them(query: str, options: str) -> None:
    """An update brings a later time, however equal the row is."""
    assert all(repeats(table(query, options)))


def test_plans_of_before_give_all_of_them() -> None:
    plan = table(PLAIN)
    text = plan_to_json(plan)
    assert '"repeats"' in text
    before = plan_from_json(text.replace(', "repeats": false', "").replace(',"repeats":false', ""))
    assert repeats(before) == [True, True]
    kept = [step.state_identity for step in before.steps()]
    assert kept == [step.state_identity for step in plan.steps()], "a query that is replaced keeps its state"


def random_rows(rng: Random) -> list[dict[str, Any]]:
    return [
        {
            "a": rng.randrange(3),
            "b": rng.randrange(4),
            "x": rng.choice((None, *range(6))),
            "d": rng.choice((None, 0.0, 1.5)),
            "ts": rng.randrange(50),
            "part": 0,
        }
        for _ in range(120)
    ]


@pytest.mark.parametrize("seed", range(6))
def test_the_changes_are_the_same_wherever_batches_end_and_add_up_to_the_batch_query(seed: int) -> None:
    rng = Random(seed)
    rows, plan = random_rows(rng), table(PLAIN)
    at_once = changes(plan, rows)
    shown = [{name: value for name, value in row.items() if name not in ("_seq", "_sub")} for row in at_once]
    for _ in range(3):
        ends = random_ends(rng, len(rows))
        parts = changes(plan, rows, ends, restart_at=len(ends))
        assert [{name: value for name, value in row.items() if name in shown[0]} for row in parts] == shown
    answer = PLAIN.replace(" s ", " rows ")
    found = [{**row, "TOTAL": int(row["TOTAL"])} for row in added_up(at_once)]
    wanted = [
        {**row, "total": int(row["total"] or 0), "mean": row["mean"] or 0.0}
        for row in batch_answer(rows, answer, COLUMNS)
    ]
    same_rows(found, wanted)


def test_only_rows_that_change_a_group_change_what_is_made_of_it() -> None:
    rows = [{"a": 1, "b": 1, "x": x, "d": 0.0, "ts": ts, "part": 0} for ts, x in enumerate((3, 1, 3, 5, 4, 5, 6))]
    given = [row["TOTAL"] for row in changes(table(PLAIN), rows) if row["_weight"] > 0]
    assert given == [3, 5, 6]
