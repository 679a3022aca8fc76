"""ALTER CONNECTOR adds a table, and RESNAPSHOT reads one again: as statements, with PostgreSQL behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from connectors import read_topic
from postgres_server import postgres_server
from waiting import eventually

from millstream.errors import StatementError
from millstream.executor.connect.connector_errors import InvalidConnector, UnknownSourceTable
from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.session import Session
from millstream.server.handlers.connectors import UnknownConnector


def run(engine: EmbeddedEngine, text: str) -> list[dict[str, Any]]:
    return [entity.as_json() for entity in engine.execute(text, Session())]


def test_tables_are_added_and_read_again_by_statements(tmp_path: Path) -> None:
    with (
        postgres_server() as server,
        server.connect() as sql,
        open_engine(
            tmp_path, {"millstream.executor": "duckdb", "auto.offset.reset": "earliest"}, sync="never"
        ) as engine,
    ):
        for name in ("a", "b"):
            sql.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY); INSERT INTO {name} VALUES (1), (2)")
        settings = ", ".join(f"'{name}'='{value}'" for name, value in server.parameters().items())
        run(engine, f"""CREATE SOURCE CONNECTOR pg WITH ('connector.class'='postgres', {settings}, 'topic.prefix'='pg',
                            'table.include.list'='public.a');
                        CREATE SOURCE CONNECTOR gen WITH ('connector.class'='datagen', 'quickstart'='users',
                            'kafka.topic'='users', 'iterations'=1);
                        CREATE SINK CONNECTOR out WITH ('connector.class'='http', 'http.api.url'='http://127.0.0.1:1',
                            'topics'='nothing');""")  # fmt: skip
        eventually(lambda: len(read_topic(engine.log, "pg.public.a")) == 2, otherwise="the snapshot")
        run(engine, "ALTER CONNECTOR pg WITH ('table.include.list'='public\\.[ab]');")
        eventually(lambda: len(read_topic(engine.log, "pg.public.b")) == 2, otherwise="the table that was added")
        (answer,) = run(engine, "RESNAPSHOT CONNECTOR pg TABLE 'a';")
        assert answer["commandStatus"]["message"] == "Connector PG reads a again."
        eventually(lambda: len(read_topic(engine.log, "pg.public.a")) == 4, otherwise="the table again")
        run(engine, "RESNAPSHOT CONNECTOR pg;")
        # two tombstones and two rows for each table
        eventually(lambda: len(read_topic(engine.log, "pg.public.b")) == 6, otherwise="all tables again")
        run(engine, "CREATE TABLE a FROM CONNECTOR pg TABLE 'a';")
        assert sorted(row.values[0] for row in engine.query("SELECT id FROM a;", Session())) == [1, 2]
        refused: list[tuple[str, Any, str]] = [
            ("RESNAPSHOT CONNECTOR pg TABLE 'c';", UnknownSourceTable, r"does not read the table public\.c"),
            ("RESNAPSHOT CONNECTOR gen;", UnknownSourceTable, "reads no snapshots"),
            ("RESNAPSHOT CONNECTOR out;", InvalidConnector, "OUT is a sink"),
            ("RESNAPSHOT CONNECTOR nope;", UnknownConnector, "NOPE does not exist"),
        ]
        eventually(lambda: bool(engine.connectors.status("GEN").tasks[0].records))
        for text, error, message in refused:
            with pytest.raises(error, match=message) as caught:
                run(engine, text)
            assert isinstance(caught.value, StatementError) and caught.value.span is not None
