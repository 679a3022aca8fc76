"""Three servers that are one cluster, in one process: a windowed aggregate goes from node to node, and a statement may
be sent to any of them."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from running_server import eventually, service_in

from millstream.server.client import RemoteError, connect
from millstream.server.service import Service

STATEMENTS = """
CREATE STREAM s (k STRING KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=2);
CREATE TABLE t AS SELECT k, COUNT(*) AS n, SUM(v) AS total FROM s WINDOW TUMBLING (SIZE 10 SECONDS) GROUP BY k;
"""


class Servers:
    """Nodes 1 to 3. State: those that run."""

    def __init__(self, folder: Path) -> None:
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
        ports = [each.getsockname()[1] for each in sockets]
        for each in sockets:
            each.close()
        self._members = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(ports, 1))
        self._folder = folder
        self.running: dict[int, Service] = {}
        for number in (1, 2, 3):
            self.start(number)

    def start(self, number: int) -> None:
        flags = {"node": number, "cluster": self._members, "session_ms": 1500, "cluster_secret": "of-this-test-only"}
        service = service_in(self._folder / str(number), **flags)
        service.start()
        self.running[number] = service

    def stop(self, number: int) -> None:
        self.running.pop(number).stop()

    def url(self, number: int) -> str:
        return f"http://{self.running[number].http_address}"

    def with_engine(self) -> int | None:
        """The node that runs the engine."""
        for number in self.running:
            if "millstream_query_state" in httpx.get(f"{self.url(number)}/metrics", timeout=60).text:
                return number
        return None


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    servers = Servers(tmp_path)
    try:
        yield servers
    finally:
        for number in list(servers.running):
            with contextlib.suppress(Exception):
                servers.stop(number)


@pytest.mark.timeout(240)
def test_a_windowed_aggregate_goes_on_wherever_its_engine_goes(servers: Servers) -> None:
    def healthy() -> bool:
        return all(httpx.get(f"{servers.url(number)}/healthcheck").status_code == 200 for number in servers.running)

    eventually(healthy, 30)
    eventually(lambda: httpx.get(f"{servers.url(2)}/info", timeout=60).status_code == 200, 60)
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
            eventually(healthy, 30)


def answer(url: str) -> list[tuple[object, ...]]:
    try:
        return [tuple(row.values) for row in connect(url).query("SELECT k, WINDOWSTART, WINDOWEND, n, total FROM t;")]
    except RemoteError:  # the engine has just moved
        return []


def test_a_cluster_of_one_runs_its_engine(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        members = f"1@127.0.0.1:{free.getsockname()[1]}"
    with service_in(tmp_path, node=1, cluster=members, cluster_secret="of-this-test-only") as alone:
        url = f"http://{alone.http_address}"
        eventually(lambda: httpx.get(f"{url}/healthcheck").status_code == 200, 50)
        connect(url).execute("SET 'auto.offset.reset'='earliest';" + STATEMENTS)
        connect(url).execute("INSERT INTO s (ROWTIME, k, v) VALUES (5000, 'a', 7);")
        eventually(lambda: answer(url) == [("a", 0, 10_000, 1, 7)], 50)
