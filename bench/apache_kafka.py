"""A broker of Apache Kafka in a process of its own, for comparison: one node, on free ports of this machine."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from .maven import Unavailable, jars

VERSION: Final = os.environ.get("MILLSTREAM_KAFKA_VERSION", "4.3.0")
"""Another one that clients of 4.3 understand shows whether the tests on Apache Kafka pass there, too."""

_QUIETLY: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
QUICK_TO_START: Final = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", _QUIETLY)
"""Starting, a broker writes its settings and each step to its log: 0.7 of 5.2 s of CPU."""

AS_SHIPPED: Final = ("-Xmx1g", "-Xms1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
"""What Kafka's start script says."""

_STARTS_WITHIN_S: Final = 240.0  # on a busy machine
_STOPS_WITHIN_S: Final = 10.0

__all__ = [
    "AS_SHIPPED", "QUICK_TO_START", "VERSION", "ApacheKafka", "Unavailable", "classpath", "free_ports", "running_java",
]  # fmt: skip


class ApacheKafka:
    """State: the process. It takes clients once this is made, and they are gone with `stop`.

    There is a second door: who connects to `side_port` is told to come again at `side_advertised`, where somebody else
    may listen and pass things on.
    """

    def __init__(
        self, folder: Path, *, java_options: Sequence[str] = QUICK_TO_START, settings: Mapping[str, str] | None = None
    ) -> None:
        """Raises `Unavailable` where Java or Maven Central is missing."""
        self._classpath = classpath()
        self._java_options = java_options
        self.cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode().replace("-", "_")
        self.port, self._controller_port, self.side_port, self.side_advertised = free_ports(4)
        folder.mkdir(parents=True, exist_ok=True)
        configuration = folder / "server.properties"
        lines = {**self._settings(folder), **(settings or {})}
        configuration.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        self._output = (folder / "output.txt").open("w")
        self._java("kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c", str(configuration)).wait()
        self._folder, self._configuration = folder, configuration
        self._process = self._begin()

    def _begin(self) -> subprocess.Popen[bytes]:
        self._process = self._java("kafka.Kafka", str(self._configuration))
        try:
            self._wait(self._folder)
        except BaseException:
            self.stop()
            raise
        return self._process

    def kill(self) -> None:
        """At once, as a crash does; `start_again` follows."""
        self._process.kill()
        self._process.wait()

    def start_again(self) -> None:
        """With the same ports and files, after `kill`."""
        self._process = self._begin()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOPS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _settings(self, folder: Path) -> dict[str, str]:
        def at(name: str, port: int) -> str:
            return f"{name}://127.0.0.1:{port}"

        plain, side, controller = at("MAIN", self.port), at("SIDE", self.side_port), "CONTROLLER"
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "listeners": f"{plain},{side},{at(controller, self._controller_port)}",
            "advertised.listeners": f"{plain},{at('SIDE', self.side_advertised)}",
            "controller.listener.names": controller,
            "inter.broker.listener.name": "MAIN",
            "listener.security.protocol.map": "MAIN:PLAINTEXT,SIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(folder / "data"),
            **{f"{topic}.num.partitions": "1" for topic in ("offsets.topic", "transaction.state.log")},
            **{f"{topic}.replication.factor": "1" for topic in ("offsets.topic", "transaction.state.log")},
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.retention.ms": "-1",
        }

    def _java(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = ["java", *self._java_options, "-cp", self._classpath, *arguments]
        return subprocess.Popen(command, stdout=self._output, stderr=self._output)

    def _wait(self, folder: Path) -> None:
        deadline = time.monotonic() + _STARTS_WITHIN_S
        while True:
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (folder / "output.txt").read_text()[-2000:]
                raise RuntimeError(f"Apache Kafka does not start: {said}")
            try:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
            except OSError:
                time.sleep(0.1)
            else:
                return


def classpath() -> str:
    """What Kafka's programs need. Raises `Unavailable`."""
    return ":".join(map(str, jars(f"org.apache.kafka:kafka_2.13:{VERSION}", _LOGGING)))


_LOGGING: Final = "org.slf4j:slf4j-simple:1.7.36"  # to standard error; without one Kafka does not say what is wrong


_FIRST_PORT: Final = 20_000
_WORKERS: Final = 8
_PORTS: Final = 1_500  # of each; those from 32,000 on are the system's


def free_ports(count: int) -> list[int]:
    """Nobody listens at them now, and the system gives none of them to outgoing connections: these would be in the way
    of a server that starts late or comes back. Each worker of pytest-xdist has its own: between this look and the start
    of a server another one would find the same port free."""
    first = _FIRST_PORT + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % _WORKERS * _PORTS
    chance = random.SystemRandom()  # tests seed the others, and would all find the same ports
    ports: list[int] = []
    while len(ports) < count:
        port = chance.randrange(first, first + _PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in ports:
                ports.append(port)
    return ports


@contextlib.contextmanager
def running_java(classpath: str, program: str, arguments: Sequence[str], output: Path) -> Generator[int]:
    """A program of Kafka's, with the options of its start script, killed at the end. Gives the process. A TimeoutError
    gets the end of what the program wrote to `output`."""
    command = ["java", *AS_SHIPPED, _QUIETLY, "-cp", classpath, program]
    with output.open("wb") as written:
        process = subprocess.Popen([*command, *arguments], stdout=written, stderr=written)
        try:
            yield process.pid
        except TimeoutError as error:
            error.add_note(output.read_text()[-3000:])
            raise
        finally:
            process.kill()
            process.wait()
