"""DEDUPLICATE: which rows are given, wherever batches end, and that state goes with stream time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from drawn import drawn
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelines import JSON, expression, open_pipeline, plan, rows_of, run, schema, shown, stream

from millstream.executor.figures import Meters
from millstream.planner.physical import PhysicalPlan
from millstream.planner.steps.deduplicate import Deduplicate
from millstream.planner.steps.repartition import Rekey
from millstream.planner.steps.step import Step, schema_of
from millstream.sql.types import BIGINT, DOUBLE, STRING

Record = dict[str, Any]
NUMBERED = st.fixed_dictionaries(
    {"k0": st.sampled_from(["a", "b", None]), "part": st.integers(0, 1), "ts": st.integers(-30, 40)},
    optional={"v0": st.integers(0, 9)},
)


def deduplicated(within: int, late: int | None = None, *, moved: bool = False) -> PhysicalPlan:
    """Over the records of a stream, or over rows that came through a change of key."""
    rows: Step = stream()
    if moved:
        key = (expression("k0", STRING),)
        rows = Rekey("rekey", rows, key, schema([STRING], [BIGINT, DOUBLE, STRING]), JSON, 1)
    return plan(Deduplicate("deduplicate", rows, within, within if late is None else late, schema_of(rows)))


def expected(records: Sequence[Record], within: int, late: int) -> list[int]:
    """The positions of the rows that are given, by the sentence that documents them."""
    given_times: dict[tuple[int, Any], list[int]] = {}
    now: dict[int, int] = {}
    positions: list[int] = []
    for position, record in enumerate(records):
        part, time = record.get("part", 0), record["ts"]
        now[part] = max(now.get(part, time), time)
        times = given_times.setdefault((part, record["k0"]), [])
        if "v0" in record and now[part] - time <= late and all(abs(time - other) >= within for other in times):
            times.append(time)
            positions.append(position)
    return positions


def numbered(records: Sequence[Record]) -> list[Record]:
    return [{**record, "v1": float(position)} for position, record in enumerate(records)]


def positions(out: Sequence[Record]) -> list[int]:
    return sorted(int(row["v1"]) for row in out)


@pytest.mark.parametrize("moved", [False, True], ids=["as read", "moved"])
@settings(max_examples=drawn(20), deadline=None)
@given(
    records=st.lists(NUMBERED, max_size=25),
    within=st.integers(1, 15),
    late=st.integers(0, 30),
    ends=st.sets(st.integers(0, 25), max_size=5),
)
def test_the_rows_given_are_those_that_no_given_row_is_close_to(
    moved: bool, records: list[Record], within: int, late: int, ends: set[int]
) -> None:
    if moved:  # one task
        records = [{**record, "part": 0} for record in records]
    rows = [r if "v0" in r else {k: v for k, v in r.items() if k != "v1"} for r in numbered(records)]
    borders = sorted(end for end in ends if end <= len(rows))
    options = {"partitioner": lambda step, table: [0] * len(table)} if moved else {}
    out = run(deduplicated(within, late, moved=moved), rows, borders, **options)
    assert positions(out) == expected(records, within, late)


SHORT = [("a", 10), ("a", 10), (None, 3), ("a", 20), (None, 12), ("a", 30)]


def test_every_way_to_cut_records_into_batches_gives_the_same_rows() -> None:
    rows = numbered([{"k0": key, "ts": ts, "v0": 1} for key, ts in SHORT])
    whole = positions(run(deduplicated(10, 20), rows))
    assert whole == [0, 2, 3, 5]
    for count in range(len(rows)):
        for ends in itertools.combinations(range(1, len(rows)), count):
            assert positions(run(deduplicated(10, 20), rows, ends)) == whole


def test_of_rows_of_one_time_the_first_is_given() -> None:
    rows = numbered([{"k0": "a", "ts": 5, "v0": n} for n in range(3)])
    assert [row["v0"] for row in run(deduplicated(1), rows)] == [0]


def test_a_row_that_was_dropped_does_not_make_the_time_longer() -> None:
    rows = numbered([{"k0": "a", "ts": ts, "v0": 1} for ts in (0, 9, 10, 19, 20)])
    assert positions(run(deduplicated(10), rows)) == [0, 2, 4]


def test_rows_that_come_too_late_are_counted_and_dropped() -> None:
    physical = deduplicated(10, 5)
    meters = Meters()
    pipeline = open_pipeline(physical, meters=meters)
    rows = numbered(
        [{"k0": key, "ts": ts, "v0": 1} for key, ts in (("a", 100), ("b", 95), ("c", 94), ("d", 0), ("e", 1))]
    )
    out = shown(pipeline.process({"source": rows_of(physical.sources()[0], rows)}))
    assert positions(out) == [0, 1]
    assert meters.of(("deduplicate",)).late_rows == 3


@pytest.mark.parametrize("time", [-(2**63), -(2**62), 2**62, 2**63 - 1])
def test_times_out_of_all_bounds_break_nothing(time: int) -> None:
    rows = numbered([{"k0": "a", "ts": ts, "v0": 1} for ts in (5, time, time, 7)])
    out = positions(run(deduplicated(10), rows, [2]))
    assert out == ([0] if time < 0 else [0, 1])


def test_state_goes_with_stream_time() -> None:
    physical = deduplicated(10)
    (source,) = physical.sources()
    pipeline = open_pipeline(physical)
    kept: list[int] = []
    for start in range(0, 2_000, 20):
        rows = [{"k0": f"{n}", "ts": n, "v0": n} for n in range(start, start + 20)]
        assert len(shown(pipeline.process({source.id: rows_of(source, rows, start)}))) == 20
        kept.append(len(pipeline.stores["deduplicate"].rows()))
    assert max(kept) <= 80
    forgotten = [change for change in pipeline.take_changes() if change.rows.num_columns == 2]
    assert forgotten, "the changelog says up to where rows may be compacted away"


def test_a_restored_pipeline_remembers() -> None:
    physical = deduplicated(10)
    (source,) = physical.sources()
    rows = numbered([{"k0": "ab"[n % 2], "ts": n * 3, "v0": n, "part": n % 3} for n in range(60)])
    for split in range(0, 60, 7):
        first, second = open_pipeline(physical), open_pipeline(physical)
        out = shown(first.process({source.id: rows_of(source, rows[:split])}))
        for change in first.take_changes():
            second.restore(change.store, change.rows)
        out += shown(second.process({source.id: rows_of(source, rows[split:], split)}))
        assert positions(out) == expected(rows, 10, 10)
