"""A server and its clients, each in a process of its own: push queries on one table, look-ups beside /healthcheck."""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import urllib.request
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .report import Line

CLIENTS: Final = 200
PUSHED_RATE: Final = 1_000
WRITTEN_RATE: Final = 10_000
DDL: Final = """
CREATE TABLE feed (id INT PRIMARY KEY, n BIGINT) WITH (kafka_topic='feed', value_format='JSON', partitions=1);
CREATE STREAM events (id INT KEY, n BIGINT) WITH (kafka_topic='events', value_format='JSON', partitions=1);
CREATE TABLE counts AS SELECT id, COUNT(*) AS n FROM events GROUP BY id;
"""
_PROPERTIES: Final = {"ksql.max.push.queries": str(2 * CLIENTS)}


@dataclass(frozen=True, slots=True)
class _Server:
    url: str
    pg: str
    process: int

    def load(self, kind: str, **options: object) -> dict[str, Any]:
        """What the clients saw."""
        return _result(self.begin(kind, **options))

    def begin(self, kind: str, **options: object) -> subprocess.Popen[str]:
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        command = [sys.executable, "-m", "bench.serving_load", kind, self.url, *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    @property
    def memory_mb(self) -> float:
        """What it has of the machine's memory; 0 where there is no /proc."""
        status = Path("/proc", str(self.process), "status")
        found = re.search(r"VmRSS:\s+(\d+)", status.read_text(encoding="ascii")) if status.exists() else None
        return int(found[1]) / 1024 if found else 0.0


def serving_lines(folder: Path, rounds: int, seconds: float) -> list[Line]:
    with _server(folder) as server:
        server.load("write", rate=WRITTEN_RATE, seconds=1)
        server.load("pull", seconds=0.5)
        return [*_look_up_lines(server, rounds, seconds), *_push_lines(server, rounds, seconds)]


def _look_up_lines(server: _Server, rounds: int, seconds: float) -> list[Line]:
    """Each round asks both in turn, so that whatever else the machine does meets both."""
    quiet = [_rates(server, seconds) for _ in range(rounds)]
    writer = server.begin("write", rate=WRITTEN_RATE, seconds=rounds * (2 * seconds + 4))
    busy = [_rates(server, seconds) for _ in range(rounds)]
    written = _result(writer)["rate"]
    health = statistics.median(rate for rate, _ in quiet)
    pull, pull_busy = (statistics.median(rate for _, rate in part) for part in (quiet, busy))
    doors = [server.load("doors", pg=server.pg, seconds=seconds) for _ in range(rounds)]
    http, postgres = (statistics.median(each[name]["p50_ms"] for each in doors) for name in ("http", "pg"))
    return [
        Line(
            "one look-up by key, in turn", f"HTTP p50 {http:.2f} ms", f"PostgreSQL's protocol p50 {postgres:.2f} ms",
            f"{postgres / http:.2f} × HTTP", "≤ 1.2 ×",
        ),
        Line("GET /healthcheck, 8 connections", f"{health:,.0f}"),
        Line("pull query by key", f"{pull:,.0f}", ratio=f"{pull / health:.2f} of /healthcheck", wanted="≥ 0.4"),
        Line(
            f"pull query by key, the table takes {written:,.0f} rows/s", f"{pull_busy:,.0f}",
            ratio=f"{pull_busy / health:.2f} of /healthcheck", wanted="≥ 0.25",
        ),
    ]  # fmt: skip


def _rates(server: _Server, seconds: float) -> tuple[float, float]:
    """Requests per second: /healthcheck, and pull queries."""
    return server.load("health", seconds=seconds)["rate"], server.load("pull", seconds=seconds)["rate"]


def _push_lines(server: _Server, rounds: int, seconds: float) -> list[Line]:
    alone: list[dict[str, Any]] = []
    many: list[dict[str, Any]] = []
    memory: list[float] = []
    for _ in range(rounds):
        alone.append(server.load("push", clients=1, rate=PUSHED_RATE, seconds=seconds))
        many.append(server.load("push", clients=CLIENTS, rate=PUSHED_RATE, seconds=seconds))
        memory.append(server.memory_mb)
    one, all_ = (statistics.median(each["p99_ms"] for each in part) for part in (alone, many))
    whole = min(each["complete"] for each in many)
    return [
        _push_line("1 push query", alone),
        _push_line(f"{CLIENTS} push queries", many, f"p99 {all_ / one:.1f} × one", "p99 ≤ 5 ×"),
        Line("  clients that got every change", f"{whole} of {CLIENTS}", wanted="all"),
        Line("  the server's memory, first and last round", f"{memory[0]:.0f} MB", f"{memory[-1]:.0f} MB"),
    ]


def _push_line(what: str, seen: Sequence[dict[str, Any]], ratio: str = "", wanted: str = "") -> Line:
    p50, p99 = (statistics.median(each[name] for each in seen) for name in ("p50_ms", "p99_ms"))
    return Line(
        f"{what} on a table, {PUSHED_RATE:,} updates/s", f"p50 {p50:.1f} ms", f"p99 {p99:.1f} ms", ratio, wanted
    )


@contextlib.contextmanager
def _server(folder: Path) -> Generator[_Server]:
    command = [sys.executable, "-m", "millstream", "server", "--data", str(folder / "data"), "--http", "127.0.0.1:0"]
    command += ["--kafka", "127.0.0.1:0", "--executor", "duckdb", "--pg", "127.0.0.1:0"]
    environment = {**os.environ, "MILLSTREAM_PROPERTIES": json.dumps(_PROPERTIES), "MILLSTREAM_LOG_LEVEL": "error"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            found = re.search(r"http://[0-9.:]+", process.stdout.readline())
            pg = next((line.split()[-1] for line in process.stdout if line.startswith("pg: ")), None)
            assert found and pg, "the server does not say where it listens"
            body = json.dumps({"ksql": DDL}).encode()
            request = urllib.request.Request(f"{found[0]}/ksql", body, {"content-type": "application/json"})
            urllib.request.urlopen(request, timeout=30).close()
            yield _Server(found[0], pg, process.pid)
        finally:
            process.terminate()


def _result(load: subprocess.Popen[str]) -> dict[str, Any]:
    text, _ = load.communicate()
    if load.returncode:
        raise RuntimeError("the clients failed; what they say is above")
    return json.loads(text)
