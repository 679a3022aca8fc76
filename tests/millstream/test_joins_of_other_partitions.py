"""A subquery joins tables and streams that lie on different numbers of partitions; plain sources are refused so."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

import pytest

import millstream
from millstream.errors import InvalidStatement

SETUP = """
    CREATE TABLE a (id INT PRIMARY KEY, g INT) WITH (kafka_topic='a', value_format='JSON', partitions=3);
    CREATE TABLE b (id INT PRIMARY KEY, n INT) WITH (kafka_topic='b', value_format='JSON', partitions=2);
    CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=4);
    CREATE TABLE w AS SELECT id, COUNT(*) AS n FROM s WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY id;
"""


@pytest.fixture(scope="module")
def ms() -> Iterator[millstream.Connection]:
    with millstream.connect(properties={"auto.offset.reset": "earliest"}) as connection:
        connection.sql(SETUP)
        connection.insert("a", {"id": list(range(9)), "g": list(range(9))})
        connection.insert("b", {"id": list(range(6, 12)), "n": list(range(60, 120, 10))})
        connection.insert("s", {"id": list(range(9)), "v": list(range(9))})
        yield connection


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT a.id, b.n FROM a JOIN (SELECT * FROM b) b ON a.id = b.id", [(6, 60), (7, 70), (8, 80)]),
        ("SELECT a.id, b.n FROM (SELECT * FROM a) a JOIN b ON a.id = b.id", [(6, 60), (7, 70), (8, 80)]),
        ("SELECT a.id, b.n FROM a JOIN b ON a.id = b.id AND a.g < b.n - 60", [(7, 70), (8, 80)]),
        (
            "SELECT a.id, b.n FROM a FULL OUTER JOIN (SELECT * FROM b) b ON a.id = b.id WHERE a.id IS NULL OR a.id = 5",
            [(None, 90), (None, 100), (None, 110), (5, None)],
        ),
        ("SELECT s.id, b.n FROM s JOIN (SELECT * FROM b) b ON s.id = b.id", [(6, 60), (7, 70), (8, 80)]),
    ],
)
def test_rows_of_one_key_meet(ms: millstream.Connection, query: str, expected: list[tuple[int | None, int]]) -> None:
    assert sorted(ms.sql(query).fetchall(), key=str) == sorted(expected, key=str)


@pytest.mark.parametrize("other", ["b", "w"])
def test_the_refusal_says_what_to_write(ms: millstream.Connection, other: str) -> None:
    with pytest.raises(InvalidStatement) as raised:
        ms.sql(f"SELECT a.id, x.n FROM a JOIN {other} x ON a.id = x.id;").fetchall()
    assert f"(SELECT * FROM {other.upper()}) x" in "".join(traceback.format_exception(raised.value))
