"""Deaths of task, server and the connection between them: each change is in the topic once, nothing is missing."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest
from connectors import read_topic
from mariadb_server import MariaDbServer, Sql, mariadb_server
from mysql_changes import CREATE_TABLE, check_topic, writing
from mysql_runners import POINTS, catch_up, killed_runner, runner, settings
from tcp_relay import TcpRelay
from waiting import without_error

from millstream.executor.connect.connector_errors import SystemFault, SystemUnavailable
from millstream.logcore.log import Log, open_log

SOAK_KILLS = int(os.environ.get("MILLSTREAM_SOAK_KILLS", "50"))


def test_nothing_is_lost_or_twice_under_kills_and_writes(
    server: MariaDbServer, sql: Sql, database: str, log: Log
) -> None:
    """5 deaths of the task at random steps: two of them during the snapshot."""
    kill_tasks(server, sql, database, log, 5)


def kill_tasks(server: MariaDbServer, sql: Sql, database: str, log: Log, kills: int) -> None:
    sql.run(*CREATE_TABLE)
    config = settings(server, database, max_batch_size="200")
    chance, deaths = random.Random(2), Counter[str]()
    with writing(server, database):
        while deaths.total() < kills:
            early = deaths["snapshot"] < kills * 2 // 5
            point = chance.choice(("after_read", "after_records") if early else POINTS)
            killed = killed_runner(log, config, f"{point}:{chance.randrange(1, 14 if early else 6)}")
            if killed is not None:
                deaths["snapshot" if killed.position is None else "stream"] += 1
    running = runner(log, config)
    catch_up(running)
    running.close()
    assert deaths["stream"] >= kills // 3
    check_topic(read_topic(log, f"m.{database}.t"), sql)


@pytest.mark.soak
def test_a_large_snapshot_while_clients_write(server: MariaDbServer, sql: Sql, database: str, log: Log) -> None:
    """100,000 rows, and what was written meanwhile: nothing is missing or twice."""
    sql.run(*CREATE_TABLE, "INSERT INTO t SELECT seq, 0, 'x' FROM seq_10001_to_110000")
    running = runner(log, settings(server, database))
    with writing(server, database), writing(server, database, seed=2):
        while running.position is None:
            running.step(0.1)
    assert running.records >= 100_000
    catch_up(running)
    running.close()
    check_topic(read_topic(log, f"m.{database}.t"), sql)


def test_the_server_and_the_connection_may_die(tmp_path: Path) -> None:
    kill_everything(tmp_path, 5, snapshot_rows=3000)


def test_a_spoilt_event_is_read_again(server: MariaDbServer, sql: Sql, database: str, log: Log) -> None:
    sql.run("CREATE TABLE t (id INT PRIMARY KEY)")
    with TcpRelay(server.port) as relay:
        config = {**settings(server, database, heartbeat_interval_ms="10000"), "database.port": str(relay.port)}
        running = runner(log, config)
        catch_up(running)
        relay.spoils = True
        sql.run("INSERT INTO t VALUES (1)")
        with pytest.raises(SystemFault, match="whose checksum is wrong"):
            catch_up(running, quiet=100)
        running.close()
        _catch_up_and_end(log, config)
    assert [record.json["after"] for record in read_topic(log, f"m.{database}.t")] == [{"id": 1}]


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_each_change_is_there_once_after_many_kills_of_everything(tmp_path: Path) -> None:
    kill_everything(tmp_path, SOAK_KILLS, snapshot_rows=100_000)


def kill_everything(folder: Path, kills: int, *, snapshot_rows: int) -> None:
    """Task, server or relay, by turns and at random moments, while a client writes, and tables are added meanwhile."""
    chance, died = random.Random(7), Counter[str]()
    with mariadb_server() as server, TcpRelay(server.port) as relay, open_log(folder / "log", sync="never") as log:
        with server.connect() as admin:
            admin.run("CREATE DATABASE shop", "USE shop", *CREATE_TABLE)
            admin.run(f"INSERT INTO t SELECT seq, 0, 'x' FROM seq_10001_to_{10_000 + snapshot_rows}")
            admin.run("CREATE TABLE late (id INT PRIMARY KEY, v INT)")
            admin.run(f"INSERT INTO late SELECT seq, 0 FROM seq_1_to_{snapshot_rows // 10}")
        config = {**settings(server, "shop", max_batch_size="500"), "database.port": str(relay.port)}
        config["table.include.list"] = r"shop\.t"
        with writing(server, "shop", survives=True):
            while died.total() < kills:
                if died.total() >= kills // 2:
                    config["table.include.list"] = r"shop\.(t|late)"
                    config["incremental.snapshot.chunk.size"] = "100"
                how = ("task", "server", "relay")[died.total() % 3]
                died[how] += _one_life(server, relay, log, config, how, chance)
        without_error(lambda: _catch_up_and_end(log, config), (SystemUnavailable, SystemFault))
        with server.connect("shop") as sql:
            check_topic(read_topic(log, "m.shop.t"), sql)
            late = {record.json["after"]["id"] for record in read_topic(log, "m.shop.late")}
            assert late == {row[0] for row in sql.rows("SELECT id FROM late")}
    assert min(died.values()) >= kills // 4


def _one_life(
    server: MariaDbServer, relay: TcpRelay, log: Log, config: dict[str, str], how: str, chance: random.Random
) -> int:
    """A task that runs until something dies."""
    if how == "task":
        return int(killed_runner(log, config, f"{chance.choice(POINTS)}:{chance.randrange(1, 12)}") is not None)
    running = runner(log, config)
    moment = time.monotonic() + chance.uniform(0.05, 0.5)
    is_cut = False
    try:
        while True:
            running.step(0.02)
            if not is_cut and time.monotonic() > moment:
                is_cut = True
                relay.cut() if how == "relay" else server.stop()
    except (SystemUnavailable, SystemFault):
        return int(is_cut)
    finally:
        running.close()
        if server.process is None:
            server.start()


def _catch_up_and_end(log: Log, config: dict[str, str]) -> None:
    running = runner(log, config)
    try:
        running.step(1)
        while "backfill" in (running.position or {"backfill": ()}):
            running.step(0.1)
        catch_up(running)
    finally:
        running.close()
