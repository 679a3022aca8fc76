"""A PostgreSQL server for the module, and a database and a log for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from postgres_server import PostgresServer, postgres_server
from waiting import without_error

from millstream.logcore.failpoints import arm
from millstream.logcore.log import Log, open_log


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as started:
        yield started


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log", sync="never") as opened:
        yield opened
    arm("")


@pytest.fixture
def sql(server: PostgresServer, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A connection to a database of the test's own."""
    name = f"db{abs(hash(request.node.name)) % 10**9}"
    with server.connect() as admin:
        admin.execute(f"CREATE DATABASE {name}")
    with server.connect(name) as connection:
        yield connection
    with server.connect() as admin:
        for (slot,) in admin.execute("SELECT slot_name FROM pg_replication_slots").fetchall():
            admin.execute(
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s", [slot]
            )
            without_error(lambda slot=slot: admin.execute("SELECT pg_drop_replication_slot(%s)", [slot]))
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
