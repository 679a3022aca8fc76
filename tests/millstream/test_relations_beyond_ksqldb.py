"""Subqueries, WITH, UNION ALL, joins on several conditions and window functions give in the end what DuckDB says."""

from __future__ import annotations

import pytest
from batch_answers import Row, batch_rows, bids, feed, final_rows, sandbox
from drawn import checkered

from millstream.testing import Sandbox

BIDS = """
    CREATE STREAM bid (id BIGINT, auction BIGINT, bidder BIGINT, price BIGINT, ts BIGINT)
      WITH (kafka_topic='bid', value_format='JSON', partitions=3);
"""

# (statement, DuckDB's query over the table `bid`); windows in DuckDB: (ts // size) * size
STREAMS = {
    "an INTERVAL moves a time": (
        """
            CREATE STREAM r AS SELECT id, UNIX_TIMESTAMP(t - INTERVAL '30' SECONDS) AS x, ts + INTERVAL '2' MINUTE AS y
            FROM (SELECT id, ts, FROM_UNIXTIME(ts) AS t FROM bid) q;
        """,
        "SELECT id, ts - 30000, ts + 120000 FROM bid",
    ),
    "a subquery filters and computes": (
        """
            CREATE STREAM r AS SELECT twice + 1 AS x, auction FROM (SELECT price * 2 AS twice, auction FROM bid) q
            WHERE twice > 9;
        """,
        "SELECT price * 2 + 1, auction FROM bid WHERE price * 2 > 9",
    ),
    "a query of WITH is read twice": (
        """
            CREATE STREAM r AS WITH n AS (SELECT auction, bidder, price FROM bid WHERE price > 5) SELECT a.bidder AS
            x, b.bidder AS y, a.price AS p, b.price AS q FROM n a JOIN n b WITHIN UNBOUNDED ON a.auction = b.auction
            AND a.price < b.price;
        """,
        """
            SELECT a.bidder, b.bidder, a.price, b.price FROM bid a JOIN bid b ON a.auction = b.auction AND a.price <
            b.price AND a.price > 5 AND b.price > 5
        """,
    ),
    "each query of WITH sees those before it": (
        """
            CREATE STREAM r AS WITH a AS (SELECT id, price FROM bid WHERE price > 3), b AS (SELECT id, price FROM a
            WHERE price < 9) SELECT id, price FROM b;
        """,
        "SELECT id, price FROM bid WHERE price > 3 AND price < 9",
    ),
    "the branches of UNION ALL keep their rows": (
        """
            CREATE STREAM r AS SELECT id, price FROM bid WHERE price > 5 UNION ALL SELECT auction, bidder FROM bid;
        """,
        "SELECT id, price FROM bid WHERE price > 5 UNION ALL SELECT auction, bidder FROM bid",
    ),
    "UNION ALL in FROM, of three": (
        """
            CREATE STREAM r AS SELECT x + 1 AS y FROM (SELECT id AS x FROM bid UNION ALL SELECT price FROM bid UNION
            ALL SELECT bidder FROM bid) q WHERE x > 2;
        """,
        """
            SELECT x + 1 FROM (SELECT id AS x FROM bid UNION ALL SELECT price FROM bid UNION ALL SELECT bidder FROM
            bid) WHERE x > 2
        """,
    ),
    "a join on two columns": (
        """
            CREATE STREAM r AS SELECT a.id AS x, b.id AS y FROM bid a JOIN bid b WITHIN 1 DAY ON a.auction = b.auction
            AND a.bidder = b.bidder;
        """,
        "SELECT a.id, b.id FROM bid a JOIN bid b ON a.auction = b.auction AND a.bidder = b.bidder",
    ),
    "a join without limit in time, of rows years apart": (
        """
            CREATE STREAM r AS SELECT a.id AS x, b.id AS y FROM (SELECT id, auction FROM bid) a JOIN bid b WITHIN
            UNBOUNDED ON a.auction = b.auction;
        """,
        "SELECT a.id, b.id FROM bid a JOIN bid b ON a.auction = b.auction",
    ),
    "TUMBLE adds the bounds of the window": (
        """
            CREATE STREAM r AS SELECT id, window_start, window_end FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts),
            INTERVAL '10' SECOND));
        """,
        "SELECT id, ts // 10000 * 10000, ts // 10000 * 10000 + 10000 FROM bid",
    ),
    "HOP gives a row per window": (
        """
            CREATE STREAM r AS SELECT id, window_start, window_end FROM TABLE(HOP(TABLE bid, DESCRIPTOR(ts), INTERVAL
            '3' SECOND, INTERVAL '10' SECOND));
        """,
        """
            SELECT id, s, s + 10000 FROM (SELECT id, unnest(range((ts - 10000 + 300000) // 3000 * 3000 + 3000 -
            300000, ts + 1, 3000)) AS s FROM bid)
        """,
    ),
}
TABLES_OF_STREAMS = {
    "each row of a UNION ALL once": (
        "CREATE TABLE r AS SELECT DISTINCT x FROM (SELECT price AS x FROM bid UNION ALL SELECT id FROM bid) q;",
        "SELECT price FROM bid UNION SELECT id FROM bid",
    ),
    "TUMBLE over a table": (
        """
            CREATE TABLE latest AS SELECT auction, MAX(ts) AS at_ms FROM bid GROUP BY auction;
            CREATE TABLE r AS SELECT window_start, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE latest, DESCRIPTOR(at_ms),
            INTERVAL '5' SECOND)) GROUP BY window_start;
        """,
        """
            SELECT t // 5000 * 5000, COUNT(*) FROM (SELECT MAX(ts) AS t FROM bid GROUP BY auction) GROUP BY ALL
        """,
    ),
    "an average of maxima": (
        """
            CREATE TABLE r AS SELECT bidder, AVG(top) AS a, COUNT(*) AS n, SUM(top) AS s FROM (SELECT auction, bidder,
            MAX(price) AS top FROM bid GROUP BY auction, bidder) q GROUP BY bidder;
        """,
        """
            SELECT bidder, AVG(top), COUNT(*), SUM(top) FROM (SELECT auction, bidder, MAX(price) AS top FROM bid GROUP
            BY ALL) GROUP BY bidder
        """,
    ),
    "the least and the greatest of what changes": (
        """
            CREATE TABLE r AS SELECT bidder, MIN(n) AS a, MAX(n) AS b, MIN(avg) AS c FROM (SELECT auction, bidder,
            COUNT(*) AS n, AVG(price) AS avg FROM bid GROUP BY auction, bidder) q GROUP BY bidder;
        """,
        """
            SELECT bidder, MIN(n), MAX(n), MIN(avg) FROM (SELECT auction, bidder, COUNT(*) AS n, AVG(price) AS avg
            FROM bid GROUP BY ALL) GROUP BY bidder
        """,
    ),
    "three aggregates on top of each other": (
        """
            CREATE TABLE r AS SELECT n, COUNT(*) AS c FROM (SELECT m, COUNT(*) AS n FROM (SELECT auction, bidder,
            MIN(price) AS m FROM bid GROUP BY auction, bidder) q GROUP BY m) q2 GROUP BY n;
        """,
        """
            SELECT n, COUNT(*) FROM (SELECT m, COUNT(*) AS n FROM (SELECT auction, bidder, MIN(price) AS m FROM bid
            GROUP BY ALL) GROUP BY m) GROUP BY n
        """,
    ),
    "HAVING inside, WHERE outside": (
        """
            CREATE TABLE r AS SELECT auction, n FROM (SELECT auction, bidder, COUNT(*) AS n FROM bid GROUP BY auction,
            bidder HAVING COUNT(*) > 1) q WHERE n < 9;
        """,
        """
            SELECT auction, bidder, n FROM (SELECT auction, bidder, COUNT(*) AS n FROM bid GROUP BY ALL HAVING
            COUNT(*) > 1) WHERE n < 9
        """,
    ),
    "GROUP BY over the window columns of HOP": (
        """
            CREATE TABLE r AS SELECT auction, window_start, COUNT(*) AS n FROM TABLE(HOP(TABLE bid, DESCRIPTOR(ts),
            INTERVAL '2' SECOND, INTERVAL '10' SECOND)) GROUP BY auction, window_start;
        """,
        """
            SELECT auction, s, COUNT(*) FROM (SELECT auction, unnest(range((ts - 10000 + 300000) // 2000 * 2000 + 2000
            - 300000, ts + 1, 2000)) AS s FROM bid) GROUP BY ALL
        """,
    ),
    "rows of a table joined to a table of another grain": (
        """
            CREATE TABLE r AS WITH n AS (SELECT auction, window_start, COUNT(*) AS num FROM TABLE(TUMBLE(TABLE bid,
            DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY auction, window_start) SELECT n.auction, n.window_start,
            n.num FROM n JOIN (SELECT window_start, MAX(num) AS top FROM n GROUP BY window_start) m ON n.window_start
            = m.window_start AND n.num = m.top;
        """,
        """
            WITH n AS (SELECT auction, ts // 10000 * 10000 AS w, COUNT(*) AS num FROM bid GROUP BY ALL) SELECT
            auction, w, num FROM n WHERE num = (SELECT MAX(num) FROM n m WHERE m.w = n.w)
        """,
    ),
    "rows of a stream joined to a table by a value and a range": (
        """
            CREATE TABLE r AS SELECT b.id, b.price, b.bidder FROM bid b JOIN (SELECT MAX(price) AS top, window_start,
            window_end FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start,
            window_end) w ON b.price = w.top AND b.ts >= w.window_start AND b.ts < w.window_end;
        """,
        None,
    ),
    "a session is told by its columns": (
        """
            CREATE TABLE r AS SELECT bidder, window_start, window_end, COUNT(*) AS n FROM TABLE(SESSION(TABLE bid
            PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '2' SECOND)) GROUP BY bidder, window_start, window_end;
        """,
        """
            SELECT bidder, MIN(ts), MAX(ts) + 2000, COUNT(*) FROM (SELECT *, SUM(CASE WHEN ts - before > 2000 THEN 1
            ELSE 0 END) OVER (PARTITION BY bidder ORDER BY ts, id) AS s FROM (SELECT *, coalesce(LAG(ts) OVER
            (PARTITION BY bidder ORDER BY ts, id), ts) AS before FROM bid)) GROUP BY bidder, s
        """,
    ),
}


def run(sandbox: Sandbox, topic: str, rows: list[Row], *, key: str = "") -> None:
    """In several batches."""
    for start in range(0, len(rows), 40):
        feed(sandbox, topic, rows[start : start + 40], key=key)
        sandbox.drain()


@pytest.mark.parametrize("name", list(STREAMS))
def test_a_stream_has_the_rows_of_the_batch_query(name: str) -> None:
    statement, batch = STREAMS[name]
    rows = bids(1, 150)
    with sandbox() as opened:
        opened.execute(BIDS + statement)
        run(opened, "bid", rows)
        assert final_rows(opened, "R") == batch_rows(batch, bid=rows)


@pytest.mark.parametrize(
    ("name", "cache"),
    checkered([name for name, (_, batch) in TABLES_OF_STREAMS.items() if batch is not None], ["0", "10000000"]),
)
def test_a_table_has_the_rows_of_the_batch_query(name: str, cache: str) -> None:
    statement, batch = TABLES_OF_STREAMS[name]
    assert batch is not None
    rows = bids(2, 200)
    with sandbox(**{"ksql.streams.cache.max.bytes.buffering": cache}) as opened:
        opened.execute(BIDS + statement)
        run(opened, "bid", rows)
        assert final_rows(opened, "R") == batch_rows(batch, bid=rows)


def test_the_highest_bids_of_each_window_are_taken_back_when_a_higher_one_comes() -> None:
    statement, _ = TABLES_OF_STREAMS["rows of a stream joined to a table by a value and a range"]
    rows = bids(3, 200)
    with sandbox() as opened:
        opened.execute(BIDS + statement)
        run(opened, "bid", rows)
        found = final_rows(opened, "R")
    expected = batch_rows(
        "SELECT id, price, bidder FROM bid b WHERE price = (SELECT MAX(price) FROM bid o WHERE o.ts // 10000 = b.ts // "
        "10000)",
        bid=rows,
    )
    assert sorted(row[-3:] for row in found.elements()) == sorted(expected.elements())
