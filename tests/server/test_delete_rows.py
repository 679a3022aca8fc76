"""DELETE FROM, and INSERT INTO … VALUES of several rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.errors import MillstreamError
from millstream.testing import Sandbox

SOURCES = """
CREATE TABLE people (id INT PRIMARY KEY, name STRING, age INT)
  WITH (kafka_topic='people', value_format='JSON', partitions=3);
CREATE TABLE pairs (a INT PRIMARY KEY, b STRING PRIMARY KEY, v INT)
  WITH (kafka_topic='pairs', format='JSON', partitions=2);
CREATE SOURCE TABLE kept (id INT PRIMARY KEY, name STRING) WITH (kafka_topic='people', value_format='JSON');
CREATE TABLE windowed (id INT PRIMARY KEY, v INT)
  WITH (kafka_topic='w', value_format='JSON', partitions=1, window_type='TUMBLING', window_size='1 SECOND');
CREATE STREAM visits (id INT KEY, page STRING) WITH (kafka_topic='visits', value_format='JSON', partitions=1);
CREATE TABLE counted AS SELECT id, COUNT(*) AS n FROM visits GROUP BY id;
CREATE TABLE by_age AS SELECT age, COUNT(*) AS n FROM people GROUP BY age;
"""


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(properties={"millstream.pull.full.sql": "true"}) as opened:
        opened.execute(SOURCES)
        opened.execute("INSERT INTO people VALUES (1, 'ada', 36), (2, 'bob', 40), (3, 'cy', 40), (4, 'dee', NULL);")
        opened.execute("INSERT INTO pairs (v, b, a) VALUES (1, 'x', 1), (2, 'y', 1), (3, 'x', 2);")
        yield opened


def rows(sandbox: Sandbox, query: str) -> list[list[object]]:
    return [row["row"]["columns"] for row in sandbox.query(query) if "row" in row]


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        ("id = 2", [1, 3, 4]),
        ("id IN (1, 4, 9)", [2, 3]),
        ("age >= 40", [1, 4]),
        ("age IS NULL OR LCASE(name) LIKE 'c%'", [1, 2]),
        ("TRUE", []),
        ("id = 17", [1, 2, 3, 4]),
    ],
)
def test_the_rows_that_the_condition_holds_for_are_gone(sandbox: Sandbox, condition: str, left: list[int]) -> None:
    (answer,) = sandbox.execute(f"DELETE FROM people WHERE {condition};")
    assert (answer["@type"], answer["sourceName"], answer["count"]) == ("rows_deleted", "PEOPLE", 4 - len(left))
    assert rows(sandbox, "SELECT id FROM people ORDER BY id;") == [[number] for number in left]


def test_a_key_of_several_columns_is_deleted_as_a_whole(sandbox: Sandbox) -> None:
    sandbox.execute("DELETE FROM pairs WHERE b = 'x';")
    assert rows(sandbox, "SELECT a, b, v FROM pairs;") == [[1, "y", 2]]


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        ("id IN (SELECT v FROM pairs)", [4]),
        ("NOT EXISTS (SELECT 1 FROM pairs p WHERE p.a = people.id)", [1, 2]),
        ("age = (SELECT MAX(age) FROM people o WHERE o.id = people.id) AND id > 1", [1, 4]),
    ],
)
def test_the_condition_may_be_a_query(sandbox: Sandbox, condition: str, left: list[int]) -> None:
    sandbox.execute(f"DELETE FROM people WHERE {condition};")
    assert rows(sandbox, "SELECT id FROM people ORDER BY id;") == [[number] for number in left]


def test_queries_over_the_table_see_that_rows_are_gone(sandbox: Sandbox) -> None:
    sandbox.execute("DELETE FROM people WHERE id = 2;")
    sandbox.drain()
    assert rows(sandbox, "SELECT age, n FROM by_age ORDER BY age;") == [[36, 1], [40, 1]]
    gone = [record for record in sandbox.consume("people") if record["value"] is None]
    assert [record["key"] for record in gone] == [2]


@pytest.mark.parametrize(
    ("statement", "message", "hint"),
    [
        ("DELETE FROM visits WHERE id = 1;", "it is a stream", "stays"),
        ("DELETE FROM counted WHERE id = 1;", "the query CTAS_COUNTED_", "tables that the query reads"),
        ("DELETE FROM kept WHERE id = 1;", "read-only table: KEPT", ""),
        ("DELETE FROM windowed WHERE id = 1;", "windows in its keys", ""),
        ("DELETE FROM poeple WHERE id = 1;", "unknown table", "PEOPLE"),
        ("DELETE FROM people;", "expected WHERE", "WHERE TRUE"),
        ("DELETE FROM people WHERE idd = 1;", "IDD", "ID"),
        ("DELETE FROM people WHERE id;", "Should evaluate to boolean", ""),
        ("DELETE FROM people WHERE COUNT(*) > 1;", "cannot hold aggregates", ""),
    ],
)
def test_mistakes_are_named_and_delete_nothing(sandbox: Sandbox, statement: str, message: str, hint: str) -> None:
    with pytest.raises(MillstreamError) as raised:
        sandbox.execute(statement)
    assert message in str(raised.value)
    assert hint in (raised.value.hint or "")
    assert len(rows(sandbox, "SELECT id FROM people;")) == 4


def test_rows_that_are_inserted_together_appear_together_or_not_at_all(sandbox: Sandbox) -> None:
    with pytest.raises(MillstreamError, match="required for tables"):
        sandbox.execute("INSERT INTO people VALUES (5, 'eve', 1), (NULL, 'fay', 2);")
    with pytest.raises(MillstreamError, match="Expected a value for each column"):
        sandbox.execute("INSERT INTO people VALUES (5, 'eve', 1), (6, 'fay');")
    assert len(rows(sandbox, "SELECT id FROM people;")) == 4


def test_each_row_may_have_a_time_of_its_own(sandbox: Sandbox) -> None:
    sandbox.execute("INSERT INTO visits (ROWTIME, id, page) VALUES (5, 1, 'a'), (7, 2, CONCAT('b', 'c'));")
    found = [(record["key"], record["value"], record["timestamp"]) for record in sandbox.consume("visits")]
    assert found == [(1, {"PAGE": "a"}, 5), (2, {"PAGE": "bc"}, 7)]
