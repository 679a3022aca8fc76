"""The snapshots of a node that are being copied: they are taken, read chunk by chunk, and removed.

Nodes of a cluster write each other's records, so their snapshots are from one moment only if all of them were held at
the same time. So each node stays held after its files are captured until it is released, and then reports whether it
was held until then.
"""

from __future__ import annotations

import secrets
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from millstream.errors import LogError

from ..cluster.cluster_node import ClusterNode
from ..errors import write_error
from .capture import SNAPSHOTS, SnapshotFile, capture, sizes_at_rest
from .chunks import chunk_count, hash_of, read_chunk

HOLD_S_MAX: Final = 10.0
_IDLE_S: Final = 600.0
_SNAPSHOTS_MAX: Final = 4
_Content = TypeVar("_Content")


class SnapshotRefused(LogError):
    """There is no such snapshot or no such file in it, or there are too many snapshots for another one."""

    code = "SNAPSHOT_REFUSED"


class SnapshotOutdated(LogError):
    """The files of a snapshot have changed: a replica was truncated meanwhile, because another node leads it."""

    code = "SNAPSHOT_OUTDATED"


@dataclass(slots=True)
class _Taken:
    folder: Path
    files: dict[str, SnapshotFile]
    cuts: int  # the truncations of all logs before it was taken
    held_ms: int = 0
    release: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    held_on: bool = False  # whether the node was held until its release
    used_s: float = field(default_factory=time.monotonic)


class Snapshots:
    """State: the snapshots by id, each a folder in the log's folder. A snapshot that was not used for ten minutes is
    removed, and so are those of an earlier process. Any thread may call any method."""

    def __init__(self, node: ClusterNode, idle_s: float = _IDLE_S) -> None:
        self.node = node
        self._idle_s = idle_s
        self._folder = node.settings.folder / SNAPSHOTS
        self._taken: dict[str, _Taken] = {}
        self._guard = threading.Lock()
        self._timer: threading.Timer | None = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def take(self, hold_s: float = 0.0) -> str:
        """Returns the id of a new snapshot. In: `hold_s`: the node stays held until `release`, at most for this time
        (0 to 10). Raises `SnapshotRefused`, `LogFull`, `LogWriteFailed`, and the errors of `ClusterNode.hold`."""
        self._remove_idle()
        id = secrets.token_hex(8)
        with self._guard:
            if len(self._taken) >= _SNAPSHOTS_MAX:
                hint = "Each ends with the backup that reads it, or ten minutes after the last request."
                raise SnapshotRefused(f"{_SNAPSHOTS_MAX} snapshots are being read already", hint=hint)
            taken = self._taken[id] = _Taken(self._folder / id, {}, self.node.logs.cuts)
        try:
            self._capture(taken, min(max(hold_s, 0.0), HOLD_S_MAX))
        except OSError as error:
            self.remove(id)
            raise write_error(error, "the snapshot of a backup") from error
        except BaseException:
            self.remove(id)
            raise
        self._watch()
        return id

    def _capture(self, taken: _Taken, hold_s: float) -> None:
        captured = threading.Event()
        failures: list[BaseException] = []
        taken.folder.mkdir(mode=0o700, parents=True)
        folder, logs = self.node.settings.folder, self.node.logs
        at_rest = sizes_at_rest(folder, logs)

        def look() -> None:
            began = time.monotonic()
            files = capture(folder, taken.folder, logs, at_rest)
            taken.files.update((each.path, each) for each in files)
            taken.held_ms = round(1000 * (time.monotonic() - began))
            captured.set()
            taken.held_on = taken.release.wait(hold_s) if hold_s else True

        def run() -> None:
            try:
                self.node.hold(look)
            except BaseException as error:
                failures.append(error)
            finally:
                taken.ended.set()
                captured.set()

        threading.Thread(target=run, name="millstream-snapshot", daemon=True).start()
        captured.wait()
        if not hold_s:
            taken.ended.wait()
        for failure in failures:
            raise failure

    def release(self, id: str) -> bool:
        """Lets the node continue. False if it already did, because the call came too late. Raises
        `SnapshotRefused`."""
        taken = self._find(id)
        taken.release.set()
        taken.ended.wait()
        return taken.held_on

    def files(self, id: str) -> list[SnapshotFile]:
        """The files of a snapshot. Raises `SnapshotRefused`."""
        return list(self._find(id).files.values())

    def held_ms(self, id: str) -> int:
        """How long writes were blocked, in milliseconds. Raises `SnapshotRefused`."""
        return self._find(id).held_ms

    def hashes(self, id: str, path: str) -> list[str]:
        """The hashes of the chunks of a file. Raises `SnapshotRefused`, `SnapshotOutdated` and OSError."""
        return self._read(id, path, lambda at, size: [
            hash_of(read_chunk(at, size, number)) for number in range(chunk_count(size))
        ])  # fmt: skip

    def chunk(self, id: str, path: str, number: int) -> bytes:
        """A chunk of a file. Raises the same errors as `hashes`."""
        file = self._file(id, path)
        if not 0 <= number < chunk_count(file.size):
            raise SnapshotRefused(f"{path} has no chunk {number}")
        return self._read(id, path, lambda at, size: read_chunk(at, size, number))

    def _read(self, id: str, path: str, read: Callable[[Path, int], _Content]) -> _Content:
        taken, file = self._find(id), self._file(id, path)
        try:
            content = read(taken.folder / file.path, file.size)
        except ValueError as error:
            raise SnapshotOutdated(f"snapshot {id} has changed: {error}", hint="Take a new one.") from error
        if self.node.logs.cuts != taken.cuts:
            raise SnapshotOutdated(f"a replica was truncated while snapshot {id} was read", hint="Take a new one.")
        return content

    def remove(self, id: str) -> None:
        """Removes the snapshot and its files. It may be called again."""
        with self._guard:
            taken = self._taken.pop(id, None)
        if taken is not None:
            taken.release.set()
            shutil.rmtree(taken.folder, ignore_errors=True)

    def close(self) -> None:
        """Removes all snapshots."""
        with self._guard:
            ids, timer = list(self._taken), self._timer
        if timer is not None:
            timer.cancel()
        for id in ids:
            self.remove(id)

    def _find(self, id: str) -> _Taken:
        with self._guard:
            taken = self._taken.get(id)
        if taken is None:
            raise SnapshotRefused(f"there is no snapshot {id} on this node", hint="It may have ended: take a new one.")
        taken.used_s = time.monotonic()
        return taken

    def _file(self, id: str, path: str) -> SnapshotFile:
        found = self._find(id).files.get(path)
        if found is None:
            raise SnapshotRefused(f"snapshot {id} has no file {path}")
        return found

    def _watch(self) -> None:
        with self._guard:
            if self._timer is None or not self._timer.is_alive():
                self._timer = threading.Timer(self._idle_s, self._look_again)
                self._timer.daemon = True
                self._timer.start()

    def _look_again(self) -> None:
        self._remove_idle()
        with self._guard:
            self._timer = None
            left = bool(self._taken)
        if left:
            self._watch()

    def _remove_idle(self) -> None:
        old = time.monotonic() - self._idle_s
        with self._guard:
            idle = [id for id, taken in self._taken.items() if taken.used_s <= old]
        for id in idle:
            self.remove(id)
