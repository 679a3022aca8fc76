"""CHANGED: which rows are given, wherever batches end, and what a restored operator remembers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from drawn import drawn
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelines import JSON, expression, open_pipeline, plan, rows_of, run, schema, shown, stream

from millstream.planner.physical import PhysicalPlan
from millstream.planner.schema import Column, Schema
from millstream.planner.steps.changed import Changed
from millstream.planner.steps.repartition import Rekey
from millstream.planner.steps.step import Step, schema_of
from millstream.sql.types import BIGINT, DOUBLE, STRING

Record = dict[str, Any]
RECORDS = st.lists(
    st.fixed_dictionaries(
        {"k0": st.sampled_from(["a", "b", None]), "part": st.integers(0, 1), "ts": st.integers(-3, 9)},
        optional={"v0": st.integers(0, 1), "v2": st.sampled_from(["x", "y"])},
    ),
    max_size=25,
)


def changed(watched: Sequence[str] = ("v0", "v2"), *, moved: bool = False) -> PhysicalPlan:
    """Over the records of a stream, or over rows that came through a change of key."""
    rows: Step = stream()
    if moved:
        key = (expression("k0", STRING),)
        rows = Rekey("rekey", rows, key, schema([STRING], [BIGINT, DOUBLE, STRING]), JSON, 1)
    found = schema_of(rows)
    columns: dict[str, Column] = dict(zip(("v0", "v1", "v2"), found.value, strict=True))
    remembered = Schema((*found.key, *(columns[name] for name in watched)))
    expressions = tuple(expression(name, columns[name].type) for name in watched)
    return plan(Changed("changed", rows, expressions, remembered, found))


def numbered(records: Sequence[Record]) -> list[Record]:
    """Their positions are in `v1`, which nobody watches."""
    return [{**record, "v1": float(position)} for position, record in enumerate(records)]


def positions(out: Sequence[Record]) -> list[int]:
    return sorted(int(row["v1"]) for row in out)


def expected(records: Sequence[Record]) -> list[int]:
    """By the sentence that documents it."""
    last: dict[tuple[int, Any], tuple[Any, Any]] = {}
    found: list[int] = []
    for position, record in enumerate(records):
        key, values = (record["part"], record["k0"]), (record.get("v0"), record.get("v2"))
        if last.get(key) != values:
            found.append(position)
        last[key] = values
    return found


@pytest.mark.parametrize("moved", [False, True], ids=["as read", "moved"])
@settings(max_examples=drawn(20), deadline=None)
@given(records=RECORDS, ends=st.sets(st.integers(0, 25), max_size=5))
def test_the_rows_given_differ_from_the_previous_one(moved: bool, records: list[Record], ends: set[int]) -> None:
    if moved:  # one task
        records = [{**record, "part": 0} for record in records]
    rows = numbered(records)
    borders = sorted(end for end in ends if end <= len(rows))
    options = {"partitioner": lambda step, table: [0] * len(table)} if moved else {}
    assert positions(run(changed(moved=moved), rows, borders, **options)) == expected(records)


def test_every_way_to_cut_records_into_batches_gives_the_same_rows() -> None:
    told = [("a", 1), ("a", 1), (None, 1), ("a", 2), (None, None), ("a", 1), (None, None)]
    rows = numbered([{"k0": key, "ts": 0, "v0": value} for key, value in told])
    whole = positions(run(changed(["v0"]), rows))
    assert whole == [0, 2, 3, 4, 5]
    for count in range(len(rows)):
        for ends in itertools.combinations(range(1, len(rows)), count):
            assert positions(run(changed(["v0"]), rows, ends)) == whole


def test_a_row_without_a_value_is_dropped_and_nothing_is_compared_with_it() -> None:
    rows: list[Record] = [
        {"k0": "a", "ts": 0, "v0": 1, "v1": 0.0}, {"k0": "a", "ts": 1}, {"k0": "a", "ts": 2, "v0": 1, "v1": 2.0},
    ]  # fmt: skip
    assert positions(run(changed(["v0"]), rows, [1, 2])) == [0]


@pytest.mark.parametrize("ends", [[], [1], [1, 2, 3]])
def test_a_value_that_is_no_number_is_equal_to_itself(ends: list[int]) -> None:
    nan = float("nan")
    rows = [{"k0": "a", "ts": n, "v0": n, "v1": value} for n, value in enumerate([nan, nan, 1.0, nan])]
    assert [row["v0"] for row in run(changed(["v1"]), rows, ends)] == [0, 2, 3]


def test_state_is_a_row_per_key_and_changes_only_with_what_is_given() -> None:
    physical = changed(["v0"])
    (source,) = physical.sources()
    pipeline = open_pipeline(physical)
    written: list[int] = []
    for value in (1, 1, 2):
        rows = numbered([{"k0": f"{n % 10}", "ts": 0, "v0": value} for n in range(100)])
        pipeline.process({source.id: rows_of(source, rows)})
        written.append(sum(len(change.rows) for change in pipeline.take_changes()))
        assert len(pipeline.stores["changed"].rows()) == 10
    assert written == [10, 0, 10]


def test_a_restored_pipeline_remembers() -> None:
    physical = changed()
    (source,) = physical.sources()
    rows = numbered([{"k0": "ab"[n % 2], "ts": n, "v0": n // 7, "part": n % 3} for n in range(60)])
    whole = positions(run(physical, rows))
    for split in range(0, 60, 7):
        first, second = open_pipeline(physical), open_pipeline(physical)
        out = shown(first.process({source.id: rows_of(source, rows[:split])}))
        for change in first.take_changes():
            second.restore(change.store, change.rows)
        out += shown(second.process({source.id: rows_of(source, rows[split:], split)}))
        assert positions(out) == whole
