"""The brokers that are compared, each in a process of its own, and what their processors have spent."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient, NewTopic

from ..apache_kafka import AS_SHIPPED, ApacheKafka
from ..measuring import Measured
from .serve import Sync

_ROOT: Final = Path(__file__).resolve().parents[2]
_TIMEOUT_S: Final = 600


@dataclass(frozen=True, slots=True)
class Broker:
    """`config`: what its topics are created with."""

    address: str
    pid: int
    config: dict[str, str]

    def create(self, topic: str) -> str:
        admin = AdminClient({"bootstrap.servers": self.address})
        admin.create_topics([NewTopic(topic, 1, 1, config=self.config)])[topic].result(30.0)
        return topic

    def measured(self, what: str, topic: str, count: int, size: int) -> Measured:
        """Wall time of the client, processor time of the broker."""
        spent_s = self._spent_s()
        taken_s: Any = self.client(what, topic, count, size)
        return Measured(count, taken_s, self._spent_s() - spent_s)

    def client(self, what: str, topic: str, count: int, size: int) -> Any:
        command = [sys.executable, "-m", "bench.log_speed.load", what, self.address, topic, str(count), str(size)]
        run = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, timeout=_TIMEOUT_S, check=True)
        return json.loads(run.stdout)

    def _spent_s(self) -> float:
        time.sleep(0.2)  # for what it does behind the client's back
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def millstream(folder: Path, sync: Sync) -> Generator[Broker]:
    """Our log; with `always` every acknowledged record is on the disk, as in `millstream server`."""
    command = [sys.executable, "-m", "bench.log_speed.serve", str(folder), sync]
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        yield Broker(process.stdout.readline().strip(), process.pid, {})
        process.stdin.close()


@contextlib.contextmanager
def kafka(folder: Path) -> Generator[tuple[Broker, Broker]]:
    """Apache Kafka with the settings that it comes with, and the same broker for topics that sync each append.

    Raises `Unavailable`.
    """
    with ApacheKafka(folder, java_options=AS_SHIPPED) as running:
        yield (
            Broker(running.address, running.pid, {}),
            Broker(running.address, running.pid, {"flush.messages": "1"}),
        )
