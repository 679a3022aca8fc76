"""A broker for tests: the machine's mosquitto, with a folder and a port of its own. It is skipped, with the reason,
where there is none."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from waiting import eventually

from bench.apache_kafka import free_ports

_PLACES = "/usr/sbin:/usr/local/sbin:/usr/bin"


@dataclass
class Mosquitto:
    """`lines`: of its configuration, beside the port and the folder."""

    folder: Path
    port: int
    lines: tuple[str, ...] = ("allow_anonymous true",)
    process: subprocess.Popen[bytes] | None = None
    program: str = field(default="mosquitto", repr=False)

    @property
    def uri(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def start(self) -> None:
        config = self.folder / "mosquitto.conf"
        config.write_text("\n".join([
            f"listener {self.port} 127.0.0.1", "persistence true", f"persistence_location {self.folder}/",
            "autosave_interval 1", "autosave_on_changes true", "user root", *self.lines, ""]))  # fmt: skip
        self.process = subprocess.Popen([self.program, "-c", str(config)], stderr=subprocess.DEVNULL)
        eventually(self._answers, otherwise="mosquitto does not answer")

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(10)
            self.process = None

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False


@contextlib.contextmanager
def mosquitto_server(folder: Path, *lines: str) -> Generator[Mosquitto]:
    program = shutil.which("mosquitto", path=_PLACES)
    if program is None:
        pytest.skip("mosquitto is not installed")
    server = Mosquitto(folder, free_ports(1)[0], lines or ("allow_anonymous true",), program=program)
    server.start()
    try:
        yield server
    finally:
        server.stop()
