"""A distributed worker of Apache Kafka Connect, as it is released."""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from waiting import eventually

from bench.apache_kafka import free_ports

QUIET_S: Final = 240.0
_AS_TEXT: Final = "org.apache.kafka.connect.storage.StringConverter"


class ConnectWorker:
    """State: its process. Its connectors, their offsets and their state are in topics."""

    def __init__(self, broker: str, java: Sequence[str], folder: Path, **settings: str) -> None:
        """In: `java`: the command up to the name of the class."""
        (self._port,) = free_ports(1)
        properties = self._properties(broker) | {name.replace("_", "."): value for name, value in settings.items()}
        self._settings = folder / "worker.properties"
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        self._command = java
        self._output = (folder / "worker.txt").open("a")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [*self._command, "org.apache.kafka.connect.cli.ConnectDistributed", str(self._settings)]
        self._process = subprocess.Popen(command, stdout=self._output, stderr=self._output)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def wait_until_started(self) -> None:
        eventually(lambda: _answers(self.url), QUIET_S, otherwise=f"it does not start: {self.said}")

    def configure(self, name: str, **config: str) -> None:
        """Once it takes requests."""
        body = json.dumps({key.replace("_", "."): value for key, value in config.items()}).encode()
        url = f"{self.url}/connectors/{name}/config"
        eventually(lambda: _put(url, body), QUIET_S, otherwise=f"connector {name} is not taken: {self.said}")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def said(self) -> str:
        return Path(self._output.name).read_text()[-3000:]

    def _properties(self, broker: str) -> dict[str, str]:
        topics = {name: f"connect-{name}" for name in ("config", "offset", "status")}
        return {
            "bootstrap.servers": broker,
            "group.id": "workers",
            "listeners": f"http://127.0.0.1:{self._port}",
            "exactly.once.source.support": "enabled",
            "offset.flush.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "0",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "500",
            "offset.storage.partitions": "3",
            **{f"{name}.storage.topic": topic for name, topic in topics.items()},
            **{f"{name}.storage.replication.factor": "1" for name in topics},
            "key.converter": _AS_TEXT,
            "value.converter": _AS_TEXT,
        }


def _put(url: str, body: bytes) -> bool:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="PUT")
    with contextlib.suppress(urllib.error.URLError, TimeoutError, ConnectionError):
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status in (200, 201)
    return False


def _answers(url: str) -> bool:
    with contextlib.suppress(urllib.error.URLError, TimeoutError, ConnectionError):
        with urllib.request.urlopen(f"{url}/connectors", timeout=60) as answer:
            return answer.status == 200
    return False
