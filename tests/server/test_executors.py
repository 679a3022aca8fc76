"""Which executor runs a query, and what is said where one is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from planning import Planner

from millstream.errors import Unsupported
from millstream.planner.catalog import PersistentQuery
from millstream.server.engine import executors
from millstream.server.engine.embedded import open_engine
from millstream.server.engine.executors import NoSpark, check_executor, chosen_executor, describe_executor
from millstream.server.engine.session import Session

STREAM = "CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);"


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "why_no_spark", lambda: "there is no Java runtime")


@pytest.mark.usefixtures("no_java")
def test_without_java_duckdb_runs_queries_and_says_what_java_would_add() -> None:
    duckdb = "DuckDB runs persistent queries in this process"
    assert describe_executor({}) == f"{duckdb}; there is no Java runtime: with Spark, queries could use a cluster"
    assert describe_executor({"millstream.executor": "duckdb"}) == duckdb
    with pytest.raises(NoSpark, match="there is no Java runtime"):
        check_executor({"millstream.executor": "spark"})
    check_executor({"millstream.executor": "auto"})


@pytest.mark.usefixtures("no_java")
def test_a_query_that_wants_spark_is_refused_and_a_stored_one_is_in_error(tmp_path: Path) -> None:
    with open_engine(tmp_path, {"millstream.executor": "duckdb"}, sync="never") as engine:
        engine.execute(STREAM, Session())
        with pytest.raises(Unsupported, match="Spark cannot run this query"):
            engine.execute("CREATE STREAM a WITH (EXECUTOR='spark') AS SELECT * FROM s;", Session())
        assert list(engine.catalog.queries) == []
        engine.execute("CREATE STREAM b AS SELECT * FROM s;", Session())
        (query,) = engine.catalog.queries.values()
        stored = wants_spark(query)
        engine.executor.start(stored)
        assert engine.executor.status("moved").state == "ERROR"
        engine.executor.drop("moved")


def test_a_query_that_a_statement_has_stopped_and_not_dropped_yet_has_a_status(tmp_path: Path) -> None:
    """Routes ask without the engine's lock."""
    with open_engine(tmp_path, {"millstream.executor": "duckdb"}, sync="never") as engine:
        engine.execute(f"{STREAM} CREATE STREAM b AS SELECT * FROM s;", Session())
        (query,) = engine.catalog.queries.values()
        engine.executor.stop(query.id)
        assert (engine.executor.status(query.id).state, engine.executor.figures(query.id)) == ("STOPPED", None)
        engine.executor.start(query)
        assert engine.executor.status(query.id).state == "RUNNING"


def wants_spark(query: PersistentQuery) -> PersistentQuery:
    """The query as a server with Java would have stored it."""
    plan = replace(query.plan, properties={**query.plan.properties, "millstream.executor": "spark"})
    return replace(query, id="moved", plan=plan)


def test_windows_that_close_when_nothing_comes_are_for_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "why_no_spark", lambda: None)
    properties = {"millstream.emit.final.idle.ms": "1000"}
    planner = Planner(properties=properties)
    counted = "CREATE TABLE {} AS SELECT id, COUNT(*) AS n FROM s WINDOW TUMBLING (SIZE 1 DAY) GROUP BY id EMIT {};"
    final, running = planner.plans(STREAM + counted.format("f", "FINAL") + counted.format("c", "CHANGES"))
    assert (chosen_executor(final), chosen_executor(running)) == ("duckdb", "spark")
    assert chosen_executor(replace(final, properties={}), {"millstream.emit.final.idle.ms": "1"}) == "duckdb"
    assert chosen_executor(replace(final, properties={})) == "spark"
    with pytest.raises(Unsupported, match="only records move time"):
        chosen_executor(replace(final, properties={**properties, "millstream.executor": "spark"}))
