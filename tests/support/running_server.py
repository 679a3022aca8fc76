"""Servers for tests: one in this process, and one as people start it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import warm_command
from waiting import eventually as eventually

from millstream.server.config.configuration import load_configuration
from millstream.server.service import Service

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("MILLSTREAM_")}


def service_in(data: Path, **flags: object) -> Service:
    """A server in this process, on free ports; not yet started."""
    defaults = {"http": "127.0.0.1:0", "kafka": "127.0.0.1:0", "executor": "duckdb", "log_level": "error"}
    return Service(load_configuration(None, {"data": data, **defaults, **flags}))


def millstream(
    *arguments: str, input: str = "", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the command to its end."""
    command = [sys.executable, "-m", "millstream", *arguments]
    return warm_command.run(command, env={**ENVIRONMENT, **(env or {})}, input=input, timeout=50)


class ServerDied(AssertionError):
    """A server that never told its address."""


class ServerProcess:
    """`millstream server` on free ports, ready once this is made. In: `failpoints`: armed from the start; `anew`: as
    people start it, by an interpreter that has imported nothing."""

    def __init__(self, data: Path, *flags: str, failpoints: str = "", anew: bool = False) -> None:
        command = [sys.executable, "-m", "millstream", "server", "--data", str(data), "--http", "127.0.0.1:0"]
        command += ["--kafka", "127.0.0.1:0", "--executor", "duckdb", *flags]
        start = subprocess.Popen[str] if anew else warm_command.WarmPopen
        self.process = start(
            command,
            env={**ENVIRONMENT, "MILLSTREAM_FP": failpoints},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.announced = [self.process.stdout.readline() for _ in range(3)]
        found = re.search(r"http://[0-9.:]+", self.announced[0])
        if not found:
            raise ServerDied(f"{self.announced} {self.end()}")
        self.url = found[0]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Sends the signal and gives the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(timeout=50)
        self.end()
        return code

    def end(self) -> str:
        """Kills it, if it still runs, and gives its error output."""
        if self.process.poll() is None:
            self.process.kill()
        return self.process.communicate(timeout=60)[1]

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
