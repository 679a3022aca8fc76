"""Opening a log of many partitions, against a bare open of its files, and the memory and descriptors it takes."""

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

from .measuring import resident_bytes
from .report import Line

_TOPICS = 10
_AHEAD_BYTES = 64 * 1024  # what a durable log has taken ahead of its writes in a segment


@dataclass(frozen=True, slots=True)
class Opening:
    """Seconds, bytes and a count, after one kind of end. `bare_s`: every file opened and closed; `open_s`: `open_log`;
    `used_s`: that, and every partition asked for its offsets."""

    bare_s: float
    open_s: float
    used_s: float
    bytes: int
    descriptors: int


def partition_lines(partitions: int) -> list[Line]:
    """The measurement as lines of a table. In: `partitions`: how many, in all; a tenth in each topic."""
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as parent:
        closed, crashed = Path(parent, "closed"), Path(parent, "crashed")
        _fill(closed, crashed, partitions)
        return [
            line
            for end, folder in (("a proper end", closed), ("a crash", crashed))
            for line in _lines(f"{partitions:,} partitions after {end}", measure(folder))
        ]


def _lines(what: str, found: Opening) -> list[Line]:
    def line(name: str, seconds: float, wanted: str = "") -> Line:
        ratio = f"{seconds / found.bare_s:.1f} × a bare open"
        return Line(f"{what}: {name}", f"{seconds:.2f} s", "", ratio, wanted)

    return [
        line("open and close each file", found.bare_s),
        line("open the log", found.open_s, "≤ 10"),
        line("open it and ask each partition", found.used_s),
        Line(f"{what}: memory", f"{found.bytes / 1e6:.0f} MB", "", "", "≤ 500 MB"),
        Line(f"{what}: descriptors", f"{found.descriptors:,}", "", "", ""),
    ]


def measure(folder: Path) -> Opening:
    """Opens the log in this folder; it is closed properly then."""
    bare_s = _bare_open(folder)
    resident, descriptors = resident_bytes(), _descriptors()
    started = time.perf_counter()
    with open_log(folder) as log:
        open_s = time.perf_counter() - started
        for topic, described in log.topics().items():
            for partition in range(described.partition_count):
                log.offsets(topic, partition)
        used_s = time.perf_counter() - started
        return Opening(bare_s, open_s, used_s, resident_bytes() - resident, _descriptors() - descriptors)


def _fill(closed: Path, crashed: Path, partitions: int) -> None:
    """One record in each partition; `crashed` is what a kill leaves of a log that was never closed."""
    record = RowRecords(pa.table({"timestamp": [1], "key": [b"k"], "value": [b"v" * 100]}))
    with open_log(closed, sync="never") as log:
        for number in range(_TOPICS):
            log.create_topic(f"t{number}", partitions // _TOPICS)
            for partition in range(partitions // _TOPICS):
                log.append(f"t{number}", partition, record)
        shutil.copytree(closed, crashed)
    for segment in crashed.glob("*/*.log"):
        descriptor = os.open(segment, os.O_RDWR)
        os.posix_fallocate(descriptor, os.fstat(descriptor).st_size, _AHEAD_BYTES)
        os.close(descriptor)
    os.sync()  # a log that waits for the disk leaves nothing to be written; what comes now must not pay for it


def _bare_open(folder: Path) -> float:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    started = time.perf_counter()
    for path in paths:
        os.close(os.open(path, os.O_RDWR))
    return time.perf_counter() - started


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
