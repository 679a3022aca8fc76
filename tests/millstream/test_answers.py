"""What statements other than SELECT answer in Python."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import millstream
from millstream.errors import InvalidStatement


@pytest.fixture(scope="module")
def ms() -> Iterator[millstream.Connection]:
    with millstream.connect() as connection:
        connection.sql(
            "CREATE TABLE t (id INT PRIMARY KEY, a INT) WITH (kafka_topic='t', value_format='JSON', partitions=2);"
        )
        connection.insert("t", {"id": [1, 2, 3], "a": [1, 1, 2]})
        yield connection


@pytest.mark.parametrize("query", ["SELECT a, COUNT(*) AS n FROM t GROUP BY a", "CREATE TABLE u AS SELECT * FROM t"])
def test_explain_gives_the_lines_of_the_plan(ms: millstream.Connection, query: str) -> None:
    shown = ms.sql(f"EXPLAIN {query};")
    assert any("SOURCE TABLE T" in line for (line,) in shown.fetchall())
    assert "SOURCE TABLE T" in str(shown)


def test_delete_says_how_many_rows_went(ms: millstream.Connection) -> None:
    assert ms.sql("DELETE FROM t WHERE a = 1;").rows[0]["count"] == 2  # pyrefly: ignore[missing-attribute]


def test_nothing_to_show_is_no_rows(ms: millstream.Connection) -> None:
    assert ms.sql("SHOW VARIABLES;").fetchall() == []


def test_print_is_for_the_shell(ms: millstream.Connection) -> None:
    with pytest.raises(InvalidStatement, match="shell"):
        ms.sql("PRINT 't' FROM BEGINNING LIMIT 1;")
