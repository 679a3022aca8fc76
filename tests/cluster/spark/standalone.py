"""A standalone Spark cluster on this machine: a master and workers, each of which can be killed and started again."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.apache_kafka import free_ports

_PROC: Final = Path("/proc")
_EXECUTOR: Final = "CoarseGrainedExecutorBackend"
_DRIVER: Final = "SparkSubmit"
_CLASSES: Final = "org.apache.spark.deploy"
_READY_S: Final = 120.0


class StandaloneSpark:
    """In: `cores`, `memory` of each worker. State: the processes; what they say goes to files in `folder`."""

    def __init__(self, folder: Path, *, workers: int = 2, cores: int = 1, memory: str = "900m") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._port, self._page = free_ports(2)
        self._size = ["--cores", str(cores), "--memory", memory]
        self._workers = range(1, workers + 1)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def address(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    @property
    def workers(self) -> Sequence[int]:
        return self._workers

    def start(self) -> None:
        self.start_master()
        until = time.monotonic() + _READY_S
        while "Started" not in self._said("master") and "ALIVE" not in self._said("master"):
            assert time.monotonic() < until, self._said("master")
            time.sleep(0.2)
        for number in self.workers:
            self.start_worker(number)

    def start_master(self) -> None:
        self._start("master", "master.Master", "--port", str(self._port), "--webui-port", str(self._page))

    def start_worker(self, number: int) -> None:
        folder = self._folder / f"work{number}"
        self._start(
            f"worker{number}", "worker.Worker", *self._size, "--work-dir", str(folder), "--webui-port", "0",
            self.address,
        )  # fmt: skip

    def kill_master(self) -> None:
        self._kill("master")

    def kill_worker(self, number: int) -> None:
        """Its executors end when they notice."""
        self._kill(f"worker{number}")

    def executors(self) -> list[int]:
        """The processes of executors, below all workers."""
        parents = {process.pid for name, process in self._processes.items() if name.startswith("worker")}
        return [pid for parent in parents for pid in children_of(parent) if _EXECUTOR in _command_of(pid)]

    def stop(self) -> None:
        orphans = self.executors()
        for name in list(self._processes):
            self._kill(name)
        for pid in orphans:
            kill(pid)

    def _start(self, name: str, kind: str, *arguments: str) -> None:
        found = importlib.util.find_spec("pyspark")
        assert found is not None and found.origin is not None
        home = Path(found.origin).parent
        environment = {
            **os.environ, "SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "XDG_CACHE_HOME": str(self._folder.absolute() / "cache"),  # of executors, which have it from their worker
        }  # fmt: skip
        with (self._folder / f"{name}.txt").open("ab") as output:
            self._processes[name] = subprocess.Popen(
                [str(home / "bin" / "spark-class"), f"{_CLASSES}.{kind}", "--host", "127.0.0.1", *arguments],
                env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip

    def _kill(self, name: str) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()

    def _said(self, name: str) -> str:
        return (self._folder / f"{name}.txt").read_text(errors="replace")


def driver_below(process: int) -> int | None:
    """The JVM with Spark's driver that a server has started."""
    return next((pid for pid in children_of(process) if _DRIVER in _command_of(pid)), None)


def children_of(process: int) -> list[int]:
    found: list[int] = []
    for folder in _PROC.iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError, ValueError):
                if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == process:
                    found.append(int(folder.name))
    return found


def kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def _command_of(process: int) -> str:
    with contextlib.suppress(OSError):
        return (_PROC / str(process) / "cmdline").read_text(errors="replace")
    return ""
