"""EMIT FINAL over TUMBLE and HOP, and queries over what closed windows gave: DuckDB's answer over the windows that are
closed, each row once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from batch_answers import Row, batch_rows, bids, feed, final_rows, sandbox

from millstream.errors import InvalidStatement, Unsupported

PARTITIONS = (1, 2, 6)
CACHES = ("0", "10000000")
BIDS = """
    CREATE STREAM bid (id BIGINT, auction BIGINT, bidder BIGINT, price BIGINT, happened BIGINT)
      WITH (kafka_topic='bid', value_format='JSON', partitions={partitions});
"""
HOPS = "TABLE(HOP(TABLE bid, DESCRIPTOR({time}), INTERVAL '2' SECOND, INTERVAL '6' SECOND))"
COUNTED = f"""
    SELECT auction, window_start, window_end, COUNT(*) AS num FROM {HOPS}
    GROUP BY auction, window_start, window_end EMIT FINAL
"""
# The windows that hold each row and are closed, in DuckDB.
BATCH_HOPS = """
    SELECT * FROM (SELECT *, unnest(range(0, happened + 1, 2000)) AS start FROM bid WHERE happened < 1000000)
    WHERE start > happened - 6000
"""
BATCH = f"SELECT auction, start, count(*) AS num FROM ({BATCH_HOPS}) GROUP BY ALL"
HOT = {
    "a join": """
        m AS (SELECT window_start, MAX(num) AS top FROM n GROUP BY window_start)
        SELECT n.auction AS auction, n.window_start AS begins, n.num AS num
        FROM n JOIN m ON n.window_start = m.window_start AND n.num = m.top
    """,
    "a comparison": """
        m AS (SELECT 1 AS one FROM bid)
        SELECT auction, window_start AS begins, num FROM n
        WHERE num >= (SELECT MAX(num) FROM n m WHERE m.window_start = n.window_start)
    """,
}


def rows_in_order(count: int) -> list[Row]:
    """Bids in the order of their times, and one that closes all windows."""
    rows = sorted(bids(7, count), key=lambda row: (row["ts"], row["id"]))
    rows = [{**row, "happened": row["ts"]} for row in rows]
    return [*rows, {**rows[-1], "ts": 1_000_000, "happened": 1_000_000}]


def by_window(rows: Mapping[tuple[Any, ...], int]) -> list[tuple[Any, ...]]:
    assert set(rows.values()) <= {1}
    return sorted(rows)


@pytest.mark.parametrize("partitions", PARTITIONS)
@pytest.mark.parametrize("time", ["happened", "ROWTIME"])
def test_each_window_is_given_once_when_it_closes(partitions: int, time: str) -> None:
    rows = rows_in_order(60)
    with sandbox() as opened:
        opened.execute(BIDS.format(partitions=partitions) + f"CREATE TABLE r AS {COUNTED.format(time=time)};")
        for start in range(0, len(rows), 25):
            feed(opened, "bid", rows[start : start + 25])
            opened.drain()
        found = opened.consume("R")
        given = [(each["key"], each["value"]["WINDOW_START"], each["value"]["NUM"]) for each in found]
        ends = {each["value"]["WINDOW_END"] - each["value"]["WINDOW_START"] for each in found}
    assert sorted(given) == by_window(batch_rows(BATCH, bid=rows))
    assert ends == {6_000}


def test_the_descriptor_says_when_a_window_closes_whatever_the_records_time_is() -> None:
    with sandbox() as opened:
        opened.execute(BIDS.format(partitions=1) + f"CREATE TABLE r AS {COUNTED.format(time='happened')};")
        times = [5_999, 7_999, 8_000]  # the window from 2,000 on closes with the last one
        feed(opened, "bid", [{"id": 1, "auction": 1, "ts": 0, "happened": time} for time in times])
        opened.drain()
        found = {each["value"]["WINDOW_START"]: each["value"]["NUM"] for each in opened.consume("R")}
    assert found == {0: 1, 2_000: 2}


def test_a_row_is_late_once_its_window_has_closed() -> None:
    with sandbox() as opened:
        opened.execute(BIDS.format(partitions=1) + f"CREATE TABLE r AS {COUNTED.format(time='happened')};")
        times = [5_000, 6_000, 4_000, 14_000]  # 4,000 is in windows from 0, 2,000 and 4,000 on: the first one is closed
        feed(opened, "bid", [{"id": 1, "auction": 1, "ts": 0, "happened": time} for time in times])
        opened.drain()
        found = {each["value"]["WINDOW_START"]: each["value"]["NUM"] for each in opened.consume("R")}
    assert found == {0: 1, 2_000: 3, 4_000: 3, 6_000: 1}


def test_windows_may_be_all_that_is_grouped_by() -> None:
    rows = rows_in_order(40)
    text = (
        "CREATE TABLE r AS SELECT window_end, SUM(price) AS total FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(happened), "
        "INTERVAL '3' SECOND)) GROUP BY window_start, window_end HAVING SUM(price) > 30 EMIT FINAL;"
    )
    with sandbox() as opened:
        opened.execute(BIDS.format(partitions=2) + text)
        feed(opened, "bid", rows)
        opened.drain()
        found = [(each["value"]["WINDOW_END"], each["value"]["TOTAL"]) for each in opened.consume("R")]
    batch = """
        SELECT happened // 3000 * 3000 + 3000, sum(price)::BIGINT FROM bid WHERE happened < 1000000 GROUP BY ALL
        HAVING sum(price) > 30
    """
    assert sorted(found) == by_window(batch_rows(batch, bid=rows))


def test_a_timestamp_gives_timestamps() -> None:
    text = """
        CREATE STREAM s (k BIGINT, t TIMESTAMP) WITH (kafka_topic='s', value_format='JSON', partitions=1);
        CREATE TABLE r AS SELECT k, FORMAT_TIMESTAMP(window_start, 'HH:mm:ss') AS begins, COUNT(*) AS n
        FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(t), INTERVAL '1' MINUTE)) GROUP BY k, window_start EMIT FINAL;
    """
    with sandbox() as opened:
        opened.execute(text)
        for time in (59_999, 119_999, 120_000):
            opened.produce("s", None, {"K": 1, "T": time}, 0)
        opened.drain()
        assert [each["value"] for each in opened.consume("R")] == [
            {"BEGINS": "00:00:00", "N": 1},
            {"BEGINS": "00:01:00", "N": 1},
        ]


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("partitions", PARTITIONS)
@pytest.mark.parametrize("form", HOT)
def test_the_most_of_each_window_that_closed(form: str, partitions: int, cache: str) -> None:
    rows = rows_in_order(60)
    text = f"CREATE TABLE r AS WITH n AS ({COUNTED.format(time='happened')}), {HOT[form]};"
    with sandbox(**{"ksql.streams.cache.max.bytes.buffering": cache}) as opened:
        opened.execute(BIDS.format(partitions=partitions) + text)
        for start in range(0, len(rows), 25):
            feed(opened, "bid", rows[start : start + 25])
            opened.drain()
        found = [row[-2:] + row[:1] for row in final_rows(opened, "R")]
    most = "SELECT start, num, auction FROM n WHERE num = (SELECT max(num) FROM n m WHERE m.start = n.start)"
    batch = f"WITH n AS ({BATCH}) {most}"
    assert sorted(found) == by_window(batch_rows(batch, bid=rows))


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        (f"SELECT auction, COUNT(*) AS n FROM {HOPS} GROUP BY auction EMIT FINAL", InvalidStatement, "window_start"),
        (
            f"SELECT auction, COUNT(*) AS n FROM {HOPS} WHERE window_start > 5 GROUP BY auction, window_end EMIT FINAL",
            InvalidStatement,
            "Filter the result",
        ),
        (
            """
            WITH q AS (SELECT * FROM bid WHERE price > 3) SELECT auction, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE q,
            DESCRIPTOR(happened), INTERVAL '1' SECOND)) GROUP BY auction, window_start EMIT FINAL
            """,
            Unsupported,
            "CREATE STREAM",
        ),
    ],
)
def test_what_does_not_close_is_refused_with_what_to_do(text: str, error: type[Exception], says: str) -> None:
    with sandbox() as opened:
        opened.execute(BIDS.format(partitions=1))
        with pytest.raises(error) as refused:
            opened.execute(f"CREATE TABLE r AS {text.format(time='happened')};")
    assert says in (getattr(refused.value, "hint", "") or "")
