"""MariaDB's tables as topics: the snapshot, the stream, what is between them, and what can go wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from connectors import Read, read_topic, topic_ends
from mariadb_server import MariaDbServer, Sql
from mysql_changes import CREATE_TABLE, check_topic, writing
from mysql_runners import catch_up, runner, settings, twice
from postgres_changes import table_of
from waiting import eventually

from millstream.executor.connect.connector_errors import (
    ConnectorFailed,
    InvalidConnector,
    SystemUnavailable,
    UnknownSourceTable,
)
from millstream.executor.connect.connector_settings import read_settings
from millstream.executor.connect.mysql.mysql_settings import MySqlSettings
from millstream.executor.connect.mysql.mysql_source import MySqlSource
from millstream.executor.connect.source_runner import SourceRunner
from millstream.logcore.log import Log

Start = Callable[..., SourceRunner]


@pytest.fixture
def start(server: MariaDbServer, database: str, log: Log, request: pytest.FixtureRequest) -> Start:
    """A task of the test's own database, that is closed at the end."""

    def begin(**more: str) -> SourceRunner:
        running = runner(log, settings(server, database, **more))
        request.addfinalizer(running.close)
        return running

    return begin


def ops(records: list[Read]) -> list[str | None]:
    return [None if record.value is None else record.json["op"] for record in records]


def rows(log: Log, topic: str) -> list[Any]:
    """The latest rows, in the order of their keys."""
    found = table_of(read_topic(log, topic))
    return [found[key]["after"] for key in sorted(found)]


def test_a_snapshot_and_the_changes_after_it_have_debeziums_shape(
    sql: Sql, database: str, log: Log, start: Start
) -> None:
    sql.run("CREATE TABLE orders (id INT PRIMARY KEY, item VARCHAR(20), price DECIMAL(10, 2))")
    sql.run("INSERT INTO orders VALUES (1, 'a', 1.50), (2, 'b', NULL)")
    running = start(table_include_list=rf"{database}\.orders")
    catch_up(running)
    sql.run("INSERT INTO orders VALUES (3, 'c', 12345678.90)", "UPDATE orders SET item = 'B' WHERE id = 2")
    sql.run("UPDATE orders SET id = 4 WHERE id = 3", "DELETE FROM orders WHERE id = 1")
    catch_up(running)
    records = read_topic(log, f"m.{database}.orders")
    assert ops(records) == ["r", "r", "c", "u", "d", None, "c", "d", None]
    assert [record.key for record in records[:2]] == [b'{"id":1}', b'{"id":2}']
    first, created, updated = records[0].json, records[2].json, records[3].json
    assert b'"price":1.50' in (records[0].value or b"")  # all its digits
    assert first["source"]["snapshot"] == "true" and first["transaction"] is None
    assert (created["before"], created["after"]["item"]) == (None, "c")
    assert (updated["before"]["item"], updated["after"]["item"]) == ("b", "B")
    assert records[7].json["before"] == {"id": 1, "item": "a", "price": 1.5}
    source = created["source"]
    assert {name: source[name] for name in ("connector", "name", "db", "table", "snapshot", "server_id", "row")} == {
        "connector": "mariadb", "name": "m", "db": database, "table": "orders", "snapshot": "false", "server_id": 1,
        "row": 0,
    }  # fmt: skip
    assert source["gtid"] == created["transaction"]["id"] and created["transaction"]["total_order"] == 1
    assert source["ts_ms"] == records[2].timestamp and abs(records[2].timestamp - time.time() * 1000) < 60_000
    assert running.lag() == 0


def test_a_large_transaction_is_one_transaction_of_the_log(sql: Sql, database: str, log: Log, start: Start) -> None:
    sql.run("CREATE TABLE t (id INT PRIMARY KEY)")
    running = start(max_batch_size="100")
    catch_up(running)
    sql.run("INSERT INTO t SELECT seq FROM seq_1_to_5050")
    seen = set()
    while running.records < 5050:
        running.step(0.2)
        seen.add(len(read_topic(log, f"m.{database}.t")))
    assert seen <= {0, 5050}


def bytes_sent(sql: Sql) -> int:
    """By the server, since its start."""
    ((_, count),) = sql.rows("SHOW GLOBAL STATUS LIKE 'Bytes_sent'")
    return int(count)


def test_a_snapshot_that_ends_early_does_not_read_what_is_left(sql: Sql, start: Start) -> None:
    sql.run("CREATE TABLE t (id INT PRIMARY KEY, pad TEXT)")
    sql.run("INSERT INTO t SELECT seq, REPEAT('x', 2000) FROM seq_1_to_10000")
    before = bytes_sent(sql)
    running = start(max_batch_size="10")
    running.step(0)
    running.close()
    assert bytes_sent(sql) - before < 10_000_000, "of 20 MB; the rest is what both ends keep of a connection"
    running = start()
    catch_up(running)
    assert running.records == 10_000


def test_columns_and_types_may_change_while_the_stream_runs(sql: Sql, database: str, log: Log, start: Start) -> None:
    """The binary log says what they are at that time, also of changes that are read much later."""
    sql.run("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    catch_up(start())
    sql.run("INSERT INTO t VALUES (1, 1)")
    sql.run("ALTER TABLE t ADD COLUMN b VARCHAR(10) CHARACTER SET latin1 FIRST, DROP COLUMN a")
    sql.run("INSERT INTO t VALUES ('é', 2)", "ALTER TABLE t RENAME COLUMN b TO c", "INSERT INTO t VALUES ('f', 3)")
    sql.run("SET SESSION sql_log_bin = 0", "UPDATE t SET c = NULL", "SET SESSION sql_log_bin = 1")
    sql.run("ALTER TABLE t MODIFY c INT UNSIGNED", "INSERT INTO t VALUES (4294967295, 4)")
    catch_up(start())
    records = read_topic(log, f"m.{database}.t")
    assert [record.json["after"] for record in records] == [
        {"id": 1, "a": 1}, {"b": "é", "id": 2}, {"c": "f", "id": 3}, {"c": 4294967295, "id": 4},
    ]  # fmt: skip


def test_the_key_may_change_while_the_stream_runs(sql: Sql, database: str, log: Log, start: Start) -> None:
    sql.run("CREATE TABLE t (id INT PRIMARY KEY, c INT)")
    catch_up(start())
    sql.run("INSERT INTO t VALUES (1, 1)", "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (c, id)")
    sql.run("INSERT INTO t VALUES (1, 2)")
    catch_up(start(), quiet=8)
    assert set(table_of(read_topic(log, f"m.{database}.t"))) == {b'{"id":1,"c":1}', b'{"id":1,"c":2}'}


DDL: list[tuple[tuple[str, ...], list[int]]] = [
    (("TRUNCATE TABLE t", "INSERT INTO t VALUES (7, 7)"), [7]),
    (("truncate /* all */ `t`",), []),
    (("DROP TABLE t",), []),
    (("DROP TABLE t", "CREATE TABLE t (id INT PRIMARY KEY, w TEXT)", "INSERT INTO t VALUES (5, 'new')"), [5]),
    (("CREATE OR REPLACE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (5)"), [5]),
    (("CREATE OR REPLACE TABLE t (id INT PRIMARY KEY) SELECT 5 AS id",), [5]),
    (("RENAME TABLE t TO hidden_old, hidden TO t",), [2, 8]),
    (("ALTER TABLE t RENAME TO hidden_old",), []),
    (("ALTER TABLE hidden RENAME hidden_t", "ALTER TABLE parts DROP PARTITION p0"), [1, 2, 3]),
    (("CREATE TEMPORARY TABLE t (id INT)", "INSERT INTO t VALUES (9)", "DROP TEMPORARY TABLE t"), [1, 2, 3]),
]


@pytest.mark.parametrize(("statements", "expected"), DDL, ids=[statements[0][:40] for statements, _ in DDL])
def test_the_topic_follows_ddl_that_takes_rows_away(
    sql: Sql, database: str, log: Log, start: Start, statements: tuple[str, ...], expected: list[int]
) -> None:
    sql.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 0), (2, 0), (3, 0)")
    sql.run("CREATE TABLE hidden (id INT PRIMARY KEY, v INT)", "INSERT INTO hidden VALUES (2, 9), (8, 9)")
    sql.run("CREATE TABLE parts (id INT PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10),"
            " PARTITION p1 VALUES LESS THAN (20))", "INSERT INTO parts VALUES (1), (11)")  # fmt: skip
    running = start(table_exclude_list=rf"{database}\.hidden.*")
    catch_up(running)
    sql.run(*statements)
    catch_up(running, quiet=4)
    assert [row["id"] for row in rows(log, f"m.{database}.t")] == expected
    parts = [11] if "PARTITION" in statements[-1] else [1, 11]
    assert sorted(row["id"] for row in rows(log, f"m.{database}.parts")) == parts
    assert twice(read_topic(log, f"m.{database}.t")) == []


def test_ddl_is_left_out_where_the_settings_say_so(sql: Sql, database: str, log: Log, start: Start) -> None:
    sql.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    running = start(truncate_handling_mode="skip")
    catch_up(running)
    sql.run("TRUNCATE TABLE t", f"DROP DATABASE {database}")
    catch_up(running)
    assert [row["id"] for row in rows(log, f"m.{database}.t")] == [1]


def test_a_dropped_database_takes_the_rows_of_all_its_tables(sql: Sql, database: str, log: Log, start: Start) -> None:
    for name in ("t", "u"):
        sql.run(f"CREATE TABLE {name} (id INT PRIMARY KEY)", f"INSERT INTO {name} VALUES (1), (2)")
    running = start()
    catch_up(running)
    sql.run(f"DROP DATABASE {database}")
    catch_up(running)
    assert [rows(log, f"m.{database}.{name}") for name in ("t", "u")] == [[], []]


def test_a_table_that_is_added_is_read_while_others_write(
    server: MariaDbServer, sql: Sql, database: str, log: Log, start: Start
) -> None:
    """The key is of two columns, one of them an ENUM, which is ordered by its numbers."""
    sql.run(*CREATE_TABLE, "CREATE TABLE u (k ENUM('z', 'a'), n INT, v INT, PRIMARY KEY (k, n))")
    sql.run("INSERT INTO u SELECT IF(seq % 2, 'z', 'a'), seq, 0 FROM seq_1_to_300")
    first = start(table_include_list=rf"{database}\.none,{database}\.u2,{database}\.v")
    sql.run("CREATE TABLE v (id INT PRIMARY KEY)")
    catch_up(first)
    with writing(server, database):
        running = start(incremental_snapshot_chunk_size="100")
        deadline = time.monotonic() + 30
        while (
            not (running.position or {}).get("tables")
            or "backfill" in (running.position or {})
            or (len(running.position["tables"]) < 3)  # pyrefly: ignore[unsupported-operation]
        ):
            running.step(0.1)
            assert time.monotonic() < deadline
    catch_up(running)
    check_topic(read_topic(log, f"m.{database}.t"), sql)
    assert len(rows(log, f"m.{database}.u")) == 300
    incremental = [record for record in read_topic(log, f"m.{database}.u") if record.json["op"] == "r"]
    assert {record.json["source"]["snapshot"] for record in incremental} == {"incremental"}


def test_resnapshot_reads_one_table_or_all_again(sql: Sql, database: str, log: Log, start: Start) -> None:
    sql.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 0), (2, 0)")
    running = start()
    catch_up(running)
    source = running._source
    assert isinstance(source, MySqlSource)
    at, given = running.position, source._settings
    assert at is not None
    ends = partial(topic_ends, log)
    again = MySqlSource.resnapshot(given, at, f"{database}.t", ends)
    since = topic_ends(log, f"m.{database}.t")
    assert again is not None and again["backfill"] == [{"table": f"{database}.t", "after": None, "since": since}]
    with pytest.raises(UnknownSourceTable, match="does not read the table"):
        MySqlSource.resnapshot(given, at, f"{database}.x", ends)
    sql.run("INSERT INTO t VALUES (3, 0)")
    catch_up(running)
    sql.run("SET SESSION sql_log_bin = 0", "DELETE FROM t WHERE id = 3", "SET SESSION sql_log_bin = 1")
    assert running.position is not None
    running._read_up_to = MySqlSource.resnapshot(given, running.position, f"{database}.t", ends)
    source._changes = None
    eventually(lambda: (running.step(0), [row["id"] for row in rows(log, f"m.{database}.t")] == [1, 2])[1])
    running._read_up_to = MySqlSource.resnapshot(given, at, None, ends)  # as the runner of the statement commits it
    sql.run("SET SESSION sql_log_bin = 0", "DELETE FROM t WHERE id = 1", "SET SESSION sql_log_bin = 1")
    source._changes = None
    before = running.records
    while running.records == before:
        running.step(0)
    assert [row["id"] for row in rows(log, f"m.{database}.t")] == [2]


def test_columns_can_be_left_out(sql: Sql, database: str, log: Log, start: Start) -> None:
    """Also one that could not be read; one of the key stays in the key."""
    sql.run("CREATE TABLE t (id INT PRIMARY KEY, secret TEXT, v INT, odd VARCHAR(5) CHARACTER SET swe7)")
    sql.run("INSERT INTO t VALUES (1, 'a', 1, 'b')")
    running = start(column_exclude_list=rf"{database}\.t\.(secret|id|odd)")
    catch_up(running)
    sql.run("INSERT INTO t VALUES (2, 'a', 2, 'b')")
    catch_up(running)
    records = read_topic(log, f"m.{database}.t")
    assert [(record.key, record.json["after"]) for record in records] == [
        (b'{"id":1}', {"v": 1}), (b'{"id":2}', {"v": 2}),
    ]  # fmt: skip


def test_a_table_without_a_key_has_records_without_one(sql: Sql, database: str, log: Log, start: Start) -> None:
    sql.run("CREATE TABLE t (v INT)", "INSERT INTO t VALUES (1)")
    running = start()
    catch_up(running)
    sql.run("UPDATE t SET v = 2", "DELETE FROM t")
    catch_up(running)
    assert [(record.key, record.json["op"]) for record in read_topic(log, f"m.{database}.t")] == [
        (None, "r"), (None, "u"), (None, "d"),
    ]  # fmt: skip


def test_writes_to_other_tables_move_the_position(sql: Sql, start: Start, database: str) -> None:
    sql.run("CREATE TABLE quiet (id INT PRIMARY KEY)", "CREATE TABLE busy (id INT PRIMARY KEY)")
    running = start(table_include_list=rf"{database}\.quiet")
    catch_up(running)
    before = running.position
    sql.run("INSERT INTO busy VALUES (1)")
    deadline = time.monotonic() + 20
    while running.position == before:
        running.step(0.1)
        assert time.monotonic() < deadline


def test_compressed_events_are_read(sql: Sql, database: str, log: Log, start: Start) -> None:
    sql.run("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)")
    running = start()
    catch_up(running)
    sql.run("SET GLOBAL log_bin_compress = ON", "SET GLOBAL log_bin_compress_min_len = 10")
    try:
        with_more = "INSERT INTO t VALUES (1, REPEAT('x', 5000)), (2, REPEAT('y', 5000))"
        sql.run(with_more, "UPDATE t SET v = REPEAT('z', 4000) WHERE id = 1", "DELETE FROM t WHERE id = 2")
        sql.run(f"TRUNCATE TABLE t /* {'long' * 30} */", "INSERT INTO t VALUES (3, 'short')")
    finally:
        sql.run("SET GLOBAL log_bin_compress = OFF")
    catch_up(running)
    assert ops(read_topic(log, f"m.{database}.t"))[:5] == ["c", "c", "u", "d", None]
    assert [row["id"] for row in rows(log, f"m.{database}.t")] == [3]


def test_xa_and_savepoints(server: MariaDbServer, sql: Sql, database: str, log: Log, start: Start) -> None:
    sql.run("CREATE TABLE t (id INT PRIMARY KEY)")
    running = start()
    catch_up(running)
    sql.run("BEGIN", "INSERT INTO t VALUES (1)", "SAVEPOINT s", "INSERT INTO t VALUES (2)", "ROLLBACK TO s", "COMMIT")
    with server.connect(database) as other:
        other.run("XA START 'x1'", "INSERT INTO t VALUES (3)", "XA END 'x1'", "XA PREPARE 'x1'")
        catch_up(running)
        other.run("XA COMMIT 'x1'")
        catch_up(running)
        other.run("XA START 'x2'", "INSERT INTO t VALUES (4)", "XA END 'x2'", "XA PREPARE 'x2'")
        catch_up(running)
        assert [row["id"] for row in rows(log, f"m.{database}.t")] == [1, 3, 4]
        other.run("XA ROLLBACK 'x2'")
    with pytest.raises(ConnectorFailed, match="XA transaction was undone") as caught:
        catch_up(running)
    assert "RESNAPSHOT" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("variable", "wrong", "right"),
    [("binlog_format", "MIXED", "ROW"), ("binlog_row_image", "MINIMAL", "FULL"),
     ("binlog_row_metadata", "MINIMAL", "FULL")],
)  # fmt: skip
def test_settings_of_the_server_are_checked(sql: Sql, start: Start, variable: str, wrong: str, right: str) -> None:
    sql.run("CREATE TABLE t (id INT PRIMARY KEY)", f"SET GLOBAL {variable} = '{wrong}'")
    try:
        with pytest.raises(ConnectorFailed, match=f'{variable} of this server is "{wrong}"') as caught:
            start().step(0)
        assert f"SET GLOBAL {variable} = '{right}'" in (caught.value.hint or "")
    finally:
        sql.run(f"SET GLOBAL {variable} = '{right}'")


@pytest.mark.parametrize(
    ("change", "message"),
    [("SET SESSION binlog_row_image = 'MINIMAL'", "rows without all their columns"),
     ("SET GLOBAL binlog_row_metadata = 'MINIMAL'", "does not name the columns"),
     ("SET SESSION binlog_format = 'STATEMENT'", "a statement in the place of rows")],
)  # fmt: skip
def test_sessions_that_change_the_log_are_an_error(sql: Sql, start: Start, change: str, message: str) -> None:
    sql.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
    running = start()
    catch_up(running)
    try:
        sql.run(change, "UPDATE t SET v = 2 WHERE id = 1")
    finally:
        sql.run("SET GLOBAL binlog_row_metadata = 'FULL'")
    with pytest.raises(ConnectorFailed, match=message) as caught:
        catch_up(running)
    assert "RESNAPSHOT" in (caught.value.hint or "")


def test_a_purged_binary_log_is_an_error_that_says_what_to_do(sql: Sql, start: Start) -> None:
    sql.run("CREATE TABLE t (id INT PRIMARY KEY)")
    running = start()
    catch_up(running)
    running.close()
    sql.run("INSERT INTO t VALUES (1)", "FLUSH LOGS", "INSERT INTO t VALUES (2)")
    last = sql.rows("SHOW BINARY LOGS")[-1][0]
    deadline = time.monotonic() + 20
    while len(sql.rows("SHOW BINARY LOGS")) > 1:  # the server notices first that the connector is gone
        sql.run(f"PURGE BINARY LOGS TO '{last}'")
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with pytest.raises(ConnectorFailed, match="cannot be read from where the connector stopped") as caught:
        catch_up(start())
    assert "RESNAPSHOT CONNECTOR" in (caught.value.hint or "")


def test_rights_that_are_missing_are_an_error(server: MariaDbServer, sql: Sql, database: str, log: Log) -> None:
    sql.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    user = f"u{database}"
    sql.run(f"CREATE USER {user} IDENTIFIED BY 'pass word'", f"GRANT SELECT ON {database}.* TO {user}")
    config = settings(server, database, database_user=user, database_password="pass word")
    with pytest.raises(ConnectorFailed, match=r"Access denied") as caught:
        catch_up(runner(log, config))
    assert "REPLICATION SLAVE" in (caught.value.hint or "")
    sql.run(f"GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO {user}")
    running = runner(log, config)
    catch_up(running)
    running.close()
    assert [row["id"] for row in rows(log, f"m.{database}.t")] == [1]
    with pytest.raises(ConnectorFailed, match="Access denied") as caught:
        runner(log, {**config, "database.password": "guessed"}, "other").step(0)
    assert "guessed" not in str(caught.value)


def test_two_connectors_of_one_number_are_an_error(server: MariaDbServer, sql: Sql, database: str, log: Log) -> None:
    sql.run("CREATE TABLE t (id INT PRIMARY KEY)")
    running = [runner(log, settings(server, database, database_server_id="77"), name) for name in ("a", "b")]
    catch_up(running[0])
    catch_up(running[1])
    with pytest.raises((ConnectorFailed, SystemUnavailable), match=r"another replica|ended|closed"):
        catch_up(running[0])
    for each in running:
        each.close()


def test_wrong_settings_are_errors_at_the_property() -> None:
    good = {"database.hostname": "h", "database.user": "u", "topic.prefix": "p"}
    for name, value in (
        ("table.include.list", "("), ("column.exclude.list", "["), ("max.batch.size", "0"),
        ("heartbeat.interval.ms", "-1"), ("database.server.id", "0"), ("database.server.id", "4294967296"),
        ("snapshot.mode", "always"), ("time.precision.mode", "adaptive"), ("database.port", "x"),
        ("decimal.handling.mode", "exact"), ("snapshot.locking.mode", "extended"), ("database.ssl.mode", "on"),
    ):  # fmt: skip
        with pytest.raises(InvalidConnector) as caught:
            read_settings(MySqlSettings, {**good, name: value})
        assert caught.value.setting == name
    with pytest.raises(InvalidConnector) as caught:
        read_settings(MySqlSettings, {**good, "database.ssl.mode": "verify_ca"})
    assert caught.value.setting == "database.ssl.ca"
    with pytest.raises(InvalidConnector) as caught:
        read_settings(MySqlSettings, {})
    assert caught.value.setting == "database.hostname"


def test_a_server_that_is_not_there_is_waited_for(server: MariaDbServer, log: Log) -> None:
    with pytest.raises(SystemUnavailable, match="the server does not answer"):
        runner(log, settings(server, "any", database_port="1")).step(0)


def test_no_table_is_an_error(sql: Sql, start: Start) -> None:
    del sql
    with pytest.raises(ConnectorFailed, match="no table is named by"):
        start().step(0)
