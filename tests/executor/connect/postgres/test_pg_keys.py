"""The keys of records: they are those of the rows, also where PostgreSQL sends only a part of the old row."""

from __future__ import annotations

import json
from typing import Any

import pytest
from connectors import read_topic
from pg_runners import catch_up, runner, settings
from postgres_changes import table_of
from postgres_server import PostgresServer

from millstream.executor.connect.connector import TaskInfo
from millstream.executor.connect.connector_settings import read_settings
from millstream.executor.connect.postgres.pg_source import PostgresSource
from millstream.executor.connect.postgres.postgres_settings import PostgresSettings
from millstream.logcore.log import Log


@pytest.mark.parametrize(
    ("columns", "index", "key"),
    [
        ("id INT PRIMARY KEY, code TEXT NOT NULL", "(code)", ["code"]),
        ("id INT, code TEXT NOT NULL", "(code)", ["code"]),
        ("id INT PRIMARY KEY, code TEXT NOT NULL", "(id, code)", ["id"]),
    ],
)
def test_an_index_as_identity_gives_the_key_of_each_delete(
    server: PostgresServer, sql: Any, log: Log, columns: str, index: str, key: list[str]
) -> None:
    sql.execute(f"CREATE TABLE t ({columns}, v INT)")
    sql.execute(f"CREATE UNIQUE INDEX of_rows ON t {index}")
    sql.execute("ALTER TABLE t REPLICA IDENTITY USING INDEX of_rows")
    sql.execute("INSERT INTO t SELECT i, 'c' || i, 0 FROM generate_series(1, 5) i")
    config = settings(server, sql, table_include_list="public.t")
    running = runner(log, config)
    catch_up(running)
    sql.execute("UPDATE t SET v = 1 WHERE id = 1")
    sql.execute("UPDATE t SET code = 'new' WHERE id = 2")
    sql.execute("UPDATE t SET id = 30 WHERE id = 3")
    sql.execute("DELETE FROM t WHERE id = 4")
    catch_up(running)
    running.close()
    rows = table_of(read_topic(log, "pg.public.t"))
    expected = sql.execute("SELECT id, code, v FROM t ORDER BY id").fetchall()
    assert sorted(tuple(row["after"][name] for name in ("id", "code", "v")) for row in rows.values()) == expected
    assert PostgresSource.table(read_settings(PostgresSettings, config), TaskInfo("pg"), "t").key == tuple(key)


def test_a_key_that_is_too_long_for_its_row_is_the_key_of_each_change(
    server: PostgresServer, sql: Any, log: Log
) -> None:
    """It is a TOAST value, which the new row of an UPDATE does not have."""
    sql.execute("CREATE TABLE t (id TEXT PRIMARY KEY, v INT, more TEXT)")
    sql.execute("ALTER TABLE t ALTER id SET STORAGE EXTERNAL, ALTER more SET STORAGE EXTERNAL")
    sql.execute("INSERT INTO t VALUES (repeat('k', 2500), 1, repeat('m', 5000))")
    running = runner(log, settings(server, sql, table_include_list="public.t"))
    catch_up(running)
    sql.execute("UPDATE t SET v = 2")
    catch_up(running)
    (row,) = table_of(read_topic(log, "pg.public.t")).values()
    assert row["after"] == {"id": "k" * 2500, "v": 2, "more": "__debezium_unavailable_value"}
    sql.execute("DELETE FROM t")
    catch_up(running)
    running.close()
    assert table_of(read_topic(log, "pg.public.t")) == {}


@pytest.mark.parametrize("running_meanwhile", [True, False])
def test_another_primary_key_leaves_no_records_with_keys_of_before(
    server: PostgresServer, sql: Any, log: Log, running_meanwhile: bool
) -> None:
    sql.execute("CREATE TABLE t (a INT PRIMARY KEY, b INT NOT NULL, v TEXT)")
    sql.execute("INSERT INTO t SELECT i, 100 + i, 'x' FROM generate_series(1, 20) i")
    config = settings(server, sql, table_include_list="public.t", incremental_snapshot_chunk_size="7")
    running = runner(log, config)
    catch_up(running)
    if not running_meanwhile:
        running.close()
    with sql.transaction():
        sql.execute("INSERT INTO t VALUES (30, 130, 'before')")
        sql.execute("ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (b), ADD COLUMN w INT DEFAULT 7")
        sql.execute("INSERT INTO t VALUES (31, 131, 'after')")
        sql.execute("UPDATE t SET v = 'y' WHERE b = 101")
        sql.execute("DELETE FROM t WHERE b = 102")
    if not running_meanwhile:
        running = runner(log, config)
    catch_up(running, quiet=8)
    sql.execute("UPDATE t SET v = 'z' WHERE b = 103")
    catch_up(running)
    running.close()
    rows = table_of(read_topic(log, "pg.public.t"))
    assert all(set(json.loads(key)) == {"b"} for key in rows)
    expected = sql.execute("SELECT a, b, v FROM t ORDER BY a").fetchall()
    assert sorted(tuple(row["after"][name] for name in ("a", "b", "v")) for row in rows.values()) == expected
