"""Rows of two sides that agree in some columns, which are no key of either."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from drawn import drawn
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelines import expression, open_pipeline, plan, rekey, rows_of, schema, shown, stream, table
from planned import plan_of

from millstream.executor.partitioning import RekeyPartitioner
from millstream.executor.pipeline import Pipeline
from millstream.planner.physical import PhysicalPlan
from millstream.planner.steps.project import Project
from millstream.planner.steps.repartition import Rekey
from millstream.planner.steps.row_join import RowJoin
from millstream.planner.steps.source import Source
from millstream.sql.types import BIGINT, STRING

LEFT = table(values=(STRING, BIGINT), id="left")
RIGHT = table(values=(STRING,), id="right")
BIDS = stream(values=(STRING, BIGINT), id="left")
Row = Mapping[str, Any]


def joined(left: Source = LEFT, *, outer: bool = False) -> PhysicalPlan:
    """Where v0 of both sides is the same. Out: v0…v2 are the left text, number and key, v3 and v4 the right ones."""
    mine = _by_text(left, [STRING, BIGINT, STRING], "v1")
    theirs = _by_text(RIGHT, [STRING, STRING])
    result = schema([STRING], [STRING, BIGINT, STRING, STRING, STRING])
    return plan(RowJoin("join", mine, theirs, (2,), (1,), result, mine.schema, theirs.schema, outer=outer))


def _by_text(source: Source, values: list[Any], *more: str) -> Rekey:
    columns = tuple(expression(name, type_) for name, type_ in zip(("v0", *more, "k0"), values, strict=True))
    copied = Project(f"{source.id}.project", source, columns, None, schema([STRING], values))
    return replace(rekey(copied, expression("v0", STRING), values), id=f"{source.id}.rekey")


def feed(pipeline: Pipeline, rows: Sequence[Row], ends: Sequence[int] = ()) -> list[tuple[Any, ...]]:
    out: list[tuple[Any, ...]] = []
    numbered = [{**row, "seq": i} for i, row in enumerate(rows)]
    for start, end in zip([0, *ends], [*ends, len(rows)], strict=True):
        part = numbered[start:end]
        batches = {s.id: rows_of(s, [row for row in part if row["side"] == s.id]) for s in (LEFT, RIGHT)}
        out += [(r["v2"], r["v1"], r["v4"], r["_weight"], r["_ts"]) for r in shown(pipeline.process(batches))]
    return out


def run(rows: Sequence[Row], ends: Sequence[int] = ()) -> list[tuple[Any, ...]]:
    return feed(open_pipeline(joined()), rows, ends)


def left(key: str, text: str | None, number: int = 0, ts: int = 0) -> dict[str, Any]:
    return {"side": "left", "k0": key, "v0": text, "v1": number, "ts": ts}


def right(key: str, text: str | None, ts: int = 0) -> dict[str, Any]:
    return {"side": "right", "k0": key, "v0": text, "ts": ts}


def gone(side: str, key: str, ts: int = 0) -> dict[str, Any]:
    return {"side": side, "k0": key, "ts": ts}


def test_a_pair_begins_and_ends_with_its_rows() -> None:
    rows = [left("a", "x", 1, 5), right("p", "x", 3), right("q", "x", 9), gone("right", "p", 10), left("a", "y", 2, 11)]
    assert run(rows) == [
        ("a", 1, "p", 1, 5), ("a", 1, "q", 1, 9), ("a", 1, "p", -1, 10), ("a", 1, "q", -1, 11),
    ]  # fmt: skip


def test_a_changed_row_takes_its_pairs_back_and_gives_new_ones() -> None:
    rows = [left("a", "x", 1), right("p", "x"), right("q", "x"), left("a", "x", 2)]
    assert run(rows)[2:] == [("a", 1, "p", -1, 0), ("a", 1, "q", -1, 0), ("a", 2, "p", 1, 0), ("a", 2, "q", 1, 0)]


def test_null_equals_nothing() -> None:
    assert run([left("a", None, 1), right("p", None), right("q", "x")]) == []


@pytest.mark.parametrize("pair", [("x", None), (None, "x"), (None, None)])
def test_a_row_with_a_null_in_any_of_several_columns_joins_nothing(pair: tuple[str | None, str | None]) -> None:
    physical = plan_of(
        "CREATE TABLE l (k STRING PRIMARY KEY, a STRING, b STRING) WITH (kafka_topic='l', format='JSON', partitions=1);"
        "CREATE TABLE r (k STRING PRIMARY KEY, a STRING, b STRING) WITH (kafka_topic='r', format='JSON', partitions=1);"
        "CREATE TABLE t AS SELECT l.k, r.k FROM l JOIN r ON l.a = r.a AND l.b = r.b;"
    )
    assert [step for step in physical.steps() if isinstance(step, RowJoin)]
    pipeline = open_pipeline(physical, partitioner=RekeyPartitioner())

    def joined_rows(key: str, a: str | None, b: str | None, seq: int) -> int:
        row = {"k0": key, "v0": a, "v1": b, "seq": seq}
        return len(shown(pipeline.process({source.id: rows_of(source, [row]) for source in physical.sources()})))

    assert joined_rows("p", *pair, 0) == 0
    assert joined_rows("q", "x", "y", 2) == 1


def test_a_left_row_is_alone_only_before_the_first_and_after_the_last_partner_of_an_outer_join() -> None:
    rows = [left("a", "x", 1), right("p", "x"), right("q", "x"), gone("right", "p"), gone("right", "q")]
    alone, with_p, with_q = ("a", 1, None), ("a", 1, "p"), ("a", 1, "q")
    for ends in ((), range(1, len(rows)), (2, 4)):
        out = feed(open_pipeline(joined(outer=True)), rows, ends)
        assert [(row[:3], row[3]) for row in out] == [
            (alone, 1), (alone, -1), (with_p, 1), (with_q, 1), (with_p, -1), (with_q, -1), (alone, 1),
        ]  # fmt: skip


def test_a_stream_may_be_a_side() -> None:
    rows = [left("a", "x", 1), right("p", "x"), left("b", "x", 2), gone("right", "p")]
    assert feed(open_pipeline(joined(BIDS)), rows) == [
        ("a", 1, "p", 1, 0), ("b", 2, "p", 1, 0), ("a", 1, "p", -1, 0), ("b", 2, "p", -1, 0),
    ]  # fmt: skip


def test_a_row_that_is_replaced_by_an_equal_one_changes_nothing() -> None:
    assert run([left("a", "x", 1), right("p", "x"), left("a", "x", 1, 7)]) == [("a", 1, "p", 1, 0)]


def test_only_what_a_batch_changes_in_the_end_goes_out_if_every_change_is_not_wanted() -> None:
    pipeline = open_pipeline(joined(), emit="last")
    assert feed(pipeline, [left("a", "x", 1), right("p", "x")]) == [("a", 1, "p", 1, 0)]
    rows = [
        left("a", "y", 1),
        right("q", "x"),
        left("a", "x", 2),
        left("a", "x", 1),
        right("q", "y"),
        left("b", "x", 3),
    ]
    assert feed(pipeline, rows) == [("b", 3, "p", 1, 0)]


some_rows = st.lists(
    st.builds(left, st.sampled_from("abc"), st.sampled_from(["x", "y", None]), st.integers(0, 9), st.integers(0, 9))
    | st.builds(right, st.sampled_from("pqr"), st.sampled_from(["x", "y", None]), st.integers(0, 9))
    | st.builds(gone, st.just("left"), st.sampled_from("abc"), st.integers(0, 9))
    | st.builds(gone, st.just("right"), st.sampled_from("pqr"), st.integers(0, 9)),
    max_size=24,
)


@settings(max_examples=drawn(20), deadline=None)
@given(some_rows, st.data())
def test_where_a_batch_ends_changes_nothing(rows: list[Row], data: st.DataObject) -> None:
    ends = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    assert run(rows, ends) == run(rows, range(1, len(rows)))


@settings(max_examples=drawn(30), deadline=None)
@given(some_rows, st.sampled_from(["every", "last"]), st.integers(0, 24))
def test_the_changes_add_up_to_the_batch_join(rows: list[Row], emit: str, end: int) -> None:
    held: dict[str, dict[str, Row]] = {"left": {}, "right": {}}
    for each in rows:
        held[each["side"]].pop(each["k0"], None)
        if "v0" in each:
            held[each["side"]][each["k0"]] = each
    expected = {
        (key, one["v1"], other)
        for key, one in held["left"].items()
        for other, two in held["right"].items()
        if one["v0"] is not None and one["v0"] == two["v0"]
    }
    weights: Counter[tuple[Any, ...]] = Counter()
    for *pair, weight, _ in feed(open_pipeline(joined(), emit=emit), rows, [min(end, len(rows))]):
        weights[tuple(pair)] += weight
    assert {pair for pair, weight in weights.items() if weight} == expected
    assert set(weights.values()) <= {0, 1}


@settings(max_examples=drawn(8), deadline=None)
@given(some_rows, st.data())
def test_state_that_is_restored_is_state_that_was_kept(rows: list[Row], data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(rows)))
    first = open_pipeline(joined())
    feed(first, rows[:end])
    second = open_pipeline(joined())
    for changes in first.take_changes():
        second.restore(changes.store, changes.rows)
    assert feed(second, rows[end:]) == feed(first, rows[end:])
