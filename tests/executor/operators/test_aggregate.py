"""GROUP BY of streams and tables, without windows and with tumbling and hopping ones."""

from __future__ import annotations

from typing import Any

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

from millstream.executor.batch import ChangeBatch
from millstream.executor.figures import Meters
from millstream.planner.physical import PhysicalPlan
from millstream.planner.specs import WindowSpec
from millstream.planner.steps.filter import Filter
from millstream.sql.types import BIGINT, DOUBLE, STRING

SUM = call("SUM", expression("v0", BIGINT))
COUNT = call("COUNT")


def row(key: str | None, value: int | None, ts: int = 0, **more: Any) -> dict[str, Any]:
    return {"k0": key, "v0": value, "ts": ts, **more}


def test_each_row_gives_its_group_s_running_result_and_largest_time() -> None:
    rows = [row("a", 1, 5), row("b", 10, 6), row("a", 2, 3), row("a", None, 9)]
    out = run(plan(aggregate(stream(), [SUM, COUNT])), rows)
    assert brief(out, "k0", "v0", "v1", "_ts", "_weight") == [
        ("a", 1, 1, 5, 1),
        ("b", 10, 1, 6, 1),
        ("a", 3, 2, 5, 1),
        ("a", 3, 3, 9, 1),
    ]


def test_old_results_go_before_new_ones_where_they_are_asked_for() -> None:
    rows = [row("a", 1), row("a", 2), row("b", 3), row("a", 4)]
    expected = [("a", 1, 1), ("a", 1, -1), ("a", 3, 1), ("b", 3, 1), ("a", 3, -1), ("a", 7, 1)]
    for ends in ([], [1], [2, 3]):
        out = run(plan(aggregate(stream(), [SUM], emit_old=True)), rows, ends)
        assert brief(out, "k0", "v0", "_weight") == expected


def test_without_repeats_a_result_replaces_others_only() -> None:
    step = aggregate(stream(), [call("MAX", expression("v0", BIGINT))], emit_old=True, repeats=False)
    rows = [row("a", 3), row("a", 1), row("b", None), row("a", 3), row("b", None), row("a", 5), row("b", 0)]
    expected = [("a", 3, 1), ("b", None, 1), ("a", 3, -1), ("a", 5, 1), ("b", None, -1), ("b", 0, 1)]
    for ends in ([], [1], [2, 4], [1, 2, 3, 4, 5, 6]):
        assert brief(run(plan(step), rows, ends), "k0", "v0", "_weight") == expected


def test_doubles_of_other_bits_are_other_results() -> None:
    latest = call("LATEST_BY_OFFSET", expression("v0", DOUBLE))
    step = aggregate(stream(values=[DOUBLE]), [latest], emit_old=True, repeats=False)
    values = [0.0, 0.0, -0.0, float("nan"), float("nan"), 1.0]
    out = run(plan(step), [{"k0": "a", "v0": value, "ts": 0} for value in values], [2])
    assert [repr(each["v0"]) for each in out if each["_weight"] > 0] == ["0.0", "-0.0", "nan", "1.0"]


def test_a_row_is_late_in_a_later_batch_too() -> None:
    """The stream time outlives a batch."""
    rows = [row("a", 1, 0), row("b", 2, 25), row("a", 3, 1), row("b", 4, 60)]
    step = aggregate(stream(), [COUNT], window=tumbling(10, 0), emit="FINAL")
    for ends in ([], [2], [1, 2, 3]):
        assert brief(run(plan(step), rows, ends), "k0", "_ws", "v0") == [("a", 0, 1), ("b", 20, 1)], ends


def test_of_no_rows_at_all_a_count_and_a_sum_are_0() -> None:
    out = shown(open_pipeline(plan(aggregate(stream(), [COUNT, SUM], of_all=True))).of_nothing())
    assert brief(out, "k0", "v0", "v1", "_weight") == [(None, 0, 0, 1)]


def test_groups_and_an_aggregate_that_had_rows_give_nothing_of_nothing() -> None:
    source = stream()
    grouped, of_all = (open_pipeline(plan(aggregate(source, [COUNT], of_all=whole))) for whole in (False, True))
    of_all.process({source.id: rows_of(source, [row("a", 1)])})
    assert [pipeline.of_nothing().rows.num_rows for pipeline in (grouped, of_all)] == [0, 0]


def test_the_last_change_of_a_group_is_enough_where_changes_are_cached() -> None:
    rows = [row("a", 1), row("b", 2), row("a", 3), row("b", 4), row("a", 5)]
    out = run(plan(aggregate(stream(), [SUM], emit_old=True)), rows, [2], emit="last")
    assert brief(out, "k0", "v0", "_weight") == [
        ("a", 1, 1), ("b", 2, 1), ("b", 2, -1), ("b", 6, 1), ("a", 1, -1), ("a", 9, 1),
    ]  # fmt: skip


def test_rows_without_a_value_or_with_a_null_in_the_key_are_ignored() -> None:
    rows = [{"k0": "a", "ts": 0}, row(None, 1), row("a", 2)]
    assert brief(run(plan(aggregate(stream(), [SUM, COUNT])), rows), "k0", "v0", "v1") == [("a", 2, 1)]


def test_arguments_may_be_expressions() -> None:
    calls = [call("SUM", expression("v0 * 2", BIGINT)), call("AVG", expression("v1", DOUBLE)), COUNT]
    out = run(plan(aggregate(stream(), calls)), [row("a", 1, v1=1.0), row("a", 2, v1=2.0)])
    assert brief(out, "v0", "v1", "v2") == [(2, 1.0, 1), (6, 1.5, 2)]


def test_equal_arguments_that_may_differ_are_computed_by_themselves() -> None:
    calls = [call("SUM", expression(text, DOUBLE)) for text in ("random()", "random()", "v1 + 1", "v1 + 1")]
    first, second, third, fourth = brief(
        run(plan(aggregate(stream(), calls)), [row("a", 1, v1=1.0)]), "v0", "v1", "v2", "v3"
    )[0]
    assert first != second
    assert third == fourth == 2.0


def test_tasks_do_not_share_groups() -> None:
    out = run(plan(aggregate(stream(), [SUM])), [row("a", 1, part=0), row("a", 2, part=1), row("a", 3, part=0)])
    assert brief(out, "_part", "v0") == [(0, 1), (1, 2), (0, 4)]


# ------------------------------------------------------------------ tables


def counted_by_name() -> PhysicalPlan:
    calls = [COUNT, call("SUM", expression("v1", BIGINT))]
    return plan(aggregate(rekey(table(), expression("v0", STRING), [STRING, BIGINT]), calls, retracts=True))


def test_a_table_s_row_leaves_its_old_group_before_it_enters_the_new_one() -> None:
    rows = [
        {"k0": "0", "v0": "bob", "v1": 1},
        {"k0": "0", "v0": "john", "v1": 2},
        {"k0": "100", "v0": "john", "v1": 3},
        {"k0": "100"},
    ]
    expected = [("bob", 1, 1), ("bob", 0, 0), ("john", 1, 2), ("john", 2, 5), ("john", 1, 2)]
    for ends in ([], [1], [1, 2, 3]):
        assert brief(run(counted_by_name(), rows, ends), "k0", "v0", "v1") == expected


def test_an_update_within_a_group_is_one_change() -> None:
    rows = [{"k0": "0", "v0": "bob", "v1": 1}, {"k0": "0", "v0": "bob", "v1": 5}]
    assert brief(run(counted_by_name(), rows), "k0", "v0", "v1") == [("bob", 1, 1), ("bob", 1, 5)]


def test_a_table_s_row_whose_group_is_null_is_in_no_group() -> None:
    rows = [{"k0": "0", "v0": None, "v1": 1}, {"k0": "0", "v0": "bob", "v1": 2}, {"k0": "0", "v0": None, "v1": 3}]
    assert brief(run(counted_by_name(), rows), "k0", "v0", "v1") == [("bob", 1, 2), ("bob", 0, 0)]


# ------------------------------------------------------------------ windows


def test_a_row_falls_into_every_hopping_window_around_it() -> None:
    window = WindowSpec("HOPPING", 30_000, 5_000)
    rows = [row("0", 1, 0), row("100", 1, 2000), row("0", 1, 4999), row("0", 1, 5000)]
    out = run(plan(aggregate(stream(), [COUNT], window=window)), rows)
    assert brief(out, "k0", "_ws", "_we", "v0", "_ts") == [
        ("0", 0, 30000, 1, 0),
        ("100", 0, 30000, 1, 2000),
        ("0", 0, 30000, 2, 4999),
        ("0", 0, 30000, 3, 5000),
        ("0", 5000, 35000, 1, 5000),
    ]


def test_windows_close_to_the_largest_time() -> None:
    """Their ends and the grace period together would be beyond it."""
    last = (2**63 - 1) // 10 * 10  # the window that begins here ends at the largest time
    tumbling = plan(aggregate(stream(), [COUNT], window=WindowSpec("TUMBLING", 10, grace_ms=100)))
    rows = [row("a", 1, ts) for ts in (last - 110, last + 1, last - 90, last - 110)]
    found = brief(run(tumbling, rows, [], emit="every"), "k0", "_ws", "_we", "v0")
    assert found == [
        ("a", last - 110, last - 100, 1),
        ("a", last, 2**63 - 1, 1),
        ("a", last - 90, last - 80, 1),
    ]


def test_a_row_is_late_when_its_own_task_s_time_has_passed_the_window_and_its_grace() -> None:
    rows = [row("a", 1, 0), row("a", 1, 14), row("a", 1, 3), row("b", 1, 15), row("a", 1, 4), row("a", 1, 5, part=1)]
    for ends in ([], [1, 2, 3, 4, 5]):
        out = run(plan(aggregate(stream(), [COUNT], window=tumbling(10, 5))), rows, ends)
        assert brief(out, "k0", "_ws", "v0") == [("a", 0, 1), ("a", 10, 1), ("a", 0, 2), ("b", 10, 1), ("a", 0, 1)]


def test_rows_that_a_filter_drops_make_no_other_late() -> None:
    filtered = Filter("filter", stream(), expression("v0 > 0", BIGINT))
    rows = [row("a", 1, 0), row("a", 0, 100), row("a", 1, 1), row("a", 1, 10), row("a", 1, 2)]
    for ends in ([], [1], [2], [1, 2], [1, 2, 3, 4]):
        out = run(plan(aggregate(filtered, [COUNT], window=tumbling(10, 0))), rows, ends)
        assert brief(out, "_ws", "v0") == [(0, 1), (0, 2), (10, 1)]


def test_rows_that_a_filter_drops_close_windows_whose_final_results_wait() -> None:
    filtered = Filter("filter", stream(), expression("v0 > 0", BIGINT))
    rows = [row("a", 1, 0), row("a", 0, 100), row("a", 1, 1)]
    for ends in ([], [1], [2], [1, 2]):
        out = run(plan(aggregate(filtered, [COUNT], window=tumbling(10, 0), emit="FINAL")), rows, ends)
        assert brief(out, "_ws", "v0") == [(0, 1)]


def test_behind_a_repartition_only_the_rows_that_arrive_move_stream_time() -> None:
    filtered = Filter("filter", stream(), expression("v0 > 0", BIGINT))
    rekeyed = rekey(filtered, expression("v2", STRING), [BIGINT, DOUBLE, STRING])
    rows = [row("a", 1, 0, v2="x"), row("a", 0, 100, v2="x"), row("a", 1, 1, v2="x")]
    for ends in ([], [1], [2], [1, 2]):
        out = run(plan(aggregate(rekeyed, [COUNT], window=tumbling(10, 0))), rows, ends)
        assert brief(out, "_ws", "v0") == [(0, 1), (0, 2)]


# ------------------------------------------------------------------ final results


def final(window: WindowSpec) -> PhysicalPlan:
    return plan(aggregate(stream(), [COUNT], window=window, emit="FINAL"))


def test_a_window_s_final_result_comes_once_when_it_closes() -> None:
    rows = [row("k1", 1, ts) for ts in (0, 1, 2, 1, 0, 5)]
    for ends in ([], [1, 2, 3], [4]):
        out = run(final(tumbling(2, 1)), rows, ends)
        assert brief(out, "_ws", "_we", "v0", "_ts") == [(0, 2, 4, 1), (2, 4, 1, 2)]


def test_with_a_retention_windows_are_lost_as_in_ksqldb() -> None:
    rows = [row("k1", 1, ts) for ts in (0, 1, 2, 1, 0, 5)]
    assert brief(run(final(tumbling(2, 1, retention_ms=3)), rows), "_ws", "v0", "_ts") == [(2, 1, 2)]
    hopping = WindowSpec("HOPPING", 5, 2, grace_ms=1, retention_ms=6)
    rows = [row("k1", 1, ts) for ts in (0, 1, 2, 1, 6, 5, 10)]
    assert brief(run(final(hopping), rows), "_ws", "v0", "_ts") == [(0, 4, 2), (4, 2, 6)]


def test_a_row_counts_as_late_once_if_all_of_its_windows_have_closed() -> None:
    window = WindowSpec("HOPPING", 10, 5, grace_ms=0)  # 9 is in [5, 15), too, which is open at 12
    meters = Meters()
    physical = plan(aggregate(stream(), [COUNT], window=window))
    open_pipeline(physical, meters=meters).process(
        {stream().id: rows_of(stream(), [row("a", 1, 12), row("a", 1, 9), row("a", 1, 4), row("a", 1, 3)])}
    )
    assert sum(meter.late_rows for meter in meters) == 2


def test_an_empty_batch_with_a_later_stream_time_closes_windows() -> None:
    physical = final(tumbling(10, 0))
    (source,) = physical.sources()
    pipeline = open_pipeline(physical)
    first = rows_of(source, [row("a", 1, 3)])
    assert shown(pipeline.process({source.id: first})) == []
    out = shown(pipeline.process({source.id: ChangeBatch(first.rows.slice(0, 0), {0: 10})}))
    assert brief(out, "k0", "_ws", "v0") == [("a", 0, 1)]
    assert shown(pipeline.process({source.id: ChangeBatch(first.rows.slice(0, 0), {0: 30})})) == []
