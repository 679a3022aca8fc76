"""The files of a node at one moment, while the node is held: names and sizes, and links to the bytes.

A log is the only source of truth, so a backup needs only its files. The files of a held node are the same as after a
crash at that moment, and recovery can start from them. Segments are linked, not copied: they only grow, so the bytes up
to the size noted here do not change, even if retention or compaction removes the name. Small files are overwritten or
replaced, so they are copied.

The size noted is what was written. The file may be longer, because space is allocated ahead and a killed process leaves
it: a log that is opened later writes there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ..replication.disk.disk_log import DiskLog
from ..replication.disk.disk_logs import DiskLogs
from ..replication.disk.disk_recovery import written_size

REPLICAS: Final = "replicas"
SNAPSHOTS: Final = "snapshots"
_NEVER: Final = frozenset({"lock", SNAPSHOTS})  # the lock of the process that uses the directory; other snapshots
_UNFINISHED: Final = (".new", ".cleaned", "-delete")  # removed at the next start
_LINKED: Final = (".log", ".index")


class SnapshotFile(NamedTuple):
    """`path`: below the log's folder, with slashes. `token`: files of one node with the same token have the same bytes,
    so only one of them has to be read."""

    path: str
    size: int
    token: str


Sizes = Mapping[str, int]
"""The sizes of segments, by the name of the file."""


def sizes_at_rest(folder: Path, logs: DiskLogs) -> dict[str, Sizes]:
    """The sizes of the last segments of the logs that are not open, by the name of their folder. They stay right as
    long as the log is not open, so they can be read before the node is held. Raises OSError."""
    found: dict[str, Sizes] = {}
    for each in os.scandir(folder / REPLICAS) if (folder / REPLICAS).exists() else ():
        if logs.log_in(each.name) is None:
            found[each.name] = _written(Path(each.path))
    return found


def _written(folder: Path) -> Sizes:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # the topic is deleted meanwhile; no log
        return written_size(folder)
    return {}


def capture(folder: Path, into: Path, logs: DiskLogs, at_rest: Mapping[str, Sizes]) -> list[SnapshotFile]:
    """Captures all files of the log in `folder` in the empty folder `into`, on the same file system. The node must be
    held. In: `at_rest`: from `sizes_at_rest`. Raises OSError."""
    found: list[SnapshotFile] = []
    for path in sorted(folder.iterdir()):
        if path.name in _NEVER or path.name.endswith(_UNFINISHED):
            continue
        if path.name != REPLICAS:
            found += _taken(path, into, path.name)
            continue
        for each in sorted(path.iterdir()):
            name = f"{REPLICAS}/{each.name}"
            log = logs.log_in(each.name)
            if each.name.endswith(_UNFINISHED):
                continue
            if log is not None:
                found += _partition(log, each, into, name)
            else:
                sizes = at_rest.get(each.name)
                found += _taken(each, into, name, _written(each) if sizes is None else sizes)
    return found


def _partition(log: DiskLog, folder: Path, into: Path, name: str) -> list[SnapshotFile]:
    return log.at_rest(lambda sizes: list(_taken(folder, into, name, sizes)))


def _taken(path: Path, into: Path, name: str, sizes: Sizes | None = None) -> Iterator[SnapshotFile]:
    """The file, or all files below the folder. In: `sizes`: of segments; other files are whole."""
    if path.is_dir():
        (into / name).mkdir(parents=True, exist_ok=True)
        for each in sorted(path.iterdir()):
            if not each.name.endswith(_UNFINISHED):
                yield from _taken(each, into, f"{name}/{each.name}", sizes)
        return
    with contextlib.suppress(FileNotFoundError):  # retention removes files that the checkpoint no longer needs
        yield _file(path, into / name, name, None if sizes is None else sizes.get(path.name))


def _file(path: Path, to: Path, name: str, size: int | None) -> SnapshotFile:
    if path.name.endswith(_LINKED):
        os.link(path, to)
    else:
        shutil.copyfile(path, to)
    found = to.stat()
    size = found.st_size if size is None else min(size, found.st_size)
    return SnapshotFile(name, size, f"{found.st_ino}-{size}-{found.st_mtime_ns}")
