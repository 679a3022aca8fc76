"""A table joins the rows of another table that it names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from drawn import drawn
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelines import expression, open_pipeline, plan, rekey, rows_of, schema, shown, table

from millstream.executor.pipeline import Pipeline
from millstream.planner.physical import PhysicalPlan
from millstream.planner.steps.foreign_key_join import ForeignKeyJoin
from millstream.planner.steps.project import Project
from millstream.sql.types import BIGINT, STRING

LEFT = table(values=(STRING, BIGINT), id="left")
RIGHT = table(values=(STRING,), id="right", materialized=False)
Row = Mapping[str, Any]
Change = tuple[str, int, Any, Any, int]  # the left key, weight, left number, right text, time


def joined(kind: Any, *, emit_old: bool = False) -> PhysicalPlan:
    """v0 of the left table names a row of the right one; its v1 is a number."""
    values = [STRING, BIGINT, STRING]  # the foreign key, the number, the left key
    copied = Project(
        "project",
        LEFT,
        (expression("v0", STRING), expression("v1", BIGINT), expression("k0", STRING)),
        None,
        schema([STRING], values),
    )
    mine = replace(rekey(copied, expression("v0", STRING), values), drop_null_key=kind == "INNER")
    result = schema([STRING], [*values, STRING])
    return plan(ForeignKeyJoin("join", mine, RIGHT, result, mine.schema, RIGHT.schema, kind, (2,), emit_old=emit_old))


def feed(pipeline: Pipeline, rows: Sequence[Row], ends: Sequence[int] = ()) -> list[Change]:
    out: list[Change] = []
    numbered = [{**row, "seq": i} for i, row in enumerate(rows)]
    for start, end in zip([0, *ends], [*ends, len(rows)], strict=True):
        part = numbered[start:end]
        batches = {s.id: rows_of(s, [row for row in part if row["side"] == s.id]) for s in (LEFT, RIGHT)}
        out += [(r["v2"], r["_weight"], r["v1"], r["v3"], r["_ts"]) for r in shown(pipeline.process(batches))]
    return out


def run(rows: Sequence[Row], kind: Any = "INNER", ends: Sequence[int] = (), *, emit_old: bool = False) -> list[Change]:
    return feed(open_pipeline(joined(kind, emit_old=emit_old)), rows, ends)


def left(key: str, foreign: str | None, number: int = 0, ts: int = 0) -> dict[str, Any]:
    return {"side": "left", "k0": key, "v0": foreign, "v1": number, "ts": ts}


def no_left(key: str, ts: int = 0) -> dict[str, Any]:
    return {"side": "left", "k0": key, "ts": ts}


def right(key: str, text: str | None, ts: int = 0) -> dict[str, Any]:
    own = {"side": "right", "k0": key, "ts": ts}
    return own if text is None else {**own, "v0": text}


def appearing(changes: Sequence[Change]) -> list[tuple[Any, ...]]:
    return [(k, n, x, t) if w > 0 else (k, t) for k, w, n, x, t in changes]


@pytest.mark.parametrize("ends", [[], [2], [3, 4], list(range(1, 7))])
def test_a_change_of_the_right_row_changes_all_that_name_it(ends: list[int]) -> None:
    rows = [
        left("b", "x", 2, 5), left("a", "x", 1, 1), left("c", "y", 3), right("x", "old", 3), right("x", "new", 4),
        left("d", "x", 4, 2), right("x", None, 9),
    ]  # fmt: skip
    assert appearing(run(rows, "INNER", ends)) == [
        ("a", 1, "old", 3), ("b", 2, "old", 5), ("a", 1, "new", 4), ("b", 2, "new", 5), ("d", 4, "new", 4),
        ("a", 9), ("b", 9), ("d", 9),
    ]  # fmt: skip
    assert appearing(run(rows, "LEFT", ends))[-3:] == [("a", 1, None, 9), ("b", 2, None, 9), ("d", 4, None, 9)]


def test_a_row_that_names_another_one_leaves_the_first() -> None:
    rows = [right("x", "X"), right("y", "Y"), left("a", "x", 1), left("a", "y", 2), right("x", "XX"), right("y", "YY")]
    assert run(rows) == [
        ("a", 1, 1, "X", 0), ("a", -1, 1, "X", 0), ("a", 1, 2, "Y", 0), ("a", 1, 2, "YY", 0),
    ]  # fmt: skip


def test_a_deleted_row_is_deleted_even_without_a_partner_but_only_once() -> None:
    rows = [left("a", "x", 1), no_left("a", 2), no_left("a", 3)]
    assert appearing(run(rows)) == [("a", 2)]
    assert run(rows, emit_old=True) == []


def test_a_row_that_names_nothing_has_no_partner() -> None:
    rows = [left("a", None, 1), right("x", "X"), left("a", "x", 2), left("a", None, 3)]
    assert appearing(run(rows, "INNER")) == [("a", 2, "X", 0), ("a", 0)]
    assert appearing(run(rows, "LEFT")) == [
        ("a", 1, None, 0), ("a", 0), ("a", 2, "X", 0), ("a", 0), ("a", 3, None, 0),
    ]  # fmt: skip


some_rows = st.lists(
    st.builds(left, st.sampled_from("abc"), st.sampled_from(["x", "y", None]), st.integers(0, 9), st.integers(0, 9))
    | st.builds(no_left, st.sampled_from("abc"), st.integers(0, 9))
    | st.builds(right, st.sampled_from("xy"), st.none() | st.sampled_from(["p", "q"]), st.integers(0, 9)),
    max_size=20,
)
kinds = st.sampled_from(["INNER", "LEFT"])


@settings(max_examples=drawn(12), deadline=None)
@given(some_rows, kinds, st.booleans(), st.data())
def test_where_a_batch_ends_changes_nothing(rows: list[Row], kind: str, emit_old: bool, data: st.DataObject) -> None:
    ends = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    alone = run(rows, kind, range(1, len(rows)), emit_old=emit_old)
    together = run(rows, kind, ends, emit_old=emit_old)
    # A deletion says what it deletes only where old rows are wanted.
    assert [c if emit_old or c[1] > 0 else c[:2] for c in together] == [
        c if emit_old or c[1] > 0 else c[:2] for c in alone
    ]


@settings(max_examples=drawn(12), deadline=None)
@given(some_rows, kinds)
def test_the_changes_add_up_to_the_batch_join(rows: list[Row], kind: str) -> None:
    lefts: dict[str, tuple[str | None, int]] = {}
    rights: dict[str, str] = {}
    for each in rows:
        mine = lefts if each["side"] == "left" else rights
        mine.pop(each["k0"], None)
        if "v0" in each:
            mine[each["k0"]] = (each["v0"], each["v1"]) if each["side"] == "left" else each["v0"]  # pyrefly: ignore[unsupported-operation]
    expected = {
        key: (number, rights.get(foreign or ""))
        for key, (foreign, number) in lefts.items()
        if kind == "LEFT" or foreign in rights
    }
    held: dict[str, tuple[Any, Any]] = {}
    for key, weight, number, text, _ in run(rows, kind, emit_old=True):
        if weight < 0:
            assert held.pop(key) == (number, text)
        else:
            held[key] = (number, text)
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
