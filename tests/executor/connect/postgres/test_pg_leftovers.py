"""DROP CONNECTOR while PostgreSQL is away or busy: no slot stays behind for long, and none that is not ours goes."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from connectors import read_topic
from pg_runners import catch_up, runner, settings
from postgres_server import PostgresServer
from waiting import eventually, without_error

from millstream.errors import InvalidProperty, InvalidStatement
from millstream.executor.connect.connector import TaskInfo
from millstream.executor.connect.connector_settings import read_settings
from millstream.executor.connect.postgres import pg_source
from millstream.executor.connect.postgres.pg_source import PostgresSource
from millstream.executor.connect.postgres.postgres_settings import PostgresSettings
from millstream.executor.connect.task_positions import read_leftovers
from millstream.logcore.log import Log
from millstream.server.catalog.command_topic import CommandTopic
from millstream.server.catalog.commands import RemoveConnector
from millstream.server.connect.connector_offsets import reset_offsets
from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.session import Session
from millstream.server.handlers.connectors import UnknownConnector

DUCKDB = {"millstream.executor": "duckdb"}


@pytest.fixture
def table(sql: Any) -> Any:
    sql.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    sql.execute("INSERT INTO t VALUES (1)")
    return sql


def run(engine: EmbeddedEngine, text: str) -> list[dict[str, Any]]:
    return [entity.as_json() for entity in engine.execute(text, Session())]


def warned(engine: EmbeddedEngine) -> str:
    return " ".join(warning["message"] for warning in run(engine, "SHOW CONNECTORS;")[0]["warnings"])


def create(engine: EmbeddedEngine, config: dict[str, str], name: str = "pg") -> None:
    given = ", ".join(f"'{key}'='{value}'" for key, value in config.items())
    run(engine, f"CREATE SOURCE CONNECTOR {name} WITH ('connector.class'='postgres', {given});")


def streams(engine: EmbeddedEngine, server: PostgresServer, slot: str = "millstream_pg") -> None:
    eventually(lambda: slot in active_slots(server))
    eventually(lambda: read_topic(engine.log, "pg.public.t"))


def active_slots(server: PostgresServer) -> list[str]:
    with server.connect() as admin:
        return [name for (name,) in admin.execute("SELECT slot_name FROM pg_replication_slots WHERE active")]


def slots(server: PostgresServer) -> list[str]:
    with server.connect() as admin:
        return [name for (name,) in admin.execute("SELECT slot_name FROM pg_replication_slots")]


@contextlib.contextmanager
def away(server: PostgresServer) -> Generator[None]:
    server.stop()
    try:
        yield
    finally:
        server.start()


@contextlib.contextmanager
def refused_because_of_the_slot(server: PostgresServer, table: Any, folder: Path) -> Generator[EmbeddedEngine]:
    """With a connector that never began: the slot `theirs` is somebody else's."""
    table.execute("SELECT pg_create_logical_replication_slot('theirs', 'pgoutput')")
    with open_engine(folder, DUCKDB, sync="never") as engine:
        create(engine, settings(server, table, slot_name="theirs"))
        eventually(lambda: engine.connectors.status("PG").tasks[0].state == "FAILED")
        yield engine


@pytest.mark.parametrize("how", ["same engine", "next engine", "died before it was noted"])
def test_a_slot_goes_once_postgresql_is_back(server: PostgresServer, table: Any, tmp_path: Path, how: str) -> None:
    with contextlib.ExitStack() as engines:
        with open_engine(tmp_path, DUCKDB, sync="never") as engine:
            create(engine, settings(server, table))
            streams(engine, server)
            with away(server):
                if how == "died before it was noted":
                    command = RemoveConnector(name="PG", connector=engine.catalog.connectors["PG"])
                    CommandTopic(engine.log).append(command)
                else:
                    (dropped,) = run(engine, "DROP CONNECTOR pg;")
                    (warning,) = dropped["warnings"]
                    assert "the replication slot millstream_pg of PostgreSQL at 127.0.0.1" in warning["message"]
                    assert "is not removed yet" in warning["message"]
                    eventually(lambda: "It is tried again" in str(run(engine, "SHOW CONNECTORS;")[0]["warnings"]))
                if how != "same engine":
                    engine.close()
            if how == "same engine":
                eventually(lambda: slots(server) == [])
                eventually(lambda: read_leftovers(engine.log) == {})
                assert run(engine, "SHOW CONNECTORS;")[0]["warnings"] == []
                return
        assert slots(server) == ["millstream_pg"]
        engine = engines.enter_context(open_engine(tmp_path, DUCKDB, sync="never"))
        eventually(lambda: slots(server) == [])
        eventually(lambda: read_leftovers(engine.log) == {})


def test_a_connector_of_the_same_slot_begins_once_it_is_gone(
    server: PostgresServer, table: Any, tmp_path: Path
) -> None:
    config = settings(server, table, slot_name="shared")
    with open_engine(tmp_path, DUCKDB, sync="never") as engine:
        create(engine, config)
        streams(engine, server, "shared")
        with away(server):
            run(engine, "DROP CONNECTOR pg;")
            create(engine, {**config, "topic.prefix": "anew"}, "other")
            (task,) = engine.connectors.status("OTHER").tasks
            assert task.state == "RUNNING" and "the replication slot shared" in (task.error or "")
        eventually(lambda: read_topic(engine.log, "anew.public.t"))
        eventually(lambda: active_slots(server) == ["shared"])
        run(engine, "DROP CONNECTOR other;")
        eventually(lambda: slots(server) == [])


def test_a_connector_of_another_place_does_not_wait(server: PostgresServer, table: Any, tmp_path: Path) -> None:
    with open_engine(tmp_path, DUCKDB, sync="never") as engine:
        create(engine, settings(server, table))
        streams(engine, server)
        with away(server):
            run(engine, "DROP CONNECTOR pg;")
            run(engine, "CREATE SOURCE CONNECTOR pg WITH ('connector.class'='datagen', 'quickstart'='users',"
                "'kafka.topic'='users', 'max.interval'=0, 'iterations'=10, 'key.converter'='string');")  # fmt: skip
        eventually(lambda: slots(server) == [])


def test_a_slot_of_others_survives_the_drop_of_a_connector_that_never_began(
    server: PostgresServer, table: Any, tmp_path: Path
) -> None:
    with refused_because_of_the_slot(server, table, tmp_path) as engine:
        (dropped,) = run(engine, "DROP CONNECTOR pg;")
        assert dropped["warnings"] == []
    assert slots(server) == ["theirs"]


def test_a_host_that_never_was_leaves_nothing(tmp_path: Path, server: PostgresServer, table: Any) -> None:
    with open_engine(tmp_path, DUCKDB, sync="never") as engine:
        create(engine, settings(server, table, database_port="1"))
        eventually(lambda: "does not answer" in (engine.connectors.status("PG").tasks[0].error or ""))
        run(engine, "DROP CONNECTOR pg;")
        assert read_leftovers(engine.log) == {}
        eventually(lambda: engine.connectors.settled(["PG"], 0) == {})


def test_a_slot_whose_reader_hangs_is_taken_from_it(
    server: PostgresServer, table: Any, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a task that does not end, or a connection that only the server still believes in."""
    monkeypatch.setattr(pg_source, "_HANG_UP_S", 0.2)
    config = settings(server, table)
    running = runner(log, config)
    catch_up(running)
    given = read_settings(PostgresSettings, config)
    with contextlib.closing(running):
        without_error(lambda: PostgresSource.forget(given, TaskInfo("pg")), seconds=10)
        assert slots(server) == []


def test_a_database_that_is_gone_has_taken_the_slot_with_it(server: PostgresServer, table: Any, log: Log) -> None:
    with server.connect() as admin:
        admin.execute("CREATE DATABASE short")
    with server.connect("short") as short:
        short.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        config = settings(server, short)
    running = runner(log, config)
    catch_up(running)
    running.close()
    with server.connect() as admin:
        without_error(lambda: admin.execute("DROP DATABASE short"))
    assert slots(server) == []
    PostgresSource.forget(read_settings(PostgresSettings, config), TaskInfo("pg"))


@pytest.mark.parametrize("then", ["resumed", "dropped"])
def test_offsets_that_were_deleted_do_not_make_the_slot_a_strangers(
    server: PostgresServer, table: Any, tmp_path: Path, then: str
) -> None:
    with open_engine(tmp_path, DUCKDB, sync="never") as engine:
        create(engine, settings(server, table))
        streams(engine, server)
        running = engine.catalog.connectors["PG"]
        stopped = replace(running, stopped=True)
        engine.connectors.become(stopped)
        assert engine.connectors.settled(["PG"], within_s=20) == {}
        reset_offsets(stopped, engine.connectors, engine.log)
        assert slots(server) == ["millstream_pg"]
        if then == "resumed":
            engine.connectors.become(running)
            eventually(lambda: len(read_topic(engine.log, "pg.public.t")) == 2)  # the row of the second snapshot
            eventually(lambda: active_slots(server) == ["millstream_pg"])
        run(engine, "DROP CONNECTOR pg;")
        eventually(lambda: slots(server) == [])


def test_who_alters_a_connector_to_another_slot_is_told_of_the_one_that_stays(
    server: PostgresServer, table: Any, tmp_path: Path
) -> None:
    with open_engine(tmp_path, DUCKDB, sync="never") as engine:
        create(engine, settings(server, table))
        streams(engine, server)
        (same,) = run(engine, "ALTER CONNECTOR pg WITH ('max.batch.size'='10');")
        assert same["warnings"] == []
        (altered,) = run(engine, "ALTER CONNECTOR pg WITH ('slot.name'='other');")
        (warning,) = altered["warnings"]
        place = f"127.0.0.1:{server.parameters()['database.port']}/{table.info.dbname}"
        assert warning["message"] == (
            f"Connector PG: the replication slot millstream_pg of PostgreSQL at {place}, which holds WAL, stays until "
            "somebody drops it, or the connector is altered back."
        )
        eventually(lambda: engine.connectors.status("PG").tasks[0].state == "FAILED")
        run(engine, "ALTER CONNECTOR pg WITH ('slot.name'='millstream_pg');")
        table.execute("INSERT INTO t VALUES (2)")
        eventually(lambda: len(read_topic(engine.log, "pg.public.t")) == 2)


def test_a_connector_that_never_began_leaves_nothing_when_it_is_altered(
    server: PostgresServer, table: Any, tmp_path: Path
) -> None:
    with refused_because_of_the_slot(server, table, tmp_path) as engine:
        (altered,) = run(engine, "ALTER CONNECTOR pg WITH ('slot.name'='ours');")
        assert altered["warnings"] == []
        streams(engine, server, "ours")


def test_a_slot_whose_server_is_gone_for_good_is_given_up(server: PostgresServer, table: Any, tmp_path: Path) -> None:
    gives_up = "DROP CONNECTOR pg WITH (leftovers='keep');"
    with open_engine(tmp_path, DUCKDB, sync="never") as engine:
        create(engine, settings(server, table))
        streams(engine, server)
        with pytest.raises(InvalidStatement, match="is still there"):
            run(engine, gives_up)
        with away(server):
            run(engine, "DROP CONNECTOR pg;")
            eventually(lambda: "DROP CONNECTOR PG WITH (leftovers='keep') gives it up" in warned(engine))
            with pytest.raises(InvalidProperty, match="keep"):
                run(engine, "DROP CONNECTOR pg WITH (leftovers='remove');")
            (dropped,) = run(engine, gives_up)
            (warning,) = dropped["warnings"]
            assert "the replication slot millstream_pg of PostgreSQL" in warning["message"]
            assert "stays" in warning["message"]
            assert run(engine, "SHOW CONNECTORS;")[0]["warnings"] == []
            assert read_leftovers(engine.log) == {}
            with pytest.raises(UnknownConnector):
                run(engine, gives_up)
    with open_engine(tmp_path, DUCKDB, sync="never") as engine:
        assert run(engine, "SHOW CONNECTORS;")[0]["warnings"] == []
        assert slots(server) == ["millstream_pg"]
