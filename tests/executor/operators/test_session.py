"""GROUP BY with session windows."""

from __future__ import annotations

from typing import Any

from pipelines import aggregate, brief, call, expression, plan, run, stream

from millstream.planner.specs import WindowSpec
from millstream.sql.types import BIGINT

MAX = call("MAX", expression("v0", BIGINT))
LATEST = call("LATEST_BY_OFFSET", expression("v0", BIGINT))


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


def test_the_last_change_per_batch_takes_back_only_what_earlier_batches_gave() -> None:
    step = aggregate(stream(), [MAX], window=WindowSpec("SESSION", 1000))
    rows = [row("0", 1, 0), row("0", 2, 500), row("0", 3, 900), row("0", 4, 1200)]
    out = run(plan(step), rows, [2], emit="last")
    assert brief(out, "_ws", "_we", "v0", "_weight") == [(0, 500, 2, 1), (0, 500, 2, -1), (0, 1200, 4, 1)]
