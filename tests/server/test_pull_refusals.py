"""What pull queries refuse, as ksqlDB does, and what push queries may do beyond them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
WINDOWED = """
CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);
CREATE TABLE windowed AS SELECT id, COUNT(*) AS n FROM s WINDOW TUMBLING (SIZE 1 SECOND) GROUP BY id;
"""


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as opened:
        opened.execute(SOURCES)
        yield opened


@pytest.fixture(scope="module")
def windows() -> Iterator[Sandbox]:
    """For tests that leave it as it was."""
    with Sandbox() as opened:
        opened.execute(WINDOWED)
        yield opened


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT * FROM counted c JOIN s ON c.id = s.id;", "Pull queries don't support JOIN clauses"),
        ("SELECT * FROM s WINDOW TUMBLING (SIZE 1 SECOND);", "Pull queries don't support WINDOW clauses"),
        ("SELECT id FROM counted GROUP BY id;", "Pull queries don't support GROUP BY clauses"),
        ("SELECT * FROM s PARTITION BY v;", "Pull queries don't support PARTITION BY clauses"),
        ("SELECT id FROM s WHERE id IN (SELECT id FROM counted);", "Pull queries don't support subqueries"),
        ("SELECT id, SUM(v) OVER (PARTITION BY id) AS total FROM s;", "or functions OVER rows"),
        ("SELECT EXPLODE(ARRAY[1]) AS x, v, v FROM s;", "Duplicate value columns found in schema: `V` INTEGER"),
        ("SELECT id, EXPLODE(ARRAY[1]) AS x FROM counted;", "Table source is not supported with table functions"),
        ("SELECT ROWPARTITION FROM counted;", "columns in SELECT clauses: `ROWPARTITION`"),
        ("SELECT id, ABS(ROWOFFSET) AS o FROM s;", "columns in SELECT clauses: `ROWOFFSET`"),
        ("SELECT * FROM counted WHERE ROWOFFSET > 1;", "columns in WHERE clauses: `ROWOFFSET`"),
        ("SELECT n, n FROM counted;", "Duplicate value columns found in schema: `N` BIGINT"),
        ("SELECT id, id FROM counted;", "Duplicate key columns found in schema: `ID` INTEGER KEY"),
        (
            "SELECT * FROM counted WHERE id IN (1, '2');",
            "'2' can not be converted to the type of the key column: ID INT",
        ),
        ("SELECT * FROM counted WHERE id IN (1, NULL);", r"Primary key columns can not be NULL: \(ID = null\)"),
        ("SELECT * FROM declared;", "The `DECLARED` table isn't queryable"),
        ("SELECT id FROM counted ORDER BY id;", "line 1:30: Syntax Error"),
    ],
)
def test_pull_queries_refuse_what_only_a_running_query_knows(sandbox: Sandbox, query: str, message: str) -> None:
    with pytest.raises(MillstreamError, match=message):
        sandbox.query(query)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ("WINDOWSTART > 0 AND WINDOWSTART >= 5", "Duplicate `WINDOWSTART` bounds on: GREATER_THAN"),
        ("WINDOWEND < 9000 AND 9 >= WINDOWEND", "Duplicate `WINDOWEND` bounds on: LESS_THAN"),
        ("WINDOWSTART BETWEEN 0 AND 9 AND WINDOWSTART < 5", "Duplicate `WINDOWSTART` bounds on: LESS_THAN"),
        ("WINDOWSTART = 0 AND WINDOWSTART = 0", "Duplicate `WINDOWSTART` bounds on: EQUAL"),
        ("WINDOWSTART > 0 AND WINDOWSTART = 5", r"`\(WINDOWSTART = 5\)` cannot be combined with other `WINDOWSTART`"),
        ("WINDOWSTART = 5 AND WINDOWSTART > 0", r"`\(WINDOWSTART > 0\)` cannot be combined with other `WINDOWSTART`"),
        ("WINDOWSTART <> 0", "Unsupported `WINDOWSTART` bounds: NOT_EQUAL"),
        ("WINDOWSTART = 1.5", "Window bounds must resolve to an INT, BIGINT, or STRING containing a datetime."),
    ],
)
def test_a_lookup_gives_each_bound_of_a_window_once(windows: Sandbox, bounds: str, message: str) -> None:
    with pytest.raises(MillstreamError, match=message):
        windows.query(f"SELECT * FROM windowed WHERE id = 1 AND {bounds};")
    windows.execute("SET 'millstream.pull.full.sql'='true';")
    try:
        list(windows.query(f"SELECT * FROM windowed WHERE id = 1 AND {bounds};"))
    finally:
        windows.execute("UNSET 'millstream.pull.full.sql';")


@pytest.mark.parametrize(
    "where",
    [
        "id = 1 AND WINDOWSTART > 0 AND WINDOWSTART < 9 AND WINDOWEND = 9",
        "id = 1 AND (WINDOWSTART = 0 OR WINDOWSTART = 1000)",
        "id IN (1, 2) AND WINDOWSTART IN (0, 1000)",
        "n = 1 AND WINDOWSTART > 0 AND WINDOWSTART > 5",
    ],
)
def test_bounds_of_different_kinds_and_those_of_a_scan_are_answered(windows: Sandbox, where: str) -> None:
    assert len(list(windows.query(f"SELECT * FROM windowed WHERE {where};"))) == 1


def test_tables_that_a_query_or_a_source_table_keeps_are_answered(sandbox: Sandbox) -> None:
    sandbox.produce("d", 1, {"V": 10})
    assert list(sandbox.query("SELECT * FROM kept WHERE id IN (1, 2);"))[1:] == [{"row": {"columns": [1, 10]}}]
    list(sandbox.query("SELECT id, n, n + 1 AS more FROM counted;"))


@pytest.mark.parametrize("partitions", [1, 2])
def test_table_functions_are_answered_over_streams_as_a_persistent_query_writes_them(partitions: int) -> None:
    select = "SELECT id, EXPLODE(items) AS item, EXPLODE(ARRAY['x', 'y']) AS letter FROM orders WHERE id > 1"
    with Sandbox(properties={"auto.offset.reset": "earliest"}) as sandbox:
        sandbox.execute(
            "CREATE STREAM orders (id INT KEY, items ARRAY<INT>) "
            f"WITH (kafka_topic='orders', value_format='JSON', partitions={partitions});"
        )
        for id_, items in ((1, [9]), (2, [5, None, 7]), (3, []), (4, None)):
            sandbox.produce("orders", id_, {"ITEMS": items})
        sandbox.execute(f"CREATE STREAM written AS {select};")
        sandbox.drain()
        answer = [line["row"]["columns"] for line in sandbox.query(f"{select};") if "row" in line]
        written = [[record["key"], *record["value"].values()] for record in sandbox.consume("WRITTEN")]
        assert sorted(answer, key=str) == sorted(written, key=str)
        assert [2, 7, None] in answer and [4, None, "y"] in answer and len(answer) == 7
        limited = [line for line in sandbox.query(f"{select} LIMIT 2;") if "row" in line]
        assert len(limited) == 2


def test_a_property_lets_pull_queries_read_any_table(sandbox: Sandbox) -> None:
    sandbox.execute("SET 'millstream.pull.any.table'='true';")
    sandbox.produce("d", 1, {"V": 10})
    assert list(sandbox.query("SELECT v FROM declared;"))[1:] == [{"row": {"columns": [10]}}]


@pytest.mark.parametrize(
    ("kind", "values", "found"),
    [
        ("INT", "1.0, 2.5", [1]),
        ("INT", "9999999999, 2", [2]),
        ("DECIMAL(4, 2)", "1, 7", ["1.00"]),
        ("DECIMAL(4, 2)", "2e0, 1.001", ["2.00"]),
    ],
)
def test_full_sql_compares_a_key_with_a_list_as_a_persistent_query_does(
    kind: str, values: str, found: list[Any]
) -> None:
    with Sandbox(properties={"auto.offset.reset": "earliest", "millstream.pull.full.sql": "true"}) as sandbox:
        sandbox.execute(
            f"CREATE TABLE t (k {kind} PRIMARY KEY, v INT) WITH (kafka_topic='t', format='JSON', partitions=1);"
            f"CREATE TABLE o AS SELECT * FROM t WHERE k IN ({values});"
            "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3);"
        )
        sandbox.drain()
        for query in (f"SELECT k FROM t WHERE k IN ({values});", "SELECT k FROM o;"):
            assert [str(line["row"]["columns"][0]) for line in sandbox.query(query) if "row" in line] == list(
                map(str, found)
            )


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
