"""A date has one text, also before the year 1 and after 9999: in CAST, in JSON, in answers and in a query's output."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from millstream.testing import Sandbox

TEXTS = {
    2_932_896: "9999-12-31", 2_932_897: "+10000-01-01", 4_000_000: "+12921-08-18", 40_000_000: "+111486-04-13",
    -719_162: "0001-01-01", -719_163: "0000-12-31", -719_529: "-0001-12-31", -4_000_000: "-8982-05-17",
}  # fmt: skip
DAY_MS = 86_400_000
LATE_MS = 86_399_999
PATTERNS = ("yyyy-MM-dd", "uuuu-MM-dd HH:mm", "yyyy D e Y w G")


@pytest.fixture
def sandbox() -> Generator[Sandbox]:
    with Sandbox() as it:
        it.execute(
            "CREATE STREAM s (k INT KEY, d DATE, t TIMESTAMP, p STRING, z STRING)"
            " WITH (kafka_topic='s', value_format='JSON', partitions=1);"
        )
        yield it


def produce(sandbox: Sandbox) -> None:
    for at, day in enumerate(TEXTS):
        sandbox.produce(
            "s", at, {"D": day, "T": day * DAY_MS + LATE_MS, "P": PATTERNS[at % 3], "Z": "America/New_York"}
        )


def test_every_text_of_a_date_is_that_of_answers(sandbox: Sandbox) -> None:
    columns = (
        "k, CAST(d AS STRING) AS date, CAST(t AS STRING) AS time, TO_JSON_STRING(d) AS date_json,"
        " TO_JSON_STRING(t) AS time_json, TO_JSON_STRING(ARRAY[d]) AS dates_json,"
        " TO_JSON_STRING(MAP('t' := t)) AS times_json, CAST(ARRAY[d] AS ARRAY<STRING>) AS dates,"
        " CAST(ARRAY[t] AS STRING) AS times"
    )
    sandbox.execute(f"CREATE STREAM o AS SELECT {columns} FROM s;")
    produce(sandbox)
    sandbox.drain()
    written = [list(record["value"].values()) for record in sandbox.consume("O")]
    pulled = rows(sandbox, f"SELECT {columns}, d, t FROM s;")
    assert [row[1:-2] for row in pulled] == written
    for row, day in zip(pulled, TEXTS.values(), strict=True):
        time = f"{day}T23:59:59.999"
        assert row[1:] == [
            day, time, f'"{day}"', f'"{time}"', f'["{day}"]', f'{{"t":"{time}"}}', [day], f"[{time}]", day, time,
        ]  # fmt: skip


def test_a_date_is_read_as_it_is_written(sandbox: Sandbox) -> None:
    texts = ("CAST(d AS STRING) AS DATE", "CAST(t AS STRING) AS TIMESTAMP")
    produce(sandbox)
    read = rows(sandbox, f"SELECT {', '.join(f'CAST({each})' for each in texts)} FROM s;")
    assert read == [[day, f"{day}T23:59:59.999"] for day in TEXTS.values()]


def test_a_pattern_says_the_same_whether_it_is_a_constant_or_a_column(sandbox: Sandbox) -> None:
    produce(sandbox)
    for at, pattern in enumerate(PATTERNS):
        with_zone = f"FORMAT_TIMESTAMP(t, '{pattern}', 'America/New_York'), FORMAT_TIMESTAMP(t, p, z)"
        plain = f"FORMAT_TIMESTAMP(t, '{pattern}'), FORMAT_TIMESTAMP(t, p)"
        days = f", FORMAT_DATE(d, '{pattern}'), FORMAT_DATE(d, p)" if "H" not in pattern else ""
        for row in rows(sandbox, f"SELECT k, {with_zone}, {plain}{days} FROM s;"):
            if row[0] % 3 == at:
                assert row[1::2] == row[2::2]
                assert all(row[1:]), row


@pytest.mark.parametrize(
    ("day", "pattern", "text"),
    [
        (2_932_897, "yyyy-MM-dd G", "+10000-01-01 AD"),
        (-719_163, "yyyy-MM-dd G", "0001-12-31 BC"),
        (-719_163, "uuuu-MM-dd", "0000-12-31"),
        (-719_163, "EEEE D", "Sunday 366"),
        (2_932_897, "EEEE D", "Saturday 1"),
    ],
)
def test_a_far_date_in_javas_patterns(sandbox: Sandbox, day: int, pattern: str, text: str) -> None:
    sandbox.produce("s", 1, {"D": day})
    assert rows(sandbox, f"SELECT FORMAT_DATE(d, '{pattern}') FROM s;") == [[text]]


def test_a_constant_pattern_calls_no_function_in_python(sandbox: Sandbox) -> None:
    """A query that does has an instance of DuckDB of its own, which is 16 ms and 4 MB."""
    for pattern, calls in (("'yyyy-MM-dd'", False), ("p", True)):
        plan = str(sandbox.execute(f"EXPLAIN SELECT FORMAT_DATE(d, {pattern}) FROM s EMIT CHANGES;"))
        assert ("MS$FORMAT_DATE$" in plan) is calls, plan


def rows(sandbox: Sandbox, sql: str) -> list[list[Any]]:
    return [each["row"]["columns"] for each in sandbox.query(sql) if "row" in each]


def test_a_time_that_no_format_holds_is_null_and_its_row_stays(sandbox: Sandbox) -> None:
    sandbox.execute("CREATE STREAM n (d INT, t BIGINT) WITH (kafka_topic='n', value_format='JSON', partitions=1);")
    days = (-(2**31), -(2**31) + 1, -(2**31) + 2, 2**31 - 2, 2**31 - 1)
    times = (-9_223_372_036_854_775, -9_223_372_022_400_001, -9_223_372_022_400_000, 9_223_372_036_854_774, 2**63 - 1)
    selected = "FROM_DAYS(d) AS d, FROM_UNIXTIME(t) AS t, CAST(t AS TIMESTAMP) AS c"
    sandbox.execute(f"CREATE STREAM o AS SELECT {selected} FROM n;")
    for day, time in zip(days, times, strict=True):
        sandbox.produce("n", None, {"D": day, "T": time})
    sandbox.drain()
    first, last = "-290308-12-22T00:00:00.000", "+294247-01-10T04:00:54.774"
    wanted = [[None] * 3, [None] * 3, ["-5877641-06-25", first, first], ["+5881580-07-10", last, last], [None] * 3]
    assert rows(sandbox, "SELECT * FROM o;") == wanted
    assert rows(sandbox, f"SELECT {selected} FROM n;") == wanted
