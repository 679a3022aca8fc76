"""The order in which the queries of a Sandbox see what a script inserts, on each executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from staged_sandbox import StagedSandbox

from millstream.testing import Sandbox

MAKERS: dict[str, Callable[..., Sandbox]] = {"duckdb": Sandbox, "spark": StagedSandbox}
SOURCES = """
    CREATE STREAM orders (id INT KEY, n INT) WITH (kafka_topic='orders', value_format='JSON', partitions=2);
    CREATE TABLE people (id INT PRIMARY KEY, name STRING)
      WITH (kafka_topic='people', value_format='JSON', partitions=2);
"""
JOIN = "CREATE STREAM named AS SELECT o.id AS id, n, name FROM orders o LEFT JOIN people p ON o.id = p.id;"
FED = """
    CREATE STREAM orders (id INT KEY, n INT) WITH (kafka_topic='orders', value_format='JSON', partitions=2);
    CREATE STREAM news (id INT KEY, name STRING) WITH (kafka_topic='news', value_format='JSON', partitions=2);
    CREATE TABLE people AS SELECT id, LATEST_BY_OFFSET(name) AS name FROM news GROUP BY id;
"""


@pytest.fixture(params=["duckdb", "spark"])
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with MAKERS[request.param](request.param, {"auto.offset.reset": "earliest"}) as sandbox:
        yield sandbox


def named(sandbox: Sandbox) -> dict[int, str | None]:
    values: list[Any] = [record["value"] for record in sandbox.consume("NAMED")]
    return {value["N"]: value["NAME"] for value in values}


def test_rows_of_insert_and_produce_are_one_sequence(sandbox: Sandbox) -> None:
    sandbox.execute(SOURCES + JOIN)
    sandbox.produce("orders", 1, {"N": 1})
    sandbox.execute("INSERT INTO people (id, name) VALUES (1, 'ada');")
    sandbox.produce("orders", 1, {"N": 2})
    sandbox.execute("INSERT INTO people (id, name) VALUES (1, 'bob'); INSERT INTO orders (id, n) VALUES (1, 3);")
    sandbox.produce("people", 1, {"NAME": "eve"})
    sandbox.execute("INSERT INTO orders (id, n) VALUES (1, 4);")
    sandbox.drain()
    assert named(sandbox) == {1: None, 2: "ada", 3: "bob", 4: "eve"}


def test_a_live_query_takes_rows_as_they_come_whatever_their_times(sandbox: Sandbox) -> None:
    sandbox.execute(SOURCES + JOIN)
    sandbox.produce("orders", 1, {"N": 1}, timestamp=50)
    sandbox.produce("people", 1, {"NAME": "ada"}, timestamp=10)
    sandbox.produce("orders", 1, {"N": 2}, timestamp=5)
    sandbox.produce("people", 1, {"NAME": "bob"}, timestamp=4)
    sandbox.produce("orders", 2, {"N": 3}, timestamp=3)
    sandbox.drain()
    assert named(sandbox) == {1: None, 2: "ada", 3: None}


def test_a_query_that_catches_up_takes_rows_by_their_times_and_a_tables_first(sandbox: Sandbox) -> None:
    sandbox.execute(SOURCES)
    sandbox.produce("orders", 1, {"N": 1}, timestamp=9)
    sandbox.produce("orders", 1, {"N": 2}, timestamp=10)
    sandbox.produce("orders", 1, {"N": 3}, timestamp=30)
    sandbox.produce("people", 1, {"NAME": "ada"}, timestamp=10)
    sandbox.produce("people", 1, {"NAME": "bob"}, timestamp=20)
    sandbox.execute(JOIN)
    sandbox.produce("people", 1, {"NAME": "eve"}, timestamp=1)
    sandbox.produce("orders", 1, {"N": 4}, timestamp=1)
    sandbox.drain()
    assert named(sandbox) == {1: None, 2: "ada", 3: "bob", 4: "eve"}


def test_a_query_that_was_paused_catches_up(sandbox: Sandbox) -> None:
    sandbox.execute(SOURCES + JOIN + "PAUSE ALL;")
    sandbox.produce("orders", 1, {"N": 1}, timestamp=10)
    sandbox.produce("people", 1, {"NAME": "ada"}, timestamp=10)
    sandbox.drain()
    sandbox.execute("RESUME ALL;")
    sandbox.drain()
    assert named(sandbox) == {1: "ada"}


def test_rows_go_through_queries_that_feed_each_other_one_by_one(sandbox: Sandbox) -> None:
    sandbox.execute(FED + JOIN)
    for n, name in enumerate(("ada", "bob", "eve")):
        sandbox.execute(
            f"INSERT INTO news (id, name) VALUES (1, '{name}'); INSERT INTO orders (id, n) VALUES (1, {n});"
        )
    sandbox.drain()
    assert named(sandbox) == {0: "ada", 1: "bob", 2: "eve"}


def test_streams_that_are_joined_meet_in_the_order_of_the_script(sandbox: Sandbox) -> None:
    """A row that comes when time has gone on is late, and not before."""
    sandbox.execute(
        """
        CREATE STREAM a (id INT KEY, v INT) WITH (kafka_topic='a', value_format='JSON', partitions=2);
        CREATE STREAM b (id INT KEY, w INT) WITH (kafka_topic='b', value_format='JSON', partitions=2);
        CREATE STREAM c AS SELECT a.id AS id, v, w FROM a JOIN b WITHIN 10 MILLISECONDS GRACE PERIOD 0 SECONDS
            ON a.id = b.id;
        """
    )
    sandbox.produce("a", 1, {"V": 1}, timestamp=100)
    sandbox.produce("b", 1, {"W": 1}, timestamp=95)
    sandbox.produce("a", 1, {"V": 2}, timestamp=1000)
    sandbox.produce("b", 1, {"W": 2}, timestamp=96)
    sandbox.drain()
    assert [record["value"] for record in sandbox.consume("C")] == [{"V": 1, "W": 1}]
