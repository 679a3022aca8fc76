"""Topics in tables of SQLite, PostgreSQL and MariaDB: each record has its effect once, whenever the task dies."""

from __future__ import annotations

import contextlib
import json
import random
import resource
import threading
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from connectors import read_topic, said_at_first
from mariadb_server import MariaDbServer, mariadb_server
from postgres_server import PostgresServer, postgres_server
from waiting import eventually, without_error

from millstream.executor.connect.connector import TaskInfo
from millstream.executor.connect.connector_errors import ConnectorFailed, InvalidConnector, SystemUnavailable
from millstream.executor.connect.connector_settings import read_settings
from millstream.executor.connect.sink_runner import SinkRunner
from millstream.executor.connect.sinks.sql_sink import SqlSink, SqlSinkSettings
from millstream.executor.connect.sql_databases import database_engine, database_errors, database_url
from millstream.logcore.clients.producer import Producer
from millstream.logcore.failpoints import FailpointHit, arm
from millstream.logcore.log import Log, open_log
from millstream.testing import ConnectorSandbox

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


def runner(log: Log, url: str, **more: str) -> SinkRunner:
    return runner_of(log, url, TaskInfo("out"), {name.replace("_", "."): value for name, value in more.items()})


def runner_of(log: Log, url: str, task: TaskInfo, given: Mapping[str, str]) -> SinkRunner:
    config = {"connection.url": url, "topics": "orders", "pk.fields": "id", **given}
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


def test_a_tombstone_deletes_the_rows_before_it_and_none_after_it(log: Log, url: str) -> None:
    query(url, "CREATE TABLE orders (id INT, item VARCHAR(20))")
    rows = [(1, {"item": "a"}), (1, None), (2, {"item": "b"}), (2, {"item": "c"}), (2, None), (2, {"item": "d"})]
    send(log, rows)
    drain(runner(log, url, insert_mode="insert"))
    assert query(url, "SELECT id, item FROM orders ORDER BY id") == [(2, "d")]


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
        running = runner_of(log, url, TaskInfo("out", number, {"of": 4}), {"auto.create": "true"})
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


def test_a_column_of_whole_numbers_rounds_no_fraction(log: Log, url: str) -> None:
    query(url, "CREATE TABLE orders (id INT PRIMARY KEY, n BIGINT)")
    send(log, [(1, {"n": 1}), (2, {"n": 1.5}), (3, {"n": 3.0}), (4, {"n": "4.5"})])
    drain(runner(log, url, errors_tolerance="all", errors_deadletterqueue_topic_name="letters"))
    assert sorted(query(url, "SELECT id, n FROM orders")) == [(1, 1), (3, 3)]
    assert {str(record.json["n"]) for record in read_topic(log, "letters")} == {"1.5", "4.5"}


def test_a_table_is_created_with_numbers_that_hold_all_of_the_first_rows(log: Log, url: str) -> None:
    send(log, [(1, {"n": 1}), (2, {"n": 1.5})])
    drain(runner(log, url, auto_create="true"))
    assert sorted(query(url, "SELECT id, n FROM orders")) == [(1, 1.0), (2, 1.5)]


def test_null_in_a_column_of_json_is_null(log: Log, url: str) -> None:
    query(url, "CREATE TABLE orders (id INT PRIMARY KEY, more JSON)")
    send(log, [(1, {"more": None}), (2, {"more": {"a": None}}), (3, {"more": [1]})])
    drain(runner(log, url))
    send(log, [(3, {"more": None})])
    drain(runner(log, url))
    assert sorted(query(url, "SELECT id FROM orders WHERE more IS NULL")) == [(1,), (3,)]


def test_text_that_is_only_nearly_base64_is_refused(log: Log, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'out.db'}"
    query(url, "CREATE TABLE orders (id INT PRIMARY KEY, b BLOB)")
    send(log, [(1, {"b": "AA-E="})])
    with pytest.raises(ConnectorFailed, match="base64"):
        drain(runner(log, url))


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


STRICT = """CREATE TABLE orders (id INT PRIMARY KEY, item VARCHAR(100) NOT NULL CHECK (item <> ''), at TIMESTAMP NULL,
    price NUMERIC(20, 6), f FLOAT, code INT UNIQUE)"""


@pytest.mark.parametrize("insert_mode", ["insert", "upsert"])
def test_rows_that_a_table_does_not_take_go_to_the_dead_letters(log: Log, url: str, insert_mode: str) -> None:
    query(url, STRICT)
    bad = [{"item": None}, {"item": ""}, {}, {"item": "x", "at": "never"}, {"item": "x", "price": "dear"}, [1],
           {"item": "x", "f": "much"}, {"item": "x", "code": 7}, {"item": "x", "price": {"z": 1}},
           {"item": "x", "code": [1]}]  # fmt: skip
    rows = [(0, {"item": "first", "code": 7}), *enumerate(bad, 1), (99, {"item": "last"})]
    send(log, rows, partitions=1)
    settings = {"insert_mode": insert_mode, "pk_mode": "record_key"}
    with pytest.raises(ConnectorFailed, match="the record at orders, partition 0, offset"):
        drain(runner(log, url, **settings))
    assert query(url, "SELECT id FROM orders") == []
    tolerant = {**settings, "errors_tolerance": "all", "errors_deadletterqueue_topic_name": "dead"}
    drain(runner(log, url, **tolerant))
    assert query(url, "SELECT id, item FROM orders ORDER BY id") == [(0, "first"), (99, "last")]
    letters = read_topic(log, "dead")
    assert {letter.key for letter in letters} == {str(number).encode() for number in range(1, len(bad) + 1)}
    assert len(letters) == len(bad)


def test_mariadb_keeps_one_row_for_each_key_where_no_index_does(log: Log, mariadb: MariaDbServer) -> None:
    url = f"mysql+pymysql://root@127.0.0.1:{mariadb.port}/keyless"
    with mariadb.connect() as sql:
        sql.run("CREATE DATABASE keyless", "CREATE TABLE keyless.orders (id INT, item TEXT, left_alone INT DEFAULT 5)")
    send(log, [(1, {"item": "a"}), (2, {"item": "b"})])
    drain(runner(log, url))
    send(log, [(1, {"item": "c"}), (3, {}), (2, None)])
    drain(runner(log, url))
    assert sorted(query(url, "SELECT * FROM orders")) == [(1, "c", 5), (3, None, 5)]


def test_a_dead_letter_is_written_before_the_offset_moves(log: Log, url: str) -> None:
    query(url, STRICT)
    send(log, [(1, {"item": None}), (2, {"item": "x"})], partitions=1)
    tolerant = {"errors_tolerance": "all", "errors_deadletterqueue_topic_name": "dead"}
    arm("connect.sql_after_commit:1:raise")
    running = runner(log, url, **tolerant)
    with pytest.raises(FailpointHit):
        drain(running)
    running.close()
    drain(runner(log, url, **tolerant))
    assert [letter.key for letter in read_topic(log, "dead")] == [b"1"]
    assert query(url, "SELECT id FROM orders") == [(2,)]


def test_what_was_refused_leaves_the_row_before_it(log: Log, url: str) -> None:
    query(url, STRICT)
    send(log, [(1, {"item": "good"}), (1, {"item": ""}), (2, {"item": "b"}), (2, None)], partitions=1)
    drain(runner(log, url, errors_tolerance="all"))
    assert query(url, "SELECT id, item FROM orders") == [(1, "good")]


def test_a_table_that_changed_meanwhile_is_looked_at_again(log: Log, url: str) -> None:
    query(url, "CREATE TABLE orders (id INT PRIMARY KEY, item INT)")
    send(log, [(1, {"item": 1})], partitions=1)
    running = runner(log, url, errors_tolerance="all", errors_deadletterqueue_topic_name="dead")
    assert running.step(0)
    query(url, "ALTER TABLE orders ADD COLUMN more TEXT")
    if not url.startswith("sqlite"):
        type_ = "ALTER COLUMN item TYPE TEXT" if url.startswith("postgresql") else "MODIFY item TEXT"
        query(url, f"ALTER TABLE orders {type_}")
    send(log, [(2, {"item": 2, "more": "x"})])
    drain(running)
    assert [row[0] for row in query(url, "SELECT more FROM orders ORDER BY id")] == [None, "x"]
    query(url, "DROP TABLE orders")
    send(log, [(3, {"item": 3})])
    with pytest.raises(ConnectorFailed, match=r"refused|does not exist"):
        drain(runner(log, url, errors_tolerance="all", errors_deadletterqueue_topic_name="dead"))
    assert log.topic("dead") is None


@pytest.mark.parametrize("how", ["altered", "made anew"])
def test_a_key_that_changed_meanwhile_costs_no_other_row(log: Log, url: str, how: str) -> None:
    """Which MySQL's upsert would take for the row to change."""
    columns = "(id INT NOT NULL, other INT NOT NULL, item VARCHAR(50), PRIMARY KEY ({}))"
    query(url, f"CREATE TABLE orders {columns.format('id')}")
    send(log, [(1, {"other": 7, "item": "a"})], partitions=1)
    running = runner(log, url)
    assert running.step(0)
    if how == "made anew" or url.startswith("sqlite"):
        query(url, "DROP TABLE orders")
        query(url, f"CREATE TABLE orders {columns.format('other')}")
        query(url, "INSERT INTO orders VALUES (1, 7, 'a')")
    else:
        old = "CONSTRAINT orders_pkey" if url.startswith("postgresql") else "PRIMARY KEY"
        query(url, f"ALTER TABLE orders DROP {old}, ADD PRIMARY KEY (other)")
    send(log, [(2, {"other": 7, "item": "b"})])
    with contextlib.closing(running), contextlib.suppress(SystemUnavailable, ConnectorFailed):
        running.step(0)
    with pytest.raises(
        ConnectorFailed, match=r"the database refused|ON CONFLICT clause does not match|Duplicate entry"
    ):
        drain(runner(log, url))
    assert query(url, "SELECT * FROM orders") == [(1, 7, "a")]


def test_a_table_that_was_made_anew_gets_values_of_its_own_types(log: Log, url: str) -> None:
    query(url, "CREATE TABLE orders (id INT PRIMARY KEY, at TIMESTAMP)")
    send(log, [(1, {"at": 1_700_000_000_000})], partitions=1)
    running = runner(log, url)
    assert running.step(0)
    query(url, "DROP TABLE orders")
    query(url, "CREATE TABLE orders (id INT PRIMARY KEY, at BIGINT)")
    send(log, [(2, {"at": 1_700_000_000_000})])
    with contextlib.closing(running), contextlib.suppress(SystemUnavailable):
        running.step(0)
    drain(runner(log, url))
    assert query(url, "SELECT * FROM orders") == [(2, 1_700_000_000_000)]


def test_a_row_of_20_mb(log: Log, url: str) -> None:
    query(url, f"CREATE TABLE orders (id INT PRIMARY KEY, item {'LONGTEXT' if url.startswith('mysql') else 'TEXT'})")
    send(log, [(1, {"item": "x"})], partitions=1)
    send(log, [(2, {"item": "x" * 20_000_000})])
    send(log, [(3, {"item": "z"})])
    drain(runner(log, url, errors_tolerance="all", errors_deadletterqueue_topic_name="dead"))
    taken = [1, 3] if url.startswith("mysql") else [1, 2, 3]  # its max_allowed_packet is 16 MB
    assert [row[0] for row in query(url, "SELECT id FROM orders ORDER BY id")] == taken


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


def test_who_may_not_connect_is_told_and_not_waited_for(
    log: Log, server: PostgresServer, mariadb: MariaDbServer
) -> None:
    send(log, [(1, {"item": "x"})])
    server.protect("eve", "geheim")
    with mariadb.connect() as admin:
        admin.run("CREATE USER eve@'%' IDENTIFIED BY 'geheim'")
    urls = [f"postgresql+psycopg://eve:guessed@127.0.0.1:{server.port}/postgres", server.url("nothing"),
            f"mysql+pymysql://eve:guessed@127.0.0.1:{mariadb.port}/",
            f"mysql+pymysql://root@127.0.0.1:{mariadb.port}/nothing"]  # fmt: skip

    def said(url: str) -> str:
        return said_at_first(runner(log, url))

    eventually(lambda: "password authentication failed" in said(urls[0]))  # once the server has read its file again
    for url in urls:
        assert "the database refused: " in said(url)
        assert "guessed" not in said(url)


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


@pytest.mark.parametrize("count", [3, 8])
def test_a_topic_that_was_deleted_and_created_again_stops_the_task(tmp_path: Path, count: int) -> None:
    """Its offsets are not those that the database has: with them, records would be left out."""
    config = {"connection.url": f"sqlite:///{tmp_path / 'out.db'}", "topics": "orders", "insert.mode": "insert"}
    with ConnectorSandbox(SqlSink, {**config, "pk.mode": "none", "auto.create": "true"}) as box:
        for rows in (5, count):
            for number in range(rows):
                box.produce("orders", None, {"id": number})
            if rows == 5:
                box.run()
                box.log.delete_topic("orders")
        box.clock.advance(10_000)
        with pytest.raises(ConnectorFailed, match="the topic orders was deleted and created again") as failed:
            box.run()
        assert "DROP CONNECTOR, and create it again" in (failed.value.hint or "")
