"""CUMULATE: which windows a row is in, and that tables of such windows are what a batch query says."""

from __future__ import annotations

from random import Random
from typing import Any

import duckdb
import numpy as np
import pytest

from millstream.errors import InvalidStatement, SqlSyntaxError
from millstream.executor.window_times import DAY_MS
from millstream.executor.windows.placing import placing_of
from millstream.planner.specs import WindowSpec
from millstream.testing import Sandbox

HOUR_MS = 3_600_000
PER_USER = "SELECT user, COUNT(*) AS n, SUM(size) AS total FROM clicks WINDOW {} GROUP BY user"
WINDOW = "CUMULATE (SIZE 1 MINUTE, STEP 20 SECONDS, GRACE PERIOD {} SECONDS)"
EXPLODED = """
    SELECT user, size, ts // 60000 * 60000 AS ws,
           ts // 60000 * 60000 + unnest(range(ts % 60000 // 20000 + 1, 4)) * 20000 AS we
    FROM clicks
"""


def windows_at(window: WindowSpec, time: int) -> list[tuple[int, int]]:
    placing = placing_of(window)
    _, marks = placing.assign(np.array([time]), np.array([0]))
    return list(zip(placing.starts(marks).tolist(), placing.ends(marks).tolist(), strict=True))


def test_a_row_is_in_the_windows_of_its_day_that_end_after_it() -> None:
    window = WindowSpec("CUMULATE", DAY_MS, 6 * HOUR_MS)
    assert windows_at(window, DAY_MS + 12 * HOUR_MS - 1) == [(DAY_MS, DAY_MS + h * HOUR_MS) for h in (12, 18, 24)]
    assert windows_at(window, DAY_MS + 12 * HOUR_MS) == [(DAY_MS, DAY_MS + h * HOUR_MS) for h in (18, 24)]


@pytest.mark.parametrize(("day", "hours"), [(1_743_289_200_000, 23), (1_761_429_600_000, 25), (1_761_519_600_000, 24)])
def test_a_day_of_a_zone_has_as_many_steps_as_hours(day: int, hours: int) -> None:
    window = WindowSpec("CUMULATE", DAY_MS, HOUR_MS, timezone="Europe/Berlin")
    assert windows_at(window, day) == [(day, day + (n + 1) * HOUR_MS) for n in range(hours)]
    half = WindowSpec("CUMULATE", DAY_MS, 12 * HOUR_MS, timezone="Europe/Berlin")
    ends = sorted({min(day + n * 12 * HOUR_MS, day + hours * HOUR_MS) for n in (1, 2, 3)})
    assert windows_at(half, day) == [(day, end) for end in ends]


@pytest.mark.parametrize("seed", range(20))
def test_a_window_takes_rows_until_its_end_plus_grace_has_come(seed: int) -> None:
    rng = Random(seed)
    step, parts, grace = rng.randrange(1, 50), rng.randrange(1, 8), rng.randrange(60)
    size = step * parts
    placing = placing_of(WindowSpec("CUMULATE", size, step, grace_ms=grace))
    times = np.array([rng.randrange(1_000) for _ in range(50)], dtype=np.int64)
    now = np.maximum.accumulate(times)
    rows, ends = placing.assign(times, now)
    found = list(zip(rows.tolist(), placing.starts(ends).tolist(), ends.tolist(), strict=True))
    expected = [
        (row, time // size * size, time // size * size + n * step)
        for row, time in enumerate(times.tolist())
        for n in range(1, parts + 1)
        if time < time // size * size + n * step and time // size * size + n * step + grace > now[row]
    ]
    assert found == expected
    steps, latest = range(step, 1_000, step), placing.latest_closed(500)
    assert [end for end in steps if end + grace <= 500] == [end for end in steps if end <= latest]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("SIZE 1 DAY, STEP 7 HOURS", "must be a multiple of its STEP"),
        ("SIZE 1 HOUR, STEP 1 DAY", "must be a multiple of its STEP"),
        ("SIZE 1 DAY, STEP 1 MILLISECOND", "each row would fall into 86400000 windows"),
        ("SIZE 12 HOURS, STEP 1 HOUR, TIMEZONE 'Europe/Berlin'", "Windows with a TIMEZONE are whole days"),
    ],
)
def test_windows_that_cannot_be_are_refused(written: str, message: str) -> None:
    with Sandbox() as sandbox:
        sandbox.create_topic("clicks")
        sandbox.execute("CREATE STREAM clicks (user STRING KEY, size INT) WITH (kafka_topic='clicks', format='JSON');")
        with pytest.raises(InvalidStatement, match=message):
            sandbox.execute(f"CREATE TABLE t AS {PER_USER.format(f'CUMULATE ({written})')};")


def test_the_step_is_missed_and_other_types_have_none() -> None:
    with Sandbox() as sandbox:
        for window, message in (
            ("CUMULATE (SIZE 1 DAY)", "a CUMULATE window needs its STEP"),
            ("TUMBLING (SIZE 1 DAY, STEP 1 HOUR)", "STEP does not fit a TUMBLING window"),
        ):
            with pytest.raises(SqlSyntaxError, match=message):
                sandbox.engine.parse(f"{PER_USER.format(window)};", sandbox.session)


def test_cumulate_and_step_are_names_elsewhere() -> None:
    with Sandbox() as sandbox:
        text = "SELECT cumulate, step FROM step WINDOW cumulate CUMULATE (SIZE 2 HOURS, STEP 1 HOUR) GROUP BY step;"
        sandbox.engine.parse(text, sandbox.session)


def rows_of(rng: Random) -> list[tuple[str, int, int]]:
    """(user, size, rowtime) of records in the order of their times."""
    times = sorted(rng.randrange(300_000) for _ in range(60))
    return [(rng.choice("abcd"), rng.randrange(100), time) for time in times]


def pulled(sandbox: Sandbox, where: str = "") -> list[tuple[Any, ...]]:
    answer = sandbox.query(f"SELECT user, WINDOWSTART, WINDOWEND, n, total FROM t{where};")
    return sorted(tuple(line["row"]["columns"]) for line in answer if "row" in line)


@pytest.mark.parametrize("partitions", [1, 2, 6])
@pytest.mark.parametrize("final", [False, True], ids=["changes", "final"])
def test_topic_and_pull_query_say_what_a_batch_query_says(partitions: int, final: bool) -> None:
    rng = Random(partitions)
    rows = rows_of(rng)
    with Sandbox() as sandbox, duckdb.connect() as connection:
        sandbox.create_topic("clicks", partitions)
        sandbox.execute(
            "CREATE STREAM clicks (user STRING KEY, size INT) WITH (kafka_topic='clicks', key_format='KAFKA', "
            "value_format='JSON');"
        )
        emit = " EMIT FINAL" if final else ""
        sandbox.execute(f"CREATE TABLE t AS {PER_USER.format(WINDOW.format(5))}{emit};")
        for user, size, time in rows:
            sandbox.produce("clicks", user, {"SIZE": size}, timestamp=time)
        for user in "abcd" if final else "":  # a row far ahead closes everything in its partition
            sandbox.produce("clicks", user, {"SIZE": 0}, timestamp=1_000_000)
        sandbox.drain()
        connection.execute("CREATE TABLE clicks (user TEXT, size BIGINT, ts BIGINT)")
        connection.executemany("INSERT INTO clicks VALUES (?, ?, ?)", [(u, s, t) for u, s, t in rows])
        batch = f"SELECT user, ws, we, count(*), sum(size)::BIGINT FROM ({EXPLODED}) GROUP BY ALL"
        expected = sorted(connection.execute(batch).fetchall())
        assert pulled(sandbox) == expected
        assert pulled(sandbox, " WHERE user = 'a' AND WINDOWSTART = 60000") == [
            row for row in expected if row[:2] == ("a", 60_000)
        ]
        assert pulled(sandbox, " WHERE user = 'b' AND WINDOWEND >= 120000 AND WINDOWEND < 200000") == [
            row for row in expected if row[0] == "b" and 120_000 <= row[2] < 200_000
        ]
        last: dict[tuple[Any, ...], Any] = {}
        for record in sandbox.consume("T"):
            window = record["window"]
            assert window is not None
            assert window["type"] == "CUMULATE"
            key = (record["key"], window["start"], window["end"])
            assert not (final and key in last), "a window is given once"
            last[key] = record["value"]
        assert sorted((*key, value["N"], value["TOTAL"]) for key, value in last.items()) == expected


def test_a_late_row_counts_in_the_windows_that_are_still_open() -> None:
    with Sandbox() as sandbox:
        sandbox.create_topic("clicks")
        sandbox.execute("CREATE STREAM clicks (user STRING KEY, size INT) WITH (kafka_topic='clicks', format='JSON');")
        sandbox.execute(f"CREATE TABLE t AS {PER_USER.format(WINDOW.format(5))};")
        for time in (
            1_000,
            44_999,
            2_000,
        ):  # the last comes when the first window has closed
            sandbox.produce("clicks", "a", {"SIZE": 1}, timestamp=time)
        sandbox.produce("clicks", "a", {"SIZE": 1}, timestamp=45_000)
        sandbox.produce("clicks", "a", {"SIZE": 1}, timestamp=3_000)
        sandbox.drain()
        assert [row[2:4] for row in pulled(sandbox)] == [(20_000, 1), (40_000, 2), (60_000, 5)]
