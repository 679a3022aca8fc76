"""Clusters of server processes, ours and Apache Kafka's: how they are started, and what can be done to a process.

Faults and what they prove are in `tests/cluster/`; what they cost is in `replication.py`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import IO, Any, Final

from .apache_kafka import QUICK_TO_START, classpath, free_ports

_SAID_AT_MOST: Final = 3_000
_ENDS_WITHIN_S: Final = 20.0
_COORDINATORS_PARTITIONS: Final = 8

Command = Sequence[str]
OpenProcess = Callable[..., subprocess.Popen[Any]]
"""Starts a command, as `subprocess.Popen` does."""

Wrap = Callable[[int, Command], Command]
"""Makes the command for a node from the plain one: in a namespace, for example."""


@dataclass(frozen=True, slots=True)
class Place:
    """A node's: the host it listens at, its ports, and the folder of its data."""

    host: str
    kafka: int
    nodes: int  # the port for other nodes
    http: int
    folder: Path

    @property
    def address(self) -> str:
        return f"{self.host}:{self.kafka}"


class Cluster:
    """State: one process per node, or none. What a process says goes to `node<n>.txt` in `folder`."""

    def __init__(
        self,
        places: Mapping[int, Place],
        commands: Mapping[int, Command],
        folder: Path,
        wrap: Wrap | None = None,
        open_process: OpenProcess = subprocess.Popen,
    ) -> None:
        self.places = dict(places)
        self._commands = {node: command if wrap is None else wrap(node, command) for node, command in commands.items()}
        self._folder = folder
        self._processes: dict[int, subprocess.Popen[Any]] = {}
        self._open_process = open_process
        self._outputs: dict[int, IO[bytes]] = {}

    @property
    def nodes(self) -> Sequence[int]:
        return sorted(self.places)

    @property
    def brokers(self) -> str:
        """For clients: any node will do."""
        return ",".join(place.address for place in self.places.values())

    def start(self, node: int) -> None:
        """In: `node`: it does not run."""
        assert not self.runs(node), f"node {node} runs"
        if node not in self._outputs:
            self._outputs[node] = (self._folder / f"node{node}.txt").open("ab")
        output = self._outputs[node]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MILLSTREAM_")}
        self._processes[node] = self._open_process(
            self._commands[node], env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )

    def start_all(self) -> None:
        for node in self.nodes:
            self.start(node)

    def runs(self, node: int) -> bool:
        return node in self._processes and self._processes[node].poll() is None

    def process_id(self, node: int) -> int:
        """In: `node`: it runs."""
        return self._processes[node].pid

    def exit_code(self, node: int) -> int | None:
        """None as long as it runs, or where it never did."""
        return self._processes[node].poll() if node in self._processes else None

    def signal(self, node: int, number: Signals) -> None:
        if self.runs(node):
            self._processes[node].send_signal(number)

    def kill(self, node: int) -> None:
        """At once, and waits until it is gone; a paused process, too."""
        self.signal(node, signal.SIGKILL)
        if node in self._processes:
            self._processes[node].wait()

    def end(self, node: int) -> None:
        """As an operator does; what does not end is killed."""
        self.signal(node, signal.SIGCONT)
        self.signal(node, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._processes[node].wait(_ENDS_WITHIN_S)
        self.kill(node)

    def stop(self) -> None:
        for node in self.nodes:
            self.kill(node)
        for output in self._outputs.values():
            output.close()

    def processor_s(self) -> float:
        """Processor time that the processes have used so far, as far as they run."""
        ticks = [_ticks(process.pid) for process in self._processes.values() if process.poll() is None]
        return sum(ticks) / os.sysconf("SC_CLK_TCK")

    def said(self, node: int) -> str:
        """The end of what it said."""
        path = self._folder / f"node{node}.txt"
        return path.read_text(errors="replace")[-_SAID_AT_MOST:] if path.exists() else ""

    def wait(self, ready: Callable[[], bool], seconds: float, *, running: bool = True) -> None:
        """Until it is ready. Raises RuntimeError with what nodes said; at once where they should run and one ends."""
        until = time.monotonic() + seconds
        while not ready():
            ended = [node for node in self.nodes if running and not self.runs(node)]
            if ended or time.monotonic() > until:
                said = {node: self.said(node) for node in (ended or self.nodes)}
                what = f"nodes {ended} ended" if ended else f"not ready within {seconds:.0f} s"
                raise RuntimeError(f"{what}: {said}")
            time.sleep(0.1)


def local_places(nodes: int, folder: Path) -> dict[int, Place]:
    """On this machine, at free ports."""
    ports = iter(free_ports(3 * nodes))
    return {
        node: Place("127.0.0.1", next(ports), next(ports), next(ports), folder / f"node{node}")
        for node in range(1, nodes + 1)
    }


def millstream(
    places: Mapping[int, Place],
    folder: Path,
    *,
    session_ms: int,
    wrap: Wrap | None = None,
    proxies: Callable[[int, int], int] | None = None,
    executor: str = "duckdb",
    properties: Mapping[str, str] | None = None,
    open_process: OpenProcess = subprocess.Popen,
) -> Cluster:
    """Three, or however many, times `millstream server`.

    In: `session_ms`: how long a node may be silent; `proxies`: the port where one node finds another, if that is not
    the port where the other one listens.
    """
    folder.mkdir(parents=True, exist_ok=True)
    commands = {}
    for node, place in places.items():
        configuration = folder / f"node{node}.toml"
        listed = 'cluster_addresses = "listed"\n' if proxies is not None else ""
        lines = [f'"{name}" = "{value}"' for name, value in (properties or {}).items()]
        table = "\n".join(["[properties]", *lines, ""]) if lines else ""
        configuration.write_text(
            f'session_ms = {session_ms}\ncluster_secret = "of-tests-only-0123456789"\n{listed}{table}'
        )
        members = ",".join(
            f"{other}@{each.host}:{each.nodes if proxies is None or other == node else proxies(node, other)}"
            for other, each in places.items()
        )
        commands[node] = [
            sys.executable, "-m", "millstream", "server", "--config", str(configuration), "--data", str(place.folder),
            "--node", str(node), "--cluster", members, "--kafka", place.address, "--http", f"{place.host}:{place.http}",
            "--executor", executor,
        ]  # fmt: skip
    return Cluster(places, commands, folder, wrap, open_process)


def apache_kafka(
    places: Mapping[int, Place],
    folder: Path,
    *,
    session_ms: int,
    wrap: Wrap | None = None,
    java_options: Sequence[str] = QUICK_TO_START,
    settings: Mapping[str, str] | None = None,
) -> Cluster:
    """Brokers of Apache Kafka that are controllers, too, formatted. Raises `Unavailable`."""
    program = ["java", *java_options, "-cp", classpath()]
    cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode().replace("-", "_")
    folder.mkdir(parents=True, exist_ok=True)
    commands = {}
    for node, place in places.items():
        configuration = folder / f"node{node}.properties"
        lines = {**_kafka_settings(node, places, session_ms), **(settings or {})}
        configuration.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        place.folder.mkdir(parents=True, exist_ok=True)
        format_it = [*program, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(configuration)]
        subprocess.run(format_it, check=True, capture_output=True)
        commands[node] = [*program, "kafka.Kafka", str(configuration)]
    return Cluster(places, commands, folder, wrap)


def _kafka_settings(node: int, places: Mapping[int, Place], session_ms: int) -> dict[str, str]:
    place = places[node]
    replicated = {
        f"{topic}.{setting}": str(value)
        for topic in ("offsets.topic", "transaction.state.log")
        for setting, value in (
            ("num.partitions", _COORDINATORS_PARTITIONS),
            ("replication.factor", min(3, len(places))),
        )
    }
    return {
        "process.roles": "broker,controller",
        "node.id": str(node),
        "controller.quorum.voters": ",".join(f"{n}@{each.host}:{each.nodes}" for n, each in places.items()),
        "listeners": f"MAIN://{place.address},CONTROLLER://{place.host}:{place.nodes}",
        "advertised.listeners": f"MAIN://{place.address}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "MAIN",
        "listener.security.protocol.map": "MAIN:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(place.folder / "data"),
        "broker.session.timeout.ms": str(session_ms),
        "broker.heartbeat.interval.ms": str(max(100, session_ms // 6)),
        "default.replication.factor": str(min(3, len(places))),
        "min.insync.replicas": str(min(2, len(places))),
        "transaction.state.log.min.isr": str(min(2, len(places))),
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.session.timeout.ms": "6000",
        "group.consumer.min.session.timeout.ms": "6000",
        "group.consumer.heartbeat.interval.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "1000",
        "log.retention.ms": "-1",
        "replica.lag.time.max.ms": str(2 * session_ms),
        **replicated,
    }


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])
