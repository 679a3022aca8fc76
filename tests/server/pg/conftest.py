"""A server with PostgreSQL's protocol, some rows in it, and ways to ask it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from running_server import service_in

from millstream.server.engine.session import Session
from millstream.server.service import Service

STATEMENTS = """
CREATE TABLE totals (user_id STRING PRIMARY KEY, `userName` STRING, n BIGINT, i INT, f DOUBLE, ok BOOLEAN,
  amount DECIMAL(10, 2), b BYTES, d DATE, t TIME, ts TIMESTAMP, tags ARRAY<STRING>, nums ARRAY<INT>,
  m MAP<STRING, INT>, s STRUCT<a INT, b STRING>) WITH (kafka_topic='totals', value_format='JSON', partitions=1);
CREATE STREAM clicks (user_id STRING KEY, size INT) WITH (kafka_topic='clicks', value_format='JSON', partitions=1);
CREATE STREAM secret (id INT KEY, v INT) WITH (kafka_topic='secret', value_format='JSON', partitions=1);
INSERT INTO totals VALUES ('ada', 'Ada', 3, 7, 1.5, true, 12.50, TO_BYTES('00ff', 'hex'), '2020-02-03', '10:11:12',
  '2020-01-02T03:04:05.678', ARRAY['a', 'b "c"', NULL], ARRAY[1, 2], MAP('x' := 1), STRUCT(a := 1, b := 'y'));
INSERT INTO totals (user_id) VALUES ('nil');
INSERT INTO clicks VALUES ('ada', 1), ('bo', 2), ('cy', 3);
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_in(tmp_path_factory.mktemp("data"), pg="127.0.0.1:0") as started:
        started.engine.execute(STATEMENTS, Session())
        yield started


@pytest.fixture
def dsn(service: Service) -> str:
    assert service.pg_address is not None
    return f"host=127.0.0.1 port={service.pg_address.port} user=ana dbname=millstream connect_timeout=30"


@pytest.fixture
def psql(dsn: str, tmp_path: Path) -> Callable[..., str]:
    """Runs psql with the arguments and gives what it prints, errors too."""
    program = shutil.which("psql")
    if program is None:
        pytest.skip("psql is not installed")

    def run(*arguments: str) -> str:
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        command = [program, "-X", dsn, *arguments]
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)  # pyrefly: ignore[no-matching-overload]
        return done.stdout + done.stderr

    return run
