"""Subqueries and joins of rows as persistent queries over a real log: partitions, small batches, restarts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from batch_answers import batch_rows, bids
from hand_plans import read_all, rows
from planning import Planner

from millstream.executor.queries.query import QueryRuntime
from millstream.logcore.client import LogClient
from millstream.logcore.log import open_log
from millstream.planner.physical import PhysicalPlan

PARTITIONS = 4
DECLARED = """
    CREATE STREAM bid (id BIGINT, auction BIGINT, bidder BIGINT, price BIGINT, ts BIGINT)
      WITH (kafka_topic='bid', value_format='JSON', partitions=4);
"""
QUERIES = {
    "averages of maxima": (
        """
            TABLE j AS SELECT bidder, AVG(top) AS a, MIN(top) AS low FROM (SELECT auction, bidder, MAX(price) AS top
            FROM bid GROUP BY auction, bidder) q GROUP BY bidder;
        """,
        """
            SELECT bidder, AVG(top), MIN(top) FROM (SELECT auction, bidder, MAX(price) AS top FROM bid GROUP BY ALL)
            GROUP BY bidder
        """,
    ),
    "the most frequent of each window": (
        """
            TABLE j AS WITH n AS (SELECT auction, window_start, COUNT(*) AS num FROM TABLE(TUMBLE(TABLE bid,
            DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY auction, window_start) SELECT n.auction, n.window_start,
            n.num FROM n JOIN (SELECT window_start, MAX(num) AS top FROM n GROUP BY window_start) m ON n.window_start
            = m.window_start AND n.num = m.top;
        """,
        """
            WITH n AS (SELECT auction, ts // 10000 * 10000 AS w, COUNT(*) AS num FROM bid GROUP BY ALL) SELECT
            auction, w, num FROM n WHERE num = (SELECT MAX(num) FROM n m WHERE m.w = n.w)
        """,
    ),
    "two streams as one, counted": (
        """
            TABLE j AS SELECT x, COUNT(*) AS n FROM (SELECT auction AS x FROM bid UNION ALL SELECT bidder FROM bid) q
            GROUP BY x;
        """,
        "SELECT x, COUNT(*) FROM (SELECT auction AS x FROM bid UNION ALL SELECT bidder FROM bid) GROUP BY x",
    ),
    "pairs of a stream by two columns": (
        """
            STREAM j AS SELECT a.id AS x, b.id AS y FROM bid a JOIN bid b WITHIN UNBOUNDED ON a.auction = b.auction
            AND a.bidder = b.bidder AND a.price < b.price;
        """,
        """
            SELECT a.id, b.id FROM bid a JOIN bid b ON a.auction = b.auction AND a.bidder = b.bidder AND a.price <
            b.price
        """,
    ),
}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[LogClient]:
    client = open_log(tmp_path / "log", sync="never")
    for topic in ("bid", "J"):
        client.create_topic(topic, PARTITIONS)
    yield client
    client.close()


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("name", list(QUERIES))
def test_small_batches_and_restarts_lose_nothing(client: LogClient, tmp_path: Path, name: str, in_memory: bool) -> None:
    statement, batch = QUERIES[name]
    plan = list(Planner(properties={"auto.offset.reset": "earliest"}).plans(f"{DECLARED} CREATE {statement}"))[-1]
    given = bids(8, 240)
    for start in range(0, len(given), 80):
        for partition in range(PARTITIONS):
            own = [row for row in given[start : start + 80] if row["id"] % PARTITIONS == partition]
            client.append("bid", partition, rows([(None, {n.upper(): v for n, v in r.items()}, r["ts"]) for r in own]))
        _run(plan, client, None if in_memory else tmp_path / "state")
    assert _final(client, table=statement.lstrip().startswith("TABLE")) == batch_rows(batch, bid=given)


def _run(plan: PhysicalPlan, client: LogClient, state: Path | None) -> None:
    runtime = QueryRuntime(plan, client, state)
    while runtime.step(2_000):
        pass
    runtime.close()


def _final(client: LogClient, *, table: bool) -> Counter[tuple[Any, ...]]:
    records = read_all(client, "J", range(PARTITIONS))
    if table:
        records = list({(record["partition"], record["key"]): record for record in records}.values())
    return Counter(_row(record) for record in records if record["value"] is not None)


def _row(record: dict[str, Any]) -> tuple[Any, ...]:
    value = tuple(record["value"].values())
    if record["key"] is None:
        return value
    key = int.from_bytes(record["key"], signed=True) if record["key"][:1] != b"{" else record["key"]
    if isinstance(key, int):
        return (key, *value)
    return (*json.loads(key).values(), *value)
