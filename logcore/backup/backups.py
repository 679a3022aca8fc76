"""Backups: they are written from snapshots of all nodes of a log, listed, verified, pruned and restored.

A backup has all files of each node. Files that the previous backup has with the same token are not read again, and
chunks that the store has are not sent again. So the cost of a backup depends on what was written since the last one.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple, Protocol

from ..storage.disk import make_folder, sync_folder
from .capture import REPLICAS, SnapshotFile
from .chunks import CHUNK_BYTES, chunk_count, chunk_size, hash_of
from .store import BackupFailed, BackupStore, told

_FORMAT: Final = 1


class NodeSnapshot(Protocol):
    """A snapshot of one node, which may run anywhere. All methods raise `MillstreamError`."""

    def files(self) -> Sequence[SnapshotFile]: ...

    def hashes(self, path: str) -> Sequence[str]: ...

    def chunk(self, path: str, number: int) -> bytes: ...


class KeptFile(NamedTuple):
    """A file in a backup."""

    path: str
    size: int
    token: str
    chunks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Backup:
    """`id`: begins with the time, so ids can be sorted. `taken_ms`: since 1970. `nodes`: the files of each node."""

    id: str
    taken_ms: int
    nodes: Mapping[int, tuple[KeptFile, ...]]

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.size for files in self.nodes.values() for file in files)

    @property
    def chunks(self) -> set[str]:
        return {chunk for files in self.nodes.values() for file in files for chunk in file.chunks}


class CopyProgress(NamedTuple):
    """In bytes: all files, those that are already in the backup, and what was sent for these, compressed."""

    size: int
    done: int
    sent: int


def write_backup(
    store: BackupStore,
    snapshots: Mapping[int, NodeSnapshot],
    now_ms: int,
    progress: Callable[[CopyProgress], None] = lambda progress: None,
) -> Backup:
    """Writes a backup, which is complete on return. In: a snapshot per node, all from one moment. Raises `BackupFailed`
    and the errors of `NodeSnapshot`; then there is no backup."""
    try:
        with store.alone():
            writer = _Writer(store, _newest(store), progress)
            files = {node: snapshot.files() for node, snapshot in snapshots.items()}
            writer.size = sum(file.size for each in files.values() for file in each)
            kept = {node: writer.kept(node, snapshots[node], files[node]) for node in snapshots}
            backup = Backup(_new_id(now_ms), now_ms, kept)
            store.write(backup.id, _json(backup))
    except OSError as error:
        raise told(error, f"the backup cannot be written to {store.place_name}") from error
    return backup


class _Writer:
    """Writes the files of one backup. State: the progress."""

    def __init__(self, store: BackupStore, before: Backup | None, progress: Callable[[CopyProgress], None]) -> None:
        self._store = store
        self._before = {} if before is None else before.nodes
        self._progress = progress
        self.size = self._done = self._sent = 0

    def kept(self, node: int, snapshot: NodeSnapshot, files: Sequence[SnapshotFile]) -> tuple[KeptFile, ...]:
        known = {(file.path, file.token): file for file in self._before.get(node, ())}
        return tuple(self._file(snapshot, file, known.get((file.path, file.token))) for file in files)

    def _file(self, snapshot: NodeSnapshot, file: SnapshotFile, known: KeptFile | None) -> KeptFile:
        if known is not None and all(map(self._store.has, known.chunks)):
            self._tell(file.size)
            return known
        hashes = tuple(snapshot.hashes(file.path)) if file.size else ()
        if len(hashes) != chunk_count(file.size):
            raise BackupFailed(f"{file.path} has {chunk_count(file.size)} chunks, and the node says {len(hashes)}")
        for number, chunk in enumerate(hashes):
            if not self._store.has(chunk):
                self._sent += self._store.put(chunk, _received(snapshot, file.path, number, chunk))
            self._tell(chunk_size(file.size, number))
        return KeptFile(file.path, file.size, file.token, hashes)

    def _tell(self, done: int) -> None:
        self._done += done
        self._progress(CopyProgress(self.size, self._done, self._sent))


def _received(snapshot: NodeSnapshot, path: str, number: int, chunk: str) -> bytes:
    content = snapshot.chunk(path, number)
    if hash_of(content) != chunk:
        raise BackupFailed(f"chunk {number} of {path} is not what the node said", hint="Run the backup again.")
    return content


def _newest(store: BackupStore) -> Backup | None:
    """The newest backup; None if there is none, or if it cannot be read. Then all files are read from the nodes."""
    ids = store.ids()
    try:
        return read_backup(store, ids[-1]) if ids else None
    except BackupFailed:
        return None


def _new_id(now_ms: int) -> str:
    moment = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now_ms / 1000))
    return f"{moment}.{now_ms % 1000:03}Z-{secrets.randbelow(10_000):04}"


def read_backup(store: BackupStore, id: str | None = None) -> Backup:
    """The backup with this id; with None the newest one. Raises `BackupFailed`."""
    try:
        if id is None:
            ids = store.ids()
            if not ids:
                raise _none_in(store)
            id = ids[-1]
        content = store.read(id)
    except OSError as error:
        raise told(error, "the backup cannot be read") from error
    if content["format"] != _FORMAT:
        hint = "Use the version of Millstream that wrote it."
        raise BackupFailed(f"backup {id} has format {content['format']}, and this version reads {_FORMAT}", hint=hint)
    nodes = {int(node): tuple(map(_kept_file, files)) for node, files in content["nodes"].items()}
    return Backup(id, content["takenMs"], nodes)


def _none_in(store: BackupStore) -> BackupFailed:
    return BackupFailed(
        f"there is no backup in {store.place_name}", hint="Check the place; `millstream backup create` makes one."
    )


def backup_to_restore(store: BackupStore, id: str | None = None) -> Backup:
    """Like `read_backup`, but not the newest of several of a cluster: while node after node is restored, another may
    become the newest, and nodes of different moments contradict each other. Raises `BackupFailed`."""
    found = read_backup(store, id)
    if id is None and len(found.nodes) > 1 and len(store.ids()) > 1:
        raise BackupFailed(
            f"the newest backup is of {len(found.nodes)} nodes, and all of them are restored from the same one",
            hint=f"Name it at each node, as with --backup {found.id}.",
        )
    return found


def list_backups(store: BackupStore) -> tuple[list[Backup], list[BackupFailed]]:
    """All backups, oldest first, and an error for each that cannot be read: the others can be restored. Raises
    `BackupFailed`, also if there is none: the place may be a wrong one."""
    try:
        ids = store.ids()
    except OSError as error:
        raise told(error, "the backups cannot be listed") from error
    if not ids:
        raise _none_in(store)
    found: list[Backup] = []
    damaged: list[BackupFailed] = []
    for id in ids:
        try:
            found.append(read_backup(store, id))
        except BackupFailed as error:
            damaged.append(error)
    return found, damaged


def verify_backup(store: BackupStore, backup: Backup) -> Iterator[str]:
    """Reads the whole backup, and yields a message for each file that cannot be restored. Raises `BackupFailed` if the
    place cannot be read at all."""
    for node, files in sorted(backup.nodes.items()):
        for file in files:
            try:
                for _ in _content(store, file):
                    pass
            except BackupFailed as error:
                yield f"node {node}, {file.path}: {error.message}"


def prune_backups(store: BackupStore, keep: int) -> tuple[int, int]:
    """Removes all but the newest `keep` backups (at least 1), and chunks that no backup uses. Returns the number of
    both. Raises `BackupFailed`."""
    try:
        if store.is_empty():  # asked first: `alone` would make the folder
            raise _none_in(store)
        with store.alone():
            backups = [read_backup(store, id) for id in store.ids()]
            gone, left = backups[: -max(keep, 1)], backups[-max(keep, 1) :]
            for backup in gone:
                store.remove(backup.id)
            return len(gone), store.sweep({chunk for backup in left for chunk in backup.chunks})
    except OSError as error:
        raise told(error, "the backups cannot be thinned out") from error


def restore_backup(
    store: BackupStore,
    backup: Backup,
    node: int,
    folder: Path,
    progress: Callable[[CopyProgress], None] = lambda progress: None,
) -> None:
    """Writes the files of a node into the log folder `folder`, which must be empty or missing. They are durable on
    return. An unfinished restoration cannot be opened as a log. Raises `BackupFailed`."""
    files = backup.nodes.get(node)
    if files is None:
        raise BackupFailed(
            f"backup {backup.id} has no node {node}", hint=f"It has {', '.join(map(str, sorted(backup.nodes)))}."
        )
    if folder.exists() and not folder.is_dir():
        raise BackupFailed(f"{folder} is a file, not a folder", hint="Give a new folder.")
    if folder.exists() and any(folder.iterdir()):
        raise BackupFailed(f"{folder} is not empty", hint="Give a new folder: nothing is ever written over.")
    aside = folder.with_name(f"{folder.name}.restoring-{secrets.token_hex(4)}")
    try:
        size, done = sum(file.size for file in files), 0
        make_folder(aside / REPLICAS, durable=False)  # even if nothing was ever written
        for file in files:
            done += _write(store, file, aside / file.path)
            progress(CopyProgress(size, done, 0))
        for made in sorted({(aside / file.path).parent for file in files} | {aside, aside / REPLICAS}):
            sync_folder(made)
        if folder.exists():
            folder.rmdir()
        aside.rename(folder)
        sync_folder(folder.parent)
    except BaseException as error:
        shutil.rmtree(aside, ignore_errors=True)
        if isinstance(error, OSError):
            raise told(error, f"{folder} cannot be written") from error
        raise


def _write(store: BackupStore, file: KeptFile, path: Path) -> int:
    make_folder(path.parent, durable=False)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        for content in _content(store, file):
            out.write(content)
        out.flush()
        os.fsync(out.fileno())
    return file.size


def _content(store: BackupStore, file: KeptFile) -> Iterator[bytes]:
    for number, chunk in enumerate(file.chunks):
        try:
            yield store.get(chunk, chunk_size(file.size, number))
        except OSError as error:
            raise told(error, f"chunk {chunk} cannot be read") from error


def _json(backup: Backup) -> dict[str, Any]:
    nodes = {str(node): [file._asdict() for file in files] for node, files in backup.nodes.items()}
    return {"format": _FORMAT, "takenMs": backup.taken_ms, "chunkBytes": CHUNK_BYTES, "nodes": nodes}


def _kept_file(found: Mapping[str, Any]) -> KeptFile:
    path = PurePosixPath(found["path"])
    if path.is_absolute() or ".." in path.parts:
        raise BackupFailed(f"the backup has a file {path}, which is outside of a log's folder")
    return KeptFile(found["path"], found["size"], found["token"], tuple(found["chunks"]))
