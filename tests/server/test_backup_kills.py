"""Backups of a server that is killed, by a command that is killed: what is listed can be restored, and has every row
that was acknowledged before it began, once."""

from __future__ import annotations

import contextlib
import itertools
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest
from drawn import sampled
from running_server import ENVIRONMENT, ServerProcess, millstream
from s3_server import KEYS, s3_server
from waiting import eventually
from warm_command import WarmPopen

from bench.clusters import Cluster, local_places
from bench.clusters import millstream as millstream_cluster
from millstream.errors import MillstreamError
from millstream.server.client import connect

STATEMENTS = """
CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=2);
CREATE TABLE t AS SELECT k, COUNT(*) AS n, SUM(v) AS total FROM s GROUP BY k;
"""
_S3 = {"AWS_ACCESS_KEY_ID": KEYS[0], "AWS_SECRET_ACCESS_KEY": KEYS[1]}


class Rows:
    """Appends (i % 10, i), one after the other, to whichever server runs. A row whose answer is lost is not sent again,
    so it is there once or not at all. State: the acknowledged ones, and the last one that was sent."""

    def __init__(self) -> None:
        self.url: str | None = None
        self.acknowledged: list[int] = []
        self.asked = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for number in itertools.count():
            if self._over.is_set():
                return
            url = self.url
            if url is None:
                time.sleep(0.02)
                continue
            self.asked = number
            with contextlib.suppress(MillstreamError):
                connect(url).execute(f"INSERT INTO s VALUES ({number % 10}, {number});")
                self.acknowledged.append(number)

    def end(self) -> None:
        self._over.set()
        self._thread.join(60)


class Backup:
    """One under way, of the server at this URL, and what was acknowledged before it began."""

    def __init__(self, place: str, url: str, rows: Rows) -> None:
        self._before = set(rows.acknowledged)
        self.process = WarmPopen(
            [sys.executable, "-m", "millstream", "backup", "create", place, "--server", url],
            env={**ENVIRONMENT, **_S3}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def made(self, timeout_s: float, *, may_fail: bool) -> dict[str, set[int]]:
        """Its id and what it must have; nothing where it failed, which it may without a stack trace."""
        said, errors = self.process.communicate(timeout=timeout_s)
        if self.process.returncode == 0:
            return {said.partition(":")[0]: self._before}
        assert may_fail, errors
        assert "Traceback" not in errors
        return {}


def listed_in(place: str, made: Mapping[str, set[int]]) -> list[str]:
    """The ids of all backups; those that were made are among them."""
    listed = [line.split()[0] for line in millstream("backup", "list", place, env=_S3).stdout.splitlines()]
    assert set(made) <= set(listed)
    return listed


def killed_now_and_then(folder: Path, rounds: int, seed: int, place: str) -> int:
    """Returns how many backups were made. In: `place`: where they are, a folder or a URL."""
    chance, rows = random.Random(seed), Rows()
    data = folder / "data"
    server = ServerProcess(data)
    connect(server.url).execute(STATEMENTS)
    acknowledged: dict[str, set[int]] = {}
    try:
        for _ in range(rounds):
            rows.url = server.url
            time.sleep(chance.uniform(0.2, 1.0))
            backup = Backup(place, server.url, rows)
            victim = chance.choice(["server", "backup", "nobody"])
            time.sleep(chance.uniform(0.3, 1.2))
            if victim == "backup":
                backup.process.kill()
            if victim == "server":
                rows.url = None
                server.stop(signal.SIGKILL)
            acknowledged |= backup.made(timeout_s=60, may_fail=victim != "nobody")
            if victim == "server":
                server = ServerProcess(data)
                assert not list((data / "log").glob("snapshots/*")), "what a killed server held is not given back"
    finally:
        rows.end()
        server.stop()
    listed = listed_in(place, acknowledged)
    for id in listed:
        check(folder, place, id, acknowledged.get(id, set()), rows.asked)
    return len(listed)


def check(folder: Path, place: str, id: str, acknowledged: set[int], asked: int) -> None:
    data = folder / id
    restored = millstream("backup", "restore", place, "--data", str(data), "--backup", id, env=_S3)
    assert restored.returncode == 0, restored.stderr
    server = ServerProcess(data)
    try:
        check_rows(server.url, acknowledged, asked)
    finally:
        server.stop()


def check_rows(url: str, acknowledged: set[int], asked: int) -> None:
    """Of a restored server, whose query goes on: what was acknowledged before the backup, at most what was asked for,
    each row once and counted once."""
    client = connect(url)
    client.execute("INSERT INTO s VALUES (99, 1);")

    def total() -> dict[int, tuple[int, int]]:
        with client.query("SELECT k, n, total FROM t;") as rows:
            return {row.values[0]: (row.values[1], row.values[2]) for row in rows}

    eventually(lambda: 99 in total(), 60)
    with client.query("SELECT v FROM s WHERE k < 99;") as found:
        values = [row.values[0] for row in found]
    assert len(values) == len(set(values)), "a row is there twice"
    assert acknowledged <= set(values) <= set(range(asked + 1)), "an acknowledged row is not there"
    by_key = {key: [value for value in values if value % 10 == key] for key in range(10)}
    expected = {key: (len(each), sum(each)) for key, each in by_key.items() if each}
    assert total() == {**expected, 99: (1, 1)}


def cluster_killed_now_and_then(folder: Path, rounds: int, seed: int, place: str) -> int:
    """The same with three nodes, one of which is killed, or none, or the command."""
    chance, rows = random.Random(seed), Rows()
    nodes = cluster_of(folder / "old")
    acknowledged: dict[str, set[int]] = {}
    try:
        nodes.start_all()
        wait_for(nodes)
        connect(url_of(nodes, 1)).execute(STATEMENTS)
        for _ in range(rounds):
            victim, asked = chance.choice([*nodes.nodes, "backup", "nobody"]), chance.choice(nodes.nodes)
            rows.url = url_of(nodes, chance.choice([node for node in nodes.nodes if node != victim]))
            time.sleep(chance.uniform(0.2, 1.0))
            backup = Backup(place, url_of(nodes, asked), rows)
            time.sleep(chance.uniform(0.3, 1.5))
            if victim == "backup":
                backup.process.kill()
            elif isinstance(victim, int):
                nodes.kill(victim)
            acknowledged |= backup.made(timeout_s=120, may_fail=victim != "nobody")
            if isinstance(victim, int):
                nodes.start(victim)
                wait_for(nodes)
    finally:
        rows.end()
        nodes.stop()
    listed = listed_in(place, acknowledged)
    for id in listed:
        check_cluster(folder / id, place, id, acknowledged.get(id, set()), rows.asked)
    return len(listed)


def cluster_of(folder: Path) -> Cluster:
    places = local_places(3, folder)
    return millstream_cluster(
        places, folder / "output", session_ms=2000, proxies=lambda _, other: places[other].nodes, open_process=WarmPopen
    )


def url_of(nodes: Cluster, node: int) -> str:
    return f"http://{nodes.places[node].host}:{nodes.places[node].http}"


def wait_for(nodes: Cluster) -> None:
    """Until all nodes answer statements."""

    def answer() -> bool:
        with contextlib.suppress(httpx.HTTPError):
            for node in nodes.nodes:
                body = {"ksql": "SHOW STREAMS;"}
                if httpx.post(f"{url_of(nodes, node)}/ksql", json=body, timeout=10).status_code != 200:
                    return False
            return True
        return False

    nodes.wait(answer, 180)


def check_cluster(folder: Path, place: str, id: str, acknowledged: set[int], asked: int) -> None:
    nodes = cluster_of(folder)
    for node, each in nodes.places.items():
        restored = millstream(
            "backup", "restore", place, "--data", str(each.folder), "--backup", id, "--node", str(node), env=_S3
        )
        assert restored.returncode == 0, restored.stderr
    try:
        nodes.start_all()
        wait_for(nodes)
        check_rows(url_of(nodes, 1), acknowledged, asked)
    finally:
        nodes.stop()


@pytest.fixture(params=sampled(["bucket", "folder"], 2))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "folder":
        yield str(tmp_path / "backups")
        return
    with s3_server() as server:
        yield f"s3://lake/{tmp_path.name}?endpoint_override={server.address}&scheme=http&region=us-east-1"


def test_a_few_kills(tmp_path: Path, place: str) -> None:
    killed_now_and_then(tmp_path, rounds=3, seed=2, place=place)


@pytest.mark.timeout(600)
def test_a_few_kills_of_nodes(tmp_path: Path) -> None:
    cluster_killed_now_and_then(tmp_path, rounds=2, seed=3, place=str(tmp_path / "backups"))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_kills(tmp_path: Path, place: str) -> None:
    assert killed_now_and_then(tmp_path, rounds=40, seed=time.time_ns(), place=place) >= 10


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_kills_of_nodes(tmp_path: Path, place: str) -> None:
    """A backup of which a node is killed cannot be made, so few of them are."""
    assert cluster_killed_now_and_then(tmp_path, rounds=20, seed=time.time_ns(), place=place) >= 2
