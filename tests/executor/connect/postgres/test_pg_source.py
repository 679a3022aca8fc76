"""PostgreSQL's tables as topics: the snapshot, the stream, what is between them, and what can go wrong."""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import Any

import pytest
from connectors import Read, read_topic, said_at_first
from descriptors import descriptors_above_select
from pg_runners import POINTS, catch_up, killed_runner, opened_runner, runner, settings
from postgres_changes import CREATE_TABLE, check_topic, table_of, writing
from postgres_server import PostgresServer
from waiting import eventually, without_error

from millstream.executor.connect.connector import TaskInfo
from millstream.executor.connect.connector_errors import ConnectorFailed, SystemUnavailable
from millstream.executor.connect.connector_settings import read_settings
from millstream.executor.connect.postgres.pg_source import PostgresSource
from millstream.executor.connect.postgres.postgres_settings import PostgresSettings
from millstream.executor.connect.source_runner import SourceRunner
from millstream.executor.connect.task_positions import POSITIONS_TOPIC, position_record
from millstream.logcore.failpoints import FailpointHit, arm
from millstream.logcore.log import Log


def ops(records: list[Read]) -> list[str | None]:
    return [None if record.value is None else record.json["op"] for record in records]


def test_a_snapshot_and_the_changes_after_it_have_debeziums_shape(server: PostgresServer, sql: Any, log: Log) -> None:
    sql.execute("CREATE TABLE orders (id INT PRIMARY KEY, item TEXT, price NUMERIC(10, 2))")
    sql.execute("INSERT INTO orders VALUES (1, 'a', 1.50), (2, 'b', NULL)")
    running = runner(log, settings(server, sql, table_include_list="public.orders"))
    catch_up(running)
    sql.execute("INSERT INTO orders VALUES (3, 'c', 12345678.90)")
    sql.execute("UPDATE orders SET item = 'B' WHERE id = 2")
    sql.execute("UPDATE orders SET id = 4 WHERE id = 3")
    sql.execute("DELETE FROM orders WHERE id = 1")
    catch_up(running)
    running.close()
    records = read_topic(log, "pg.public.orders")
    assert ops(records) == ["r", "r", "c", "u", "d", None, "c", "d", None]
    assert [record.key for record in records[:2]] == [b'{"id":1}', b'{"id":2}']
    first, created, updated = records[0].json, records[2].json, records[3].json
    assert first["after"] == {"id": 1, "item": "a", "price": 1.5}
    assert b'"price":1.50' in (records[0].value or b"")  # all its digits
    assert created["before"] is None
    assert (updated["before"], updated["after"]["item"]) == (None, "B")
    assert records[7].json["before"] == {"id": 1}
    source = created["source"]
    assert {name: source[name] for name in ("connector", "name", "db", "schema", "table", "snapshot")} == {
        "connector": "postgresql", "name": "pg", "db": sql.info.dbname, "schema": "public", "table": "orders",
        "snapshot": "false",
    }  # fmt: skip
    assert created["transaction"]["total_order"] == 1
    assert abs(records[2].timestamp - time.time() * 1000) < 60_000
    assert source["ts_ms"] == records[2].timestamp


def test_who_may_not_connect_is_told_and_not_waited_for(server: PostgresServer, sql: Any, log: Log) -> None:
    server.protect("bob", "geheim")
    given = settings(server, sql)
    wrong = [{"database.user": "bob", "database.password": "guessed"}, {"database.user": "bob"},
             {"database.user": "nobody"}, {"database.dbname": "nothing"}]  # fmt: skip

    def said(config: dict[str, str]) -> str:
        return said_at_first(runner(log, {**given, **config}))

    eventually(lambda: "password authentication failed" in said(wrong[0]))  # once the server has read its file again
    for config in wrong:
        assert "PostgreSQL refused the connection: " in said(config)
        assert "guessed" not in said(config)


def test_changes_come_where_many_files_are_open(server: PostgresServer, sql: Any, log: Log) -> None:
    sql.execute("CREATE TABLE orders (id INT PRIMARY KEY)")
    with descriptors_above_select():
        running = runner(log, settings(server, sql, table_include_list="public.orders"))
        catch_up(running)
        sql.execute("INSERT INTO orders VALUES (1)")
        catch_up(running)
        running.close()
    assert ops(read_topic(log, "pg.public.orders")) == ["c"]


def test_a_slot_of_another_server_is_told(server: PostgresServer, sql: Any, log: Log) -> None:
    sql.execute("CREATE TABLE orders (id INT PRIMARY KEY)")
    config = settings(server, sql, table_include_list="public.orders")
    running = runner(log, config)
    catch_up(running)
    position = running.position
    running.close()
    assert position is not None and position["server"]["timeline"] == 1
    elsewhere = {**position, "server": {"system": "1", "timeline": 1}}
    log.append(POSITIONS_TOPIC, 0, position_record("pg", 0, elsewhere))
    assert "it is of another server, with the system identifier " in said_at_first(runner(log, config))


def test_nothing_is_lost_or_twice_under_kills_and_writes(server: PostgresServer, sql: Any, log: Log) -> None:
    """30 deaths at random steps, during the snapshot, between it and the stream, and in the stream."""
    sql.execute(CREATE_TABLE)
    config = {**settings(server, sql, max_batch_size="200")}
    chance, deaths = random.Random(2), Counter[str]()
    with writing(server, sql.info.dbname):
        while deaths.total() < 30:
            early = deaths.total() < 8
            point = chance.choice(("after_read", "after_records") if early else POINTS)
            killed = killed_runner(log, config, f"{point}:{chance.randrange(1, 14 if early else 6)}")
            if killed is not None:
                deaths[str((killed.position or {}).get("phase"))] += 1
    arm("")
    running = opened_runner(log, config)
    catch_up(running)
    running.close()
    assert deaths["snapshot"] >= 5 and deaths["stream"] >= 20
    check_topic(read_topic(log, "pg.public.t"), sql)


def test_writes_to_other_tables_hold_no_wal(server: PostgresServer, sql: Any, log: Log) -> None:
    sql.execute("CREATE TABLE quiet (id INT PRIMARY KEY)")
    sql.execute("CREATE TABLE busy (id INT PRIMARY KEY, pad TEXT)")
    running = runner(log, settings(server, sql, table_include_list="public.quiet"))
    catch_up(running)
    begin = running.position
    for _ in range(3):
        sql.execute("INSERT INTO busy SELECT i, repeat(md5(i::text), 30) FROM generate_series(1, 8000) i")
        sql.execute("TRUNCATE busy")
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            running.step(0.1)
    held = """SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn) FROM pg_replication_slots
              WHERE database = %s"""
    without_error(lambda: _smaller(running, sql, held, 1_000_000))
    assert running.position != begin
    assert read_topic(log, "pg.public.quiet") == []
    running.close()


def _smaller(running: SourceRunner, sql: Any, query: str, most: int) -> None:
    running.step(0.2)
    assert sql.execute(query, [sql.info.dbname]).fetchone()[0] < most


def test_a_toast_value_that_is_left_alone_is_a_placeholder_or_with_a_full_identity_itself(
    server: PostgresServer, sql: Any, log: Log
) -> None:
    for name, identity in (("part", "DEFAULT"), ("whole", "FULL")):
        sql.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, n INT, big TEXT)")
        sql.execute(f"ALTER TABLE {name} ALTER big SET STORAGE EXTERNAL")
        sql.execute(f"ALTER TABLE {name} REPLICA IDENTITY {identity}")
        sql.execute(f"INSERT INTO {name} VALUES (1, 0, repeat('x', 10000))")
    running = runner(log, settings(server, sql))
    catch_up(running)
    for name in ("part", "whole"):
        sql.execute(f"UPDATE {name} SET n = 1")
    catch_up(running)
    running.close()
    assert read_topic(log, "pg.public.part")[-1].json["after"] == {
        "id": 1,
        "n": 1,
        "big": "__debezium_unavailable_value",
    }
    whole = read_topic(log, "pg.public.whole")[-1]
    assert whole.json["after"] == {"id": 1, "n": 1, "big": "x" * 10000}
    assert whole.json["before"]["n"] == 0
    assert whole.key == b'{"id":1}'


def test_columns_may_change_while_the_stream_runs(server: PostgresServer, sql: Any, log: Log) -> None:
    sql.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    running = runner(log, settings(server, sql))
    catch_up(running)
    sql.execute("INSERT INTO t VALUES (1, 1)")
    sql.execute("ALTER TABLE t ADD COLUMN b TEXT, DROP COLUMN a")
    sql.execute("INSERT INTO t VALUES (2, 'new')")
    catch_up(running)
    running.close()
    assert [record.json["after"] for record in read_topic(log, "pg.public.t")] == [
        {"id": 1, "a": 1},
        {"id": 2, "b": "new"},
    ]


def test_a_large_transaction_is_one_transaction_of_the_log(server: PostgresServer, sql: Any, log: Log) -> None:
    sql.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    running = runner(log, settings(server, sql, max_batch_size="100"))
    catch_up(running)
    sql.execute("INSERT INTO t SELECT generate_series(1, 1050)")
    seen = set()
    while running.records < 1050:
        running.step(0.2)
        seen.add(len(read_topic(log, "pg.public.t")))
    running.close()
    assert seen <= {0, 1050}


@pytest.mark.parametrize("how", ["dropped", "made anew"])
def test_a_lost_slot_is_an_error_that_says_what_to_do(server: PostgresServer, sql: Any, log: Log, how: str) -> None:
    sql.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    config = settings(server, sql)
    running = runner(log, config, f"lost{len(how)}")
    catch_up(running)
    running.close()
    slot = f"millstream_lost{len(how)}"
    without_error(lambda: sql.execute("SELECT pg_drop_replication_slot(%s)", [slot]))
    sql.execute("INSERT INTO t VALUES (1)")  # a change that nobody will ever see
    if how == "made anew":
        sql.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
    with pytest.raises(ConnectorFailed, match="has not all changes any more") as caught:
        runner(log, config, f"lost{len(how)}").step(0)
    assert "RESNAPSHOT CONNECTOR" in (caught.value.hint or "")


def test_a_slot_of_others_and_a_table_without_identity_are_refused(server: PostgresServer, sql: Any, log: Log) -> None:
    sql.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    sql.execute("CREATE TABLE keyless (v INT)")
    with pytest.raises(ConnectorFailed, match=r"public\.keyless has no primary key"):
        runner(log, settings(server, sql)).step(0)
    with pytest.raises(ConnectorFailed, match="no table is named by"):
        runner(log, settings(server, sql, table_include_list="public.nope")).step(0)
    sql.execute("SELECT pg_create_logical_replication_slot('theirs', 'pgoutput')")
    with pytest.raises(ConnectorFailed, match="the replication slot theirs exists"):
        runner(log, settings(server, sql, slot_name="theirs", table_exclude_list="public.keyless")).step(0)


def test_a_server_that_is_not_there_is_waited_for(sql: Any, server: PostgresServer, log: Log) -> None:
    config = settings(server, sql, database_port="1")
    with pytest.raises(SystemUnavailable, match="PostgreSQL does not answer"):
        runner(log, config).step(0)


def test_dropping_the_connector_takes_slot_and_publication_with_it(server: PostgresServer, sql: Any, log: Log) -> None:
    sql.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    config = settings(server, sql)
    running = runner(log, config)
    catch_up(running)
    running.close()
    without_error(lambda: PostgresSource.forget(read_settings(PostgresSettings, config), TaskInfo("pg")))
    assert sql.execute("SELECT FROM pg_replication_slots WHERE database = %s", [sql.info.dbname]).rowcount == 0
    assert sql.execute("SELECT FROM pg_publication").rowcount == 0


def test_truncate_deletes_each_key_once_under_kills(server: PostgresServer, sql: Any, log: Log) -> None:
    """Also keys that the same transaction has added before; those that come behind it stay. Two tables at once."""
    for name in ("t", "u"):
        sql.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, v TEXT)")
        sql.execute(f"INSERT INTO {name} SELECT i, 'x' FROM generate_series(1, 500) i")
    config = settings(server, sql, max_batch_size="100", topic_creation_default_partitions="3")
    running = runner(log, config)
    catch_up(running)
    sql.execute("DELETE FROM t WHERE id <= 10")
    with sql.transaction():
        sql.execute("INSERT INTO t SELECT i, 'y' FROM generate_series(1001, 1250) i")
        sql.execute("TRUNCATE t, u")
        sql.execute("TRUNCATE t")
        sql.execute("INSERT INTO t SELECT i, 'z' FROM generate_series(5, 20) i")
    points, chance, deaths = (*POINTS, "after_tombstones"), random.Random(3), 0
    while deaths < 12:
        arm(f"connect.{points[deaths % len(points)]}:{chance.randrange(1, 3)}:raise")
        try:
            for _ in range(40):
                running.step(0.02)
        except (FailpointHit, SystemUnavailable):
            pass
        deaths += 1
        arm("")
        running.close()
        running = opened_runner(log, config)
    catch_up(running)
    running.close()
    records = read_topic(log, "pg.public.t")
    assert table_of(records) == {
        b'{"id":%d}' % key: record.json for key in range(5, 21) for record in records if record.value is not None
        and record.json["after"] == {"id": key, "v": "z"}
    }  # fmt: skip
    tombstones = Counter(record.key for record in records if record.value is None)
    twice = {key: count for key, count in tombstones.items() if count > 1}
    assert (twice, len(tombstones)) == ({}, 500 + 250)
    assert table_of(read_topic(log, "pg.public.u")) == {}
    assert len(read_topic(log, "pg.public.u")) == 1000


def test_a_transaction_that_ends_with_a_full_chunk_is_committed_at_once(
    server: PostgresServer, sql: Any, log: Log
) -> None:
    sql.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    running = runner(log, settings(server, sql, max_batch_size="100"))
    catch_up(running)
    sql.execute("INSERT INTO t SELECT generate_series(1, 200)")
    catch_up(running, quiet=8)
    assert len(read_topic(log, "pg.public.t")) == 200
    running.close()


def test_truncate_finds_the_routed_topic_or_is_skipped(server: PostgresServer, sql: Any, log: Log) -> None:
    sql.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    sql.execute("INSERT INTO t VALUES (1), (2)")
    more = {
        "transforms": "unwrap,r", "transforms.r.type": "RegexRouter", "transforms.r.regex": ".*",
        "transforms.r.replacement": "routed",
    }  # fmt: skip
    one = runner(log, {**settings(server, sql), **more})
    other = runner(log, settings(server, sql, truncate_handling_mode="skip", topic_prefix="kept"), "kept")
    for running in (one, other):
        catch_up(running)
    sql.execute("TRUNCATE t")
    for running in (one, other):
        catch_up(running)
        running.close()
    assert len(read_topic(log, "routed")) == 4 and table_of(read_topic(log, "routed")) == {}
    assert len(table_of(read_topic(log, "kept.public.t"))) == 2
