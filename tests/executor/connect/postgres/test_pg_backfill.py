"""Tables that are added later are read while writes go on, and RESNAPSHOT reads them anew: each row is right."""

from __future__ import annotations

import random
import time
from collections import Counter
from functools import partial
from typing import Any

import pytest
from connectors import Read, read_topic, topic_ends
from pg_runners import POINTS, catch_up, killed_runner, opened_runner, runner, settings
from postgres_changes import CREATE_TABLE, check_topic, table_of, writing
from postgres_server import PostgresServer
from waiting import eventually, without_error

from millstream.executor.connect.connector_errors import ConnectorFailed, UnknownSourceTable
from millstream.executor.connect.connector_settings import read_settings
from millstream.executor.connect.postgres.pg_backfill import Backfill, VisibleTransactions
from millstream.executor.connect.postgres.pg_source import PostgresSource
from millstream.executor.connect.postgres.postgres_settings import PostgresSettings
from millstream.executor.connect.source_runner import SourceRunner, transactional_id
from millstream.executor.connect.task_positions import POSITIONS_TOPIC, position_record, read_position
from millstream.logcore.failpoints import arm
from millstream.logcore.log import Log

CHUNK = {"incremental.snapshot.chunk.size": "100"}


def started(server: PostgresServer, sql: Any, log: Log, *tables: str) -> dict[str, str]:
    """A connector that streams a table `first`; the settings that name the other tables too."""
    sql.execute("CREATE TABLE first (id INT PRIMARY KEY)")
    running = runner(log, settings(server, sql, table_include_list="public.first"))
    catch_up(running)
    running.close()
    names = ",".join(f"public.{table}" for table in ("first", *tables))
    return {**settings(server, sql, table_include_list=names), **CHUNK}


def read_on(running: SourceRunner) -> None:
    """Until nothing is left to read, in a database that is at rest."""
    step_until_read(running)
    catch_up(running)


def step_until_read(running: SourceRunner) -> None:
    deadline = time.monotonic() + 60
    while not running.position or "backfill" in running.position or "t" not in str(running.position.get("tables")):
        running.step(0.05)
        assert time.monotonic() < deadline


def reads(records: list[Read]) -> list[dict[str, Any]]:
    return [record.json["after"] for record in records if record.value is not None and record.json["op"] == "r"]


def test_a_table_that_is_added_later_is_right_under_writes_and_kills(
    server: PostgresServer, sql: Any, log: Log
) -> None:
    """30 deaths between its chunks and in them, while 4,000 keys are inserted, changed and deleted."""
    sql.execute(CREATE_TABLE)
    config = started(server, sql, log, "t")
    chance, seen = random.Random(4), list[str]()
    with writing(server, sql.info.dbname):
        while len(seen) < 30:
            killed = killed_runner(log, config, f"{POINTS[len(seen) % len(POINTS)]}:{chance.randrange(1, 5)}")
            if killed is not None:
                seen.append(str((killed.position or {}).get("backfill")))
        arm("")
    running = opened_runner(log, config)
    read_on(running)
    running.close()
    assert len(set(seen)) > 5  # they died at many places of the table
    records = read_topic(log, "pg.public.t")
    check_topic(records, sql)
    assert max(Counter(row["id"] for row in reads(records)).values()) == 1
    assert 500 < len(reads(records)) <= 4000
    assert {record.json["source"]["snapshot"] for record in records if record.json and record.json["op"] == "r"} == {
        "incremental"
    }


def test_rows_that_change_between_the_read_and_the_end_of_its_window_are_not_given_out_old(
    server: PostgresServer, sql: Any, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    sql.execute("INSERT INTO t SELECT i, 0 FROM generate_series(1, 250) i")
    config = started(server, sql, log, "t")
    read, chunks = Backfill._read, list[int]()

    def read_and_write(self: Backfill, *given: Any) -> Any:
        window = read(self, *given)
        chunks.append(len(window.rows))
        base = 100 * len(chunks) - 100
        sql.execute("UPDATE t SET v = 1 WHERE id = %s", [base + 10])
        sql.execute("DELETE FROM t WHERE id = %s", [base + 20])
        sql.execute("UPDATE t SET id = id + 1000 WHERE id = %s", [base + 30])
        return window

    monkeypatch.setattr(Backfill, "_read", read_and_write)
    running = opened_runner(log, config)
    read_on(running)
    running.close()
    records = read_topic(log, "pg.public.t")
    ids = [row["id"] for row in reads(records)]
    assert not {base + row for base in (0, 100, 200) for row in (10, 20, 30)} & set(ids)
    rows = {row["after"]["id"]: row["after"]["v"] for row in table_of(records).values()}
    assert rows == dict(sql.execute("SELECT id, v FROM t").fetchall())


def test_a_truncate_in_the_window_leaves_nothing(
    server: PostgresServer, sql: Any, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    sql.execute("INSERT INTO t SELECT generate_series(1, 150)")
    config = started(server, sql, log, "t")
    mark_end, calls = Backfill._mark_end, list[int]()

    def truncate_and_mark(self: Backfill, window: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            sql.execute("TRUNCATE t")
        mark_end(self, window)

    monkeypatch.setattr(Backfill, "_mark_end", truncate_and_mark)
    running = opened_runner(log, config)
    read_on(running)
    running.close()
    records = read_topic(log, "pg.public.t")
    assert len(reads(records)) == 100 and table_of(records) == {}


def test_a_transaction_that_began_before_the_table_was_published_is_waited_for(
    server: PostgresServer, sql: Any, log: Log
) -> None:
    sql.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    sql.execute("INSERT INTO t VALUES (1, 0)")
    config = started(server, sql, log, "t")
    with server.connect(sql.info.dbname) as other:
        with other.transaction():
            other.execute("UPDATE t SET v = 9 WHERE id = 1")
            other.execute("INSERT INTO t VALUES (2, 9)")
            running = opened_runner(log, config)
            for _ in range(20):
                running.step(0.05)
            assert read_topic(log, "pg.public.t") == []
        read_on(running)
    running.close()
    assert reads(read_topic(log, "pg.public.t")) == [{"id": 1, "v": 9}, {"id": 2, "v": 9}]


@pytest.mark.parametrize(
    ("key", "rows"),
    [("a INT, b TEXT, PRIMARY KEY (b, a)", "i, chr(97 + i % 7)"), ("a NUMERIC(20, 5) PRIMARY KEY", "i / 3.0"),
     ("a TIMESTAMPTZ PRIMARY KEY", "'2024-01-01'::timestamptz + i * interval '1.000001 hours'"),
     ("a TEXT PRIMARY KEY", "i || '''\\ \t\"é'"), ("a UUID PRIMARY KEY", "md5(i::text)::uuid"),
     ("a DOUBLE PRECISION PRIMARY KEY", "i / 7.0::float8"), ("a BYTEA PRIMARY KEY", "decode(md5(i::text), 'hex')")],
)  # fmt: skip
def test_a_key_of_any_type_divides_a_table(server: PostgresServer, sql: Any, log: Log, key: str, rows: str) -> None:
    sql.execute(f"CREATE TABLE t ({key})")
    sql.execute(f"INSERT INTO t SELECT {rows} FROM generate_series(1, 350) i")
    running = opened_runner(log, started(server, sql, log, "t"))
    read_on(running)
    running.close()
    records = read_topic(log, "pg.public.t")
    assert len(records) == len({record.key for record in records}) == 350


def test_a_snapshot_tells_what_it_sees_also_where_numbers_wrap() -> None:
    seen = VisibleTransactions.parse("4294967290:4294967300:4294967292,4294967298")
    low = 1 << 32
    sees = {xid: seen.sees(xid % low) for xid in range(4294967285, 4294967305)}
    assert [xid for xid, visible in sees.items() if not visible] == [
        4294967292, 4294967298, 4294967300, 4294967301, 4294967302, 4294967303, 4294967304,
    ]  # fmt: skip
    assert VisibleTransactions.parse("10:10:").sees(9)


# ------------------------------------------------------------------ RESNAPSHOT


def resnapshot(log: Log, config: dict[str, str], table: str | None = None) -> None:
    """As the connectors of the engine do it."""
    producer = log.transactional_producer(transactional_id("pg", 0))
    given = read_settings(PostgresSettings, config)
    at = PostgresSource.resnapshot(given, read_position(log, "pg", 0), table, lambda topic: topic_ends(log, topic))
    assert at is not None
    producer.begin()
    producer.append(POSITIONS_TOPIC, 0, position_record("pg", 0, at))
    producer.commit()


def test_resnapshot_repairs_a_topic_whose_slot_was_lost(server: PostgresServer, sql: Any, log: Log) -> None:
    """Rows that came, went and changed meanwhile; in one transaction, also when the task is killed in it."""
    sql.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    sql.execute("INSERT INTO t SELECT i, 0 FROM generate_series(1, 500) i")
    config = settings(server, sql, max_batch_size="100")
    running = runner(log, config)
    catch_up(running)
    running.close()
    without_error(lambda: sql.execute("SELECT pg_drop_replication_slot('millstream_pg')"))
    sql.execute("DELETE FROM t WHERE id <= 50; UPDATE t SET v = 1 WHERE id = 100; INSERT INTO t VALUES (501, 0)")
    with pytest.raises(ConnectorFailed, match="has not all changes any more"):
        runner(log, config).step(0)
    resnapshot(log, config)
    for point in ("after_tombstones:1", "after_records:3", "after_position:1"):
        eventually(partial(killed_runner, log, config, point))
        arm("")
        assert len(read_topic(log, "pg.public.t")) == 500
    running = opened_runner(log, config)
    catch_up(running)
    sql.execute("UPDATE t SET v = 2 WHERE id = 101")
    catch_up(running)
    running.close()
    rows = {row["after"]["id"]: row["after"]["v"] for row in table_of(read_topic(log, "pg.public.t")).values()}
    assert rows == dict(sql.execute("SELECT id, v FROM t").fetchall())


def test_resnapshot_of_one_table_reads_it_while_the_stream_goes_on(server: PostgresServer, sql: Any, log: Log) -> None:
    sql.execute(CREATE_TABLE)
    config = {**settings(server, sql), **CHUNK}
    running = runner(log, config)
    catch_up(running)
    running.close()
    with pytest.raises(UnknownSourceTable, match=r"does not read the table public\.tt"):
        resnapshot(log, config, "tt")
    resnapshot(log, config, "t")
    with writing(server, sql.info.dbname):
        running = opened_runner(log, config)
        step_until_read(running)
    catch_up(running)
    running.close()
    records = read_topic(log, "pg.public.t")
    check_topic(records, sql)
    assert len(reads(records)) > 3000 + 2000


def test_a_publication_that_is_gone_is_not_made_anew(server: PostgresServer, sql: Any, log: Log) -> None:
    sql.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    config = settings(server, sql)
    running = runner(log, config)
    catch_up(running)
    running.close()
    sql.execute("DROP PUBLICATION millstream_pg")
    running = runner(log, config)
    with pytest.raises(ConnectorFailed, match="the publication millstream_pg is gone") as caught:
        running.step(0)
    running.close()
    assert "RESNAPSHOT CONNECTOR" in (caught.value.hint or "")


def test_resnapshot_of_one_table_deletes_rows_that_are_gone(server: PostgresServer, sql: Any, log: Log) -> None:
    """Deletes that the stream does not have, and rows that others change while the table is read."""
    sql.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    sql.execute("INSERT INTO t SELECT i, 0 FROM generate_series(1, 500) i")
    config = {**settings(server, sql), **CHUNK}
    running = runner(log, config)
    catch_up(running)
    running.close()
    (publication,) = sql.execute("SELECT pubname FROM pg_publication").fetchone()
    sql.execute(f"ALTER PUBLICATION {publication} SET (publish = 'insert, update')")
    sql.execute("DELETE FROM t WHERE id <= 150 OR id = 500")
    sql.execute(f"ALTER PUBLICATION {publication} SET (publish = 'insert, update, delete, truncate')")
    sql.execute("INSERT INTO t VALUES (7, 1)")
    running = runner(log, config)
    catch_up(running)
    running.close()
    assert len(table_of(read_topic(log, "pg.public.t"))) == 500
    resnapshot(log, config, "t")
    eventually(partial(killed_runner, log, config, "after_tombstones:1"))
    arm("")
    running = opened_runner(log, config)
    step_until_read(running)
    catch_up(running)
    running.close()
    records = read_topic(log, "pg.public.t")
    rows = {row["after"]["id"]: row["after"]["v"] for row in table_of(records).values()}
    assert rows == dict(sql.execute("SELECT id, v FROM t").fetchall())
    assert sum(record.value is None for record in records) == 150
