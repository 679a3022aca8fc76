"""Two tables with the same primary key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from drawn import drawn
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelines import open_pipeline, plan, rows_of, schema, shown, table

from millstream.executor.pipeline import Pipeline
from millstream.planner.physical import PhysicalPlan
from millstream.planner.steps.table_table_join import TableTableJoin
from millstream.sql.types import BIGINT, STRING

LEFT = table(values=(BIGINT,), id="left", materialized=False)
RIGHT = table(values=(BIGINT,), id="right", materialized=False)
Row = Mapping[str, Any]
Change = tuple[str, int, int | None, int | None, int]  # key, weight, left and right value, time


def joined(kind: Any, *, emit_old: bool = False) -> PhysicalPlan:
    result = schema([STRING], [BIGINT, BIGINT])
    return plan(TableTableJoin("join", LEFT, RIGHT, result, LEFT.schema, RIGHT.schema, kind, emit_old=emit_old))


def feed(pipeline: Pipeline, rows: Sequence[Row], ends: Sequence[int] = ()) -> list[Change]:
    out: list[Change] = []
    numbered = [{"seq": i, **row} for i, row in enumerate(rows)]
    for start, end in zip([0, *ends], [*ends, len(rows)], strict=True):
        part = numbered[start:end]
        batches = {s.id: rows_of(s, [row for row in part if row["side"] == s.id]) for s in (LEFT, RIGHT)}
        out += [(r["k0"], r["_weight"], r["v0"], r["v1"], r["_ts"]) for r in shown(pipeline.process(batches))]
    return out


def run(
    rows: Sequence[Row], kind: Any = "INNER", ends: Sequence[int] = (), *, emit_old: bool = False
) -> list[tuple[Any, ...]]:
    """Rows that appear as (key, left, right, time), deletions as (key, time); with `emit_old` all columns."""
    changes = feed(open_pipeline(joined(kind, emit_old=emit_old)), rows, ends)
    return changes if emit_old else [(k, t) if w < 0 else (k, a, b, t) for k, w, a, b, t in changes]


def row(side: str, key: str, value: int | None, ts: int = 0) -> dict[str, Any]:
    own = {"side": side, "k0": key, "ts": ts}
    return own if value is None else {**own, "v0": value}


ROWS = [
    row("left", "a", 1, 5),
    row("right", "a", 10, 3),
    row("left", "a", 2, 4),
    row("right", "b", 20, 6),
    row("left", "a", None, 7),
    row("right", "a", None, 8),
    row("left", "b", 3, 2),
]


@pytest.mark.parametrize("ends", [[], [1], [2, 3], [3, 5], list(range(1, 7))])
def test_a_change_of_either_side_changes_the_result(ends: list[int]) -> None:
    inner = [("a", 1, 10, 5), ("a", 2, 10, 4), ("a", 7), ("b", 3, 20, 6)]
    assert run(ROWS, "INNER", ends) == inner
    assert run(ROWS, "LEFT", ends) == [("a", 1, None, 5), *inner]
    b_alone, a_alone = ("b", None, 20, 6), ("a", None, 10, 7)
    assert run(ROWS, "RIGHT", ends) == [*inner[:2], b_alone, a_alone, ("a", 8), inner[3]]
    assert run(ROWS, "FULL", ends) == [("a", 1, None, 5), *inner[:2], b_alone, a_alone, ("a", 8), inner[3]]


def test_of_one_cause_the_last_change_of_a_key_counts_and_each_key_has_its_own() -> None:
    rows = [
        row("right", "a", 10), row("right", "b", 20),
        {**row("left", "a", 1), "seq": 5}, {**row("left", "b", 2), "seq": 5}, {**row("left", "a", 3), "seq": 5},
        {**row("left", "a", 4), "seq": 6},
    ]  # fmt: skip
    assert run(rows) == [("a", 3, 10, 0), ("b", 2, 20, 0), ("a", 4, 10, 0)]


def test_old_rows_come_before_new_ones() -> None:
    rows = [row("left", "a", 1), row("right", "a", 10), row("left", "a", 2), row("right", "a", None)]
    assert run(rows, emit_old=True) == [
        ("a", 1, 1, 10, 0), ("a", -1, 1, 10, 0), ("a", 1, 2, 10, 0), ("a", -1, 2, 10, 0),
    ]  # fmt: skip


def test_a_tombstone_for_a_row_that_is_not_there_deletes_where_the_other_side_has_its_row() -> None:
    rows = [row("left", "a", None, 1), row("right", "a", 10, 2), row("left", "a", None, 3), row("right", "b", None, 4)]
    assert run(rows) == [("a", 3)]
    assert run(rows, emit_old=True) == []


kinds = st.sampled_from(["INNER", "LEFT", "RIGHT", "FULL"])
some_rows = st.lists(
    st.builds(
        row, st.sampled_from(["left", "right"]), st.sampled_from("ab"), st.none() | st.integers(0, 9), st.integers(0, 9)
    ),
    max_size=20,
)


@settings(max_examples=drawn(12), deadline=None)
@given(some_rows, kinds, st.booleans(), st.data())
def test_where_a_batch_ends_changes_nothing(rows: list[Row], kind: str, emit_old: bool, data: st.DataObject) -> None:
    ends = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    assert run(rows, kind, ends, emit_old=emit_old) == run(rows, kind, range(1, len(rows)), emit_old=emit_old)


@settings(max_examples=drawn(12), deadline=None)
@given(some_rows, kinds)
def test_the_changes_add_up_to_the_batch_join(rows: list[Row], kind: str) -> None:
    last: dict[str, dict[str, int]] = {"left": {}, "right": {}}
    for each in rows:
        last[each["side"]].pop(each["k0"], None)
        if "v0" in each:
            last[each["side"]][each["k0"]] = each["v0"]
    left, right = last["left"], last["right"]
    keys = {
        "INNER": left.keys() & right.keys(), "LEFT": left.keys(), "RIGHT": right.keys(),
        "FULL": left.keys() | right.keys(),
    }[kind]  # fmt: skip
    expected = {key: (left.get(key), right.get(key)) for key in keys}
    held: dict[str, tuple[int | None, int | None]] = {}
    for key, weight, a, b, _ in run(rows, kind, emit_old=True):
        if weight < 0:
            assert held.pop(key) == (a, b)
        else:
            held[key] = (a, b)
    assert held == expected


@settings(max_examples=drawn(10), deadline=None)
@given(some_rows, kinds, st.integers(0, 20))
def test_a_join_goes_on_from_its_changelog(rows: list[Row], kind: str, cut: int) -> None:
    physical = joined(kind)
    first, second, whole = (open_pipeline(physical) for _ in range(3))
    before = feed(first, rows[:cut])
    for change in first.take_changes():
        second.restore(change.store, change.rows)
    assert before + feed(second, rows[cut:]) == feed(whole, rows)


@pytest.mark.parametrize(("kind", "side"), [("LEFT", "left"), ("FULL", "left"), ("FULL", "right")])
def test_a_row_without_a_partner_is_a_row(kind: Any, side: str) -> None:
    out = open_pipeline(joined(kind)).process(
        {s.id: rows_of(s, [row(side, "a", 1), row(side, "b", 2)] if s.id == side else []) for s in (LEFT, RIGHT)}
    )
    assert out.rows["k0"].to_pylist() == ["a", "b"]
    assert out.rows["_null"].to_pylist() == [False, False]
