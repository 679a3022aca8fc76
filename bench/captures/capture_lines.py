"""Changes of a table of PostgreSQL, in transactions of ten, into a log of ours: by our source, and by Debezium.

Of Debezium's processor time only Java's counts, of ours all of the process, which has the log in it, too.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from millstream.executor.connect.connector import TaskInfo
from millstream.executor.connect.connector_settings import read_settings
from millstream.executor.connect.postgres.pg_source import PostgresSource
from millstream.executor.connect.postgres.postgres_settings import PostgresSettings
from millstream.executor.connect.source_runner import SourceRunner
from millstream.logcore.log import Log, open_log
from millstream.logcore.server import LogServer

from ..maven import Unavailable
from ..measuring import Measured, cpu_seconds_of, timed
from ..report import Line, rate_line
from .debezium import DEBEZIUM, debezium
from .local_postgres import PostgresServer, running_postgres

_OF_A_TRANSACTION: Final = 10
_TABLE: Final = "CREATE TABLE {table} (id INT PRIMARY KEY, v BIGINT, name TEXT, price NUMERIC(10,2), at TIMESTAMPTZ)"
_WRITE: Final = """DO $$ BEGIN FOR n IN {first}..{last} LOOP
    INSERT INTO {table} SELECT i, n, 'order ' || i, i * 0.25, now() FROM generate_series(n * 5, n * 5 + 4) i;
    UPDATE {table} SET v = v + 1, name = name || ' again' WHERE id BETWEEN n * 5 AND n * 5 + 4;
    COMMIT;
END LOOP; END $$"""
_WITHIN_S: Final = 300.0
_LOOK_S: Final = 0.1


def capture_lines(changes: int) -> list[Line]:
    """In: `changes`: that are measured, after a tenth more of them. One line says why where there is no PostgreSQL or
    no Java."""
    try:
        with tempfile.TemporaryDirectory(prefix="millstream-bench-") as folder, running_postgres() as server:
            server.stop()
            server.start(wal_sender_timeout="60s")  # PostgreSQL's own; of the tests' 5 s Debezium takes too many
            return _lines(changes, server, Path(folder))
    except Unavailable as error:
        return [Line(f"changes of PostgreSQL: not measured, {error}")]


def _lines(changes: int, server: PostgresServer, folder: Path) -> list[Line]:
    sys.stderr.write("bench: changes of PostgreSQL, by Debezium …\n")
    with open_log(folder / "debezium-log") as log:
        theirs = _by_debezium(changes, server, log, folder / "debezium")
    sys.stderr.write("bench: changes of PostgreSQL, by our source …\n")
    with open_log(folder / "log") as log:
        ours = _by_us(changes, server, log)
    what = "changes of PostgreSQL"
    return [
        rate_line(f"{what}: Debezium {DEBEZIUM} in Kafka Connect, at least once", theirs),
        rate_line(f"{what}: our source, exactly once", ours, of=theirs, base="Debezium", wanted="CPU ≥ 1.0"),
    ]


def _by_debezium(changes: int, server: PostgresServer, log: Log, folder: Path) -> Measured:
    topic = "theirs.public.theirs"
    log.create_topic(topic, 1)
    shared = _table(server, "theirs")
    with LogServer(log, port=0) as kafka, debezium(kafka.address, shared, "theirs", folder) as process:

        def count() -> int:
            return log.offsets(topic, 0).log_end_offset

        with server.connect() as sql:
            _until(lambda: sql.execute("SELECT FROM pg_replication_slots WHERE active").rowcount == 1)
        _write(server, "theirs", 0, changes // 10)
        _until(lambda: count() >= changes // 10)
        cpu_s, began = cpu_seconds_of(process), time.perf_counter()
        _write(server, "theirs", changes // 10, changes)
        _until(lambda: count() >= changes // 10 + changes)
        return Measured(changes, time.perf_counter() - began, cpu_seconds_of(process) - cpu_s)


def _by_us(changes: int, server: PostgresServer, log: Log) -> Measured:
    config = {**_table(server, "ours"), "topic.prefix": "ours"}
    task = TaskInfo("ours")
    runner = SourceRunner(log, PostgresSource(read_settings(PostgresSettings, config), task), task, config)

    def capture(first: int, count: int) -> None:
        writing = threading.Thread(target=_write, args=(server, "ours", first, count))
        writing.start()
        while runner.records < first + count:
            runner.step(_LOOK_S)
        writing.join()

    while (runner.position or {}).get("phase") != "stream":
        runner.step(_LOOK_S)
    runner.step(_LOOK_S)  # the stream begins
    capture(0, changes // 10)
    measured = timed(changes, lambda: capture(changes // 10, changes))
    runner.close()
    return measured


def _table(server: PostgresServer, name: str) -> dict[str, str]:
    """An empty one. Returns settings of both connectors."""
    with server.connect() as sql:
        sql.execute(_TABLE.format(table=name))
    return {**server.parameters(), "table.include.list": f"public.{name}", "slot.name": name}


def _write(server: PostgresServer, table: str, first: int, count: int) -> None:
    """In: numbers of changes, which are multiples of a transaction's."""
    with server.connect() as sql:
        begin = first // _OF_A_TRANSACTION
        sql.execute(_WRITE.format(table=table, first=begin, last=begin + count // _OF_A_TRANSACTION - 1))


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WITHIN_S
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("the changes have not come")
        time.sleep(_LOOK_S)
