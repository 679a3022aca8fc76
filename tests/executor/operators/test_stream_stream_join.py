"""The rows of two streams meet within a window of time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest
from drawn import drawn
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelines import open_pipeline, plan, rows_of, schema, shown, stream

from millstream.executor.figures import Meters
from millstream.executor.pipeline import Pipeline
from millstream.planner.physical import PhysicalPlan
from millstream.planner.specs import KeyWindow
from millstream.planner.steps.stream_stream_join import StreamStreamJoin
from millstream.sql.types import BIGINT, STRING

LEFT = stream(values=(BIGINT,), id="left")
RIGHT = stream(values=(BIGINT,), id="right")
DAY = 86_400_000
Row = Mapping[str, Any]


def joined(kind: Any, before: int, after: int, grace: int | None) -> PhysicalPlan:
    result = schema([STRING], [BIGINT, BIGINT])
    step = StreamStreamJoin("join", LEFT, RIGHT, kind, before, after, grace, result, LEFT.schema, RIGHT.schema)
    return plan(step)


def feed(pipeline: Pipeline, rows: Sequence[Row], ends: Sequence[int] = ()) -> list[tuple[Any, ...]]:
    out: list[tuple[Any, ...]] = []
    numbered = [{**row, "seq": i} for i, row in enumerate(rows)]
    for start, end in zip([0, *ends], [*ends, len(rows)], strict=True):
        part = numbered[start:end]
        batches = {s.id: rows_of(s, [row for row in part if row["side"] == s.id]) for s in (LEFT, RIGHT)}
        out += [(r["k0"], r["v0"], r["v1"], r["_ts"]) for r in shown(pipeline.process(batches))]
    return out


def run(
    rows: Sequence[Row], kind: Any = "INNER", before: int = 10, after: int = 10, grace: int | None = None,
    ends: Sequence[int] = (),
) -> list[tuple[Any, ...]]:  # fmt: skip
    return feed(open_pipeline(joined(kind, before, after, grace)), rows, ends)


def left(key: str | None, value: int, ts: int) -> dict[str, Any]:
    return {"side": "left", "k0": key, "v0": value, "ts": ts}


def right(key: str | None, value: int, ts: int) -> dict[str, Any]:
    return {"side": "right", "k0": key, "v0": value, "ts": ts}


def test_rows_meet_on_both_borders_of_the_window_and_not_beyond() -> None:
    rows = [left("a", 1, 100), right("a", 2, 89), right("a", 3, 90), right("a", 4, 105), right("a", 5, 106)]
    assert run(rows, before=10, after=5) == [("a", 1, 3, 100), ("a", 1, 4, 105)]


def test_the_window_is_the_same_seen_from_the_right() -> None:
    rows = [right("a", 1, 100), left("a", 2, 94), left("a", 3, 95), left("a", 4, 110), left("a", 5, 111)]
    assert run(rows, before=10, after=5) == [("a", 3, 1, 100), ("a", 4, 1, 110)]


def test_partners_come_in_the_order_of_their_times() -> None:
    rows = [left("a", 1, 7), left("a", 2, 3), left("a", 3, 3), right("a", 9, 5)]
    assert run(rows) == [("a", 2, 9, 5), ("a", 3, 9, 5), ("a", 1, 9, 7)]


def test_rows_without_a_key_or_a_value_join_nothing() -> None:
    rows = [left(None, 1, 0), {"side": "left", "k0": "a", "ts": 0}, right("a", 2, 0), right(None, 3, 0)]
    assert run(rows, "FULL") == [("a", None, 2, 0)]


def test_without_grace_a_row_of_the_outer_side_goes_out_at_once_and_again_with_a_partner() -> None:
    rows = [left("a", 1, 0), right("a", 2, 5), right("b", 3, 6)]
    assert run(rows, "LEFT") == [("a", 1, None, 0), ("a", 1, 2, 5)]
    assert run(rows, "RIGHT") == [("a", 1, 2, 5), ("b", None, 3, 6)]
    assert run(rows, "FULL") == [("a", 1, None, 0), ("a", 1, 2, 5), ("b", None, 3, 6)]


def test_with_grace_a_row_goes_out_alone_once_its_window_is_over() -> None:
    rows = [left("a", 1, 0), left("b", 2, 1), right("b", 3, 2), left("c", 4, 15), left("c", 5, 16), right("d", 6, 40)]
    assert run(rows[:4], "LEFT", grace=5) == [("b", 2, 3, 2)]
    assert run(rows, "LEFT", grace=5) == [("b", 2, 3, 2), ("a", 1, None, 0), ("c", 4, None, 15), ("c", 5, None, 16)]


def test_rows_that_end_together_go_by_time_then_right_before_left_then_key() -> None:
    rows = [left("b", 1, 1), left("a", 2, 1), right("c", 3, 1), left("d", 4, 0), right("x", 5, 100)]
    alone = [("d", 4, None, 0), ("c", None, 3, 1), ("a", 2, None, 1), ("b", 1, None, 1)]
    assert run(rows, "FULL", grace=0) == alone


def test_a_row_that_comes_after_its_window_goes_out_alone_at_once_and_still_meets_what_is_kept() -> None:
    rows = [left("a", 1, 0), left("z", 2, 100), right("b", 3, 85), left("b", 4, 90)]
    assert run(rows, "RIGHT", grace=20) == [("b", None, 3, 85), ("b", 4, 3, 90)]


@pytest.mark.parametrize(("time", "late"), [(76, 0), (75, 1)])
def test_a_row_as_old_as_window_and_grace_together_counts_as_late(time: int, late: int) -> None:
    meters = Meters()
    feed(open_pipeline(joined("INNER", 10, 10, 5), meters=meters), [left("a", 1, 100), left("a", 2, time)])
    assert sum(meter.late_rows for meter in meters) == late


def test_a_row_that_comes_later_than_window_and_grace_is_not_kept() -> None:
    rows = [left("z", 1, 100), left("a", 2, 70), right("a", 3, 70)]
    assert run(rows, grace=10) == []
    assert run(rows, grace=11) == [("a", 2, 3, 70)]


@pytest.mark.parametrize("kind", ["INNER", "LEFT", "RIGHT", "FULL"])
def test_without_window_and_grace_rows_of_the_same_time_meet(kind: str) -> None:
    rows = [left("a", 1, 100), right("a", 2, 100), right("b", 3, 101), left("b", 4, 101)]
    assert run(rows, kind, before=0, after=0, grace=0) == [("a", 1, 2, 100), ("b", 4, 3, 101)]


@pytest.mark.parametrize("grace", [0, 3])
def test_a_row_within_grace_finds_the_oldest_partner_of_a_window_with_one_side(grace: int) -> None:
    lefts = [left("a", 1, 95), left("z", 2, 100 + grace)]
    assert run([*lefts, right("a", 3, 100)], before=0, after=5, grace=grace) == [("a", 1, 3, 100)]
    rights = [right("a", 1, 95), right("z", 2, 100 + grace)]
    assert run([*rights, left("a", 3, 100)], before=5, after=0, grace=grace) == [("a", 3, 1, 100)]


def test_rows_whose_window_ends_come_before_what_the_row_that_ended_it_meets() -> None:
    rows = [left("b", 1, 1), right("x", 2, 5), right("b", 3, 8)]
    assert run(rows, "RIGHT", before=2, after=10, grace=0) == [("x", None, 2, 5), ("b", 1, 3, 8)]


def test_the_sides_may_have_different_columns() -> None:
    one, two = stream(values=(BIGINT, STRING), id="left"), stream(values=(BIGINT,), id="right")
    result = schema([STRING], [BIGINT, STRING, BIGINT])
    step = StreamStreamJoin("join", one, two, "LEFT", 5, 5, None, result, one.schema, two.schema)
    rows = {
        one: [{"k0": "a", "v0": 1, "v1": "x", "ts": 1, "seq": 0}],
        two: [{"k0": "a", "v0": 2, "ts": 1, "seq": 1}],
    }
    out = shown(open_pipeline(plan(step)).process({source.id: rows_of(source, own) for source, own in rows.items()}))
    assert [(r["v0"], r["v1"], r["v2"]) for r in out] == [(1, "x", None), (1, "x", 2)]


def test_windowed_rows_meet_in_the_same_window() -> None:
    window = KeyWindow("TUMBLING", 10)
    one, two = (stream(values=(BIGINT,), id=id_, key_window=window) for id_ in ("left", "right"))
    result = schema([STRING], [BIGINT, BIGINT])
    step = StreamStreamJoin("join", one, two, "INNER", 50, 50, None, result, one.schema, two.schema)
    rows = {
        one: [{"k0": "a", "v0": 1, "ts": 1, "seq": 0, "ws": 0, "we": 10}],
        two: [
            {"k0": "a", "v0": 2, "ts": 1, "seq": 1, "ws": 0, "we": 10},
            {"k0": "a", "v0": 3, "ts": 1, "seq": 2, "ws": 10, "we": 20},
        ],
    }
    out = shown(open_pipeline(plan(step)).process({source.id: rows_of(source, own) for source, own in rows.items()}))
    assert [(r["v0"], r["v1"], r["_ws"], r["_we"]) for r in out] == [(1, 2, 0, 10)]


# ------------------------------------------------------------------ laws


@dataclass
class Side:
    rows: list[tuple[int, int, str, int]] = field(default_factory=list)  # time, number, key, value
    latest: int = -1


def one_by_one(rows: Sequence[Row], kind: str, before: int, after: int, grace: int | None) -> list[tuple[Any, ...]]:
    """The join as Kafka Streams describes it: record by record, with two buffers and the rows that wait."""
    patience = DAY if grace is None else grace
    retention = max(before + after, max(before, after) + 1) + patience
    sides = {"left": Side(), "right": Side()}
    reach = {"left": (before, after), "right": (after, before)}
    outer = {"left": kind in ("LEFT", "FULL"), "right": kind in ("RIGHT", "FULL")}
    waiting: dict[tuple[int, bool, str, int], int] = {}
    stream_time = -1
    out: list[tuple[Any, ...]] = []

    def give(side: str, key: str, own: int, other: int | None, time: int) -> None:
        out.append((key, own, other, time) if side == "left" else (key, other, own, time))

    for number, row in enumerate(rows):
        side, key, value, time = row["side"], row["k0"], row["v0"], row["ts"]
        other = "right" if side == "left" else "left"
        own_side, other_side = sides[side], sides[other]
        stream_time = max(stream_time, time)
        own_side.latest = max(own_side.latest, time)
        if time > own_side.latest - retention:
            own_side.rows.append((time, number, key, value))
        for waited in sorted(waiting):
            of = "left" if waited[1] else "right"
            if waited[0] + reach[of][1] + (grace or 0) < stream_time:
                give(of, waited[2], waiting.pop(waited), None, waited[0])
        low, high = time - reach[side][0], time + reach[side][1]
        met = sorted(
            each
            for each in other_side.rows
            if each[2] == key and low <= each[0] <= high and each[0] > other_side.latest - retention
        )
        for other_time, other_number, _, other_value in met:
            waiting.pop((other_time, other == "left", key, other_number), None)
            give(side, key, value, other_value, max(time, other_time))
        if not met and outer[side]:
            if grace is None or high < stream_time:
                give(side, key, value, None, time)
            else:
                waiting[time, side == "left", key, number] = value
    return out


times = st.integers(0, 60)
some_rows = st.lists(
    st.builds(left, st.sampled_from("ab"), st.integers(0, 99), times)
    | st.builds(right, st.sampled_from("ab"), st.integers(0, 99), times),
    max_size=25,
)
kinds = st.sampled_from(["INNER", "LEFT", "RIGHT", "FULL"])


@settings(max_examples=drawn(20), deadline=None)
@given(some_rows, kinds, st.integers(0, 12), st.integers(0, 12), st.none() | st.integers(0, 9), st.data())
def test_every_record_gives_what_it_gives_alone_wherever_batches_end(
    rows: list[Row], kind: str, before: int, after: int, grace: int | None, data: st.DataObject
) -> None:
    ends = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    assert run(rows, kind, before, after, grace, ends) == one_by_one(rows, kind, before, after, grace)


@settings(max_examples=drawn(15), deadline=None)
@given(some_rows, st.integers(0, 12), st.integers(0, 12), st.integers(0, 5))
def test_without_late_rows_the_inner_join_is_the_batch_join(
    rows: list[Row], before: int, after: int, grace: int
) -> None:
    ordered = sorted(rows, key=lambda row: row["ts"])
    lefts = [row for row in ordered if row["side"] == "left"]
    rights = [row for row in ordered if row["side"] == "right"]
    expected = Counter(
        (one["k0"], one["v0"], two["v0"], max(one["ts"], two["ts"]))
        for one, two in product(lefts, rights)
        if one["k0"] == two["k0"] and one["ts"] - before <= two["ts"] <= one["ts"] + after
    )
    assert Counter(run(ordered, "INNER", before, after, grace)) == expected


@settings(max_examples=drawn(10), deadline=None)
@given(some_rows, kinds, st.lists(st.integers(0, 25), max_size=2).map(sorted))
def test_each_task_has_its_own_stream_time(rows: list[Row], kind: str, ends: list[int]) -> None:
    spread = [{**row, "part": 0 if row["k0"] == "a" else 1} for row in rows]
    out = run(spread, kind, 8, 4, 3, ends)
    for key in "ab":
        expected = one_by_one([row for row in rows if row["k0"] == key], kind, 8, 4, 3)
        assert [each for each in out if each[0] == key] == expected


@pytest.mark.parametrize("replays", [1, 2])
@settings(max_examples=drawn(10), deadline=None)
@given(rows=some_rows, kind=kinds, cut=st.integers(0, 25))
def test_a_join_goes_on_from_its_changelog(replays: int, rows: list[Row], kind: str, cut: int) -> None:
    physical = joined(kind, 8, 4, 3)
    first = open_pipeline(physical)
    given_before = feed(first, rows[:cut])
    second = open_pipeline(physical)
    changes = first.take_changes()
    for _ in range(replays):
        for change in changes:
            second.restore(change.store, change.rows)
    assert given_before + feed(second, rows[cut:]) == one_by_one(rows, kind, 8, 4, 3)
