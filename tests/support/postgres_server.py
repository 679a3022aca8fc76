"""A PostgreSQL server for tests. It is skipped, with the reason, where there is none."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import pytest

from bench.captures.local_postgres import PostgresServer as PostgresServer
from bench.captures.local_postgres import running_postgres
from bench.maven import Unavailable


@contextlib.contextmanager
def postgres_server() -> Generator[PostgresServer]:
    with contextlib.ExitStack() as parts:
        try:
            server = parts.enter_context(running_postgres())
        except Unavailable as error:
            pytest.skip(str(error))
        yield server
