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
from java_compiler import compile_java
from warm_command import WarmPopen

from bench.apache_kafka import free_ports
from bench.maven import Unavailable, jars

JAVA_OPTIONS: Final = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LOGGING: Final = "org.slf4j:slf4j-simple:1.7.36"
_ENVIRONMENT: Final = {name: value for name, value in os.environ.items() if not name.startswith("MILLSTREAM_")}


def count_of(name: str, otherwise: int) -> int:
    """`MILLSTREAM_SOAK_<name>`, where it is set."""
    return int(os.environ.get(f"MILLSTREAM_SOAK_{name}", otherwise))


class Product:
    """`millstream server`: a single node, or with more `arguments` one of a cluster, which comes back at the same
    address. State: the process."""

    def __init__(self, folder: Path, *arguments: str, port: int | None = None, **environment: str) -> None:
        self._folder, self._arguments, self._environment = folder, arguments, environment
        self.port = free_ports(1)[0] if port is None else port
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
        command += ["--kafka", self.address, "--executor", "duckdb", *self._arguments]
        self._process = WarmPopen(
            command,
            env={**_ENVIRONMENT, **self._environment},
            stdout=subprocess.PIPE,
            stderr=self._output,
            text=True,
        )

    def wait_until_started(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        announced = [self._process.stdout.readline() for _ in range(3)]
        assert all(announced), f"it does not start: {self.said[-2000:]}"

    def end(self, number: int = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None

    def __enter__(self) -> Product:
        self.start()
        self.wait_until_started()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._output.close()


class ProductCluster:
    """Three nodes of `millstream server`. State: their processes."""

    def __init__(self, folder: Path, advertised: Sequence[int] = (), **environment: str) -> None:
        """In: `advertised`: the ports at which clients are told to come, where they are not those of the nodes."""
        links, kafka = free_ports(3), free_ports(3)
        members = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(links, 1))
        self.nodes = [
            Product(
                folder / f"node{number}",
                *("--node", str(number), "--cluster", members),
                port=port,
                MILLSTREAM_KAFKA_ADVERTISED=f"127.0.0.1:{(advertised or kafka)[number - 1]}",
                **environment,
            )
            for number, port in enumerate(kafka, 1)
        ]

    @property
    def address(self) -> str:
        return ",".join(node.address for node in self.nodes)

    @property
    def said(self) -> str:
        return "".join(node.said for node in self.nodes)

    def __enter__(self) -> ProductCluster:
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.wait_until_started()
        return self

    def __exit__(self, *failure: object) -> None:
        for node in self.nodes:
            node.__exit__(*failure)


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
    compile_java(source, libraries, folder)
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
            AdminClient({"bootstrap.servers": address}).list_topics(timeout=60)
            return
        except Exception:
            if time.monotonic() > deadline:
                raise


def words_of(text: str, pattern: str) -> list[str]:
    return re.findall(pattern, text, re.MULTILINE)
