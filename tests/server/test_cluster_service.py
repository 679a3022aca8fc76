"""Three servers that are one cluster, in one process: a windowed aggregate goes from node to node, and a statement may
be sent to any of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from running_server import service_in
from three_servers import Servers
from waiting import eventually

from bench.apache_kafka import free_ports
from millstream.server.client import RemoteError, connect

STATEMENTS = """
CREATE STREAM s (k STRING KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=2);
CREATE TABLE t AS SELECT k, COUNT(*) AS n, SUM(v) AS total FROM s WINDOW TUMBLING (SIZE 10 SECONDS) GROUP BY k;
"""


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    with contextlib.closing(Servers(tmp_path)) as servers:
        yield servers


@pytest.mark.timeout(240)
def test_a_windowed_aggregate_goes_on_wherever_its_engine_goes(servers: Servers) -> None:
    servers.wait_until_healthy()
    connect(servers.url(2)).execute("SET 'auto.offset.reset'='earliest';" + STATEMENTS)
    for turn in range(1, 4):
        asked = next(iter(servers.running))
        for value in (turn, 10 * turn):
            connect(servers.url(asked)).execute(f"INSERT INTO s (ROWTIME, k, v) VALUES (5000, 'a', {value});")
        expected = [("a", 0, 10_000, 2 * turn, 11 * turn * (turn + 1) // 2)]
        eventually(lambda: answer(servers.url(asked)) == expected, 60)  # noqa: B023 (called at once)
        if turn < 3:
            away = servers.with_engine()
            assert away is not None
            servers.stop(away)
            eventually(lambda: servers.with_engine() is not None, 60)
            servers.start(away)
            servers.wait_until_healthy()


def answer(url: str) -> list[tuple[object, ...]]:
    try:
        return [tuple(row.values) for row in connect(url).query("SELECT k, WINDOWSTART, WINDOWEND, n, total FROM t;")]
    except RemoteError:  # the engine has just moved
        return []


def test_a_cluster_of_one_runs_its_engine(tmp_path: Path) -> None:
    members = f"1@127.0.0.1:{free_ports(1)[0]}"
    with service_in(tmp_path, node=1, cluster=members, cluster_secret="of-this-test-only") as alone:
        url = f"http://{alone.http_address}"
        eventually(lambda: httpx.get(f"{url}/healthcheck").status_code == 200, 50)
        connect(url).execute("SET 'auto.offset.reset'='earliest';" + STATEMENTS)
        connect(url).execute("INSERT INTO s (ROWTIME, k, v) VALUES (5000, 'a', 7);")
        eventually(lambda: answer(url) == [("a", 0, 10_000, 1, 7)], 50)
