"""Rows joined to the greatest or least value among themselves are planned as those of rank 1, and nothing else is."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from planned import added_up, batch_answer, changes, plan_of, same_rows

from millstream.executor.building import Emit
from millstream.planner.steps.filter import Filter
from millstream.planner.steps.row_join import RowJoin
from millstream.planner.steps.top_rows import TopRows

TABLES = """
CREATE TABLE s (k STRING PRIMARY KEY, a INT, b INT, x INT, d DOUBLE, t STRING)
  WITH (kafka_topic='s', format='JSON', partitions=1);
CREATE TABLE other (k STRING PRIMARY KEY, a INT, b INT, x INT, d DOUBLE, t STRING)
  WITH (kafka_topic='other', format='JSON', partitions=1);
"""
COLUMNS = {"k": "VARCHAR", "a": "INTEGER", "b": "INTEGER", "x": "INTEGER", "d": "DOUBLE", "t": "VARCHAR"}

# With {s} for the rows: as Millstream and as DuckDB have them.
_EXTREME = "JOIN (SELECT a, {call} AS top FROM {s} GROUP BY a) m ON n.a = m.a AND n.{x} = m.top"
_GREATEST = _EXTREME.replace("{call}", "MAX(x)").replace("{x}", "x")

RANKED = {
    "greatest": f"SELECT n.k AS k, n.a AS a, n.x AS x, m.top AS top FROM {{s}} n {_GREATEST}",
    "least, of two columns": (
        "SELECT n.k AS k, n.x AS x FROM {s} n JOIN (SELECT a, b, MIN(x) AS low FROM {s} GROUP BY a, b) m "
        "ON n.x = m.low AND m.b = n.b AND n.a = m.a"
    ),
    "a text": (
        "SELECT n.k AS k, m.a AS a, m.top AS top FROM {s} n JOIN (SELECT a, MAX(t) AS top FROM {s} GROUP BY a) m "
        "ON n.a = m.a AND n.t = m.top"
    ),
    "of computed rows": (
        "WITH n AS (SELECT k, a, x * 2 + b AS y FROM {s} WHERE b > 0) SELECT n.k AS k, n.a AS a, n.y AS y FROM n "
        "JOIN (SELECT a, MAX(y) AS top FROM n GROUP BY a) m ON n.a = m.a AND n.y = m.top"
    ),
    "of groups": (
        "WITH n AS (SELECT a, b, COUNT(*) AS c FROM {s} WHERE a IS NOT NULL AND b IS NOT NULL GROUP BY a, b), "
        "m AS (SELECT a, MAX(c) AS top FROM n GROUP BY a) SELECT n.a AS a, n.b AS b, n.c AS c FROM n JOIN m "
        "ON n.a = m.a AND n.c = m.top"
    ),
    "compared with a query": (
        "SELECT n.k AS k, n.x AS x FROM {s} n WHERE n.x >= (SELECT MAX(x) FROM {s} m WHERE n.a = m.a)"
    ),
    "compared the other way round": (
        "SELECT n.k AS k, n.x AS x FROM {s} n WHERE n.b = 1 AND (SELECT MIN(x) FROM {s} m WHERE m.a = n.a) >= (n.x)"
    ),
    "equal to a query": "SELECT n.k AS k, n.t AS t FROM {s} n WHERE n.t = (SELECT MAX(t) FROM {s} m WHERE m.a = n.a)",
    "a condition above": f"SELECT n.k AS k, n.x AS x FROM {{s}} n {_GREATEST} WHERE m.top > 1 AND n.b = 1",
}
_OF_S = _GREATEST.replace("{s}", "s")
JOINED = {
    "other rows": _OF_S.replace("FROM s", "FROM other"),
    "fewer rows": _OF_S.replace("FROM s", "FROM s WHERE b = 1"),
    "some values": _OF_S.replace("MAX(x)", "MAX(x) FILTER (WHERE b = 1)"),
    "some groups": _OF_S.replace("GROUP BY a", "GROUP BY a HAVING COUNT(*) > 1"),
    "another group": _OF_S.replace("n.a = m.a", "n.b = m.a"),
    "another value": _OF_S.replace("n.x = m.top", "n.b = m.top"),
    "a sum": _OF_S.replace("MAX(x)", "SUM(x)"),
    "what has NaN": _OF_S.replace("MAX(x)", "MAX(d)").replace("n.x", "n.d"),
    "one of two columns": _OF_S.replace("SELECT a,", "SELECT a, b,").replace("GROUP BY a", "GROUP BY a, b"),
}


@pytest.mark.parametrize("name", RANKED)
def test_the_rows_of_rank_1_are_the_batch_answers(name: str) -> None:
    rng = Random(name)
    query = RANKED[name]
    plan = plan_of(f"{TABLES} CREATE TABLE o AS {query.format(s='s')};")
    steps = plan.steps()
    assert [step for step in steps if isinstance(step, TopRows)]
    assert not [step for step in steps if isinstance(step, RowJoin)]
    for _ in range(3):
        rows = random_rows(rng, 50)
        ends = sorted(rng.sample(range(1, 50), k=4))
        left: dict[str, dict[str, Any]] = {}
        for row in rows:
            left.pop(row["k"], None)
            if "a" in row:
                left[row["k"]] = row
        wanted = batch_answer(list(left.values()), query.format(s="rows"), COLUMNS)
        emit: Emit = rng.choice(("every", "last"))
        found = added_up(changes(plan, rows, ends, restart_at=rng.choice((None, 2)), emit=emit))
        same_rows([{c.upper(): row[c.upper()] for c in (wanted or [row])[0]} for row in found], wanted)


@pytest.mark.parametrize("name", JOINED)
def test_what_is_something_else_stays_a_join(name: str) -> None:
    plan = plan_of(f"{TABLES} CREATE TABLE o AS SELECT n.k AS k, n.x AS x FROM s n {JOINED[name]};")
    assert [step for step in plan.steps() if isinstance(step, RowJoin)]


@pytest.mark.parametrize(
    "condition",
    [
        "n.x > (SELECT MAX(x) FROM s m WHERE m.a = n.a)",
        "n.x <= (SELECT MAX(x) FROM s m WHERE m.a = n.a)",
        "n.x >= (SELECT MIN(x) FROM s m WHERE m.a = n.a)",
        "n.b >= (SELECT MAX(x) FROM s m WHERE m.a = n.a)",
        "n.x >= (SELECT MAX(x) FROM s m WHERE m.b = n.a)",
        "n.x >= (SELECT MAX(x) FROM s m WHERE m.a = n.a AND m.b = 1)",
        "n.x >= (SELECT MAX(x) FROM other m WHERE m.a = n.a)",
        "n.x >= (SELECT MAX(x) FILTER (WHERE b = 1) FROM s m WHERE m.a = n.a)",
        "n.x >= (SELECT MAX(x + 0) FROM s m WHERE m.a = n.a)",
        "n.d >= (SELECT MAX(d) FROM s m WHERE m.a = n.a)",
    ],
)
def test_a_comparison_with_anything_else_stays_one(condition: str) -> None:
    plan = plan_of(f"{TABLES} CREATE TABLE o AS SELECT n.k AS k, n.x AS x FROM s n WHERE {condition};")
    assert not [step for step in plan.steps() if isinstance(step, TopRows)]
    assert [step for step in plan.steps() if isinstance(step, Filter)]


def test_of_final_results_only_the_greatest_are_kept() -> None:
    plans = {
        emit: plan_of(
            f"""
            CREATE STREAM v (k STRING KEY, a INT, x INT) WITH (kafka_topic='v', format='JSON', partitions=1);
            CREATE TABLE o AS WITH n AS (SELECT a, WINDOWSTART AS w, COUNT(*) AS c FROM v WINDOW HOPPING (SIZE 10
            MILLISECONDS, ADVANCE BY 5 MILLISECONDS, GRACE PERIOD 0 SECONDS) GROUP BY a {said}),
            m AS (SELECT w, MAX(c) AS top FROM n GROUP BY w) SELECT n.a AS a, n.c AS c FROM n JOIN m
            ON n.w = m.w AND n.c = m.top;
            """
        )
        for emit, said in (("FINAL", "EMIT FINAL"), ("CHANGES", ""))
    }
    tops = {emit: next(step for step in plan.steps() if isinstance(step, TopRows)) for emit, plan in plans.items()}
    assert tops["CHANGES"].identity
    assert not tops["FINAL"].identity  # what tells rows apart that may change
    assert tops["FINAL"].emit_old
    rows = sorted((row for row in random_rows(Random(3), 80) if row.get("a") is not None), key=lambda row: row["ts"])
    counted = Counter(
        (start, row["a"]) for row in rows for start in range(max(0, row["ts"] // 5 * 5 - 5), row["ts"] + 1, 5)
    )
    most = {start: max(n for (at, _), n in counted.items() if at == start) for start, _ in counted}
    wanted = sorted((start, a, n) for (start, a), n in counted.items() if n == most[start])
    found = changes(plans["FINAL"], [*rows, {**rows[0], "ts": 1_000}], [10, 30, 31, 60], restart_at=2)
    left = [(row["N_WINDOWSTART"], row["A"], row["C"]) for row in added_up(found)]
    assert sorted(left) == wanted


@pytest.mark.parametrize(
    "selected",
    [
        "SELECT n.k AS k, m.ROWTIME AS happened {}",
        "SELECT n.k AS k, m.c AS c {}",
        "SELECT k, ROWTIME AS happened FROM (SELECT n.k AS k, n.x AS x {}) q",
    ],
)
def test_who_asks_for_more_of_the_pair_gets_it(selected: str) -> None:
    join = _OF_S.replace("AS top", "AS top, COUNT(*) AS c")
    plan = plan_of(f"{TABLES} CREATE TABLE o AS {selected.format(f'FROM s n {join}')};")
    assert [step for step in plan.steps() if isinstance(step, RowJoin)]


def random_rows(rng: Random, count: int) -> list[dict[str, Any]]:
    rows = []
    for _ in range(count):
        row: dict[str, Any] = {"k": rng.choice("abcdefghij"), "ts": rng.randrange(20), "part": 0}
        if rng.random() < 0.8:
            row |= {column: rng.choice((0, 1, 2, None)) for column in ("a", "b", "x")}
            row |= {"d": 0.5, "t": rng.choice(("", "p", "q", None))}
        rows.append(row)
    return rows
