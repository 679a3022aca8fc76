"""GROUP BY with session windows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pipelines import aggregate, brief, call, expression, open_pipeline, plan, rows_of, run, stream

from millstream.planner.specs import WindowSpec
from millstream.planner.steps.aggregate import AggregateCall
from millstream.planner.steps.filter import Filter
from millstream.sql.types import BIGINT, BOOLEAN

MAX = call("MAX", expression("v0", BIGINT))
LATEST = call("LATEST_BY_OFFSET", expression("v0", BIGINT))
LATEST_WITH_NULL = call("LATEST_BY_OFFSET", expression("v0", BIGINT), constants=(False,))
LATEST_TWO = call("LATEST_BY_OFFSET", expression("v0", BIGINT), constants=(2,))
EARLIEST = call("EARLIEST_BY_OFFSET", expression("v0", BIGINT))
EARLIEST_TWO = call("EARLIEST_BY_OFFSET", expression("v0", BIGINT), constants=(2,))


def row(key: str, value: int | None, ts: int, **more: Any) -> dict[str, Any]:
    return {"k0": key, "v0": value, "ts": ts, **more}


def sessions(rows: list[dict[str, Any]], ends: list[int] | None = None, **options: Any) -> list[tuple[Any, ...]]:
    window = WindowSpec("SESSION", options.pop("gap", 30_000), grace_ms=options.pop("grace", 86_400_000))
    calls = options.pop("calls", [MAX])
    step = aggregate(stream(), calls, window=window, emit=options.pop("emit_when", "CHANGES"), **options)
    return brief(run(plan(step), rows, ends or [], emit="every"), "k0", "_ws", "_we", "v0", "_weight")


def every_split(rows: list[dict[str, Any]], **options: Any) -> list[tuple[Any, ...]]:
    whole = sessions(rows, **options)
    assert sessions(rows, list(range(1, len(rows))), **options) == whole
    assert sessions(rows, [len(rows) // 2], **options) == whole
    return whole


def test_a_row_within_the_gap_takes_the_old_session_back_and_gives_the_longer_one() -> None:
    rows = [row("0", 0, 0), row("0", 1, 70010), row("0", 5, 10009), row("0", 6, 10010)]
    assert every_split(rows) == [
        ("0", 0, 0, 0, 1),
        ("0", 70010, 70010, 1, 1),
        ("0", 0, 0, 0, -1),
        ("0", 0, 10009, 5, 1),
        ("0", 0, 10009, 5, -1),
        ("0", 0, 10010, 6, 1),
    ]


def test_a_row_between_two_sessions_makes_them_one() -> None:
    rows = [row("0", 1, 0), row("0", 3, 1500), row("0", 2, 700)]
    assert every_split(rows, gap=1000, calls=[LATEST]) == [
        ("0", 0, 0, 1, 1),
        ("0", 1500, 1500, 3, 1),
        ("0", 0, 0, 1, -1),
        ("0", 1500, 1500, 3, -1),
        ("0", 0, 1500, 2, 1),
    ]


def test_a_session_that_begins_and_grows_before_an_earlier_batchs_one_leaves_that_in_its_place() -> None:
    rows = [row("0", 1, 100), row("0", 2, 50), row("0", 3, 55), row("0", 4, 105)]
    assert every_split(rows, gap=10)[-2:] == [("0", 100, 100, 1, -1), ("0", 100, 105, 4, 1)]
    assert sessions(rows, [1], gap=10)[-2:] == [("0", 100, 100, 1, -1), ("0", 100, 105, 4, 1)]


@pytest.mark.parametrize(
    ("offsets", "result"),
    [(LATEST, 5), (LATEST_WITH_NULL, None), (LATEST_TWO, [1, 5]), (EARLIEST, 3), (EARLIEST_TWO, [3, 2])],
)
def test_offsets_tell_the_order_of_arrival_though_sessions_become_one_whose_rows_came_in_turns(
    offsets: AggregateCall, result: Any
) -> None:
    """The later session has the first row, the earlier one the last of those that both had."""
    rows = [row("0", 3, 3000), row("0", 2, 0), row("0", 1, 3500), row("0", 5, 500), row("0", None, 1500)]
    assert every_split(rows, gap=1500, calls=[offsets])[-1] == ("0", 0, 3500, result, 1)


def test_rows_of_the_same_moment_renew_their_session_without_taking_it_back() -> None:
    rows = [row("0", 1, 5), row("0", 2, 5)]
    assert every_split(rows) == [("0", 5, 5, 1, 1), ("0", 5, 5, 2, 1)]
    assert every_split(rows, emit_old=True) == [("0", 5, 5, 1, 1), ("0", 5, 5, 1, -1), ("0", 5, 5, 2, 1)]


def test_a_row_is_late_when_its_session_would_have_closed() -> None:
    rows = [row("0", 1, 0), row("1", 2, 31), row("0", 3, 0), row("1", 4, 32), row("0", 5, 0), row("0", 6, 2)]
    assert every_split(rows, gap=20, grace=11) == [
        ("0", 0, 0, 1, 1),
        ("1", 31, 31, 2, 1),
        ("0", 0, 0, 3, 1),
        ("1", 31, 31, 2, -1),
        ("1", 31, 32, 4, 1),
        ("0", 2, 2, 6, 1),
    ]


def test_a_session_s_final_result_comes_once_when_it_closes() -> None:
    rows = [row("0", 1, 0), row("1", 2, 5), row("0", 3, 10), row("0", 4, 31), row("0", 5, 32), row("0", 6, 100)]
    assert every_split(rows, gap=20, grace=1, emit_when="FINAL") == [
        ("1", 5, 5, 2, 1),
        ("0", 0, 10, 3, 1),
        ("0", 31, 32, 5, 1),
    ]


def test_final_results_of_several_tasks_come_in_the_order_of_the_rows_that_close_them() -> None:
    rows = [row("a", 1, 0, part=0), row("b", 2, 50, part=1), row("c", 3, 200, part=1), row("d", 4, 100, part=0)]
    assert every_split(rows, gap=20, grace=1, emit_when="FINAL") == [("b", 50, 50, 2, 1), ("a", 0, 0, 1, 1)]


def test_the_last_change_per_batch_takes_back_only_what_earlier_batches_gave() -> None:
    step = aggregate(stream(), [MAX], window=WindowSpec("SESSION", 1000))
    rows = [row("0", 1, 0), row("0", 2, 500), row("0", 3, 900), row("0", 4, 1200)]
    out = run(plan(step), rows, [2], emit="last")
    assert brief(out, "_ws", "_we", "v0", "_weight") == [(0, 500, 2, 1), (0, 500, 2, -1), (0, 1200, 4, 1)]


def test_a_gap_of_just_the_size_still_joins_and_a_longer_one_does_not() -> None:
    rows = [row("0", 1, 2000), row("0", 2, 3000), row("0", 3, 1000), row("0", 4, 4001)]
    assert every_split(rows, gap=1000) == [
        ("0", 2000, 2000, 1, 1),
        ("0", 2000, 2000, 1, -1),
        ("0", 2000, 3000, 2, 1),
        ("0", 2000, 3000, 2, -1),
        ("0", 1000, 3000, 3, 1),
        ("0", 4001, 4001, 4, 1),
    ]


def test_a_result_is_of_the_rows_of_all_sessions_that_became_one() -> None:
    rows = [row("0", 1, 0), row("0", 9, 1500), row("0", 2, 700)]
    assert every_split(rows, gap=1000)[-1] == ("0", 0, 1500, 9, 1)


def test_a_row_that_a_filter_leaves_out_lengthens_a_session_and_keeps_its_result() -> None:
    calls = [replace(MAX, filter=expression("v0 < 10", BOOLEAN)), MAX]
    step = aggregate(stream(), calls, window=WindowSpec("SESSION", 1000))
    out = run(plan(step), [row("0", 1, 0), row("0", 99, 500)], emit="every")
    assert brief(out, "_we", "v0", "v1", "_weight") == [(0, 1, 1, 1), (0, 1, 1, -1), (500, 1, 99, 1)]


@pytest.mark.parametrize(("emit", "results"), [("CHANGES", [(0, 0, 1), (0, 2, 9)]), ("FINAL", [(0, 0, 1)])])
def test_rows_that_where_leaves_out_close_sessions_only_where_their_final_results_wait(
    emit: str, results: list[tuple[int, int, int]]
) -> None:
    some = Filter("filter", stream(), expression("v0 < 10", BIGINT))
    step = aggregate(some, [MAX], window=WindowSpec("SESSION", 5, grace_ms=0), emit=emit)
    rows = [row("0", 1, 0), row("0", 99, 100), row("0", 9, 2)]
    for ends in ([], [1], [2], [1, 2]):
        out = brief(run(plan(step), rows, ends, emit="every"), "_ws", "_we", "v0", "_weight")
        assert [each for *each, weight in out if weight > 0] == [list(one) for one in results]


def test_sessions_that_nothing_is_counted_in_become_one_all_the_same() -> None:
    step = aggregate(stream(), [], window=WindowSpec("SESSION", 1000))
    out = run(plan(step), [row("0", 1, 0), row("0", 1, 1500), row("0", 1, 700)], emit="every")
    assert brief(out, "_ws", "_we", "_weight") == [
        (0, 0, 1),
        (1500, 1500, 1),
        (0, 0, -1),
        (1500, 1500, -1),
        (0, 1500, 1),
    ]


@pytest.mark.parametrize(("emit", "waits"), [("FINAL", True), ("CHANGES", False)])
def test_only_results_that_come_at_the_end_wait_for_time(emit: str, waits: bool) -> None:
    step = aggregate(stream(), [MAX], window=WindowSpec("SESSION", 1000, grace_ms=0), emit=emit)
    pipeline = open_pipeline(plan(step))
    assert not pipeline.waits_for_time
    pipeline.process({"source": rows_of(stream(), [row("0", 1, 0)])})
    assert pipeline.waits_for_time == waits


@pytest.mark.parametrize(("time", "closes"), [(21, False), (22, True)])
def test_a_session_closes_when_no_row_can_lengthen_it_any_more(time: int, closes: bool) -> None:
    """One at its end, plus gap and grace, still could."""
    rows = [row("a", 1, 0), row("b", 2, time)]
    assert sessions(rows, gap=20, grace=1, emit_when="FINAL") == ([("a", 0, 0, 1, 1)] if closes else [])


def test_sessions_close_to_the_largest_time() -> None:
    end = 2**63 - 1
    rows = [row("0", 1, end - 9_000), row("0", 2, end), row("0", 3, end - 30_000), row("0", 4, end - 15_000)]
    assert every_split(rows, gap=10_000) == [
        ("0", end - 9_000, end - 9_000, 1, 1),
        ("0", end - 9_000, end - 9_000, 1, -1),
        ("0", end - 9_000, end, 2, 1),
        ("0", end - 30_000, end - 30_000, 3, 1),
        ("0", end - 9_000, end, 2, -1),
        ("0", end - 15_000, end, 4, 1),
    ]
