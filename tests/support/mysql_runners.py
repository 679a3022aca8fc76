"""Tasks of the source `mariadb` that a test steps itself, and kills."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from connectors import Read
from mariadb_server import MariaDbServer
from waiting import PAUSE_S

from millstream.executor.connect.connector import TaskInfo
from millstream.executor.connect.connector_errors import SystemFault, SystemUnavailable
from millstream.executor.connect.connector_settings import read_settings
from millstream.executor.connect.mysql.mysql_settings import MySqlSettings
from millstream.executor.connect.mysql.mysql_source import MySqlSource
from millstream.executor.connect.source_runner import SourceRunner
from millstream.logcore.failpoints import FailpointHit, arm
from millstream.logcore.log import Log

POINTS = ("after_read", "after_records", "after_position", "after_commit", "after_acknowledge")


def settings(server: MariaDbServer, database: str, **more: str) -> dict[str, str]:
    given = {name.replace("_", "."): value for name, value in more.items()}
    return {**server.parameters(database), "topic.prefix": "m", "heartbeat.interval.ms": "200", **given}


def runner(log: Log, config: dict[str, str], name: str = "m") -> SourceRunner:
    source = MySqlSource(read_settings(MySqlSettings, config), TaskInfo(name))
    return SourceRunner(log, source, TaskInfo(name), config)


def killed_runner(log: Log, config: dict[str, str], failpoint: str) -> SourceRunner | None:
    """A new task, as it was when the failpoint killed it, as in `after_read:3`; None where it died before that."""
    arm(f"connect.{failpoint}:raise")
    running = None
    try:
        running = runner(log, config)
        while True:
            running.step(0.05)
    except FailpointHit:
        return running
    except (SystemUnavailable, SystemFault):
        time.sleep(PAUSE_S)
        return None
    finally:
        arm("")
        if running is not None:
            running.close()


def catch_up(running: SourceRunner, quiet: int = 2) -> None:
    """Until nothing came for a while."""
    idle = 0
    while idle < quiet:
        before = running.records
        running.step(0.15)
        is_streaming = (running.position or {}).get("phase") == "stream"
        idle = idle + 1 if running.records == before and is_streaming else 0


def place_of(record: Read) -> tuple[Any, ...]:
    """Where a change is: of a new key there is a delete and a row, a snapshot has each key once."""
    row = record.json
    source = row["source"]
    if row["op"] == "r":
        return source["snapshot"], source["file"], source["pos"], record.key
    return source["gtid"], row["transaction"]["total_order"], row["op"]


def twice(records: list[Read]) -> list[Any]:
    places = Counter(place_of(record) for record in records if record.value is not None)
    return [place for place, count in places.items() if count > 1]
