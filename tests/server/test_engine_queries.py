"""Pull and push queries of the engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from millstream.errors import InvalidStatement, StatementError
from millstream.testing import Sandbox

STREAM = "CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);"
TABLE = "CREATE TABLE n AS SELECT id, COUNT(*) AS c FROM s GROUP BY id;"


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(properties={"auto.offset.reset": "earliest"}) as opened:
        yield opened


def _rows(sandbox: Sandbox, sql: str) -> list[Any]:
    return [answer["row"]["columns"] for answer in sandbox.query(sql) if "row" in answer]


def test_a_pull_query_sees_the_table_as_it_is(sandbox: Sandbox) -> None:
    sandbox.execute(STREAM + TABLE + "INSERT INTO s VALUES (1, 10); INSERT INTO s VALUES (1, 11);")
    sandbox.drain()
    answer = list(sandbox.query("SELECT * FROM n WHERE id = 1;"))
    assert answer[0]["header"]["schema"] == "`ID` INTEGER KEY, `C` BIGINT"
    assert answer[0]["header"]["queryId"].startswith("transient_N_")
    assert answer[1:] == [{"row": {"columns": [1, 2]}}]
    sandbox.execute("INSERT INTO s VALUES (1, 12);")
    sandbox.drain()
    assert _rows(sandbox, "SELECT c FROM n;") == [[3]]


def test_a_pull_query_over_a_stream_reads_its_history_and_says_when_it_is_done(sandbox: Sandbox) -> None:
    sandbox.execute(STREAM + "INSERT INTO s VALUES (1, 10); INSERT INTO s VALUES (2, 20);")
    answer = list(sandbox.query("SELECT v FROM s;"))
    assert answer[1:] == [{"row": {"columns": [10]}}, {"row": {"columns": [20]}}, {"finalMessage": "Query Completed"}]


def test_a_push_query_sees_what_comes_after_it_began(sandbox: Sandbox) -> None:
    sandbox.execute(STREAM)
    answer = sandbox.query("SELECT id, v + 1 AS w FROM s EMIT CHANGES LIMIT 2;")
    for v in (10, 20, 30):
        sandbox.produce("s", v, {"V": v})
    rows = list(answer)
    assert rows[0]["header"]["schema"] == "`ID` INTEGER, `W` INTEGER"
    assert rows[1:] == [
        {"row": {"columns": [10, 11]}},
        {"row": {"columns": [20, 21]}},
        {"finalMessage": "Limit Reached"},
    ]


def test_a_push_query_over_a_table_sends_deletions_as_tombstones(sandbox: Sandbox) -> None:
    sandbox.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT) WITH (kafka_topic='t', value_format='JSON', partitions=1);"
    )
    answer = sandbox.query("SELECT * FROM t EMIT CHANGES;")
    sandbox.produce("t", 1, {"V": 10})
    sandbox.produce("t", 1, None)
    assert list(answer)[1:] == [{"row": {"columns": [1, 10]}}, {"row": {"columns": [1, None], "tombstone": True}}]


@pytest.mark.parametrize(
    "select",
    [
        "SELECT b.v, b.id FROM a RIGHT JOIN b ON a.id = b.id",
        "SELECT a.v, b.id FROM a JOIN b ON a.id = b.id",
        "SELECT DISTINCT v, v + 1 AS w FROM b",
        "SELECT DISTINCT b.v, a.v FROM a JOIN b ON a.id = b.id",
    ],
)
def test_a_tombstone_names_the_row_that_is_gone(sandbox: Sandbox, select: str) -> None:
    for name in "ab":
        sandbox.execute(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT) "
            f"WITH (kafka_topic='{name}', value_format='JSON', partitions=1);"
        )
        sandbox.produce(name, 1, {"V": 10})
    sandbox.produce("b", 1, None, timestamp=1)
    sent, gone = (answer["row"] for answer in sandbox.query(f"{select} EMIT CHANGES;") if "row" in answer)
    assert gone["tombstone"]
    key = sent["columns"] if "DISTINCT" in select else [None, 1]
    assert gone["columns"] == key


def test_a_group_that_has_lost_its_rows_has_no_rank(sandbox: Sandbox) -> None:
    sandbox.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT) WITH (kafka_topic='t', value_format='JSON', partitions=1);"
        "CREATE TABLE r AS SELECT v, COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*)) AS place FROM t GROUP BY v;"
    )
    for key, value in ((1, {"V": 10}), (2, {"V": 20}), (1, None)):
        sandbox.produce("t", key, value)
        sandbox.drain()
    assert _rows(sandbox, "SELECT v, n, place FROM r;") == [[20, 1, 1]]


def test_what_is_no_single_query_is_refused(sandbox: Sandbox) -> None:
    sandbox.execute(STREAM)
    with pytest.raises(InvalidStatement, match="found 2 instead"):
        sandbox.query("SELECT * FROM s; SELECT * FROM s;")
    for statement in ("SHOW STREAMS;", "-- all\ncreate stream t AS SELECT * FROM s;", "INSERT INTO s VALUES (1, 2);"):
        with pytest.raises(InvalidStatement, match=r"^(SHOW|CREATE|INSERT) is not a query"):
            sandbox.query(statement)
    with pytest.raises(InvalidStatement, match="cannot be run as a command"):
        sandbox.execute("SELECT * FROM s;")
    with pytest.raises(StatementError, match="NOPE does not exist"):
        sandbox.query("SELECT * FROM nope EMIT CHANGES;")
