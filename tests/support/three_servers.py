"""Three servers in this process that are one cluster."""

from __future__ import annotations

import contextlib
from pathlib import Path

import httpx
from running_server import service_in
from waiting import eventually

from bench.apache_kafka import free_ports
from millstream.server.service import Service


class Servers:
    """Nodes 1 to 3, each with a folder of its own below `folder`. State: those that run."""

    def __init__(self, folder: Path, **flags: object) -> None:
        self._members = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(free_ports(3), 1))
        self._folder, self._flags = folder, flags
        self.running: dict[int, Service] = {}
        for number in (1, 2, 3):
            self.start(number)

    def start(self, number: int) -> None:
        flags = {"node": number, "cluster": self._members, "session_ms": 1500, "cluster_secret": "of-this-test-only"}
        service = service_in(self._folder / str(number), **flags, **self._flags)
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

    def wait_until_healthy(self) -> None:
        def healthy() -> bool:
            return all(httpx.get(f"{self.url(number)}/healthcheck").status_code == 200 for number in self.running)

        eventually(healthy, 30)
        eventually(lambda: httpx.get(f"{self.url(2)}/info", timeout=60).status_code == 200, 60)

    def close(self) -> None:
        for number in list(self.running):
            with contextlib.suppress(Exception):
                self.stop(number)
