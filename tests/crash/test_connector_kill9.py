"""A server that reads a table of PostgreSQL, which others change, while everything is killed: the server, the task, the
database, and the connections between them."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
from connectors import records_of
from pg_runners import POINTS
from postgres_changes import CREATE_TABLE, check_topic, writing
from postgres_server import PostgresServer, postgres_server
from running_server import ServerProcess
from tcp_relay import TcpRelay
from waiting import eventually

from millstream.executor.connect.postgres.pg_connections import lsn_of
from millstream.logcore.log import open_log

HELD_MAX = 64 << 20
_OTHER_TABLE = "INSERT INTO busy SELECT i, repeat(md5(random()::text), 30) FROM generate_series(1, 8000) i"
_HELD = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint FROM pg_replication_slots"


def of_soak(name: str, default: int) -> int:
    return int(os.environ.get(f"MILLSTREAM_SOAK_SOURCE_{name}", default))


@pytest.mark.soak
@pytest.mark.timeout(5400)
def test_each_change_is_there_once_after_many_kills(tmp_path: Path) -> None:
    kills, rows, clients = of_soak("KILLS", 200), of_soak("ROWS", 1_000_000), of_soak("CLIENTS", 50)
    data, run = tmp_path / "data", _Run(random.Random(5))
    with postgres_server() as server, TcpRelay(server.port) as relay:
        server.stop()
        server.start(max_connections="100")
        with server.connect() as sql:
            sql.execute(CREATE_TABLE)
            sql.execute(f"INSERT INTO t SELECT i, 0, 'x' FROM generate_series(10000001, {10_000_000 + rows}) i")
            sql.execute("CREATE TABLE busy (id INT, pad TEXT)")
        config = {
            **server.parameters(), "database.port": str(relay.port), "connector.class": "postgres",
            "topic.prefix": "pg", "heartbeat.interval.ms": "200", "table.include.list": r"public\.t",
        }  # fmt: skip
        with writing(server, "postgres", clients=clients, pause_s=0.02 * clients, survives=True):
            while run.died.total() < kills:
                run.live(data, config, server, relay, early=run.died.total() < kills // 10)
            with ServerProcess(data) as process, server.connect() as sql:
                eventually(lambda: _phase(process) == "stream", 900, otherwise="no end of the snapshot")
                _catch_up(process, sql)
                most = _write_to_others(sql, 1000)
                eventually(lambda: _held(sql) < HELD_MAX, otherwise="WAL is held, though all of it was read")
        with ServerProcess(data) as process, server.connect() as sql:
            _catch_up(process, sql)
            assert process.stop() == 0
            with open_log(data / "log") as log:
                count = check_topic(records_of(log, "pg.public.t"), sql)
    print(
        f"{dict(run.died)}, {run.restarts} restarts of the task, {count} records, at most {most >> 20} MiB of WAL held"
    )


class _Run:
    """State: what died how often; how often a task began anew after an error, which it may have been told to make."""

    def __init__(self, chance: random.Random) -> None:
        self.died = Counter[str]()
        self.restarts = 0
        self._chance = chance

    def live(self, data: Path, config: dict[str, str], server: PostgresServer, relay: TcpRelay, early: bool) -> None:
        """One life of the server. In: `early`: in the snapshot, which begins anew then."""
        chance = self._chance
        failpoint = f"connect.{chance.choice(POINTS)}:{chance.randrange(1, 12)}:raise" if chance.random() < 0.5 else ""
        with ServerProcess(data, failpoints=failpoint) as process:
            if not httpx.get(f"{process.url}/connectors", timeout=60).json():
                httpx.put(f"{process.url}/connectors/pg/config", json=config, timeout=60).raise_for_status()
            if not early and _phase(process) != "stream":
                eventually(lambda: _phase(process) == "stream", 900, otherwise="no end of the snapshot")
            for _ in range(chance.randrange(4)):
                time.sleep(chance.uniform(0.05, 1.0))
                how = chance.choice(("database", "network"))
                self.died[how] += 1
                if how == "network":
                    relay.cut()
                else:
                    server.stop("immediate")
                    server.start(max_connections="100")
            time.sleep(chance.uniform(0.05, 1.2))
            self.restarts += _figures(process)["restarts"]
            self.died["engine"] += 1
            process.process.kill()


def _figures(process: ServerProcess) -> dict[str, Any]:
    described = httpx.post(f"{process.url}/ksql", json={"ksql": "DESCRIBE CONNECTOR `pg`;"}, timeout=30).json()
    return described[0]["taskFigures"][0]


def _position(process: ServerProcess) -> dict[str, Any]:
    (offset,) = httpx.get(f"{process.url}/connectors/pg/offsets", timeout=60).json()["offsets"] or ({"offset": {}},)
    return offset["offset"]


def _phase(process: ServerProcess) -> str | None:
    return _position(process).get("phase")


def _catch_up(process: ServerProcess, sql: Any) -> None:
    """Up to what is written now."""
    end = lsn_of(sql.execute("SELECT pg_current_wal_lsn()::text").fetchone()[0])
    eventually(lambda: lsn_of(_position(process).get("lsn", "0/0")) >= end, 900, otherwise="not the end of the WAL")


def _write_to_others(sql: Any, megabytes: int) -> int:
    """Into a table that nobody reads. Returns how many bytes of WAL were held at most: PostgreSQL notes only every 15
    seconds from where a slot has to read again, so that grows with the rate."""
    most = 0
    for number in range(megabytes // 8):
        sql.execute(_OTHER_TABLE)
        most = max(most, _held(sql))
        if number % 10 == 9:
            sql.execute("TRUNCATE busy")
    return most


def _held(sql: Any) -> int:
    return sql.execute(_HELD).fetchone()[0]
