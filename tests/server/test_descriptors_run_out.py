"""A server that may open few files: what it does with more connections than it has descriptors for."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from waiting import eventually

from millstream.logcore.storage.open_files import raise_limit_of_process

_FILES = 96
_COMMAND = "from millstream.cli import command; command()"


def _connected(address: str, count: int) -> list[socket.socket]:
    host, _, port = address.rpartition(":")
    return [socket.create_connection((host, int(port)), timeout=30) for _ in range(count)]


def test_connections_wait_and_the_log_says_why_once(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    arguments = ["server", "--data", str(tmp_path / "data"), "--executor", "duckdb"]
    arguments += ["--http", "127.0.0.1:0", "--kafka", "127.0.0.1:0"]
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({_FILES}, {_FILES}));"
    with log.open("w") as written:
        process = subprocess.Popen(
            [sys.executable, "-c", f"{limit} {_COMMAND}", *arguments], stdout=written, stderr=written
        )
    try:
        eventually(lambda: "executor:" in log.read_text())
        http, kafka = (
            line.rpartition("//" if line.startswith("http:") else " ")[2]
            for line in log.read_text().splitlines()
            if line.startswith(("http:", "kafka:"))
        )
        held = [*_connected(http, _FILES), *_connected(kafka, _FILES)]
        time.sleep(3)
        for each in held:
            each.close()
        eventually(lambda: httpx.get(f"http://{http}/livez", timeout=30).status_code == 200)
        text = log.read_text()
    finally:
        process.terminate()
        assert process.wait(60) == 0
    assert "Traceback" not in text
    assert 1 <= text.count("no connection is accepted") <= 2  # one of each listener


def test_the_soft_limit_becomes_what_the_hard_one_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: limits.append(wanted))
    raise_limit_of_process()
    raise_limit_of_process()
    assert limits == [(1024, 4096), (4096, 4096)]
    limits[:] = [(1024, resource.RLIM_INFINITY)]
    raise_limit_of_process()
    assert limits[-1] == (65_536, resource.RLIM_INFINITY)
