"""Joins of tables on several columns, on any columns, and aggregates of windowed tables: rows come, change and go, and
in the end the result is DuckDB's answer over what the tables hold."""

from __future__ import annotations

import random

import pytest
from batch_answers import batch_rows, bids, feed, final_rows, last_rows, sandbox, shelf_changes, upper
from drawn import checkered

from millstream.testing import Sandbox

SHELVES = """
    CREATE TABLE a (shop VARCHAR PRIMARY KEY, item VARCHAR PRIMARY KEY, n INT, kind VARCHAR)
      WITH (kafka_topic='a', format='JSON', partitions=3);
    CREATE TABLE b (shop VARCHAR PRIMARY KEY, item VARCHAR PRIMARY KEY, n INT, kind VARCHAR)
      WITH (kafka_topic='b', format='JSON', partitions=2);
"""
JOINS = {
    "by all key columns, FULL": (
        """
            SELECT a.shop AS x, b.shop AS y, a.n, b.n AS m FROM a FULL JOIN b ON a.item = b.item AND a.shop = b.shop;
        """,
        """
            SELECT coalesce(a.item, b.item), coalesce(a.shop, b.shop), a.shop, b.shop, a.n, b.n FROM a FULL JOIN b
            ON a.item = b.item AND a.shop = b.shop
        """,
    ),
    "by all key columns, RIGHT": (
        "SELECT b.shop, b.item, a.n, b.n AS m FROM a RIGHT JOIN b ON a.item = b.item AND a.shop = b.shop;",
        "SELECT b.shop, b.item, a.n, b.n FROM a RIGHT JOIN b ON a.item = b.item AND a.shop = b.shop",
    ),
    "by all key columns": (
        "SELECT a.shop, a.item, a.n, b.n AS m FROM a JOIN b ON a.item = b.item AND a.shop = b.shop;",
        "SELECT a.item, a.shop, a.n, b.n FROM a JOIN b ON a.item = b.item AND a.shop = b.shop",
    ),
    "by all key columns, LEFT": (
        "SELECT a.shop, a.item, a.n, b.n AS m FROM a LEFT JOIN b ON a.item = b.item AND a.shop = b.shop;",
        "SELECT a.item, a.shop, a.n, b.n FROM a LEFT JOIN b ON a.item = b.item AND a.shop = b.shop",
    ),
    "by part of the key and a condition": (
        """
            SELECT a.shop AS x, b.shop AS y, a.item, a.n, b.n AS m FROM a JOIN b ON a.item = b.item AND a.n < b.n;
        """,
        "SELECT a.shop, a.item, b.shop, a.n, b.n FROM a JOIN b ON a.item = b.item AND a.n < b.n",
    ),
    "by columns that are no key": (
        """
            SELECT a.shop AS ashop, a.item AS aitem, b.shop AS bshop, b.item AS bitem, a.n FROM a JOIN b ON a.n = b.n
            AND a.kind = b.kind;
        """,
        "SELECT a.shop, a.item, b.shop, b.item, a.n FROM a JOIN b ON a.n = b.n AND a.kind = b.kind",
    ),
    "by one column that is no key, of a subquery": (
        """
            SELECT q.shop AS ashop, q.item AS aitem, b.shop AS bshop, b.item AS bitem, q.n FROM (SELECT * FROM a WHERE
            n > 1) q JOIN b ON q.n = b.n;
        """,
        "SELECT a.shop, a.item, b.shop, b.item, a.n FROM a JOIN b ON a.n = b.n AND a.n > 1",
    ),
    "of a table with itself": (
        """
            SELECT x.shop AS xs, x.item AS xi, y.shop AS ys, y.item AS yi, x.n FROM a x JOIN a y ON x.kind = y.kind
            AND x.n > y.n;
        """,
        "SELECT x.shop, x.item, y.shop, y.item, x.n FROM a x JOIN a y ON x.kind = y.kind AND x.n > y.n",
    ),
    "of three": (
        """
            SELECT x.shop AS xs, x.item AS xi, y.shop AS ys, y.item AS yi, z.shop AS zs, z.item AS zi, x.n FROM a x
            JOIN b y ON x.kind = y.kind AND x.n = y.n JOIN a z ON y.n = z.n AND y.shop = z.shop;
        """,
        """
            SELECT x.shop, x.item, y.shop, y.item, z.item, z.shop, x.n FROM a x JOIN b y ON x.kind = y.kind AND x.n =
            y.n JOIN a z ON y.n = z.n AND y.shop = z.shop
        """,
    ),
    "under an aggregate": (
        """
            SELECT kind, COUNT(*) AS c, MAX(m) AS top, MIN(m) AS low FROM (SELECT a.kind, a.shop, a.item, b.shop,
            b.item, b.n AS m FROM a JOIN b ON a.n = b.n AND a.kind = b.kind) q GROUP BY kind;
        """,
        """
            SELECT a.kind, COUNT(*), MAX(b.n), MIN(b.n) FROM a JOIN b ON a.n = b.n AND a.kind = b.kind GROUP BY a.kind
        """,
    ),
    "with rows grouped first": (
        """
            SELECT a.shop, a.item, q.top FROM a JOIN (SELECT kind, MAX(n) AS top FROM b GROUP BY kind) q ON a.kind =
            q.kind AND a.n = q.top;
        """,
        """
            SELECT a.shop, a.item, q.top FROM a JOIN (SELECT kind, MAX(n) AS top FROM b GROUP BY kind) q ON a.kind =
            q.kind AND a.n = q.top
        """,
    ),
}


@pytest.mark.parametrize(
    ("name", "cache"),
    checkered(JOINS, ["0", "10000000"]),
)
def test_a_join_of_tables_follows_their_changes(name: str, cache: str) -> None:
    statement, batch = JOINS[name]
    changes = {"a": shelf_changes(1, 64), "b": shelf_changes(2, 64)}
    with sandbox(**{"ksql.streams.cache.max.bytes.buffering": cache}) as opened:
        opened.execute(SHELVES + "CREATE TABLE r WITH (KEY_FORMAT='JSON') AS " + statement)
        rng = random.Random(3)
        for i in range(64):
            for topic in rng.sample(["a", "b"], 2):
                key, value = changes[topic][i]
                opened.produce(topic, upper(key), upper(value), i * 10)
            if i % 16 == 15:
                opened.drain()
        found = final_rows(opened, "R")
    expected = batch_rows(batch, a=last_rows(changes["a"]), b=last_rows(changes["b"]))
    assert _sorted(found) == _sorted(expected)


def _sorted(rows: object) -> list[list[str]]:
    """Rows whose columns may stand in another order: keys go first in a table."""
    return sorted(sorted(map(str, row)) for row in rows.elements())  # pyrefly: ignore[missing-attribute]


def test_a_stream_looks_a_table_up_by_all_columns_of_its_key() -> None:
    with sandbox() as opened:
        opened.execute(
            SHELVES
            + "CREATE STREAM s (id INT, item VARCHAR, shop VARCHAR) WITH (kafka_topic='s', value_format='JSON', "
            "partitions=2);"
            "CREATE STREAM r AS SELECT s.id, a.n FROM s LEFT JOIN a ON s.item = a.item AND s.shop = a.shop;"
        )
        opened.produce("a", {"SHOP": "x", "ITEM": "y"}, {"N": 1}, 0)
        opened.produce("s", None, {"ID": 1, "SHOP": "x", "ITEM": "y"}, 1)
        opened.produce("s", None, {"ID": 2, "SHOP": "x", "ITEM": "z"}, 2)
        opened.produce("a", {"SHOP": "x", "ITEM": "y"}, {"N": 7}, 3)
        opened.produce("s", None, {"ID": 3, "SHOP": "x", "ITEM": "y"}, 4)
        opened.drain()
        assert set(final_rows(opened, "R")) == {(1, 1), (2, None), (3, 7)}


WINDOWED = """
    CREATE STREAM bid (id BIGINT, auction BIGINT, bidder BIGINT, price BIGINT, ts BIGINT)
      WITH (kafka_topic='bid', value_format='JSON', partitions=3);
    CREATE TABLE counts WITH (KEY_FORMAT='JSON') AS SELECT auction, COUNT(*) AS n, MAX(price) AS top FROM bid
      WINDOW TUMBLING (SIZE 10 SECONDS) GROUP BY auction;
"""
OF_WINDOWS = {
    "by the window": (
        """
            SELECT WINDOWSTART AS w, SUM(n) AS bids, MAX(n) AS most, COUNT(*) AS auctions FROM counts GROUP BY
            WINDOWSTART;
        """,
        "SELECT w, SUM(n)::BIGINT, MAX(n), COUNT(*) FROM counts GROUP BY w",
    ),
    "by the key": (
        "SELECT auction, COUNT(*) AS windows, MIN(top) AS low FROM counts GROUP BY auction;",
        "SELECT auction, COUNT(*), MIN(top) FROM counts GROUP BY auction",
    ),
    "by a value that changes": (
        "SELECT n, COUNT(*) AS windows FROM counts GROUP BY n;",
        "SELECT n, COUNT(*) FROM counts GROUP BY n",
    ),
}


@pytest.mark.parametrize("name", list(OF_WINDOWS))
def test_a_windowed_table_is_grouped_again(name: str) -> None:
    statement, batch = OF_WINDOWS[name]
    rows = bids(5, 100)
    with sandbox() as opened:
        opened.execute(WINDOWED + "CREATE TABLE r AS " + statement)
        feed_in_batches(opened, rows)
        found = final_rows(opened, "R")
    counts = "(SELECT auction, ts // 10000 * 10000 AS w, COUNT(*) AS n, MAX(price) AS top FROM bid GROUP BY ALL)"
    assert found == batch_rows(batch.replace("FROM counts", f"FROM {counts}"), bid=rows)


def test_two_windowed_tables_are_joined_by_their_windows_for_good() -> None:
    rows = bids(6, 80)
    with sandbox() as opened:
        opened.execute(
            WINDOWED
            + "CREATE TABLE lows WITH (KEY_FORMAT='JSON') AS SELECT auction, MIN(price) AS low FROM bid WINDOW "
            "TUMBLING (SIZE 10 SECONDS) GROUP BY auction;"
            "CREATE TABLE r AS SELECT c.auction, c.top - l.low AS spread FROM counts c JOIN lows l ON "
            "c.auction = l.auction;"
        )
        feed_in_batches(opened, rows)
        found = final_rows(opened, "R")
    assert found == batch_rows(
        "SELECT auction, MAX(price) - MIN(price) FROM bid GROUP BY auction, ts // 10000", bid=rows
    )


def feed_in_batches(opened: Sandbox, rows: list[dict[str, int]]) -> None:
    for start in range(0, len(rows), 30):
        feed(opened, "bid", rows[start : start + 30])
        opened.drain()
