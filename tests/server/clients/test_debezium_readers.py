"""What the source `postgres` writes is read by programs that know Debezium's format: Flink SQL's `debezium-json`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from connectors import read_topic
from postgres_server import PostgresServer, postgres_server

from bench.maven import Unavailable, jars
from bench.nexmark.flink import flink_python
from millstream.executor.connect.connector import TaskInfo
from millstream.executor.connect.connector_settings import read_settings
from millstream.executor.connect.postgres.pg_source import PostgresSource
from millstream.executor.connect.postgres.postgres_settings import PostgresSettings
from millstream.executor.connect.source_runner import SourceRunner
from millstream.logcore.log import Log, open_log
from millstream.logcore.server import LogServer

_CONNECTOR = "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2"
_PROGRAM = Path(__file__).with_name("flink_reads_debezium.py")
CHANGES = (
    "INSERT INTO customers VALUES (4, 'Dee', 1.25)",
    "UPDATE customers SET credit = credit * 2 WHERE id <= 2",
    "UPDATE customers SET id = 30 WHERE id = 3",
    "DELETE FROM customers WHERE id = 1",
    "INSERT INTO customers SELECT i, 'many ' || i, i / 4.0 FROM generate_series(100, 599) i",
    "UPDATE customers SET name = NULL WHERE id % 7 = 0",
    "DELETE FROM customers WHERE id % 5 = 0",
)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_flink_sql_has_the_table_after_all_changes(tmp_path: Path) -> None:
    try:
        python, (connector,) = flink_python(), jars(_CONNECTOR, alone=True)
    except Unavailable as error:
        pytest.skip(str(error))
    with (
        postgres_server() as postgres,
        open_log(tmp_path / "log", sync="never") as log,
        LogServer(log, port=0) as server,
    ):
        table = captured(postgres, log)
        command = [str(python), str(_PROGRAM), server.address, "shop.public.customers", str(connector)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    changes = [json.loads(line[6:]) for line in run.stdout.splitlines() if line.startswith("CHANGE")]
    assert changes, run.stderr[-3000:]
    assert applied(changes) == table


def captured(postgres: PostgresServer, log: Log) -> list[list[Any]]:
    """Three rows in the snapshot, then `CHANGES`. Returns the table."""
    with postgres.connect() as sql:
        sql.execute("CREATE TABLE customers (id INT PRIMARY KEY, name TEXT, credit NUMERIC(10, 2))")
        sql.execute("ALTER TABLE customers REPLICA IDENTITY FULL")  # Flink wants the old row of an UPDATE
        sql.execute("INSERT INTO customers VALUES (1, 'Ada', 10.50), (2, NULL, 20), (3, 'Cy', 0.05)")
        config = {**postgres.parameters(), "topic.prefix": "shop", "table.include.list": "public.customers"}
        source = PostgresSource(read_settings(PostgresSettings, config), TaskInfo("flink"))
        runner = SourceRunner(log, source, TaskInfo("flink"), config)
        while runner.position is None or runner.position["phase"] != "stream":
            runner.step(0.1)
        for statement in CHANGES:
            sql.execute(statement)
        rows = [list(row) for row in sql.execute("SELECT id, name, credit::text FROM customers ORDER BY id").fetchall()]
        sql.execute("INSERT INTO customers VALUES (1000000, 'last', 0)")
        while not _has_last(log):
            runner.step(0.2)
        runner.close()
    return [*rows, [1000000, "last", "0.00"]]


def _has_last(log: Log) -> bool:
    return any(record.value and b'"last"' in record.value for record in read_topic(log, "shop.public.customers"))


def applied(changes: list[list[Any]]) -> list[list[Any]]:
    """The rows that are left. Each row that is taken away was there."""
    rows: list[list[Any]] = []
    for kind, *row in changes:
        if kind.endswith(("INSERT", "UPDATE_AFTER", "+I", "+U")):
            rows.append(row)
        else:
            rows.remove(row)
    return sorted(rows)
