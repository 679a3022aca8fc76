"""Which windows a row falls into, when they close, and how many are too many."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from millstream.errors import InvalidStatement
from millstream.executor.window_times import DAY_MS, day_starts, days_of, first_day, window_ends
from millstream.executor.windows.placing import placing_of
from millstream.planner.specs import WindowSpec
from millstream.testing import Sandbox

ZONES = ["Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Asia/Kolkata", "-03:30"]


def test_a_row_is_in_every_hopping_window_that_is_open() -> None:
    rows, starts = placing_of(WindowSpec("HOPPING", 10, 5, grace_ms=0)).assign(np.array([12, 3]), np.array([12, 12]))
    assert list(zip(rows.tolist(), starts.tolist(), strict=True)) == [(0, 5), (0, 10)]


def test_a_batch_with_too_many_windows_asks_for_a_smaller_one() -> None:
    window = WindowSpec("HOPPING", DAY_MS, 1_000, grace_ms=0)
    times = np.full(200, 10 * DAY_MS)
    with pytest.raises(MemoryError):
        placing_of(window).assign(times, times)
    assert len(placing_of(window).assign(times[:100], times[:100])[0]) == 100 * 86_400


def test_the_longest_grace_period_drops_no_row() -> None:
    with Sandbox() as sandbox:
        sandbox.create_topic("s")
        sandbox.execute(
            "CREATE STREAM s (k STRING KEY) WITH (kafka_topic='s', value_format='JSON');"
            "CREATE TABLE t AS SELECT k, COUNT(*) AS n FROM s "
            "WINDOW TUMBLING (SIZE 1 DAY, GRACE PERIOD 1000000000 DAYS) GROUP BY k;"
        )
        for timestamp in (1_800_000_000_000, 1_700_000_000_000):
            sandbox.produce("s", "a", {}, timestamp)
        sandbox.drain()
        assert [record["value"] for record in sandbox.consume("T")] == [{"N": 1}, {"N": 1}]


def test_a_window_that_would_hold_each_row_a_million_times_is_refused() -> None:
    with Sandbox() as sandbox:
        sandbox.create_topic("s")
        sandbox.execute("CREATE STREAM s (k STRING KEY) WITH (kafka_topic='s', value_format='JSON');")
        statement = "CREATE TABLE t AS SELECT k, COUNT(*) FROM s WINDOW HOPPING (SIZE 1 DAY, ADVANCE BY {}) GROUP BY k;"
        with pytest.raises(InvalidStatement) as caught:
            sandbox.execute(statement.format("1 MILLISECOND"))
        assert caught.value.hint
        assert caught.value.span
        sandbox.execute(statement.format("1 SECOND"))


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(("days", "advance"), [(1, None), (2, 1), (7, 2)])
def test_windows_of_a_zones_days_hold_the_rows_between_their_bounds(zone: str, days: int, advance: int | None) -> None:
    """Each row is in as many windows as there are multiples of the advance among the days that reach to it."""
    rng = Random(f"{zone} {days}")
    window = WindowSpec(
        "HOPPING" if advance else "TUMBLING", days * DAY_MS, advance and advance * DAY_MS, DAY_MS, timezone=zone
    )
    times = np.array(sorted(rng.randrange(3_000 * DAY_MS, 20_000 * DAY_MS) for _ in range(300)), dtype=np.int64)
    rows, starts = placing_of(window).assign(times, np.zeros(len(times), dtype=np.int64))
    ends = window_ends(starts, window.size_ms, zone)
    assert (starts <= times[rows]).all()
    assert (times[rows] < ends).all()
    begun = days_of(starts, zone) - first_day(zone)
    assert (begun % (advance or days) == 0).all()
    assert (day_starts(days_of(starts, zone), zone) == starts).all()
    today = days_of(times, zone) - first_day(zone)
    reaching = [sum(day % (advance or days) == 0 for day in range(d - days + 1, d + 1)) for d in today.tolist()]
    assert np.bincount(rows, minlength=len(times)).tolist() == reaching


@pytest.mark.parametrize("zone", [None, *ZONES])
def test_the_latest_closed_window_is_the_last_one_that_takes_no_more_rows(zone: str | None) -> None:
    rng = Random(str(zone))
    window = WindowSpec("TUMBLING", DAY_MS, grace_ms=5_000_000, timezone=zone)
    for _ in range(100):
        time = rng.randrange(10 * DAY_MS, 20_000 * DAY_MS)
        candidates = np.arange(time - 5 * DAY_MS, time, 3_600_000)
        _, starts = placing_of(window).assign(candidates, np.zeros(len(candidates), dtype=np.int64))
        starts = np.unique(starts)
        closed = starts[window_ends(starts, DAY_MS, zone) + window.grace_ms <= time]
        assert starts[starts <= placing_of(window).latest_closed(time)].tolist() == closed.tolist()
