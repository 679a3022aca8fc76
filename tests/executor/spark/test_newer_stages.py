"""Statements that ksqlDB does not know, in the two stages: rows that expire, groups too, and functions of users."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from damaged import AnyPlanner
from spark_stages import STATEMENTS, OnDuckDB, StagedRun, contents, create_topics, produce

from millstream.logcore.client import LogClient
from millstream.logcore.log import open_log
from millstream.planner.physical import PhysicalPlan
from millstream.sql.parser import parse

FUNCTIONS = """
    CREATE FUNCTION twice(x BIGINT) RETURNS BIGINT LANGUAGE PYTHON AS $$ x * 2 $$;
    CREATE FUNCTION fails(x BIGINT) RETURNS BIGINT LANGUAGE PYTHON AS $$ 1 // (x % 5) $$;
    CREATE AGGREGATE FUNCTION longest(x STRING) RETURNS STRING LANGUAGE PYTHON AS $$
class longest:
    def init(self): return ""
    def add(self, state, x): return max(state, x)
    def result(self, state): return state
$$;
"""
QUERIES = {
    "rows that expire": "WITH (partitions=3, TTL='5 SECONDS') AS SELECT user, UCASE(city) AS city FROM users",
    "groups that expire": (
        "WITH (partitions=3, TTL='2 SECONDS') AS SELECT page, COUNT(*) AS c FROM clicks GROUP BY page"
    ),
    "a function of a user": "WITH (partitions=3) AS SELECT user, MAX(twice(n)) AS n FROM clicks GROUP BY user",
    "one that fails now and then": "WITH (partitions=3) AS SELECT page, SUM(fails(n)) AS n FROM clicks GROUP BY page",
    "an aggregate of a user": "WITH (partitions=3) AS SELECT user, LONGEST(page) AS p FROM clicks GROUP BY user",
    "a table of a calendar's days": (
        "WITH (partitions=3) AS SELECT user, COUNT(*) AS c FROM clicks "
        "WINDOW TUMBLING (SIZE 1 DAY, TIMEZONE 'Europe/Berlin') GROUP BY user"
    ),
}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[LogClient]:
    client = open_log(tmp_path / "log", sync="never")
    create_topics(client, "DUCK", "SPARK")
    yield client
    client.close()


def plan_of(query: str, sink: str) -> PhysicalPlan:
    properties = {"auto.offset.reset": "earliest", "ksql.streams.cache.max.bytes.buffering": "0"}
    planner = AnyPlanner(properties=properties)
    for statement in parse(f"{STATEMENTS}{FUNCTIONS}CREATE TABLE {sink} {QUERIES[query]};"):
        planner.take(statement)
    return replace(planner.made[-1], query_id=f"{sink}_1")


@pytest.mark.parametrize("query", QUERIES)
def test_both_executors_write_the_same_records(query: str, client: LogClient, tmp_path: Path) -> None:
    duck, run = OnDuckDB(plan_of(query, "DUCK"), client), StagedRun(plan_of(query, "SPARK"), client, "run", tmp_path)
    for begin in range(0, 300, 100):
        produce(client, begin, begin + 100)
        duck.drain()
        run.drain()
    assert contents(client, "SPARK") == contents(client, "DUCK") != {}
    run.close()
    duck.close()
