"""Top-n of a table: after each batch what is left of the changes is the batch query's answer."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from drawn import checkered, drawn
from pipelines import open_pipeline, rows_of
from planned import added_up, batch_answer, changes, plan_of, same_rows

from millstream.executor.building import Emit
from millstream.executor.operators.ranked_rows import RANKS
from millstream.executor.operators.ranks import ordered_rows
from millstream.executor.state import store
from millstream.planner.physical import PhysicalPlan
from millstream.planner.steps.over import Over
from millstream.planner.steps.top_rows import TopRows

TABLE = (
    "CREATE TABLE s (k STRING PRIMARY KEY, a INT, x INT, d DOUBLE, t STRING) "
    "WITH (kafka_topic='s', format='JSON', partitions=1);"
)
COLUMNS = {"k": "VARCHAR", "a": "INTEGER", "x": "INTEGER", "d": "DOUBLE", "t": "VARCHAR", "ts": "BIGINT"}

# As Millstream and as DuckDB order by it.
ORDERS = {
    "descending": ("x DESC", "x DESC NULLS LAST"),
    "ascending": ("x", "x NULLS LAST"),
    "NULLs first": ("x DESC NULLS FIRST, d NULLS FIRST", "x DESC NULLS FIRST, d NULLS FIRST"),
    "a text": ("t", "t NULLS LAST"),
    "a text and a number, descending": ("t DESC, x DESC", "t DESC NULLS LAST, x DESC NULLS LAST"),
    "a text behind a number": ("x, t DESC, d", "x NULLS LAST, t DESC NULLS LAST, d NULLS LAST"),
    "a text, NULLs first": ("t DESC NULLS FIRST", "t DESC NULLS FIRST"),
    "an expression": ("x * -1, CONCAT(k, 'z')", "x * -1 NULLS LAST, k || 'z' NULLS LAST"),
    "a decimal": ("CAST(x - 2 AS DECIMAL(4, 1)) DESC", "x DESC NULLS LAST"),
    "a condition": ("CASE WHEN x > 1 THEN TRUE ELSE FALSE END, d DESC", "coalesce(x > 1, false), d DESC NULLS LAST"),
    "bytes": ("TO_BYTES(t, 'utf8') DESC", "t DESC NULLS LAST"),
    "nothing": ("", ""),
}
YOUNG = {"few in heaps": 1, "most in heaps": 10**9}


@pytest.fixture
def young(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered_rows, "YOUNG_MAX", YOUNG[request.param])
    monkeypatch.setattr(store, "_COMPACT_FROM", 5)  # keys are numbered anew all the time


def random_rows(rng: Random, count: int) -> list[dict[str, Any]]:
    rows = []
    for _ in range(count):
        row: dict[str, Any] = {"k": rng.choice("abcdefghijklmno"), "ts": rng.randrange(20), "part": 0}
        if rng.random() < 0.8:
            row |= {
                "a": rng.choice((1, 2, None)),
                "x": rng.choice((0, 1, 2, 3, 4, None)),
                "d": rng.choice((0.5, 1.25, -2.0, 0.0, None)),
                "t": rng.choice(("", "a", "a\0", "a\0b", "ab", "longer than eight", "é", None)),
            }
        rows.append(row)
    return rows


def top_plan(function: str, over: str, condition: str) -> PhysicalPlan:
    plan = plan_of(
        f"{TABLE} CREATE TABLE o AS SELECT * FROM (SELECT k, a, x, d, t, {function}() OVER ({over}) AS r FROM s) q "
        f"WHERE {condition};"
    )
    (step,) = [step for step in plan.steps() if isinstance(step, TopRows)]
    assert step.identity and not [step for step in plan.steps() if isinstance(step, Over)]
    return plan


def left_after(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """In the order of their arrival."""
    left: dict[str, dict[str, Any]] = {}
    for row in rows:
        left.pop(row["k"], None)
        if "a" in row:
            left[row["k"]] = row
    return list(left.values())


@pytest.mark.usefixtures("young")
@pytest.mark.parametrize(("young", "order", "function"), checkered(YOUNG, ORDERS, RANKS), indirect=["young"])
def test_after_each_batch_the_first_rows_are_the_batch_answers(function: str, order: str) -> None:
    rng = Random(function + order)
    emit: Emit = rng.choice(("every", "last"))
    written, meant = ORDERS[order]
    partition = rng.choice(("PARTITION BY a", "PARTITION BY a, d", ""))
    condition = rng.choice(("r = 1", "r <= 2", "3 >= r", "r < 6 AND x > 1", "r = 2"))
    plan = top_plan(function, f"{partition} {f'ORDER BY {written}' if written else ''}", condition)
    ordered = ", ".join(each for each in (meant, "k" if function == "ROW_NUMBER" else "") if each)
    rank = f"{function}() OVER ({partition} {f'ORDER BY {ordered}' if ordered else ''})"
    reference = f"SELECT * FROM (SELECT k, a, x, d, t, {rank} AS r FROM rows) WHERE {condition}"
    rows = random_rows(rng, 60)
    ends = sorted(rng.sample(range(1, 60), k=6))
    restart = rng.choice((None, *range(len(ends) + 1)))
    for position, end in rng.sample(((3, ends[3]), (6, 60)), k=min(drawn(1), 2)):
        found = added_up(changes(plan, rows[:end], ends[:position], restart_at=restart, emit=emit))
        same_rows(found, batch_answer(left_after(rows[:end]), reference, COLUMNS))


@pytest.mark.parametrize("order", ["x DESC, k", "x, a", "x, t, x DESC"])
def test_rows_that_are_sorted_twice_by_a_column_are_found_again_after_a_restart(order: str) -> None:
    """`k` comes behind every order anyway, and `a` is what parts them."""
    plan = top_plan("ROW_NUMBER", f"PARTITION BY a ORDER BY {order}", "r <= 2")
    rows = random_rows(Random(order), 40)
    stays, starts = (added_up(changes(plan, rows, [10, 20, 30], restart_at=at)) for at in (None, 1))
    assert stays
    same_rows(starts, stays)


def test_of_a_batch_only_what_it_changes_in_all_goes_out() -> None:
    plan = top_plan("RANK", "PARTITION BY a ORDER BY x DESC", "r <= 2")
    (source,) = plan.sources()
    pipeline = open_pipeline(plan, emit="last")

    def given(*changed: tuple[str, int | None]) -> list[tuple[int, str, int]]:
        listed = [
            {"k0": k, "ts": 0, "part": 0} | ({} if x is None else {"v0": 1, "v1": x, "v2": 0.0, "v3": ""})
            for k, x in changed
        ]
        found = pipeline.process({source.id: rows_of(source, listed, 0)}).rows.to_pylist()
        assert len({row["_seq"] for row in found}) <= 1
        return [(row["_weight"], row["k0"], row["v4"]) for row in found]

    assert given(*zip("abcd", range(4), strict=True)) == [(1, "c", 2), (1, "d", 1)]
    assert given(("a", -1)) == []
    assert given(("d", None), ("d", 3)) == [(-1, "d", 1), (1, "d", 1)]
    assert given(("d", None)) == [(-1, "c", 2), (-1, "d", 1), (1, "b", 2), (1, "c", 1)]
    assert given(("d", 2)) == [(-1, "b", 2), (1, "d", 1)]


@pytest.mark.parametrize("function", RANKS)
def test_where_a_batch_ends_changes_no_change(function: str) -> None:
    plan = top_plan(function, "PARTITION BY a ORDER BY x DESC, t", "r <= 2")
    rng = Random(function)
    for _ in range(drawn(1)):
        rows = random_rows(rng, 40)
        whole = changes(plan, rows)
        for ends in (sorted(rng.sample(range(1, 40), k=5)), list(range(1, len(rows)))):
            assert changes(plan, rows, ends, restart_at=rng.choice((None, len(ends)))) == whole


def test_columns_that_nobody_reads_are_not_kept() -> None:
    plan = plan_of(
        f"{TABLE} CREATE TABLE o AS SELECT k, r FROM "
        "(SELECT k, ROW_NUMBER() OVER (PARTITION BY a ORDER BY x) AS r, t FROM s) q WHERE r <= 2;"
    )
    (kept,) = [each for name, each in open_pipeline(plan).stores.items() if "top" in name and "arrivals" not in name]
    assert "VARCHAR" not in [str(type_) for type_ in kept.value.values()]


def test_first_rows_that_go_one_by_one_let_the_next_ones_in() -> None:
    rng = np.random.default_rng(1)
    count = 5_000
    values = rng.permutation(count)
    rows = ordered_rows.OrderedRows("ROW_NUMBER", 3)
    left: dict[int, int] = {}
    for first in range(0, count, 250):
        slots = np.arange(first, first + 250)
        _follow(
            left, rows.change(slots, _zeros(250), np.ones(250, np.bool_), _keys(values[slots]), _zeros(250) + first)
        )
        assert [left[rank] for rank in (1, 2, 3)] == np.argsort(values[: first + 250])[:3].tolist()
    by_value = np.argsort(values)
    for number, slot in enumerate(by_value.tolist()[:-3]):
        one = np.array([slot])
        _follow(left, rows.change(one, _zeros(1), np.zeros(1, np.bool_), _keys(values[one]), one + count))
        assert [left[rank] for rank in (1, 2, 3)] == by_value[number + 1 : number + 4].tolist()


def _follow(left: dict[int, int], changes: ordered_rows.RankChanges) -> None:
    for weight, rank, slot in zip(changes.weight.tolist(), changes.rank.tolist(), changes.slot.tolist(), strict=True):
        if weight < 0:
            assert left.pop(rank) == slot
    left |= {r: s for w, r, s in zip(changes.weight, changes.rank, changes.slot, strict=True) if w > 0}


def _zeros(count: int) -> Any:
    return np.zeros(count, np.int64)


def _keys(values: Any) -> ordered_rows.SortBytes:
    content = np.ascontiguousarray(np.stack([values, np.zeros_like(values)], axis=1)).astype(">u8").view(np.uint8)
    starts = np.arange(len(values), dtype=np.int64) * 16
    return ordered_rows.SortBytes(starts, np.full(len(values), 16), content.reshape(-1))
