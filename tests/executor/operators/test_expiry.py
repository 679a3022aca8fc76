"""TTL: rows that were not updated for long enough go, wherever batches end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from drawn import drawn
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelines import (
    aggregate,
    brief,
    call,
    expression,
    open_pipeline,
    plan,
    rekey,
    rows_of,
    run,
    shown,
    stream,
    table,
)

from millstream.planner.steps.expire import with_ttl
from millstream.planner.steps.step import Step
from millstream.sql.types import BIGINT

TTL = 10

Record = dict[str, Any]


def due(rows: dict[Any, Record], now: int) -> list[tuple[int, Any]]:
    """When and which of a task's rows are over, in their order."""
    return sorted((row["ts"] + TTL, key) for key, row in rows.items() if row["ts"] + TTL <= now)


def table_changes(records: Sequence[Record]) -> Iterator[tuple[Any, ...]]:
    """What a table's records mean, one after the other: key, value, weight, rowtime."""
    tasks: dict[int, dict[str, Record]] = {}
    times: dict[int, int] = {}
    for record in records:
        part, key = record["part"], record["k0"]
        rows = tasks.setdefault(part, {})
        now = times[part] = max(times.get(part, 0), record["ts"])
        for moment, gone in due(rows, now):
            yield gone, rows.pop(gone)["v0"], -1, moment
        old = rows.pop(key, None)
        if old is not None:
            yield key, old["v0"], -1, record["ts"]
        if "v0" in record and record["ts"] + TTL > now:
            rows[key] = record
            yield key, record["v0"], 1, record["ts"]


def group_changes(records: Sequence[Record]) -> Iterator[tuple[Any, ...]]:
    """Groups of a stream's records: key, count, sum, weight, rowtime."""
    tasks: dict[int, dict[str, Record]] = {}
    times: dict[int, int] = {}
    for record in records:
        part, key = record["part"], record["k0"]
        groups = tasks.setdefault(part, {})
        now = times[part] = max(times.get(part, 0), record["ts"])
        for moment, gone in due(groups, now):
            group = groups.pop(gone)
            yield gone, group["n"], group["sum"], -1, moment
        if key not in groups and record["ts"] + TTL <= now:
            continue
        old = groups.get(key)
        if old is not None:
            yield key, old["n"], old["sum"], -1, max(old["ts"], record["ts"])
        else:
            old = {"n": 0, "sum": 0, "ts": 0}
        new = {"n": old["n"] + 1, "sum": old["sum"] + record["v0"], "ts": max(old["ts"], record["ts"])}
        groups[key] = new
        yield key, new["n"], new["sum"], 1, new["ts"]


MEMBERS = {"k0": st.sampled_from("abc"), "part": st.integers(0, 1), "ts": st.integers(0, 60)}
ROW = st.fixed_dictionaries({**MEMBERS, "v0": st.integers(0, 9)})
TOMBSTONE = st.fixed_dictionaries(MEMBERS)


def mostly_in_order(rows: list[Record]) -> list[Record]:
    """Every third record stays where it is: late ones among those whose time grows."""
    times = sorted(row["ts"] for row in rows)
    return [row if i % 3 == 2 else {**row, "ts": time} for i, (row, time) in enumerate(zip(rows, times, strict=True))]


def splits(data: st.DataObject, count: int) -> list[int]:
    return sorted(data.draw(st.sets(st.integers(0, count), max_size=4)))


@given(rows=st.lists(ROW | TOMBSTONE, max_size=30), data=st.data())
@settings(max_examples=drawn(12), deadline=None)
def test_rows_of_a_declared_table_go_when_their_time_is_over(rows: list[Record], data: st.DataObject) -> None:
    records = mostly_in_order(rows)
    source = table(values=(BIGINT,), ttl_ms=TTL, partition_count=2)
    got = run(plan(source), records, splits(data, len(records)))
    assert brief(got, "k0", "v0", "_weight", "_ts") == list(table_changes(records))


@given(rows=st.lists(ROW, max_size=30), data=st.data())
@settings(max_examples=drawn(12), deadline=None)
def test_groups_are_forgotten_and_begin_anew(rows: list[Record], data: st.DataObject) -> None:
    records = mostly_in_order(rows)
    counted = [call("COUNT"), call("SUM", expression("v0", BIGINT))]
    step = aggregate(stream(values=(BIGINT,), partition_count=2), counted, ttl_ms=TTL, emit_old=True)
    got = run(plan(step), records, splits(data, len(records)))
    assert brief(got, "k0", "v0", "v1", "_weight", "_ts") == list(group_changes(records))


def final(rows: Sequence[Record]) -> dict[Any, Any]:
    current: dict[Any, Any] = {}
    for row in rows:
        if row["_weight"] > 0:
            current[row["_part"], row["k0"]] = row["v0"], row["v1"]
        else:
            current.pop((row["_part"], row["k0"]), None)
    return current


@given(rows=st.lists(ROW, max_size=30), data=st.data())
@settings(max_examples=drawn(8), deadline=None)
def test_with_the_last_change_of_a_batch_only_the_end_is_the_same(rows: list[Record], data: st.DataObject) -> None:
    records = mostly_in_order(rows)
    counted = [call("COUNT"), call("SUM", expression("v0", BIGINT))]
    step = aggregate(stream(values=(BIGINT,), partition_count=2), counted, ttl_ms=TTL)
    whole = run(plan(step), records, [], emit="last")
    assert final(run(plan(step), records, splits(data, len(records)), emit="last")) == final(whole)


@given(rows=st.lists(ROW | TOMBSTONE, max_size=30), data=st.data())
@settings(max_examples=drawn(8), deadline=None)
def test_rows_of_a_table_made_by_a_query_go_wherever_batches_end(rows: list[Record], data: st.DataObject) -> None:
    records = mostly_in_order(rows)
    step: Step = with_ttl(table(values=(BIGINT,), materialized=False, partition_count=2), TTL)
    got = run(plan(step), records, splits(data, len(records)))
    assert got == run(plan(step), records)


@given(rows=st.lists(ROW, max_size=30), data=st.data())
@settings(max_examples=drawn(8), deadline=None)
def test_state_that_is_restored_forgets_the_same_rows(rows: list[Record], data: st.DataObject) -> None:
    records = mostly_in_order(rows)
    source = stream(values=(BIGINT,), partition_count=2)
    declared = table(values=(BIGINT,), ttl_ms=TTL, partition_count=2)
    calls = [call("COUNT"), replace(call("COUNT", expression("v0", BIGINT)), distinct=True)]
    for physical in (plan(aggregate(source, calls, ttl_ms=TTL)), plan(declared)):
        (read,) = physical.sources()
        at = data.draw(st.integers(0, len(records)))
        before, after = open_pipeline(physical), open_pipeline(physical)
        got = shown(before.process({read.id: rows_of(read, records[:at])}))
        for changes in before.take_changes():
            after.restore(changes.store, changes.rows)
        got += shown(after.process({read.id: rows_of(read, records[at:], at)}))
        assert got == run(physical, records)


def test_time_is_that_of_the_rows_that_arrive_behind_a_repartition() -> None:
    rows = [{"k0": "x", "v0": 1, "ts": 0}, {"k0": "y", "v0": 2, "ts": 5}, {"k0": "z", "v0": 1, "ts": 20}]
    moved = rekey(stream(values=(BIGINT,)), expression("v0", BIGINT), (BIGINT,))
    step = aggregate(moved, [call("COUNT")], keys=(BIGINT,), ttl_ms=TTL)
    got = brief(run(plan(step), rows), "k0", "v0", "_weight", "_ts")
    assert got == [(1, 1, 1, 0), (2, 1, 1, 5), (1, 1, -1, 10), (2, 1, -1, 15), (1, 1, 1, 20)]


@pytest.mark.parametrize("ends", [[], [1], [1, 2, 3]])
def test_a_row_that_is_too_old_when_it_comes_deletes_the_one_before(ends: list[int]) -> None:
    rows = [{"k0": "a", "v0": 1, "ts": 100}, {"k0": "b", "v0": 1, "ts": 105}, {"k0": "a", "v0": 2, "ts": 90}]
    source = table(values=(BIGINT,), ttl_ms=TTL, materialized=False)
    got = brief(run(plan(source), rows, ends), "k0", "v0", "_weight", "_ts")
    assert got == [("a", 1, 1, 100), ("b", 1, 1, 105), ("a", None, -1, 90)]


@pytest.mark.parametrize("ends", [[], [2], [1, 2, 3]])
def test_a_group_begins_anew_also_where_rows_came_that_were_too_old(ends: list[int]) -> None:
    rows = [{"k0": key, "v0": 1, "ts": ts} for key, ts in (("b", 17), ("c", 50), ("b", 27), ("b", 45))]
    step = aggregate(stream(values=(BIGINT,)), [call("COUNT")], ttl_ms=TTL)
    got = brief(run(plan(step), rows, ends), "k0", "v0", "_weight", "_ts")
    assert got == [("b", 1, 1, 17), ("b", 1, -1, 27), ("c", 1, 1, 50), ("b", 1, 1, 45)]
