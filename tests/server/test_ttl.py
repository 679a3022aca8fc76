"""WITH (TTL=…): what users see of it. How rows go is tested with the operators."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.errors import InvalidProperty, MillstreamError
from millstream.testing import Sandbox

SOURCES = """
CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);
CREATE TABLE declared (id INT PRIMARY KEY, name STRING)
  WITH (kafka_topic='d', value_format='JSON', partitions=1, ttl='10 SECONDS');
CREATE TABLE counted WITH (TTL='10 SECONDS') AS
  SELECT id, COUNT(*) AS n, SUM(v) AS total FROM s GROUP BY id HAVING COUNT(*) > 1;
CREATE TABLE copied WITH (TTL='20 SECONDS') AS SELECT id, UCASE(name) AS name FROM declared;
CREATE TABLE by_name AS SELECT name, COUNT(*) AS n FROM declared GROUP BY name;
CREATE STREAM joined AS SELECT s.id, v, name FROM s LEFT JOIN declared d ON s.id = d.id;
"""


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(properties={"millstream.pull.full.sql": "true"}) as opened:
        opened.execute(SOURCES)
        yield opened


def produced(sandbox: Sandbox, topic: str) -> list[tuple[object, object, int]]:
    return [(record["key"], record["value"], record["timestamp"]) for record in sandbox.consume(topic)]


def test_a_group_that_is_forgotten_leaves_a_tombstone_and_begins_anew(sandbox: Sandbox) -> None:
    for key, v, seconds in ((1, 1, 0), (1, 2, 4), (2, 7, 9), (1, 3, 14), (1, 4, 15), (2, 7, 3)):
        sandbox.produce("s", key, {"V": v}, timestamp=seconds * 1_000)
    sandbox.drain()
    assert produced(sandbox, "COUNTED") == [
        (1, {"N": 2, "TOTAL": 3}, 4_000),
        (1, None, 14_000),
        (1, {"N": 2, "TOTAL": 7}, 15_000),
        (2, {"N": 2, "TOTAL": 14}, 9_000),
    ]
    assert [row["row"]["columns"] for row in list(sandbox.query("SELECT * FROM counted ORDER BY id;"))[1:]] == [
        [1, 2, 7],
        [2, 2, 14],
    ]


def test_rows_of_a_declared_table_are_gone_for_everybody_who_reads_it(sandbox: Sandbox) -> None:
    for key, name, seconds in ((1, "a", 0), (2, "b", 5)):
        sandbox.produce("d", key, {"NAME": name}, timestamp=seconds * 1_000)
    sandbox.produce("s", 1, {"V": 1}, timestamp=6_000)
    sandbox.produce("d", 3, {"NAME": "c"}, timestamp=11_000)
    sandbox.produce("s", 1, {"V": 2}, timestamp=12_000)
    sandbox.drain()
    assert [value for _, value, _ in produced(sandbox, "JOINED")] == [{"V": 1, "NAME": "a"}, {"V": 2, "NAME": None}]
    assert produced(sandbox, "BY_NAME")[-2:] == [("a", {"N": 0}, 10_000), ("c", {"N": 1}, 11_000)]
    assert [row["row"]["columns"] for row in list(sandbox.query("SELECT id FROM declared ORDER BY id;"))[1:]] == [
        [2],
        [3],
    ]
    assert produced(sandbox, "COPIED")[2:] == [(1, None, 10_000), (3, {"NAME": "C"}, 11_000)]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE STREAM x WITH (TTL='1 DAY') AS SELECT * FROM s;", "property of tables"),
        ("CREATE STREAM x (id INT) WITH (kafka_topic='x', value_format='JSON', ttl='1 DAY');", "property of tables"),
        ("CREATE TABLE x WITH (TTL='1 fortnight') AS SELECT id, COUNT(*) FROM s GROUP BY id;", "Invalid duration"),
        ("CREATE TABLE x WITH (TTL=7) AS SELECT id, COUNT(*) FROM s GROUP BY id;", "Invalid duration"),
        (
            "CREATE TABLE x WITH (TTL='1 DAY') AS SELECT id, COUNT(*) FROM s WINDOW TUMBLING (SIZE 2 DAY) GROUP BY id;",
            "shorter than a window stays open",
        ),
    ],
)
def test_a_ttl_that_cannot_be_kept_is_refused(sandbox: Sandbox, statement: str, message: str) -> None:
    with pytest.raises(InvalidProperty, match=message):
        sandbox.execute(statement)


def test_windows_of_a_table_with_a_ttl_go_in_the_end(sandbox: Sandbox) -> None:
    sandbox.execute(
        "CREATE TABLE w WITH (TTL='5 SECONDS') AS SELECT id, COUNT(*) AS n FROM s "
        "WINDOW TUMBLING (SIZE 1 SECOND, GRACE PERIOD 1 SECOND) GROUP BY id;"
    )
    for key, seconds in ((1, 0), (2, 2), (1, 5)):
        sandbox.produce("s", key, {"V": 0}, timestamp=seconds * 1_000)
    sandbox.drain()
    found = [(record["key"], record["window"], record["value"]) for record in sandbox.consume("W")]
    assert [(key, value) for key, _, value in found] == [(1, {"N": 1}), (2, {"N": 1}), (1, None), (1, {"N": 1})]
    assert found[2][1] == found[0][1]


def test_a_ttl_is_kept_by_a_replacement(sandbox: Sandbox) -> None:
    with pytest.raises(MillstreamError, match="would change"):
        sandbox.execute(
            "CREATE OR REPLACE TABLE counted WITH (TTL='30 SECONDS') AS "
            "SELECT id, COUNT(*) AS n, SUM(v) AS total FROM s GROUP BY id HAVING COUNT(*) > 1;"
        )
    plan = sandbox.execute("EXPLAIN CREATE TABLE x WITH (TTL='1 DAY') AS SELECT * FROM declared;")[0]
    assert "EXPIRE rows that are not updated for 86400000 ms" in plan["queryDescription"]["executionPlan"]
