"""Where backups are kept: a folder, or a bucket (`s3://bucket/prefix`, or another file system that pyarrow supports).

chunks/<first two digits>/<SHA-256>   compressed chunks of files; each one once for all backups
backups/<id>.json                     a backup: a checksum, then the files of each node and their chunks

A backup exists once its file in backups/ does. Chunks that no backup uses are left over from an interrupted one.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
from crc32c import crc32c
from pyarrow import fs

from millstream.errors import LogError

from ..storage.checked_json import checked_json
from ..storage.directory_lock import locked
from ..storage.disk import make_folder, replace_file
from .chunks import hash_of

_CODEC: Final = "zstd"
_LEVEL: Final = 1
_BACKUPS: Final = "backups"
_CHUNKS: Final = "chunks"


class BackupFailed(LogError):
    """A backup cannot be written, read, or restored."""

    code = "BACKUP_FAILED"


class Place(Protocol):
    """Objects by name. All methods raise OSError."""

    def __str__(self) -> str:
        """Its folder or URL, as it was given."""
        ...

    def put(self, name: str, content: bytes) -> None: ...

    def get(self, name: str) -> bytes:
        """The object's content. Also raises FileNotFoundError."""
        ...

    def names(self, below: str) -> set[str]:
        """The names of all objects in the folder `below` and its subfolders."""
        ...

    def remove(self, name: str) -> None: ...

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """No other process writes while it is entered, if the place can ensure that. Raises `BackupFailed`."""
        ...


_PLACES: Final = "Give a folder, or a URL such as s3://bucket/prefix."


def place_at(where: str) -> Place:
    """The place at a folder or URL. Raises `BackupFailed` if the URL is not valid or nothing is given."""
    if not where.strip():  # it would be the current folder
        raise BackupFailed("no place for backups is given", hint=_PLACES)
    if "://" not in where:
        return _Folder(Path(where))
    try:
        system, path = fs.FileSystem.from_uri(where)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise BackupFailed(f"{where} is no place for backups: {error}", hint=_PLACES) from error
    return _Bucket(where, system, path.rstrip("/"))


class _Folder:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def put(self, name: str, content: bytes) -> None:
        path = self._path / name
        make_folder(path.parent, durable=True)
        replace_file(path, content, durable=True)

    def get(self, name: str) -> bytes:
        return (self._path / name).read_bytes()

    def names(self, below: str) -> set[str]:
        found = (self._path / below).rglob("*")
        return {path.relative_to(self._path).as_posix() for path in found if path.is_file()}

    def remove(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def alone(self) -> Generator[None]:
        make_folder(self._path, durable=True)
        try:
            lock = locked(self._path / "lock")
        except LogError as error:
            hint = "Wait until that one is done."
            raise BackupFailed(f"another backup writes to {self._path}", hint=hint) from error
        try:
            yield
        finally:
            os.close(lock)


class _Bucket:
    def __init__(self, url: str, system: fs.FileSystem, path: str) -> None:
        self._url = url
        self._system = system
        self._path = path

    def __str__(self) -> str:
        return self._url

    def put(self, name: str, content: bytes) -> None:
        if self._system.type_name == "local":  # a bucket has no folders, and may not allow objects that represent one
            self._system.create_dir(f"{self._path}/{name}".rpartition("/")[0], recursive=True)
        with self._system.open_output_stream(f"{self._path}/{name}") as file:
            file.write(content)

    def get(self, name: str) -> bytes:
        with self._system.open_input_stream(f"{self._path}/{name}") as file:
            return file.read()

    def names(self, below: str) -> set[str]:
        chosen = fs.FileSelector(f"{self._path}/{below}", allow_not_found=True, recursive=True)
        found = self._system.get_file_info(chosen)
        return {each.path.removeprefix(f"{self._path}/") for each in found if each.type is fs.FileType.File}

    def remove(self, name: str) -> None:
        self._system.delete_file(f"{self._path}/{name}")

    @contextlib.contextmanager
    def alone(self) -> Generator[None]:
        """Does nothing, since a bucket has no locks."""
        yield


class BackupStore:
    """State: the chunks that are known to be stored."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._chunks: set[str] | None = None
        self.place_name = str(place)
        self.alone = place.alone

    def has(self, chunk: str) -> bool:
        """Whether the chunk is stored. Raises OSError."""
        if self._chunks is None:
            self._chunks = {name.rpartition("/")[2] for name in self._place.names(_CHUNKS)}
        return chunk in self._chunks

    def put(self, chunk: str, content: bytes) -> int:
        """Stores a chunk, and returns its compressed size. In: `chunk`: the hash of `content`. Raises OSError."""
        packed = pa.Codec(_CODEC, compression_level=_LEVEL).compress(content, asbytes=True)
        self._place.put(_chunk_name(chunk), packed)
        if self._chunks is not None:
            self._chunks.add(chunk)
        return len(packed)

    def get(self, chunk: str, size: int) -> bytes:
        """The content of a chunk. In: its size in bytes. Raises OSError; `BackupFailed` if it is missing or damaged."""
        try:
            packed = self._place.get(_chunk_name(chunk))
        except FileNotFoundError as error:
            raise BackupFailed(f"chunk {chunk} is missing", hint="Restore an older backup.") from error
        try:
            content = pa.Codec(_CODEC).decompress(packed, decompressed_size=size, asbytes=True)
        except (pa.ArrowException, OSError) as error:  # pyarrow raises OSError for bytes that the codec cannot read
            raise _damaged(chunk) from error
        if hash_of(content) != chunk:
            raise _damaged(chunk)
        return content

    def ids(self) -> list[str]:
        """The ids of all backups, oldest first. Raises OSError."""
        names = (name.removeprefix(f"{_BACKUPS}/") for name in self._place.names(_BACKUPS))
        return sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))

    def is_empty(self) -> bool:
        """Whether nothing was ever written here, not even by a backup that was interrupted. Raises OSError."""
        return not self.ids() and not self._place.names(_CHUNKS)

    def write(self, id: str, content: Any) -> None:
        """Writes a backup whose chunks were stored before. Raises OSError."""
        self._place.put(f"{_BACKUPS}/{id}.json", checked_json(content))

    def read(self, id: str) -> Any:
        """The content that `write` was given. Raises `BackupFailed` and OSError."""
        try:
            content = self._place.get(f"{_BACKUPS}/{id}.json")
        except FileNotFoundError as error:
            raise BackupFailed(
                f"there is no backup {id}", hint="`millstream backup list` prints what there is."
            ) from error
        checksum, _, body = content.partition(b"\n")
        if checksum != b"%08x" % crc32c(body):
            hint = f"Restore another backup. `millstream backup prune` goes on without {_BACKUPS}/{id}.json."
            raise BackupFailed(f"the list of files of backup {id} is damaged", hint=hint)
        return json.loads(body)

    def remove(self, id: str) -> None:
        """Removes a backup. Its chunks stay until `sweep`. Raises OSError."""
        self._place.remove(f"{_BACKUPS}/{id}.json")

    def sweep(self, used: Iterable[str]) -> int:
        """Removes all chunks that are not `used`, and returns their number. Raises OSError."""
        kept = {_chunk_name(chunk) for chunk in used}
        unused = self._place.names(_CHUNKS) - kept
        for name in unused:
            self._place.remove(name)
        self._chunks = None
        return len(unused)


def _chunk_name(chunk: str) -> str:
    return f"{_CHUNKS}/{chunk[:2]}/{chunk}"


def _damaged(chunk: str) -> BackupFailed:
    return BackupFailed(
        f"chunk {chunk} is damaged", hint="Restore an older backup; take a new one into an empty place."
    )


def told(error: OSError, what: str) -> BackupFailed:
    """The error as `BackupFailed`. In: `what`: what failed, such as `the backup cannot be written`."""
    hint = "Make room, or give another place." if error.errno == errno.ENOSPC else None
    return BackupFailed(f"{what}: {error.strerror or error}", hint=hint)
