"""Opening a log of many partitions, against a bare open of its files, and the memory it takes."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from millstream.logcore.client import RowRecords
from millstream.logcore.log import open_log

from .report import Line

_TOPICS = 10


@dataclass(frozen=True, slots=True)
class Opening:
    """Seconds and bytes. `bare_s`: every file opened and read; `open_s`: `open_log` after a proper end; `used_s`: that,
    and every partition asked for its offsets; `crashed_s`: `open_log` after none."""

    partitions: int
    bare_s: float
    open_s: float
    used_s: float
    crashed_s: float
    bytes: int


def partition_lines(partitions: int) -> list[Line]:
    """The measurement as lines of a table."""
    found = measure(partitions)

    def line(what: str, seconds: float, wanted: str = "") -> Line:
        ratio = f"{seconds / found.bare_s:.1f} × a bare open"
        return Line(f"{found.partitions:,} partitions: {what}", f"{seconds:.2f} s", "", ratio, wanted)

    return [
        line("open and read each file", found.bare_s),
        line("open the log", found.open_s, "≤ 10"),
        line("open it and ask each partition", found.used_s, "≤ 10"),
        line("open it after a crash", found.crashed_s),
        Line("memory for them", f"{found.bytes / 1e6:.0f} MB", "", "", "≤ 500 MB"),
    ]


def measure(partitions: int) -> Opening:
    """In: `partitions`: how many, in all; a tenth in each topic."""
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as parent:
        folder, crashed = Path(parent, "log"), Path(parent, "crashed")
        _fill(folder, crashed, partitions)
        bare_s = _bare_open(folder)
        resident = _resident_bytes()
        started = time.perf_counter()
        with open_log(folder) as log:
            open_s = time.perf_counter() - started
            for topic, described in log.topics().items():
                for partition in range(described.partition_count):
                    log.offsets(topic, partition)
            used_s = time.perf_counter() - started
            taken = _resident_bytes() - resident
        started = time.perf_counter()
        log = open_log(crashed)
        crashed_s = time.perf_counter() - started
        log.close()
    return Opening(partitions, bare_s, open_s, used_s, crashed_s, taken)


def _fill(folder: Path, crashed: Path, partitions: int) -> None:
    """One record in each partition; `crashed` gets a copy of the log while it is open."""
    record = RowRecords(pa.table({"timestamp": [1], "key": [b"k"], "value": [b"v" * 100]}))
    with open_log(folder, sync="never") as log:
        for number in range(_TOPICS):
            log.create_topic(f"t{number}", partitions // _TOPICS)
            for partition in range(partitions // _TOPICS):
                log.append(f"t{number}", partition, record)
        shutil.copytree(folder, crashed)


def _bare_open(folder: Path) -> float:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    started = time.perf_counter()
    for path in paths:
        descriptor = os.open(path, os.O_RDWR)
        os.read(descriptor, 65_536)
        os.close(descriptor)
    return time.perf_counter() - started


def _resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    return 0
