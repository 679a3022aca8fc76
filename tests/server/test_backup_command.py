"""`millstream backup` on servers that work: one server, whose query goes on exactly where the backup has it; three
nodes, of one moment; and requests that are wrong."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest
from running_server import ServerProcess, millstream, service_in
from three_servers import Servers
from waiting import eventually

from millstream.server.client import HttpClient, connect

STATEMENTS = """
CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=2);
CREATE TABLE t AS SELECT k, COUNT(*) AS n, SUM(v) AS total FROM s GROUP BY k;
"""


def result(url: str) -> dict[int, tuple[int, int]]:
    with connect(url).query("SELECT k, n, total FROM t;") as rows:
        return {row.values[0]: (row.values[1], row.values[2]) for row in rows}


def totals(url: str) -> tuple[int, int]:
    found = result(url).values()
    return sum(n for n, _ in found), sum(total for _, total in found)


class Writing:
    """Rows (i % 10, i), one after the other, to one of several servers. State: how many were acknowledged."""

    def __init__(self, url: str) -> None:
        self.acknowledged = 0
        self._over = threading.Event()
        self._client = connect(url)
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        for number in itertools.count():
            if self._over.wait(0.05):  # the commands under test share the cores with it
                return
            self._client.execute(f"INSERT INTO s VALUES ({number % 10}, {number});")
            self.acknowledged = number + 1

    def end(self) -> None:
        self._over.set()
        self._thread.join()


@contextlib.contextmanager
def writing(url: str) -> Generator[Writing]:
    found = Writing(url)
    try:
        yield found
    finally:
        found.end()


def check_goes_on(url: str, acknowledged: int) -> None:
    """The rows 0 to n, each once, n at least what was acknowledged; and the query goes on with the next one."""
    connect(url).execute("INSERT INTO s VALUES (99, 1000000);")
    eventually(lambda: 99 in result(url), 60)
    count, total = totals(url)
    count, total = count - 1, total - 1_000_000
    assert count >= acknowledged
    assert total == count * (count - 1) // 2, "a row was lost, or counted twice"


def test_a_server_is_backed_up_while_it_works_and_goes_on_from_there(tmp_path: Path) -> None:
    backups = str(tmp_path / "backups")
    with service_in(tmp_path / "data") as service:
        url = f"http://{service.http_address}"
        connect(url).execute(STATEMENTS)
        with writing(url) as writer:
            eventually(lambda: writer.acknowledged > 30, 60)
            before = writer.acknowledged
            made = millstream("backup", "create", backups, "--server", url)
            assert made.returncode == 0, made.stderr
            assert "writers waited for" in made.stdout
            again = millstream("backup", "create", backups, "--server", url)
            assert again.returncode == 0, again.stderr
    listed = millstream("backup", "list", backups).stdout.splitlines()
    assert len(listed) == 2
    first = listed[0].split()[0]
    checked = millstream("backup", "verify", backups, "--backup", first)
    assert "can be restored" in checked.stdout, checked.stderr
    restored = millstream("backup", "restore", backups, "--data", str(tmp_path / "new"), "--backup", first)
    assert restored.returncode == 0, restored.stderr
    server = ServerProcess(tmp_path / "new")
    try:
        check_goes_on(server.url, before)
    finally:
        server.stop()
    refused = millstream("backup", "restore", backups, "--data", str(tmp_path / "new"))
    assert refused.returncode == 1
    assert "is not empty" in refused.stderr


@pytest.mark.soak
@pytest.mark.timeout(240)
def test_three_nodes_are_backed_up_as_of_one_moment(tmp_path: Path) -> None:
    backups = str(tmp_path / "backups")
    with contextlib.closing(Servers(tmp_path / "old")) as servers:
        servers.wait_until_healthy()
        connect(servers.url(2)).execute(STATEMENTS)
        with writing(servers.url(1)) as writer:
            eventually(lambda: writer.acknowledged > 20, 60)
            before = writer.acknowledged
            made = millstream("backup", "create", backups, "--server", servers.url(3))
            assert made.returncode == 0, made.stderr
            assert "of 3 nodes" in made.stdout
            after = writer.acknowledged
            eventually(lambda: writer.acknowledged > after, 60)
    for node in (1, 2, 3):
        data = str(tmp_path / "new" / str(node))
        restored = millstream("backup", "restore", backups, "--data", data, "--node", str(node))
        assert restored.returncode == 0, restored.stderr
        assert f"start it as node {node} of its cluster" in restored.stdout
    with contextlib.closing(Servers(tmp_path / "new", cluster_addresses="listed")) as servers:
        servers.wait_until_healthy()
        check_goes_on(servers.url(1), before)


def test_what_is_asked_of_a_snapshot_is_checked(tmp_path: Path) -> None:
    with service_in(tmp_path / "data") as service:
        url = f"http://{service.http_address}"
        assert HttpClient(url).get("/v1/snapshots").startswith(b'{"node":1')
        for body, status in (({"holdSeconds": -1}, 400), ({"holdSeconds": True}, 400), ({"holdSeconds": 11}, 400)):
            assert httpx.post(f"{url}/v1/snapshots", json=body).status_code == status
        assert httpx.post(f"{url}/v1/snapshots/nothing/release", json={}).status_code == 404
        assert httpx.get(f"{url}/v1/snapshots/nothing/chunk?path=x&number=0").status_code == 404
        taken = httpx.post(f"{url}/v1/snapshots", json={}).json()
        there = f"{url}/v1/snapshots/{taken['id']}"
        assert httpx.get(f"{there}/chunk?path=node.json").status_code == 400
        assert httpx.get(f"{there}/chunk?number=0").status_code == 400
        assert httpx.get(f"{there}/chunk?path=../../x&number=0").status_code == 404
        assert httpx.get(f"{there}/chunk?path=node.json&number=0").content.endswith(b"}\n")
        assert httpx.post(f"{there}/remove", json={}).status_code == 200
        assert httpx.get(f"{there}/hashes?path=node.json").status_code == 404
