"""MIN and MAX over rows that are taken back: each change's result is that of the rows that are left."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from itertools import accumulate
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drawn import drawn
from pipelines import open_pipeline, rows_of
from planned import added_up, changes, plan_of, same_rows

from millstream.executor.operators.groups import ordered_values
from millstream.executor.operators.groups.ordered_values import OrderedGroups, ValueWords
from millstream.executor.state import store

TABLE = (
    "CREATE TABLE s (k INT PRIMARY KEY, a INT, x INT, d DOUBLE, t STRING) "
    "WITH (kafka_topic='s', format='JSON', partitions=1);"
)
SELECTED = (
    "MIN(x) AS least, MAX(x) AS most, MIN(d) AS low, MAX(d) AS high, MAX(t) AS word, "
    "MAX(x) FILTER (WHERE x < 5) AS small, COUNT(DISTINCT x) AS n, MAX(DISTINCT x * 2) AS doubled"
)
PLAN = f"{TABLE} CREATE TABLE t AS SELECT a, {SELECTED} FROM s GROUP BY a HAVING COUNT(*) > 0;"


@pytest.fixture(params=["few in heaps", "most in heaps"])
def young(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered_values, "YOUNG_MAX", 2 if request.param == "few in heaps" else 10**9)


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
    ds = sorted((row["d"] + 0.0 for row in rows if row["d"] is not None), key=lambda d: (math.isnan(d), d))
    return {
        "least": min(xs, default=None),
        "most": max(xs, default=None),
        "low": ds[0] if ds else None,
        "high": ds[-1] if ds else None,  # NaN, if there is one
        "word": max((row["t"] for row in rows if row["t"] is not None), default=None),
        "small": max((x for x in xs if x < 5), default=None),
        "n": len(set(xs)),
        "doubled": max((2 * x for x in xs), default=None),
    }


@pytest.mark.usefixtures("young")
@pytest.mark.parametrize("seed", range(drawn(3)))
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


TYPES = (
    "(k INT PRIMARY KEY, a INT, i INT, b BIGINT, d DOUBLE, t STRING, y BYTES, m DECIMAL(20, 2), w DATE, p TIMESTAMP)"
)
COLUMNS = ("i", "b", "d", "t", "y", "m", "w", "p")


@pytest.mark.usefixtures("young")
@pytest.mark.parametrize("seed", range(drawn(1)))
def test_values_of_all_types_are_in_their_order(seed: int) -> None:
    rng = Random(seed)
    calls = ", ".join(f"MIN({c}) AS {c}_lo, MAX({c}) AS {c}_hi" for c in COLUMNS)
    source = f"CREATE TABLE s {TYPES} WITH (kafka_topic='s', format='JSON', partitions=1);"
    plan = plan_of(f"{source} CREATE TABLE t AS SELECT a, {calls} FROM s GROUP BY a;")
    rows: list[dict[str, Any]] = []
    for _ in range(rng.choice((30, 200))):
        row: dict[str, Any] = {"k": rng.randrange(20), "ts": 0, "part": 0}
        rows.append(row if rng.random() < 0.3 else row | {"a": 1} | {c: any_value(rng, c) for c in COLUMNS})
    left: dict[int, dict[str, Any]] = {}
    for row in rows:
        left.pop(row["k"], None)
        if "a" in row:
            left[row["k"]] = row
    last = changes(plan, rows, sorted(rng.sample(range(len(rows)), k=5)), restart_at=rng.choice((None, 2)))[-1]
    for c in COLUMNS:
        values = [row[c] for row in left.values() if row[c] is not None]
        assert last[f"{c}_LO".upper()] == min(values, default=None), c
        assert last[f"{c}_HI".upper()] == max(values, default=None), c


def any_value(rng: Random, column: str) -> Any:
    text = "".join(rng.choice("ab\0é😀") for _ in range(rng.choice((0, 1, 8, 9))))
    return rng.choice(
        {
            "i": (None, -(2**31), -1, 0, 1, 2**31 - 1),
            "b": (None, -(2**63), -1, 0, 2**63 - 1, rng.randrange(-(10**12), 10**12)),
            "d": (None, -math.inf, math.inf, -1.5, 0.0, 1e-300, rng.random()),
            "t": (None, text, "samesame" + text, "samesame"),
            "y": (None, text.encode(), b"\xff" + text.encode()),
            "m": (
                None,
                Decimal("-99999999999999999.99"),
                Decimal("0.00"),
                Decimal(rng.randrange(-(10**19), 10**19)) / 100,
            ),
            "w": (None, date(1969, 12, 31), date(1, 1, 1), date(2024, 2, 29)),
            "p": (None, datetime(1969, 12, 31), datetime(2024, 2, 29, 1), datetime(1700, 1, 1)),
        }[column]
    )


@pytest.mark.usefixtures("young")
@pytest.mark.parametrize("greatest", [True, False])
@pytest.mark.parametrize("order", ["up", "down", "any"])
def test_many_values_of_a_group_go_one_by_one(order: str, greatest: bool) -> None:
    count = 3_000
    values = list(range(count))
    Random(1).shuffle(values)
    words = ValueWords(pa.int64())
    groups = OrderedGroups(words, greatest=greatest)
    words.put(np.arange(count), pa.array(values, pa.int64()))
    numbers, none = np.arange(count), np.full(count, -1)
    best = groups.change(np.zeros(count, np.int64), none, numbers)
    pick = max if greatest else min
    assert words.values(best).to_pylist() == list(accumulate(values, pick))
    leave = sorted(range(count), key={"up": values.__getitem__, "down": lambda i: -values[i], "any": hash}[order])
    best = groups.change(np.zeros(count, np.int64), np.array(leave), none)
    wanted = list(accumulate((values[i] for i in leave[:0:-1]), pick))[::-1]
    assert words.values(best).to_pylist() == [*wanted, None]


def test_a_value_that_comes_again_is_in_the_order_once() -> None:
    words = ValueWords(pa.int64())
    groups = OrderedGroups(words, greatest=True)
    words.put(np.arange(3), pa.array([5, 7, 6]))
    group, add, undo = np.zeros(9, np.int64), np.array([0, 1, 2, -1, 2, -1, -1, 1, -1]), np.full(9, -1)
    undo[[3, 5, 6, 8]] = 2, 1, 2, 1
    assert words.values(groups.change(group, undo, add)).to_pylist() == [5, 7, 7, 7, 7, 6, 5, 7, 5]
    groups.forget(np.array([0]))
    nothing = np.full(1, -1)
    assert groups.change(group[:1], nothing, nothing).tolist() == [-1]


def test_what_memory_has_follows_from_the_store_when_keys_are_numbered_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_COMPACT_FROM", 3)
    table = TABLE.replace("a INT, x INT, d DOUBLE, t STRING", "a INT, x INT")
    plan = plan_of(f"{table} CREATE TABLE t AS SELECT a, MIN(x) AS least, MAX(x) AS most FROM s GROUP BY a;")
    (source,) = plan.sources()
    pipeline = open_pipeline(plan)
    for x in range(60):
        rows: list[dict[str, Any]] = [{"k0": x, "v0": 1, "v1": x, "ts": 0, "part": 0}]
        rows += [{"k0": x - 3, "ts": 0, "part": 0}] if x >= 3 else []
        given = pipeline.process({source.id: rows_of(source, rows, 2 * x)}).rows.to_pylist()
        assert (given[-1]["v0"], given[-1]["v1"]) == (max(0, x - 2), x)
    assert max(each.numbering for each in pipeline.stores.values()) > 5


@pytest.mark.parametrize(
    "values",
    [
        pa.array([7], pa.int32()), pa.array([7], pa.int64()), pa.array([7], pa.date32()), pa.array([True]),
        pa.array([1.5]), pa.array(["x"]), pa.array([b"x"]), pa.array([7], pa.decimal128(4, 2)),
    ],
    ids=lambda values: str(values.type),
)  # fmt: skip
def test_where_there_is_no_value_none_of_a_number_that_was_never_put_is_read(values: pa.Array) -> None:
    """A group whose rows all have NULL, beside another one: MAX of an INT failed, and the record was left out."""
    words = ValueWords(values.type)
    words.put(np.array([3]), values)
    assert words.values(np.array([-1, 3, -1])).to_pylist() == [None, values[0].as_py(), None]
    assert words.values(np.array([-1])).to_pylist() == [None]
    assert words.values(np.array([], np.int64)).to_pylist() == []
