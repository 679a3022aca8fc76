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
from pathlib import Path

import pytest
from running_server import ENVIRONMENT, ServerProcess, millstream
from waiting import eventually
from warm_command import WarmPopen

from millstream.errors import MillstreamError
from millstream.server.client import connect

STATEMENTS = """
CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=2);
CREATE TABLE t AS SELECT k, COUNT(*) AS n, SUM(v) AS total FROM s GROUP BY k;
"""


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


def killed_now_and_then(folder: Path, rounds: int, seed: int) -> int:
    """Returns how many backups were made."""
    chance, rows = random.Random(seed), Rows()
    data, place = folder / "data", str(folder / "backups")
    server = ServerProcess(data)
    connect(server.url).execute(STATEMENTS)
    acknowledged: dict[str, set[int]] = {}
    try:
        for _ in range(rounds):
            rows.url = server.url
            time.sleep(chance.uniform(0.2, 1.0))
            before = set(rows.acknowledged)
            backup = WarmPopen(
                [sys.executable, "-m", "millstream", "backup", "create", place, "--server", server.url],
                env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            victim = chance.choice(["server", "backup", "nobody"])
            time.sleep(chance.uniform(0.3, 1.2))
            if victim == "backup":
                backup.kill()
            if victim == "server":
                rows.url = None
                server.stop(signal.SIGKILL)
            said, errors = backup.communicate(timeout=60)
            if backup.returncode == 0:
                acknowledged[said.partition(":")[0]] = before
            else:
                assert victim != "nobody", errors
                assert "Traceback" not in errors
            if victim == "server":
                server = ServerProcess(data)
                assert not list((data / "log").glob("snapshots/*")), "what a killed server held is not given back"
    finally:
        rows.end()
        server.stop()
    listed = [line.split()[0] for line in millstream("backup", "list", place).stdout.splitlines()]
    assert set(acknowledged) <= set(listed)
    for id in listed:
        check(folder, place, id, acknowledged.get(id, set()), rows.asked)
    return len(listed)


def check(folder: Path, place: str, id: str, acknowledged: set[int], asked: int) -> None:
    data = folder / id
    restored = millstream("backup", "restore", place, "--data", str(data), "--backup", id)
    assert restored.returncode == 0, restored.stderr
    server = ServerProcess(data)
    try:
        client = connect(server.url)
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
    finally:
        server.stop()


def test_a_few_kills(tmp_path: Path) -> None:
    killed_now_and_then(tmp_path, rounds=3, seed=2)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_kills(tmp_path: Path) -> None:
    assert killed_now_and_then(tmp_path, rounds=40, seed=time.time_ns()) >= 10
