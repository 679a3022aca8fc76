"""A server that is killed while it reads a table of PostgreSQL, which others change meanwhile."""

from __future__ import annotations

import random
import time
from pathlib import Path

import httpx
import pytest
from connectors import read_topic
from postgres_changes import CREATE_TABLE, check_topic, writing
from postgres_server import postgres_server
from running_server import ServerProcess
from waiting import eventually

from millstream.executor.connect.postgres.pg_connections import lsn_of
from millstream.logcore.log import open_log

KILLS = 20


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_each_change_is_there_once_after_many_kills(tmp_path: Path) -> None:
    chance, data = random.Random(5), tmp_path / "data"
    with postgres_server() as server, server.connect() as sql:
        sql.execute(CREATE_TABLE)
        config = {
            **server.parameters(), "connector.class": "postgres", "topic.prefix": "pg", "max.batch.size": "100",
            "heartbeat.interval.ms": "200",
        }  # fmt: skip
        with writing(server, "postgres"):
            for kill in range(KILLS):
                with ServerProcess(data) as process:
                    if kill == 0:
                        httpx.put(f"{process.url}/connectors/pg/config", json=config).raise_for_status()
                    time.sleep(chance.uniform(0.05, 1.2))
                    process.process.kill()
        end = lsn_of(sql.execute("SELECT pg_current_wal_lsn()::text").fetchone()[0])
        with ServerProcess(data) as process:

            def caught_up() -> bool:
                (offset,) = httpx.get(f"{process.url}/connectors/pg/offsets").json()["offsets"] or ({"offset": {}},)
                return lsn_of(offset["offset"].get("lsn", "0/0")) >= end

            eventually(caught_up, otherwise="not the end of the WAL")
            assert process.stop() == 0
        with open_log(data / "log") as log:
            check_topic(read_topic(log, "pg.public.t"), sql)
