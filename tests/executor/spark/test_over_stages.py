"""Functions OVER partitions in the two stages: what they give in the end does not depend on the executor.

What a batch changes goes out as a whole, so topics agree in the last record of each key, not in all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hand_plans import read_all
from planning import Planner
from spark_stages import STATEMENTS, OnDuckDB, StagedRun, create_topics, produce

from millstream.executor.spark.stages import split
from millstream.logcore.client import LogClient
from millstream.logcore.log import open_log
from millstream.planner.physical import PhysicalPlan

QUERIES = {
    "the first three": (
        "SELECT * FROM (SELECT user, page, n, ROW_NUMBER() OVER (PARTITION BY page ORDER BY n DESC) AS rn FROM clicks) "
        "q WHERE rn <= 3"
    ),
    "moving averages": (
        "SELECT user, n, AVG(n) OVER (PARTITION BY user ORDER BY ROWTIME, n ROWS 4 PRECEDING) AS mean FROM clicks"
    ),
    "ranks in a table": "SELECT user, city, RANK() OVER (PARTITION BY city ORDER BY user) AS r FROM users",
    "ranks of counts": (
        "SELECT page, COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*) DESC) AS r FROM clicks GROUP BY page"
    ),
    "distinct rows": "SELECT DISTINCT user, page FROM clicks",
}
BUCKETS = {
    "the first three": [3],
    "moving averages": [3, 3],
    "ranks in a table": [3, 3, 3],
    "ranks of counts": [3, 1],
    "distinct rows": [3],
}
"""Of each subplan. All counts are ranked together, so one bucket does that."""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[LogClient]:
    client = open_log(tmp_path / "log", sync="never")
    create_topics(client, "DUCK", "SPARK")
    yield client
    client.close()


def plan_of(query: str, sink: str) -> PhysicalPlan:
    planner = Planner(properties={"auto.offset.reset": "earliest"})
    (plan,) = planner.plans(f"{STATEMENTS} CREATE TABLE {sink} WITH (partitions=3) AS {QUERIES[query]};")
    return replace(plan, query_id=f"{sink}_1")


def last_records(client: LogClient, topic: str) -> dict[object, object]:
    last = {repr(record["key"]): record["value"] for record in read_all(client, topic, range(3))}
    return {key: value for key, value in last.items() if value is not None}


@pytest.mark.parametrize("query", QUERIES)
def test_both_executors_come_to_the_same_rows(query: str, client: LogClient, tmp_path: Path) -> None:
    assert [subplan.bucket_count for subplan in split(plan_of(query, "SINK")).subplans] == BUCKETS[query]
    duck = OnDuckDB(plan_of(query, "DUCK"), client)
    run = StagedRun(plan_of(query, "SPARK"), client, "run", tmp_path, records_max=70)
    for begin in range(0, 300, 100):
        produce(client, begin, begin + 100)
        duck.drain()
        run.drain()
        assert last_records(client, "SPARK") == last_records(client, "DUCK") != {}
