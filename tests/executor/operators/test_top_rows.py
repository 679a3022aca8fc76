"""Top-n: the changes add up to the batch query's answer, each is that of one row, and no more than needed is kept."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from drawn import checkered, drawn
from pipelines import open_pipeline, rows_of
from planned import batch_answer, changes, plan_of, random_ends, same_rows, table_of

from millstream.executor.building import Emit
from millstream.executor.operators.ranked_rows import RANKS
from millstream.executor.partitioning import RekeyPartitioner
from millstream.planner.physical import PhysicalPlan
from millstream.planner.steps.over import Over
from millstream.planner.steps.top_rows import TopRows

STREAM = "CREATE STREAM s (k STRING KEY, a INT, x INT, d DOUBLE) WITH (kafka_topic='s', format='JSON', partitions={});"
COLUMNS = {"k": "VARCHAR", "a": "INTEGER", "x": "INTEGER", "d": "DOUBLE", "ts": "BIGINT"}

# As Millstream and as DuckDB order by it; a text decides only where what stands before it does not.
ORDERS = {
    "descending": ("x DESC", "x DESC NULLS LAST"),
    "ascending": ("x", "x NULLS LAST"),
    "NULLs first": ("x DESC NULLS FIRST, d NULLS FIRST", "x DESC NULLS FIRST, d NULLS FIRST"),
    "text": ("k DESC", "k DESC NULLS LAST"),
    "text behind a number": ("x, k DESC, d", "x NULLS LAST, k DESC NULLS LAST, d NULLS LAST"),
    "an expression": ("x * -1, CONCAT(k, 'z')", "x * -1 NULLS LAST, k || 'z' NULLS LAST"),
    "time": ("ROWTIME DESC, x", "ts DESC, x NULLS LAST"),
    "a decimal": ("CAST(x AS DECIMAL(4, 1)) DESC", "x DESC NULLS LAST"),
    "a condition": ("CASE WHEN x > 1 THEN TRUE ELSE FALSE END, d DESC", "coalesce(x > 1, false), d DESC NULLS LAST"),
    "nothing": ("", ""),
}
PARTITIONS = {"a column": "a", "two columns": "a, k", "an expression": "a % 2", "nothing": ""}


def random_rows(rng: Random, count: int) -> list[dict[str, Any]]:
    return [
        {
            "k": rng.choice(("p", "q", "r", "é")),
            "a": rng.choice((1, 2, 3, None)),
            "x": rng.choice((0, 1, 2, 3, 4, None)),
            "d": rng.choice((0.5, 1.25, -2.0, 0.0, None)),
            "ts": rng.randrange(20),
            "part": rng.randrange(2),
        }
        for _ in range(count)
    ]


def clauses(partition: str, order: str, *, ties: str = "") -> str:
    ordered = ", ".join(each for each in (order, ties) if each)
    return " ".join([f"PARTITION BY {partition}" if partition else "", f"ORDER BY {ordered}" if ordered else ""])


def top_plan(function: str, over: str, condition: str, *, partitions: int = 2, selected: str = "*") -> PhysicalPlan:
    """Selected from a, x, k, d and the rank r."""
    plan = plan_of(
        f"{STREAM.format(partitions)} CREATE TABLE t AS SELECT {selected} FROM "
        f"(SELECT a, x, k AS k2, d, {function}() OVER ({over}) AS r FROM s) q WHERE {condition};"
    )
    assert [step for step in plan.steps() if isinstance(step, TopRows)]
    return plan


def check(plan: PhysicalPlan, rows: Sequence[dict[str, Any]], reference: str, rng: Random, emit: Emit) -> None:
    ends = random_ends(rng, len(rows))
    restart = rng.choice((None, *range(len(ends) + 1)))
    found = table_of(plan, changes(plan, rows, ends, restart_at=restart, emit=emit))
    same_rows(
        [{c: row[c] for c in ("A", "X", "K2", "D", "R")} for row in found], batch_answer(rows, reference, COLUMNS)
    )


@pytest.mark.parametrize("emit", ["every", "last"])
@pytest.mark.parametrize("function", RANKS)
@pytest.mark.parametrize("order", ORDERS)
def test_the_first_rows_are_the_batch_answers(function: str, order: str, emit: Emit) -> None:
    rng = Random(function + order + emit)
    for _ in range(drawn(1)):
        written, meant = ORDERS[order]
        partition = rng.choice(list(PARTITIONS.values()))
        condition = rng.choice(("r = 1", "r <= 1", "r <= 2", "3 >= r", "r < 6 AND x > 1", "r = 2"))
        plan = top_plan(function, clauses(partition, written), condition, partitions=rng.choice((1, 2, 6)))
        ties = "n" if function == "ROW_NUMBER" else ""
        numbered = f"{function}() OVER ({clauses(partition, meant, ties=ties)})"
        reference = f"SELECT * FROM (SELECT a, x, k AS k2, d, {numbered} AS r FROM rows) WHERE {condition}"
        check(plan, random_rows(rng, rng.randrange(60)), reference, rng, emit)


@pytest.mark.parametrize(
    ("function", "condition", "selected"),
    checkered(RANKS, ["r = 1", "r <= 3", "r <= 2 AND x > 1"], ["a, r, x, d, k2", "x, d, k2"]),
)
def test_where_a_batch_ends_changes_no_change(function: str, condition: str, selected: str) -> None:
    plan = top_plan(function, "PARTITION BY a ORDER BY x DESC, k", condition, selected=selected)
    rng = Random(function + condition + selected)
    for _ in range(drawn(1)):
        rows = random_rows(rng, 50)
        whole = changes(plan, rows)
        for ends in (random_ends(rng, len(rows)), list(range(1, len(rows)))):
            assert changes(plan, rows, ends, restart_at=rng.choice((None, len(ends)))) == whole


def _row(number: int, x: int | None, **more: Any) -> dict[str, Any]:
    return {"k": f"{number}", "a": 1, "x": x, "d": 0.5, "ts": number, "part": 0, **more}


def left_of(function: str, largest: int, values: Sequence[int | None], order: str = "x DESC") -> list[tuple[Any, ...]]:
    """What is left of rows that come one by one: rank, value, and the number of the row."""
    plan = top_plan(function, f"PARTITION BY a ORDER BY {order}", f"r <= {largest}")
    rows = [_row(number, value) for number, value in enumerate(values)]
    left = table_of(plan, changes(plan, rows, list(range(1, len(rows)))))
    return sorted((row["R"], row["X"], int(row["K2"])) for row in left)


def test_a_row_equal_to_the_worst_kept_one_comes_too_late() -> None:
    assert left_of("ROW_NUMBER", 2, [5, 3, 3]) == [(1, 5, 0), (2, 3, 1)]
    assert left_of("ROW_NUMBER", 1, [3, 3]) == [(1, 3, 0)]


def test_a_row_better_than_the_worst_kept_one_takes_its_place() -> None:
    assert left_of("ROW_NUMBER", 2, [5, 3, 4]) == [(1, 5, 0), (2, 4, 2)]
    assert left_of("ROW_NUMBER", 2, [5, 3, 6]) == [(1, 6, 2), (2, 5, 0)]


def test_the_last_place_is_filled_and_no_more() -> None:
    assert left_of("ROW_NUMBER", 3, [3, 2, 1]) == [(1, 3, 0), (2, 2, 1), (3, 1, 2)]
    assert left_of("ROW_NUMBER", 3, [3, 2, 1, 0]) == [(1, 3, 0), (2, 2, 1), (3, 1, 2)]


def test_all_rows_of_the_first_rank_are_kept_until_a_better_one_comes() -> None:
    assert left_of("RANK", 1, [3, 3, 2, 3]) == [(1, 3, 0), (1, 3, 1), (1, 3, 3)]
    assert left_of("RANK", 1, [3, 3, 3, 4]) == [(1, 4, 3)]
    assert left_of("RANK", 2, [3, 3, 2]) == [(1, 3, 0), (1, 3, 1)]
    assert left_of("DENSE_RANK", 2, [3, 3, 2]) == [(1, 3, 0), (1, 3, 1), (2, 2, 2)]
    assert left_of("DENSE_RANK", 2, [3, 1, 2, 1]) == [(1, 3, 0), (2, 2, 2)]


def test_null_is_behind_all_values_unless_it_comes_first() -> None:
    assert left_of("ROW_NUMBER", 1, [None, 1]) == [(1, 1, 1)]
    assert left_of("ROW_NUMBER", 1, [None, None]) == [(1, None, 0)]
    assert left_of("ROW_NUMBER", 1, [1, None], "x DESC NULLS FIRST") == [(1, None, 1)]
    assert left_of("ROW_NUMBER", 1, [1, None], "x") == [(1, 1, 0)]


def kept(plan: PhysicalPlan, batches: Sequence[Sequence[dict[str, Any]]], emit: Emit = "last") -> list[dict[str, Any]]:
    pipeline = open_pipeline(plan, partitioner=RekeyPartitioner(), emit=emit)
    (source,) = plan.sources()
    names = {"k": "k0", "a": "v0", "x": "v1", "d": "v2"}
    start = 0
    for batch in batches:
        pipeline.process(
            {source.id: rows_of(source, [{names.get(c, c): v for c, v in r.items()} for r in batch], start)}
        )
        start += len(batch)
    return pipeline.stores["top-1"].rows().to_pylist()


@pytest.mark.parametrize("function", ["ROW_NUMBER", "RANK"])
@pytest.mark.parametrize("largest", [1, 2, 5])
def test_no_other_rows_are_kept(function: str, largest: int) -> None:
    plan = top_plan(function, "PARTITION BY a ORDER BY x", f"r <= {largest}", selected="a, r, x")
    batches = [[_row(i, 1000 - i) for i in range(start, start + 30)] for start in range(0, 300, 30)]
    rows = kept(plan, batches)
    assert sorted(row["v1"] for row in rows) == [1000 - 299 + i for i in range(largest)]
    assert all(row.get("_place", 0) < largest for row in rows)


def test_rows_that_go_together_leave_no_place_taken() -> None:
    plan = top_plan("RANK", "PARTITION BY a ORDER BY x", "r = 1", selected="x, d, k2")
    rows = kept(plan, [[_row(i, 5) for i in range(10)], [_row(10, 4)], [_row(11, 4), _row(12, 4)]])
    assert sorted((row["v1"], row["_n"]) for row in rows) == [(4, 10), (4, 11), (4, 12)]


def test_columns_that_nobody_reads_are_not_kept() -> None:
    plan = top_plan("ROW_NUMBER", "PARTITION BY a ORDER BY x", "r = 1", selected="a, d")
    (row,) = kept(plan, [[_row(0, 1)]])
    assert not {"v3", "_n", "_place"} & set(row)
    assert {"v1", "v2"} <= set(row)


def test_several_ranks_of_one_order_go_the_general_way() -> None:
    over = "OVER (PARTITION BY a ORDER BY x)"
    selected = f"a, x, k AS k2, d, ROW_NUMBER() {over} AS r, RANK() {over} AS second"
    plan = plan_of(f"{STREAM.format(2)} CREATE TABLE t AS SELECT * FROM (SELECT {selected} FROM s) q WHERE r <= 2;")
    assert [step.bound for step in plan.steps() if isinstance(step, Over)] == [(0, 2)]
    rng = Random(1)
    numbered = "row_number() over (partition by a order by x nulls last, n) as r"
    reference = f"SELECT * FROM (SELECT a, x, k AS k2, d, {numbered} FROM rows) WHERE r <= 2"
    check(plan, random_rows(rng, 50), reference, rng, "every")
