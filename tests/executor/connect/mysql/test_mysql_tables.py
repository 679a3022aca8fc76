"""Tables of MariaDB that are more or less than a table: those with a history, and sequences."""

from __future__ import annotations

import pytest
from connectors import read_topic
from mariadb_server import MariaDbServer, Sql
from mysql_runners import catch_up, runner, settings
from postgres_changes import table_of

from millstream.logcore.log import Log

VERSIONED = {
    "implicit": "(id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING",
    "named": "(id INT PRIMARY KEY, v INT, b TIMESTAMP(6) AS ROW START, e TIMESTAMP(6) AS ROW END,"
    " PERIOD FOR SYSTEM_TIME (b, e)) WITH SYSTEM VERSIONING",
}


@pytest.mark.parametrize("how", VERSIONED)
def test_a_table_with_a_history_is_its_rows_of_now(
    server: MariaDbServer, sql: Sql, database: str, log: Log, how: str
) -> None:
    sql.run(f"CREATE TABLE t {VERSIONED[how]}", "INSERT INTO t (id, v) VALUES (1, 1), (2, 1), (3, 1)")
    running = runner(log, settings(server, database))
    catch_up(running)
    sql.run(
        "UPDATE t SET v = 2 WHERE id = 1",
        "INSERT INTO t (id, v) VALUES (4, 4)",
        "DELETE FROM t WHERE id = 2",
        "UPDATE t SET id = 30 WHERE id = 3",
        "DELETE HISTORY FROM t",
    )
    catch_up(running)
    running.close()
    records = read_topic(log, f"m.{database}.t")
    changes = [(record.json["op"], record.json["after"]) for record in records[3:] if record.value is not None]
    assert changes == [
        ("u", {"id": 1, "v": 2}), ("c", {"id": 4, "v": 4}), ("d", None), ("d", None), ("c", {"id": 30, "v": 1}),
    ]  # fmt: skip
    assert {record.key for record in records if record.value is None} == {b'{"id":2}', b'{"id":3}'}
    assert records[0].json["after"] == {"id": 1, "v": 1}


def test_another_primary_key_leaves_no_records_with_keys_of_before(
    server: MariaDbServer, sql: Sql, database: str, log: Log
) -> None:
    sql.run("CREATE TABLE t (a INT PRIMARY KEY, b INT NOT NULL, v INT)", "INSERT INTO t VALUES (1, 11, 0), (2, 12, 0)")
    running = runner(log, settings(server, database))
    catch_up(running)
    sql.run("INSERT INTO t VALUES (3, 13, 0)", "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (b)")
    sql.run("UPDATE t SET v = 1 WHERE b = 11", "DELETE FROM t WHERE b = 12")
    catch_up(running, quiet=8)
    running.close()
    rows = table_of(read_topic(log, f"m.{database}.t"))
    assert {key: row["after"]["v"] for key, row in rows.items()} == {b'{"b":11}': 1, b'{"b":13}': 0}


def test_a_sequence_has_no_topic(server: MariaDbServer, sql: Sql, database: str, log: Log) -> None:
    sql.run("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE SEQUENCE numbers")
    running = runner(log, settings(server, database))
    catch_up(running)
    sql.run("INSERT INTO t VALUES (NEXTVAL(numbers))", "SELECT NEXTVAL(numbers)", "SELECT SETVAL(numbers, 5000)")
    catch_up(running)
    running.close()
    assert [record.key for record in read_topic(log, f"m.{database}.t")] == [b'{"id":1}']
    assert log.topic(f"m.{database}.numbers") is None
