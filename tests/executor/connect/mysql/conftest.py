"""A MariaDB server for the module, and a database and a log for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mariadb_server import MariaDbServer, Sql, mariadb_server

from millstream.logcore.failpoints import arm
from millstream.logcore.log import Log, open_log


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDbServer]:
    with mariadb_server() as started:
        yield started


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log", sync="never") as opened:
        yield opened
    arm("")


@pytest.fixture
def database(request: pytest.FixtureRequest) -> str:
    return f"db{abs(hash(request.node.name)) % 10**9}"


@pytest.fixture
def sql(server: MariaDbServer, database: str) -> Iterator[Sql]:
    """A connection to a database of the test's own."""
    with server.connect() as admin:
        admin.run(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
        with server.connect(database) as connection:
            yield connection
        admin.run(f"DROP DATABASE IF EXISTS {database}")
