"""A folder of this machine as a store. Written files survive a power failure."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..connector_errors import ConnectorFailed, unavailable
from .file_store import StoredFile


class LocalFiles:
    """The first written file creates the folder."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def files(self, folder: str = "") -> list[StoredFile]:
        found: list[StoredFile] = []
        with _explained():
            for path in _below(self._folder / folder):
                with contextlib.suppress(FileNotFoundError):
                    if path.is_file() and not path.name.startswith(".writing-"):
                        known = path.stat()
                        name = path.relative_to(self._folder).as_posix()
                        found.append(StoredFile(name, known.st_size, known.st_mtime_ns // 1_000_000))
        return sorted(found)

    def read(self, path: str) -> bytes | None:
        with _explained(), contextlib.suppress(FileNotFoundError):
            return (self._folder / path).read_bytes()
        return None

    def opened(self, path: str) -> Any:
        with _explained(), contextlib.suppress(FileNotFoundError):
            return pa.OSFile(str(self._folder / path), "rb")
        return None

    def version(self, opened: Any) -> str:
        known = os.fstat(opened.fileno())
        return f"{known.st_ino}-{known.st_size}-{known.st_mtime_ns}"

    def write(self, path: str, data: bytes | pa.Buffer) -> None:
        with _explained():
            written = self._written(path, data)
            written.replace(self._folder / path)
            _sync_folder(written.parent)

    def create(self, path: str, data: bytes) -> bool:
        with _explained():
            written = self._written(path, data)
            try:
                os.link(written, self._folder / path)
            except FileExistsError:
                return False
            finally:
                written.unlink()
            _sync_folder(written.parent)
            return True

    def move(self, before: str, after: str) -> None:
        target = self._folder / after
        with _explained():
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                (self._folder / before).replace(target)
            except FileNotFoundError:
                if not target.exists():
                    raise
            _sync_folder(target.parent)

    def delete(self, path: str) -> None:
        with _explained():
            (self._folder / path).unlink(missing_ok=True)

    def _written(self, path: str, data: bytes | pa.Buffer) -> Path:
        """Writes a temporary file in the same folder, which readers ignore."""
        beside = (self._folder / path).parent / f".writing-{uuid.uuid4().hex}"
        beside.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return beside


def _below(folder: Path) -> Iterator[Path]:
    """All files below the folder. Others may delete files and folders meanwhile. Raises OSError if a folder cannot be
    read."""

    def failed(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    for parent, _, names in os.walk(folder, onerror=failed):
        yield from (Path(parent, name) for name in names)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _explained() -> Generator[None]:
    try:
        yield
    except (PermissionError, NotADirectoryError, IsADirectoryError) as error:
        raise ConnectorFailed(
            f"the folder cannot be used: {error.strerror}: {error.filename}",
            hint="Change the setting or the rights of the folder, then RESTART CONNECTOR.",
        ) from None
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unavailable(f"the folder cannot be used now: {error.strerror}") from None
