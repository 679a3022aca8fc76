"""WAL that others write is let go of while a slot is read, as soon as it was read."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pg_runners import catch_up, runner, settings
from postgres_server import PostgresServer
from waiting import eventually

from millstream.executor.connect.postgres.pg_backfill import Backfill
from millstream.executor.connect.postgres.pg_changes import PostgresChanges
from millstream.executor.connect.postgres.pg_connections import ReplicationStream, WalData
from millstream.executor.connect.postgres.postgres_settings import PostgresSettings
from millstream.executor.connect.postgres.wal_release import STRIDE_BYTES, WalRelease
from millstream.executor.connect.source_runner import SourceRunner
from millstream.logcore.log import Log

_OTHERS = "INSERT INTO busy SELECT i, repeat(md5(random()::text), 30) FROM generate_series(1, 8000) i"
_BEGINS = (
    "SELECT pg_wal_lsn_diff(restart_lsn, '0/0')::bigint FROM pg_replication_slots WHERE slot_name = 'millstream_pg'"
)
_FREE = "SELECT current_setting('max_replication_slots')::int - count(*) FROM pg_replication_slots"
_NOW = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint"


@pytest.mark.parametrize("is_quiet", [True, False])
def test_the_slot_moves_though_postgres_itself_is_slow(
    server: PostgresServer, sql: Any, log: Log, is_quiet: bool
) -> None:
    """Also while the table that is read has changes all the time."""
    running = _following(server, sql, log)
    with _stopped(sql, "background writer"):
        before = sql.execute(_NOW).fetchone()[0]

        def moves() -> bool:
            sql.execute(_OTHERS)
            if not is_quiet:
                sql.execute("INSERT INTO t VALUES (2) ON CONFLICT (id) DO UPDATE SET id = 2")
            running.step(0.05)
            return sql.execute(_BEGINS).fetchone()[0] > before + STRIDE_BYTES

        eventually(moves, otherwise="the slot holds all WAL")
    running.close()


@pytest.mark.parametrize("has_no_slot", [True, False])
def test_changes_come_while_a_transaction_or_a_lack_of_slots_keeps_the_slot(
    server: PostgresServer, sql: Any, log: Log, has_no_slot: bool
) -> None:
    running = _following(server, sql, log)
    with server.connect(sql.info.dbname) as other, contextlib.ExitStack() as slots:
        free = other.execute(_FREE).fetchone()[0] if has_no_slot else 0
        for number in range(free):
            other.execute("SELECT pg_create_physical_replication_slot(%s)", [f"taken{number}"])
            slots.callback(other.execute, "SELECT pg_drop_replication_slot(%s)", [f"taken{number}"])
        with server.connect(sql.info.dbname) as writer, writer.transaction():
            writer.execute("INSERT INTO busy VALUES (1, 'open')")
            for number in range(10, 16):
                sql.execute(_OTHERS)
                sql.execute("INSERT INTO t VALUES (%s)", [number])
                wanted = running.records + 1
                while running.records < wanted:
                    running.step(0.05)
    running.close()


def test_a_read_ends_in_time_however_much_comes_that_is_nothing_for_us() -> None:
    released = cast(WalRelease, SimpleNamespace(is_due=lambda: False))
    read = SimpleNamespace(step=lambda: None, moved=False, position={}, take_sweeps=lambda: ())
    lsns = iter(range(100, 1 << 60))
    stream = SimpleNamespace(read=lambda timeout_s: WalData(0, next(lsns), None))
    given = PostgresSettings("h", "u", "d", "t", heartbeat_interval_ms=0)
    changes = PostgresChanges(
        cast(ReplicationStream, stream), cast(Any, None), cast(Any, None), cast(Any, None), given, 1,
        cast(Backfill, read), released,
    )  # fmt: skip
    assert changes.read(0.0) is None


def _following(server: PostgresServer, sql: Any, log: Log) -> SourceRunner:
    """A task that has read its snapshot, with a heart that beats seldom."""
    sql.execute("CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1); CREATE TABLE busy (id INT, pad TEXT)")
    config = settings(server, sql, table_include_list=r"public\.t") | {"heartbeat.interval.ms": "3600000"}
    running = runner(log, config)
    catch_up(running)
    return running


@contextlib.contextmanager
def _stopped(sql: Any, what: str) -> Generator[None]:
    """A process of PostgreSQL that does nothing."""
    pid = sql.execute("SELECT pid FROM pg_stat_activity WHERE backend_type = %s", [what]).fetchone()[0]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
