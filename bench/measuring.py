"""Time by the wall and by the processor. Processor time is that of this process and of all below it."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

_PROC = Path("/proc")
_PACKAGES = ("duckdb", "pyarrow", "numba", "pyspark")


@dataclass(frozen=True, slots=True)
class Measured:
    """`cpu_s` is None where it cannot be known: children (Spark's JVM) are seen on Linux only."""

    rows: int
    wall_s: float
    cpu_s: float | None

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.wall_s

    @property
    def cpu_rate(self) -> float | None:
        """Rows per second of processor time."""
        return None if not self.cpu_s else self.rows / self.cpu_s


class Stopwatch:
    """`measured` once the block is left."""

    def __init__(self, rows: int, *, children: bool) -> None:
        self.rows = rows
        self._children = children
        self.measured = Measured(rows, 0.0, 0.0)

    @contextlib.contextmanager
    def running(self) -> Generator[None]:
        cpu, wall = cpu_seconds(children=self._children), time.perf_counter()
        yield
        wall_s, now = time.perf_counter() - wall, cpu_seconds(children=self._children)
        self.measured = Measured(self.rows, wall_s, None if cpu is None or now is None else now - cpu)


def timed(rows: int, work: Callable[[], object], *, children: bool = False) -> Measured:
    """Runs `work` once. `children`: it also works in child processes."""
    stopwatch = Stopwatch(rows, children=children)
    with stopwatch.running():
        work()
    return stopwatch.measured


def median(runs: Sequence[Measured]) -> Measured:
    """The median wall time and the median processor time, which may be those of different runs."""
    cpu = [run.cpu_s for run in runs if run.cpu_s is not None]
    return Measured(
        runs[0].rows,
        statistics.median(run.wall_s for run in runs),
        statistics.median(cpu) if len(cpu) == len(runs) else None,
    )


def cpu_seconds(*, children: bool) -> float | None:
    """What has been used so far."""
    if not children:
        own = resource.getrusage(resource.RUSAGE_SELF)
        return own.ru_utime + own.ru_stime
    return _tree_seconds() if _PROC.is_dir() else None


def _tree_seconds() -> float:
    """Of this process and its descendants, those that ended included."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for folder in _PROC.iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError, ValueError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                parents[int(folder.name)] = int(fields[1])
                ticks[int(folder.name)] = sum(map(int, fields[11:15]))
    ours = {os.getpid()}
    grown = True
    while grown:
        found = {pid for pid, parent in parents.items() if parent in ours} - ours
        ours |= found
        grown = bool(found)
    return sum(ticks.get(pid, 0) for pid in ours) / os.sysconf("SC_CLK_TCK")


def cpu_seconds_of(process: int) -> float:
    """What another process has used so far, its children left out. Raises OSError where the system does not tell."""
    fields = (_PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes() -> int:
    """Of this process; 0 where the system does not tell."""
    with contextlib.suppress(OSError):
        return resident_bytes_of(os.getpid())
    return 0


def resident_bytes_of(process: int) -> int:
    """Raises OSError where the system does not tell."""
    return _bytes_in_status(process, "VmRSS")


def private_bytes_of(process: int) -> int:
    """Without the files that are mapped, such as libraries: how much of these is resident depends on the system's file
    cache. Raises OSError where the system does not tell."""
    return _bytes_in_status(process, "RssAnon")


def _bytes_in_status(process: int, name: str) -> int:
    for line in (_PROC / str(process) / "status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def machine() -> str:
    """Processor, cores, memory, system and versions, in one line."""
    versions = [f"Python {platform.python_version()}"]
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions.append(f"{package} {metadata.version(package)}")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    system = f"{platform.system()} {platform.release()}"
    return f"{_processor()}, {cores} cores, {memory:.0f} GiB, {system}; {', '.join(versions)}"


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
