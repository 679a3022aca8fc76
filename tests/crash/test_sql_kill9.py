"""Sinks that write tables of databases, while the server is killed, the database, and the connections between them.

A stream's records become rows without a key, so one that is written twice would be seen; a query's table becomes rows
by key. Both have to be what the topics say.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from connectors import read_topic, sending
from mariadb_server import mariadb_server
from postgres_server import postgres_server
from running_server import ServerDied, ServerProcess
from tcp_relay import TcpRelay
from waiting import eventually

from millstream.logcore.log import open_log

POINTS = ("sink_after_read", "sql_before_commit", "sql_after_commit", "sink_after_write", "sink_after_commit")
DECLARED = """
SET 'auto.offset.reset'='earliest';
CREATE STREAM orders (n BIGINT, half DECIMAL(12, 1)) WITH (kafka_topic='orders', value_format='JSON', partitions=3);
CREATE TABLE totals WITH (kafka_topic='totals', format='JSON') AS
    SELECT n - n / 50 * 50 AS k, COUNT(*) AS c, SUM(n) AS s FROM orders GROUP BY n - n / 50 * 50;
"""
TABLES = (
    "CREATE TABLE orders (n BIGINT, half DECIMAL(12, 1))",
    "CREATE TABLE totals (k BIGINT PRIMARY KEY, c BIGINT, s BIGINT)",
)

COUNTS = ("COUNT(*) FROM orders", "SUM(c) FROM totals")


def of_soak() -> int:
    return int(os.environ.get("MILLSTREAM_SOAK_SQL_KILLS", "100"))


@dataclass
class Target:
    """A database. `url`: as the sinks know it, `own`: as this test does. `faults`: what can happen to it, by name; each
    comes back by itself."""

    url: str
    own: str
    faults: dict[str, Callable[[], None]]

    def rows(self, *statements: str) -> list[tuple[Any, ...]]:
        """Of the last one."""
        engine, found = sa.create_engine(self.own), list[tuple[Any, ...]]()
        with engine.begin() as connection:
            for statement in statements:
                answer = connection.execute(sa.text(statement))
                found = [tuple(row) for row in answer] if answer.returns_rows else []
        engine.dispose()
        return found


@contextlib.contextmanager
def postgres(folder: Path) -> Generator[Target]:
    def die() -> None:
        server.stop("immediate")
        server.start()

    with postgres_server() as server, TcpRelay(server.port) as relay:
        url = f"postgresql+psycopg://postgres@127.0.0.1:{relay.port}/postgres"
        yield Target(url, server.url(), {"database": die, "connection": relay.cut})


@contextlib.contextmanager
def mariadb(folder: Path) -> Generator[Target]:
    def die() -> None:
        server.stop()
        server.start()

    with mariadb_server() as server, TcpRelay(server.port) as relay:
        with server.connect() as admin:
            admin.run("CREATE DATABASE shop")
        own, url = (f"mysql+pymysql://root@127.0.0.1:{port}/shop" for port in (server.port, relay.port))
        yield Target(url, own, {"database": die, "connection": relay.cut})


@contextlib.contextmanager
def sqlite(folder: Path) -> Generator[Target]:
    url = f"sqlite:///{folder}/out.db"

    def lock() -> None:
        """By another writer, for longer than the sink waits at once."""
        engine = sa.create_engine(url)
        with engine.connect() as connection:
            connection.exec_driver_sql("BEGIN EXCLUSIVE")
            time.sleep(0.3)
        engine.dispose()

    yield Target(url, url, {"lock": lock})


def start(process: ServerProcess, target: Target) -> None:
    """Topics, query and connectors."""
    sinks = {
        "orders": {"insert.mode": "insert", "pk.mode": "none", "tasks.max": "2"},
        "totals": {"pk.fields": "k", "key.converter": "json"},
    }
    given = [DECLARED]
    for topic, settings in sinks.items():
        config = {"connector.class": "sql", "connection.url": target.url, "topics": topic, **settings}
        listed = ", ".join(f"'{name}'='{value}'" for name, value in config.items())
        given.append(f"CREATE SINK CONNECTOR {topic}_out WITH ({listed});")
    for statement in given:
        httpx.post(f"{process.url}/ksql", json={"ksql": statement}, timeout=30).raise_for_status()


def live(data: Path, target: Target, chance: random.Random, begin: int, deaths: Counter[str]) -> int:
    """One life of the server, with faults of the database. Gives the number of the next record."""
    first = not deaths
    failpoints = f"connect.{chance.choice(POINTS)}:{chance.randint(1, 6)}:kill9" if chance.random() < 0.5 else ""
    try:
        process = ServerProcess(data, failpoints="" if first else failpoints)
    except ServerDied:
        assert failpoints
        deaths["step"] += 1
        return begin
    with process:
        if first:
            start(process, target)
        with sending(process.url, begin) as at:
            for _ in range(chance.randrange(4)):
                time.sleep(chance.uniform(0.05, 0.5))
                fault = chance.choice(list(target.faults))
                target.faults[fault]()
                deaths[fault] += 1
            deadline = time.monotonic() + (15 if failpoints and not first else chance.uniform(0.1, 5.0))
            while time.monotonic() < deadline and process.process.poll() is None:
                time.sleep(0.01)
            deaths["engine" if process.process.poll() is None else "step"] += 1
            process.process.kill()
        return at[0]


def is_drained(process: ServerProcess, connector: str) -> bool:
    described = httpx.post(f"{process.url}/ksql", json={"ksql": f"DESCRIBE CONNECTOR {connector};"}, timeout=30).json()
    tasks = described[0]["status"]["tasks"]
    assert all(task["state"] == "RUNNING" for task in tasks), tasks
    return all(figures["lag"] == 0 for figures in described[0]["taskFigures"])


@pytest.mark.soak
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("database", [postgres, mariadb, sqlite])
def test_tables_are_what_the_topics_say_after_many_kills(
    tmp_path: Path, database: Callable[[Path], contextlib.AbstractContextManager[Target]]
) -> None:
    kills = of_soak()
    chance, data, number, deaths = random.Random(11), tmp_path / "data", 0, Counter[str]()
    with database(tmp_path) as target:
        target.rows(*TABLES)
        while deaths.total() < kills:
            number = live(data, target, chance, number, deaths)
        with ServerProcess(data) as process:

            def caught_up() -> bool:
                drained = [is_drained(process, f"{name}_out") for name in ("orders", "totals")]
                ((rows,),), ((counted,),) = (target.rows(f"SELECT {what}") for what in COUNTS)
                return all(drained) and rows == counted

            eventually(caught_up, 180, otherwise="not the end of the topics")
            assert process.stop() == 0
        with open_log(data / "log") as log:
            sent = Counter((row.json["n"], Decimal(str(row.json["half"]))) for row in read_topic(log, "orders"))
        found = Counter((n, Decimal(str(half))) for n, half in target.rows("SELECT n, half FROM orders"))
        groups: dict[int, list[int]] = {}
        for n, _ in sent:
            groups.setdefault(n % 50, []).append(n)
        totals = {k: (c, s) for k, c, s in target.rows("SELECT k, c, s FROM totals")}
    print(f"{database.__name__}: {dict(deaths)}, {sent.total()} records")
    assert deaths["step"] or kills < 50
    assert set(sent.values()) == {1}
    assert found == sent
    assert totals == {k: (len(each), sum(each)) for k, each in groups.items()}
