"""Topics in tables of SQLite, PostgreSQL and MariaDB: each record has its effect once, whenever the task dies."""

from __future__ import annotations

import json
import random
import resource
import threading
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from connectors import read_topic
from mariadb_server import MariaDbServer, mariadb_server
from postgres_server import PostgresServer, postgres_server
from waiting import without_error

from millstream.executor.connect.connector import TaskInfo
from millstream.executor.connect.connector_errors import ConnectorFailed, InvalidConnector, SystemUnavailable
from millstream.executor.connect.connector_settings import read_settings
from millstream.executor.connect.sink_runner import SinkRunner
from millstream.executor.connect.sinks.sql_sink import SqlSink, SqlSinkSettings
from millstream.executor.connect.sql_databases import database_engine, database_errors, database_url
from millstream.logcore.clients.producer import Producer
from millstream.logcore.failpoints import FailpointHit, arm
from millstream.logcore.log import Log, open_log

POINTS = ("sink_after_read", "sql_before_commit", "sql_after_commit", "sink_after_write", "sink_after_commit")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as started:
        yield started


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariaDbServer]:
    with mariadb_server() as started:
        yield started


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'out.db'}"
        return
    name = f"db{abs(hash(request.node.name)) % 10**9}"
    if request.param == "mariadb":
        started = request.getfixturevalue("mariadb")
        with started.connect() as sql:
            sql.run(f"CREATE DATABASE {name}")
            yield f"mysql+pymysql://root@127.0.0.1:{started.port}/{name}"
            sql.run(f"DROP DATABASE {name}")
        return
    server = request.getfixturevalue("server")
    with server.connect() as admin:
        admin.execute(f"CREATE DATABASE {name}")
    yield server.url(name)
    with server.connect() as admin:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log", sync="never") as opened:
        yield opened
    arm("")


def runner(log: Log, url: str, *, number: int = 0, of: int = 1, **more: str) -> SinkRunner:
    given = {name.replace("_", "."): value for name, value in more.items()}
    config = {"connection.url": url, "topics": "orders", "pk.fields": "id", **given}
    task = TaskInfo("out", number, {"of": of})
    sink = SqlSink(read_settings(SqlSinkSettings, config), task)
    return SinkRunner(log, sink, task, config, lambda topic, batch, time_ms: batch)


def drain(running: SinkRunner) -> None:
    while running.step(0):
        pass
    running.close()


def send(log: Log, rows: list[tuple[Any, Any]], topic: str = "orders", partitions: int = 2) -> None:
    if log.topic(topic) is None:
        log.create_topic(topic, partitions)
    with Producer(log) as producer:
        for key, value in rows:
            producer.send(topic, None if value is None else json.dumps(value).encode(), json.dumps(key).encode())


def query(url: str, text: str) -> list[tuple[Any, ...]]:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        found = connection.execute(sa.text(text))
        rows = [tuple(row) for row in found] if found.returns_rows else []
    engine.dispose()
    return rows


def test_rows_are_upserted_and_deleted_by_key(log: Log, url: str) -> None:
    query(url, "CREATE TABLE orders (id INT PRIMARY KEY, item TEXT, price NUMERIC(20, 6), at TIMESTAMP, day DATE)")
    send(log, [
        (1, {"ITEM": "a", "PRICE": 1.5, "AT": 1_709_208_000_123, "DAY": 19782}), (2, {"item": "b"}),
        (1, {"item": "c", "at": "2024-02-29T12:00:00Z", "day": "2024-02-29"}), (3, {"item": "gone"}), (3, None),
    ])  # fmt: skip
    drain(runner(log, url))
    assert [row[:2] for row in query(url, "SELECT id, item FROM orders ORDER BY id")] == [(1, "c"), (2, "b")]
    send(log, [(2, None), (1, {"item": "d", "price": "12345.678901"})])
    drain(runner(log, url))
    ((item, price, at, day),) = query(url, "SELECT item, CAST(price AS VARCHAR(30)), at, day FROM orders")
    assert (item, Decimal(price).quantize(Decimal("0.000001"))) == ("d", Decimal("12345.678901"))
    assert datetime.fromisoformat(str(at)) == datetime(2024, 2, 29, 12)
    assert date.fromisoformat(str(day)) == date(2024, 2, 29)


def test_each_record_counts_once_under_kills(log: Log, url: str) -> None:
    """insert.mode=insert has no key that would hide a row that is written twice."""
    query(url, "CREATE TABLE orders (n INT)")
    chance, deaths, sent = random.Random(3), 0, 0
    while deaths < 30:
        send(log, [(number, {"n": number}) for number in range(sent, sent + 20)])
        sent += 20
        arm(f"connect.{chance.choice(POINTS)}:1:raise")
        running = runner(log, url, insert_mode="insert", pk_mode="none")
        try:
            drain(running)
        except FailpointHit:
            deaths += 1
            running.close()
    arm("")
    drain(runner(log, url, insert_mode="insert", pk_mode="none"))
    assert sorted(query(url, "SELECT n FROM orders")) == [(number,) for number in range(sent)]


def test_tables_that_are_created_do_not_move_the_offsets_before_the_rows(log: Log, url: str) -> None:
    """MariaDB commits what came before a CREATE TABLE."""
    send(log, [(number, {"n": number}) for number in range(5)])
    arm("connect.sql_before_commit:1:raise")
    running = runner(log, url, auto_create="true")
    with pytest.raises(FailpointHit):
        drain(running)
    running.close()
    drain(runner(log, url, auto_create="true"))
    assert sorted(query(url, "SELECT id, n FROM orders")) == [(number, number) for number in range(5)]


def test_tasks_that_begin_at_once_create_the_tables_together(log: Log, url: str) -> None:
    send(log, [(number, {"n": number}) for number in range(40)], partitions=4)
    errors = list[Exception]()
    together = threading.Barrier(4)

    def run(number: int) -> None:
        running = runner(log, url, number=number, of=4, auto_create="true")
        together.wait()
        try:
            without_error(lambda: drain(running), SystemUnavailable)
        except Exception as error:
            errors.append(error)
        finally:
            running.close()

    tasks = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join()
    assert errors == []
    assert sorted(query(url, "SELECT id, n FROM orders")) == [(number, number) for number in range(40)]


def test_an_older_task_that_still_runs_writes_nothing_twice(log: Log, url: str) -> None:
    query(url, "CREATE TABLE orders (n INT)")
    send(log, [(1, {"n": 1})])
    older, newer = (runner(log, url, insert_mode="insert", pk_mode="none") for _ in range(2))
    assert older.step(0)
    send(log, [(1, {"n": 2})])
    assert newer.step(0)
    with pytest.raises(SystemUnavailable, match="another task has written"):
        older.step(0)
    assert sorted(query(url, "SELECT n FROM orders")) == [(1,), (2,)]


def test_a_table_is_created_where_that_is_wanted(log: Log, url: str) -> None:
    send(log, [({"a": 1, "b": "x"}, {"n": None, "f": 0.5, "ok": True, "more": {"z": [1, 2.25]}}),
               ({"a": 2, "b": "y"}, {"n": 7, "f": None, "ok": False, "more": None})])  # fmt: skip
    with pytest.raises(ConnectorFailed, match="the table orders does not exist"):
        drain(runner(log, url, pk_fields=""))
    drain(runner(log, url, pk_fields="", auto_create="true", table_name_format="made_${topic}"))
    rows = query(url, "SELECT a, b, n, f, ok FROM made_orders ORDER BY a")
    assert rows == [(1, "x", None, 0.5, True), (2, "y", 7, None, False)]
    (more,) = query(url, "SELECT more FROM made_orders WHERE a = 1")[0]
    assert (json.loads(more) if isinstance(more, str) else more) == {"z": [1, 2.25]}
    send(log, [({"a": 1, "b": "x"}, None)])
    drain(runner(log, url, pk_fields="", auto_create="true", table_name_format="made_${topic}"))
    assert query(url, "SELECT a FROM made_orders") == [(2,)]


@pytest.mark.parametrize(
    ("key", "value", "settings", "message"),
    [
        (1, {"nope": 1}, {}, "the table orders has no column nope"),
        (1, [1], {}, "its value is of type list, not an object"),
        (None, {"item": "x"}, {}, "it has no key"),
        (1, {"item": "x"}, {"pk_fields": ""}, "pk.fields does not name one column"),
        (1, {"item": "x"}, {"pk_mode": "record_value"}, "its value has no id"),
        (1, {"item": None}, {}, "the database refused"),
    ],
)
def test_a_record_that_is_no_row_says_which_and_why(
    log: Log, tmp_path: Path, key: Any, value: Any, settings: dict[str, str], message: str
) -> None:
    url = f"sqlite:///{tmp_path / 'out.db'}"
    query(url, "CREATE TABLE orders (id INT PRIMARY KEY, item TEXT NOT NULL)")
    log.create_topic("orders", 1)
    with Producer(log) as producer:
        producer.send("orders", json.dumps(value).encode(), None if key is None else json.dumps(key).encode())
    with pytest.raises(ConnectorFailed, match=message):
        drain(runner(log, url, **settings))


def test_records_in_another_format_go_to_the_dead_letters(log: Log, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'out.db'}"
    query(url, "CREATE TABLE orders (id INT PRIMARY KEY, item TEXT)")
    send(log, [(1, {"item": "a"})], partitions=1)
    with Producer(log) as producer:
        producer.send("orders", b"{no json", b"2")
    send(log, [(3, {"item": "c"})])
    with pytest.raises(ConnectorFailed, match="offset 1 is not in the format"):
        drain(runner(log, url))
    tolerant = {"errors_tolerance": "all", "errors_deadletterqueue_topic_name": "dead"}
    drain(runner(log, url, **tolerant))
    assert query(url, "SELECT id FROM orders ORDER BY id") == [(1,), (3,)]
    (row,) = read_topic(log, "dead")
    headers = {header["key"]: header["value"] for header in row.headers or ()}
    assert (row.value, headers["__connect.errors.offset"]) == (b"{no json", b"1")
    assert b"unexpected" in headers["__connect.errors.exception.message"]


def test_settings_that_cannot_be_meant_are_refused(log: Log) -> None:
    with pytest.raises(InvalidConnector, match="needs a primary key"):
        runner(log, "sqlite://", pk_mode="none")
    with pytest.raises(InvalidConnector, match="is no URL of SQLAlchemy"):
        runner(log, "nothing")
    with pytest.raises(ConnectorFailed, match="the driver of oracle is not installed"):
        runner(log, "oracle://ana@db")
    send(log, [(1, {"item": "x"})])
    with pytest.raises(ConnectorFailed, match="unable to open database file"):
        drain(runner(log, "sqlite:////nowhere/at/all.db"))


def test_duckdb_is_refused_before_anything_runs(tmp_path: Path) -> None:
    """Its driver asks for a catalog of PostgreSQL that DuckDB does not have, so no table can be looked at."""
    config = {"connection.url": f"duckdb:///{tmp_path}/out.duckdb", "topics": "orders"}
    with pytest.raises(InvalidConnector, match="does not write DuckDB"):
        read_settings(SqlSinkSettings, config)


@pytest.mark.parametrize("path", ["nowhere/out.db", "."])
def test_a_path_where_sqlite_cannot_have_a_file_ends_the_task(log: Log, tmp_path: Path, path: str) -> None:
    send(log, [(1, {"item": "a"})])
    with pytest.raises(ConnectorFailed, match="the database refused: unable to open database file"):
        drain(runner(log, f"sqlite:///{tmp_path}/{path}"))


def test_a_database_that_cannot_be_opened_for_want_of_file_handles_is_waited_for(tmp_path: Path) -> None:
    engine = database_engine(database_url(f"sqlite:///{tmp_path}/a.db"))
    with engine.connect():
        pass
    engine.dispose()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        with pytest.raises(SystemUnavailable, match="unable to open database file"), database_errors():
            engine.connect()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
