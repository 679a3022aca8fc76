"""Rows that a table must not keep, and one that it must not lose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest
from batch_answers import final_rows, sandbox

from millstream.testing import Sandbox

FULL_SQL = "SET 'millstream.pull.full.sql'='true';"
EVERY_CHANGE, LAST_CHANGE = "0", "10000000"


@pytest.fixture(params=[EVERY_CHANGE, LAST_CHANGE])
def engine(request: pytest.FixtureRequest) -> Generator[Any]:
    with sandbox(**{"ksql.streams.cache.max.bytes.buffering": request.param}) as made:
        made.execute(FULL_SQL)
        for name in "ty":
            made.execute(
                f"CREATE TABLE {name} (k STRING PRIMARY KEY, e STRING, a INT) "
                f"WITH (kafka_topic='{name}', format='JSON', partitions=1);"
            )
        yield made


def pulled(engine: Sandbox, query: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(message["row"]["columns"]) for message in engine.query(query) if "row" in message)


def test_an_aggregate_of_an_aggregate_counts_no_groups_that_are_gone(engine: Sandbox) -> None:
    query = "SELECT e, COUNT(*) AS n FROM (SELECT e, k, SUM(a) AS m FROM t GROUP BY e, k) x GROUP BY e;"
    engine.execute(f"CREATE TABLE o AS {query}")
    for key, value in (("1", {"E": "x"}), ("2", {"E": "x"}), ("3", {"E": "z"})):
        engine.produce("t", key, value, 1)
    engine.drain()
    for key, value in (("1", None), ("2", {"E": "y"})):
        engine.produce("t", key, value, 2)
    engine.drain()
    assert final_rows(engine, "O") == pulled(engine, query) == Counter([("y", 1), ("z", 1)])


def test_a_group_that_loses_several_rows_at_once_is_gone(engine: Sandbox) -> None:
    engine.execute(
        "CREATE TABLE o AS SELECT y.e AS e, COUNT(*) AS n FROM t JOIN (SELECT * FROM y) y ON t.a = y.a GROUP BY y.e;"
    )
    engine.produce("t", "1", {"A": 1}, 1)
    engine.produce("t", "2", {"A": 1}, 1)
    engine.produce("y", "3", {"E": "a", "A": 1}, 1)
    engine.drain()
    assert final_rows(engine, "O") == Counter([("a", 2)])
    engine.produce("y", "3", None, 2)
    engine.drain()
    assert not final_rows(engine, "O")


@pytest.mark.parametrize(
    ("key_format", "columns"),
    [(name, "e") for name in ("JSON", "DELIMITED", "KAFKA", "AVRO", "JSON_SR", "PROTOBUF")] + [("AVRO", "e, a")],
)
def test_the_row_of_nulls_is_a_distinct_row(key_format: str, columns: str) -> None:
    """Of a source whose key format has no bytes for NULL the key becomes JSON."""
    query = f"SELECT DISTINCT {columns} FROM s;"
    with sandbox() as engine:
        engine.execute(
            f"{FULL_SQL} CREATE STREAM s (k STRING KEY, e STRING, a INT) WITH (kafka_topic='s', "
            f"key_format='{key_format}', value_format='JSON', partitions=1);"
            f"CREATE TABLE o AS {query} CREATE TABLE copied AS SELECT {columns}, 1 AS one FROM o;"
        )
        for e in ("'x'", "''", "NULL", "NULL"):
            engine.execute(f"INSERT INTO s (k, e) VALUES ('1', {e});")
        engine.drain()
        rest = (None,) * columns.count(",")
        wanted = Counter([("x", *rest), ("", *rest), (None, *rest)])
        assert pulled(engine, query) == wanted
        for name in ("o", "copied"):
            assert pulled(engine, f"SELECT {columns} FROM {name};") == wanted


def test_a_key_that_its_format_cannot_write_is_said_to_be_left_out() -> None:
    with sandbox() as engine:
        engine.execute(
            "CREATE STREAM s (k STRING KEY, e STRING) WITH (kafka_topic='s', format='JSON', partitions=2);"
            "CREATE TABLE o WITH (key_format='KAFKA') AS SELECT DISTINCT e FROM s;"
        )
        for e in ("x", None):
            engine.produce("s", "1", {"E": e}, 1)
        engine.drain()
        assert final_rows(engine, "O") == Counter([("x",)])
        (entry,) = engine.consume("default_ksql_processing_log")
        assert "which the key format KAFKA cannot write" in str(entry)
