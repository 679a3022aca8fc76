"""The laws of pipelines: where a batch ends changes nothing, nor does a restart from the changelog; and the changes add
up to what a batch query answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
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
    tumbling,
)

from millstream.planner.physical import PhysicalPlan
from millstream.planner.specs import WindowSpec
from millstream.planner.steps.aggregate import Aggregate
from millstream.planner.steps.filter import Filter
from millstream.planner.steps.source import Source
from millstream.sql.types import BIGINT, DOUBLE, STRING

CALLS = [
    call("COUNT"),
    call("SUM", expression("v0", BIGINT)),
    call("SUM", expression("v1", DOUBLE)),
    call("AVG", expression("v1 / 3", DOUBLE)),
    call("MAX", expression("v2", STRING)),
    call("LATEST_BY_OFFSET", expression("v2", STRING)),
    call("EARLIEST_BY_OFFSET", expression("v0", BIGINT), constants=(2,)),
    call("COLLECT_SET", expression("v2", STRING)),
    call("HISTOGRAM", expression("v2", STRING)),
    call("TOPK", expression("v0", BIGINT), expression("v2", STRING), constants=(2,)),
    call("STDDEV_SAMP", expression("v1", DOUBLE)),
]
FILTERED = Filter("filter", stream(), expression("v0 IS DISTINCT FROM 3", BIGINT))
HOPPING = WindowSpec("HOPPING", 10, 4, grace_ms=3)

PLANS: dict[str, PhysicalPlan] = {
    "plain": plan(aggregate(stream(), CALLS, emit_old=True)),
    "tumbling": plan(aggregate(FILTERED, CALLS, window=tumbling(10, 4))),
    "tumbling, without grace": plan(aggregate(FILTERED, CALLS, window=tumbling(5, 0), emit_old=True)),
    "hopping": plan(aggregate(FILTERED, CALLS, window=HOPPING)),
    "session": plan(aggregate(FILTERED, CALLS, window=WindowSpec("SESSION", 4, grace_ms=3))),
    "cumulate": plan(aggregate(FILTERED, CALLS, window=WindowSpec("CUMULATE", 12, 4, grace_ms=3), emit_old=True)),
    "final cumulate": plan(aggregate(FILTERED, CALLS, window=WindowSpec("CUMULATE", 9, 3, grace_ms=1), emit="FINAL")),
    "final": plan(aggregate(FILTERED, CALLS, window=HOPPING, emit="FINAL")),
    "final, with retention": plan(aggregate(FILTERED, CALLS, window=tumbling(4, 3, retention_ms=7), emit="FINAL")),
    "final sessions": plan(aggregate(FILTERED, CALLS, window=WindowSpec("SESSION", 3, grace_ms=1), emit="FINAL")),
    "rekeyed": plan(
        aggregate(rekey(FILTERED, expression("v2", STRING), [BIGINT, DOUBLE, STRING]), CALLS, window=tumbling(10, 2))
    ),
}

RECORD = st.fixed_dictionaries(
    {
        "k0": st.sampled_from(["a", "b", None]),
        "part": st.integers(0, 1),
        "ts": st.integers(0, 40),
        "v0": st.none() | st.integers(0, 5),
        "v1": st.none() | st.sampled_from([0.1, 0.2, 0.3, 1e16, -1e16]),
        "v2": st.none() | st.sampled_from(["x", "y", "z"]),
    }
)
RECORDS = st.lists(RECORD, max_size=30)


def per_task(rows: Sequence[dict[str, Any]]) -> dict[int, list[str]]:
    """Tasks are independent: how their rows interleave is not part of a result."""
    tasks: dict[int, list[str]] = {}
    for row in rows:
        tasks.setdefault(row["_part"], []).append(repr(row))
    return tasks


def drawn_ends(data: st.DataObject, count: int) -> list[int]:
    return sorted(data.draw(st.sets(st.integers(0, count), max_size=4)))


@pytest.mark.parametrize("name", PLANS)
@given(rows=RECORDS, data=st.data())
@settings(max_examples=drawn(5))
def test_where_a_batch_ends_changes_nothing(name: str, rows: list[dict[str, Any]], data: st.DataObject) -> None:
    ends = drawn_ends(data, len(rows))
    assert per_task(run(PLANS[name], rows, ends)) == per_task(run(PLANS[name], rows))


@pytest.mark.parametrize("name", PLANS)
@given(rows=RECORDS, data=st.data())
@settings(max_examples=drawn(3))
def test_a_pipeline_restored_from_its_changes_goes_on_as_if_nothing_had_happened(
    name: str, rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    physical = PLANS[name]
    (source,) = physical.sources()
    split = data.draw(st.integers(0, len(rows)))
    first = open_pipeline(physical)
    out = shown(first.process({source.id: rows_of(source, rows[:split])}))
    changes = first.take_changes()
    second = open_pipeline(physical)
    for change in changes:
        second.restore(change.store, change.rows)
    out += shown(second.process({source.id: rows_of(source, rows[split:], split)}))
    assert per_task(out) == per_task(run(physical, rows))


@pytest.mark.parametrize("emit", ["every", "last"])
@given(rows=st.lists(RECORD, min_size=1, max_size=30), data=st.data())
@settings(max_examples=drawn(5))
def test_without_late_records_the_last_changes_are_the_batch_query_s_answer(
    emit: Any, rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    physical = plan(aggregate(stream(), CALLS[:2] + CALLS[4:5], window=tumbling(10, 100)))
    (source,) = physical.sources()
    out = run(physical, rows, drawn_ends(data, len(rows)), emit=emit)
    latest = {(r["_part"], r["k0"], r["_ws"]): (r["v0"], r["v1"], r["v2"]) for r in out}
    everything = rows_of(source, rows).rows
    with duckdb.connect() as connection:
        connection.register("everything", everything)
        answer = connection.execute(
            "SELECT _part, k0, _ts // 10 * 10, count(*), coalesce(sum(v0), 0)::BIGINT, max(v2) FROM everything "
            "WHERE k0 IS NOT NULL GROUP BY ALL"
        ).fetchall()
    assert latest == {row[:3]: row[3:] for row in answer}


@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {"k0": st.sampled_from("abc")},
            optional={"v0": st.none() | st.sampled_from(["x", "y"]), "v1": st.none() | st.integers(0, 5)},
        ),
        max_size=25,
    ),
    data=st.data(),
)
@settings(max_examples=drawn(8))
def test_the_groups_of_a_table_are_those_of_its_rows_as_they_are_now(
    rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    calls = [call("COUNT"), call("SUM", expression("v1", BIGINT)), call("COLLECT_LIST", expression("v1", BIGINT))]
    physical = plan(aggregate(rekey(table(), expression("v0", STRING), [STRING, BIGINT]), calls, retracts=True))
    out = run(physical, rows, drawn_ends(data, len(rows)))
    assert out == run(physical, rows)
    current = {row["k0"]: row for row in rows}
    latest = {row["k0"]: (row["v0"], row["v1"], sorted(row["v2"], key=repr)) for row in out}
    for group, (count, total, values) in latest.items():
        members = [row.get("v1") for row in current.values() if row.get("v0") == group]
        assert (count, total, values) == (len(members), sum(filter(None, members)), sorted(members, key=repr))


@given(rows=RECORDS, data=st.data())
@settings(max_examples=drawn(5))
def test_old_and_new_results_add_up_to_the_current_ones(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    for emit in ("every", "last"):
        total: dict[Any, int] = {}
        current: dict[Any, Any] = {}
        for row in run(PLANS["plain"], rows, drawn_ends(data, len(rows)), emit=emit):
            place, result = (row["_part"], row["k0"]), repr([row[f"v{i}"] for i in range(len(CALLS))])
            total[place, result] = total.get((place, result), 0) + row["_weight"]
            current[place] = result
        assert {change for change, weight in total.items() if weight} == set(current.items())
        assert set(total.values()) <= {0, 1}


def test_a_pipeline_works_inside_its_caller_s_transaction() -> None:
    physical = PLANS["tumbling"]
    (source,) = physical.sources()
    connection = duckdb.connect()
    from millstream.executor.pipeline import Pipeline

    pipeline = Pipeline(physical, connection)
    connection.execute("BEGIN")
    pipeline.process({source.id: rows_of(source, [{"k0": "a", "v0": 1, "ts": 1}])})
    connection.execute("ROLLBACK")
    again = Pipeline(physical, connection)
    out = shown(again.process({source.id: rows_of(source, [{"k0": "a", "v0": 1, "ts": 1}])}))
    assert brief(out, "v0") == [(1,)]


def test_stores_are_named_for_their_steps() -> None:
    pipeline = open_pipeline(PLANS["final"])
    assert set(pipeline.stores) == {"aggregate", "aggregate.stream_time", "source.stream_time"}
    step = PLANS["final"].root
    assert isinstance(step.input, Aggregate) and isinstance(PLANS["final"].sources()[0], Source)  # pyrefly: ignore[missing-attribute]
