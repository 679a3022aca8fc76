"""What pull queries refuse, as ksqlDB does, and what push queries may do beyond them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.errors import MillstreamError
from millstream.testing import Sandbox

SOURCES = """
CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);
CREATE TABLE declared (id INT PRIMARY KEY, v INT) WITH (kafka_topic='d', value_format='JSON', partitions=1);
CREATE SOURCE TABLE kept (id INT PRIMARY KEY, v INT) WITH (kafka_topic='d', value_format='JSON');
CREATE TABLE counted AS SELECT id, COUNT(*) AS n FROM s GROUP BY id;
CREATE STREAM copy AS SELECT * FROM s;
"""


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as opened:
        opened.execute(SOURCES)
        yield opened


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT * FROM counted c JOIN s ON c.id = s.id;", "Pull queries don't support JOIN clauses"),
        ("SELECT * FROM s WINDOW TUMBLING (SIZE 1 SECOND);", "Pull queries don't support WINDOW clauses"),
        ("SELECT id FROM counted GROUP BY id;", "Pull queries don't support GROUP BY clauses"),
        ("SELECT * FROM s PARTITION BY v;", "Pull queries don't support PARTITION BY clauses"),
        ("SELECT ROWPARTITION FROM counted;", "columns in SELECT clauses: `ROWPARTITION`"),
        ("SELECT id, ABS(ROWOFFSET) AS o FROM s;", "columns in SELECT clauses: `ROWOFFSET`"),
        ("SELECT * FROM counted WHERE ROWOFFSET > 1;", "columns in WHERE clauses: `ROWOFFSET`"),
        ("SELECT n, n FROM counted;", "Duplicate value columns found in schema: `N` BIGINT"),
        ("SELECT id, id FROM counted;", "Duplicate key columns found in schema: `ID` INTEGER KEY"),
        (
            "SELECT * FROM counted WHERE id IN (1, '2');",
            "'2' can not be converted to the type of the key column: ID INT",
        ),
        ("SELECT * FROM declared;", "The `DECLARED` table isn't queryable"),
        ("SELECT id FROM counted ORDER BY id;", "line 1:30: Syntax Error"),
    ],
)
def test_pull_queries_refuse_what_only_a_running_query_knows(sandbox: Sandbox, query: str, message: str) -> None:
    with pytest.raises(MillstreamError, match=message):
        sandbox.query(query)


def test_tables_that_a_query_or_a_source_table_keeps_are_answered(sandbox: Sandbox) -> None:
    sandbox.produce("d", 1, {"V": 10})
    assert list(sandbox.query("SELECT * FROM kept WHERE id IN (1, 2);"))[1:] == [{"row": {"columns": [1, 10]}}]
    list(sandbox.query("SELECT id, n, n + 1 AS more FROM counted;"))


def test_a_property_lets_pull_queries_read_any_table(sandbox: Sandbox) -> None:
    sandbox.execute("SET 'millstream.pull.any.table'='true';")
    sandbox.produce("d", 1, {"V": 10})
    assert list(sandbox.query("SELECT v FROM declared;"))[1:] == [{"row": {"columns": [10]}}]


def test_a_push_query_may_aggregate_without_group_by(sandbox: Sandbox) -> None:
    answer = sandbox.query("SELECT COUNT(*) AS n, SUM(v) AS total FROM s EMIT CHANGES;")
    sandbox.produce("s", 1, {"V": 10})
    sandbox.produce("s", 2, {"V": 5})
    assert [row["row"]["columns"] for row in list(answer)[1:]] == [[1, 10], [2, 15]]
    with pytest.raises(MillstreamError, match="requires a GROUP BY clause"):
        sandbox.query("SELECT id, COUNT(*) FROM s EMIT CHANGES;")


def test_a_tap_of_a_running_query_leaves_out_rows_without_a_key(sandbox: Sandbox) -> None:
    sandbox.execute("SET 'auto.offset.reset'='latest';")
    answer = sandbox.query("SELECT * FROM copy EMIT CHANGES;")
    sandbox.produce("s", None, {"V": 10})
    sandbox.produce("s", 1, {"V": 20})
    sandbox.drain()
    assert [row["row"]["columns"] for row in list(answer)[1:]] == [[1, 20]]
