"""A PostgreSQL server with other data than what was read: an older copy of its files, or a promoted standby."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest
from connectors import read_topic, said_at_first
from pg_runners import catch_up, runner, settings
from postgres_server import PostgresServer, postgres_server

from millstream.logcore.log import Log

MANY = "INSERT INTO orders SELECT i, repeat('x', 100) FROM generate_series({}, {}) i"


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server of the test's own, which it stops."""
    with postgres_server() as started:
        yield started


@pytest.fixture
def config(server: PostgresServer, log: Log) -> dict[str, str]:
    """A connector that has read a row."""
    with server.connect() as sql:
        sql.execute("CREATE TABLE orders (id INT PRIMARY KEY, item TEXT)")
        sql.execute("INSERT INTO orders VALUES (1, 'a')")
        given = settings(server, sql, table_include_list="public.orders")
    read_on(log, given)
    return given


def read_on(log: Log, config: dict[str, str]) -> None:
    running = runner(log, config)
    catch_up(running)
    running.close()


def write(server: PostgresServer, text: str) -> None:
    with server.connect() as sql:
        sql.execute(text)


def copied(server: PostgresServer) -> None:
    server.stop("fast")
    subprocess.run(["cp", "-a", server.folder / "data", server.folder / "copy"], check=True)
    server.start()


def replaced(server: PostgresServer, *, promoted: bool) -> None:
    """The copy takes the server's place."""
    server.stop("fast")
    shutil.rmtree(server.folder / "data")
    (server.folder / "copy").rename(server.folder / "data")
    if promoted:
        (server.folder / "data" / "standby.signal").touch()
    server.start()
    if promoted:
        write(server, "SELECT pg_promote()")


def test_an_older_copy_of_the_data_is_told(server: PostgresServer, log: Log, config: dict[str, str]) -> None:
    copied(server)
    write(server, MANY.format(2, 1000))
    read_on(log, config)
    replaced(server, promoted=False)
    write(server, "INSERT INTO orders VALUES (2, 'another')")
    said = said_at_first(runner(log, config))
    assert "the replication slot millstream_pg has not all changes any more: the server's WAL ends at " in said
    assert "the server has an older copy of the data" in said


def test_a_standby_that_was_promoted_without_the_last_changes_is_told(
    server: PostgresServer, log: Log, config: dict[str, str]
) -> None:
    copied(server)
    write(server, MANY.format(2, 1000))
    read_on(log, config)
    replaced(server, promoted=True)
    write(server, MANY.format(2, 3000))
    assert "of timeline 1, but the server left it at " in said_at_first(runner(log, config))


def test_a_standby_that_has_all_changes_is_read_on(server: PostgresServer, log: Log, config: dict[str, str]) -> None:
    write(server, MANY.format(2, 5))
    read_on(log, config)
    copied(server)
    replaced(server, promoted=True)
    write(server, "INSERT INTO orders VALUES (6, 'b')")
    read_on(log, config)
    write(server, "INSERT INTO orders VALUES (7, 'b')")
    read_on(log, config)
    assert [record.json["after"]["id"] for record in read_topic(log, "pg.public.orders")] == [1, 2, 3, 4, 5, 6, 7]
