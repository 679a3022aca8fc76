"""MIN and MAX over rows that are taken back: each change's result is that of the rows that are left."""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from pipelines import open_pipeline, rows_of
from planned import added_up, changes, plan_of, same_rows

from millstream.executor.operators.groups import extremes
from millstream.executor.operators.groups.extremes import Best
from millstream.executor.partitioning import RekeyPartitioner
from millstream.executor.pipeline import Pipeline

TABLE = (
    "CREATE TABLE s (k INT PRIMARY KEY, a INT, x INT, d DOUBLE, t STRING) "
    "WITH (kafka_topic='s', format='JSON', partitions=1);"
)
SELECTED = (
    "MIN(x) AS least, MAX(x) AS most, MIN(d) AS low, MAX(d) AS high, MAX(t) AS word, "
    "MAX(x) FILTER (WHERE x < 5) AS small, COUNT(DISTINCT x) AS n, MAX(DISTINCT x * 2) AS doubled"
)
PLAN = f"{TABLE} CREATE TABLE t AS SELECT a, {SELECTED} FROM s GROUP BY a HAVING COUNT(*) > 0;"


@pytest.fixture(params=["ample", "tight"])
def room(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tight: what is kept of a group is used up all the time, and groups push each other out."""
    if request.param == "tight":
        monkeypatch.setattr(extremes, "KEPT_OF_GROUP", 2)
        monkeypatch.setattr(extremes, "KEPT_MAX", 3)


def random_rows(rng: Random, count: int) -> list[dict[str, Any]]:
    rows = []
    for _ in range(count):
        row: dict[str, Any] = {"k": rng.randrange(14), "ts": rng.randrange(20), "part": 0}
        if rng.random() < 0.75:
            row["a"] = rng.choice((1, 2, 3, None))
            row["x"] = rng.choice((*range(8), None))
            row["d"] = rng.choice((0.5, -1.25, 0.0, -0.0, 7.0, math.nan, None))
            row["t"] = rng.choice(("", "a", "ä", "b", "\U0001f600", None))
        rows.append(row)
    return rows


def answer(left: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    groups: dict[int, list[dict[str, Any]]] = {}
    for row in left.values():
        if row.get("a") is not None:
            groups.setdefault(row["a"], []).append(row)
    return [{"a": a, **_results(rows)} for a, rows in groups.items()]


def _results(rows: list[dict[str, Any]]) -> dict[str, Any]:
    xs = [row["x"] for row in rows if row["x"] is not None]
    ds = [row["d"] + 0.0 for row in rows if row["d"] is not None and not math.isnan(row["d"])]
    return {
        "least": min(xs, default=None),
        "most": max(xs, default=None),
        "low": min(ds, default=None),
        "high": max(ds, default=None),
        "word": max((row["t"] for row in rows if row["t"] is not None), default=None),
        "small": max((x for x in xs if x < 5), default=None),
        "n": len(set(xs)),
        "doubled": max((2 * x for x in xs), default=None),
    }


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize("seed", range(12))
def test_after_each_batch_the_results_are_those_of_the_rows_that_are_left(seed: int) -> None:
    rng = Random(seed)
    rows = random_rows(rng, rng.choice((5, 40, 150)))
    ends = sorted(rng.sample(range(len(rows)), k=min(len(rows) - 1, rng.choice((0, 3, 20)))))
    restart = rng.choice((None, len(ends) // 2, len(ends)))
    plan = plan_of(PLAN)
    for end in [*ends[-2:], len(rows)]:
        found = added_up(changes(plan, rows[:end], [each for each in ends if each < end], restart_at=restart))
        left: dict[int, dict[str, Any]] = {}
        for row in rows[:end]:
            left.pop(row["k"], None)
            if "a" in row:
                left[row["k"]] = row
        same_rows([_plain_zero(row) for row in found], answer(left))


def _plain_zero(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value + 0.0 if isinstance(value, float) else value for name, value in row.items()}


@pytest.mark.usefixtures("room")
def test_the_best_value_goes_again_and_again_within_a_batch_and_in_later_ones() -> None:
    table = TABLE.replace("a INT, x INT, d DOUBLE, t STRING", "a INT, x INT")
    plan = plan_of(f"{table} CREATE TABLE t AS SELECT a, MIN(x) AS least, MAX(x) AS most FROM s GROUP BY a;")
    rows: list[dict[str, Any]] = [{"k": k, "a": 1, "x": k, "ts": 0, "part": 0} for k in range(10)]
    down = [{"k": k, "ts": 1, "part": 0} for k in (9, 8, 0, 7, 1)]
    again = [{"k": 8, "a": 1, "x": 8, "ts": 2, "part": 0}, *({"k": k, "ts": 3, "part": 0} for k in (8, 6, 5, 2, 3))]
    rows = [*rows, *down, *again]
    for ends in ([10], [10, 12], [10, 13, 15, 16], list(range(1, len(rows)))):
        given = [(row["LEAST"], row["MOST"]) for row in changes(plan, rows, ends) if row["_weight"] > 0]
        assert given[-1] == (4, 4), ends
    wanted = [(0, 8), (0, 7), (1, 7), (1, 6), (2, 6), (2, 8), (2, 6), (2, 5), (2, 4), (3, 4), (4, 4)]
    assert given[-len(wanted) :] == wanted, "each change by itself"


@pytest.mark.parametrize("greatest", [True, False])
def test_of_many_values_the_best_are_kept(greatest: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extremes, "KEPT_OF_GROUP", 3)
    sign = 1 if greatest else -1
    best = Best(sorted(sign * value for value in range(5)), greatest=greatest)  # 2, 3, 4 are here
    assert len(best) == 3 and best.best == sign * 4
    best.add(sign * 1.5)
    assert len(best) == 3, "it is worse than all that are here, and so may be others that are not"
    for value in (5, 6, 7):
        best.add(sign * value)
    assert len(best) == 6
    best.add(sign * 8)
    assert len(best) == 3, "6, 7, 8: the worse ones went"
    for value in (8, 7):
        best.discard(sign * value)
    assert not best.used_up and best.best == sign * 6
    best.discard(sign * 6)
    assert best.used_up and best.best is None
    few = Best([sign * 1], greatest=greatest)
    few.discard(sign * 1)
    assert not few.used_up, "there were no others"
    few.add(sign * 2)
    assert few.best == sign * 2


def test_what_is_kept_of_a_group_does_not_outlive_a_restore() -> None:
    """Another task has gone on with the group meanwhile, and this one goes on after it."""
    table = TABLE.replace("a INT, x INT, d DOUBLE, t STRING", "a INT, x INT")
    plan = plan_of(f"{table} CREATE TABLE t AS SELECT a, MAX(x) AS most FROM s GROUP BY a;")
    (source,) = plan.sources()
    here, there = (open_pipeline(plan, partitioner=RekeyPartitioner(), emit="every") for _ in range(2))

    def most(pipeline: Pipeline, *rows: dict[str, Any]) -> list[int]:
        out = pipeline.process({source.id: rows_of(source, rows)}).rows.to_pylist()
        return [row["v0"] for row in out if row["_weight"] > 0]

    def hand_over(before: Pipeline, after: Pipeline) -> None:
        for change in before.take_changes():
            after.restore(change.store, change.rows)

    assert most(here, *({"k0": k, "v0": 1, "v1": k} for k in range(10)))[-1] == 9
    assert most(here, {"k0": 9}) == [8]
    hand_over(here, there)
    assert most(there, {"k0": 8}) == [7]
    hand_over(there, here)
    assert most(here, {"k0": 7}) == [6]
