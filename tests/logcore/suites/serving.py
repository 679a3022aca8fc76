"""The product as a process, and programs of other languages, for suites that people outside have written."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from bench.apache_kafka import free_ports
from bench.maven import Unavailable, jars

JAVA_OPTIONS: Final = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LOGGING: Final = "org.slf4j:slf4j-simple:1.7.36"
_ENVIRONMENT: Final = {name: value for name, value in os.environ.items() if not name.startswith("MILLSTREAM_")}


def count_of(name: str, otherwise: int) -> int:
    """`MILLSTREAM_SOAK_<name>`, where it is set."""
    return int(os.environ.get(f"MILLSTREAM_SOAK_{name}", otherwise))


class Product:
    """`millstream server` on one node, which comes back at the same address. State: the process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (self.port,) = free_ports(1)
        self._output = (folder.parent / f"{folder.name}.txt").open("a")
        self._process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def said(self) -> str:
        """All that it has logged, in all its lives."""
        return Path(self._output.name).read_text()

    def start(self) -> None:
        command = [sys.executable, "-m", "millstream", "server", "--data", str(self._folder), "--http", "127.0.0.1:0"]
        command += ["--kafka", self.address, "--executor", "duckdb"]
        self._process = subprocess.Popen(
            command, env=_ENVIRONMENT, stdout=subprocess.PIPE, stderr=self._output, text=True
        )
        assert self._process.stdout is not None
        announced = [self._process.stdout.readline() for _ in range(3)]
        assert all(announced), f"it does not start: {self.said[-2000:]}"

    def end(self, number: int = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None

    def __enter__(self) -> Product:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._output.close()


def needs(*programs: str) -> None:
    """Skips the test where one of them is missing."""
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"needs {program} on PATH")


def classpath(*coordinates: str) -> str:
    """Skips the test where there is no Java, or Maven Central has them not."""
    needs("javac")
    try:
        return ":".join(map(str, jars(*coordinates, _LOGGING)))
    except Unavailable as reason:
        pytest.skip(str(reason))


def compiled(source: Path, libraries: str, folder: Path) -> str:
    """The class path with the program."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["javac", "-cp", libraries, "-d", str(folder), str(source)], check=True, timeout=120)
    return f"{folder}:{libraries}"


def run(command: Sequence[str], folder: Path, *, timeout_s: float, **environment: str) -> tuple[int, str]:
    """The exit code, and what it has written. It is killed after the time."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**_ENVIRONMENT, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
    )
    return done.returncode, done.stdout


def wait_until_served(address: str, within_s: float = 60.0) -> None:
    """Returns when clients are answered."""
    from confluent_kafka.admin import AdminClient

    deadline = time.monotonic() + within_s
    while True:
        try:
            AdminClient({"bootstrap.servers": address}).list_topics(timeout=5)
            return
        except Exception:
            if time.monotonic() > deadline:
                raise


def words_of(text: str, pattern: str) -> list[str]:
    return re.findall(pattern, text, re.MULTILINE)
