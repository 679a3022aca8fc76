"""Clients that come, stall and vanish, for a while: the server does not grow, and forgets each of them.

`make soak` runs half an hour, or MILLSTREAM_SOAK_SECONDS.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import httpx
import pytest
from footprint import Footprint, needs_proc
from rude_clients import DDL, RudeClients
from running_server import ServerProcess
from waiting import eventually

pytestmark = needs_proc


def soak(data: Path, seconds: float, warm_seconds: float, threads: int) -> tuple[list[Footprint], RudeClients]:
    """What the server takes during the load, from after the warming up; one of them per fiftieth of the time."""
    quiet = data / "quiet.toml"  # nobody reads the log, and a full pipe would stop the server
    quiet.write_text('log_level = "error"\n', encoding="utf-8")
    with ServerProcess(data / "data", "--config", str(quiet)) as server:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            assert client.post("/ksql", json={"ksql": DDL}).status_code == 200
            clients = RudeClients(server.url, seed=7, threads=threads)
            time.sleep(warm_seconds)
            seen: list[Footprint] = []
            for _ in range(50):
                time.sleep((seconds - warm_seconds) / 50)
                seen.append(Footprint.of(server.process.pid))
            clients.stop()
            for kind in ("push", "pull"):
                metric = f'client_queries{{kind="{kind}"}} 0.0'
                eventually(lambda metric=metric: metric in client.get("/metrics").text, seconds=80)
            time.sleep(1)
            seen.append(Footprint.of(server.process.pid))
            assert client.get("/healthcheck").json()["isHealthy"] is True
        assert server.stop() == 0
    sys.stdout.write(f"{dict(clients.done)}\nfirst {seen[0]}\nlast {seen[-2]}\nafter {seen[-1]}\n")
    return seen, clients


def test_rude_clients_are_forgotten(tmp_path: Path) -> None:
    seen, clients = soak(tmp_path, seconds=5, warm_seconds=2, threads=12)
    assert not clients.surprises
    assert len(clients.done) >= 9
    busiest = max(seen[:-1], key=lambda footprint: footprint.threads)
    assert seen[-1].threads <= busiest.threads
    assert seen[-1].files < busiest.files


@pytest.mark.soak
def test_half_an_hour_of_rude_clients_leaves_nothing_behind(tmp_path: Path) -> None:
    seconds = float(os.environ.get("MILLSTREAM_SOAK_SECONDS", "1800"))
    seen, clients = soak(tmp_path, seconds, warm_seconds=seconds / 6, threads=24)
    assert not clients.surprises
    tenth = len(seen) // 10
    for name, slack in (("memory_mb", 1.1), ("threads", 1.3), ("files", 1.3)):
        first, last = (
            sorted(getattr(each, name) for each in part)[tenth // 2] for part in (seen[:tenth], seen[-1 - tenth : -1])
        )
        assert last <= first * slack, f"{name} grew from {first} to {last}"
