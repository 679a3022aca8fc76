"""Tasks of the source `postgres` that a test steps itself, and kills."""

from __future__ import annotations

import time
from typing import Any

from postgres_server import PostgresServer
from waiting import PAUSE_S, without_error

from millstream.executor.connect.connector import TaskInfo
from millstream.executor.connect.connector_errors import SystemUnavailable
from millstream.executor.connect.connector_settings import read_settings
from millstream.executor.connect.postgres.pg_source import PostgresSource
from millstream.executor.connect.postgres.postgres_settings import PostgresSettings
from millstream.executor.connect.source_runner import SourceRunner
from millstream.logcore.failpoints import FailpointHit, arm
from millstream.logcore.log import Log

POINTS = ("after_read", "after_records", "after_position", "after_commit", "after_acknowledge")


def step_for_ever(running: SourceRunner) -> None:
    while True:
        running.step(0.05)


def killed_runner(log: Log, config: dict[str, str], failpoint: str) -> SourceRunner | None:
    """A new task, as it was when the failpoint killed it, as in `after_read:3`; None where it died before that, because
    the slot is still in use by the one before."""
    arm(f"connect.{failpoint}:raise")
    running = None
    try:
        running = runner(log, config)
        step_for_ever(running)
    except FailpointHit:
        return running
    except SystemUnavailable:
        time.sleep(PAUSE_S)
        return None
    finally:
        if running is not None:
            running.close()


def opened_runner(log: Log, config: dict[str, str]) -> SourceRunner:
    """Waits until the server has noticed that the one before is dead."""
    found: list[SourceRunner] = []

    def start() -> None:
        running = runner(log, config)
        running.step(0.05)
        found.append(running)

    without_error(start)
    return found[0]


def settings(server: PostgresServer, sql: Any, **more: str) -> dict[str, str]:
    given = {name.replace("_", "."): value for name, value in more.items()}
    return {**server.parameters(sql.info.dbname), "topic.prefix": "pg", "heartbeat.interval.ms": "200", **given}


def runner(log: Log, config: dict[str, str], name: str = "pg") -> SourceRunner:
    source = PostgresSource(read_settings(PostgresSettings, config), TaskInfo(name))
    return SourceRunner(log, source, TaskInfo(name), config)


def catch_up(running: SourceRunner, quiet: int = 2) -> None:
    """Until nothing came for a while."""
    idle = 0
    while idle < quiet:
        before = running.records
        running.step(0.15)
        idle = idle + 1 if running.records == before and running.position["phase"] == "stream" else 0  # pyrefly: ignore[unsupported-operation]
