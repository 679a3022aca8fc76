"""Implements the interfaces of `ports.py` with a folder on the disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ...storage.disk import make_folder, sync_folder


class DiskFile:
    """An open file. It is closed when the last reference to it is gone."""

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self._durable = durable
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._descriptor).st_size

    def __del__(self) -> None:
        descriptor: Any = getattr(self, "_descriptor", None)
        if descriptor is not None:
            os.close(descriptor)

    @property
    def size(self) -> int:
        return self._size

    def append(self, content: bytes) -> None:
        left = memoryview(content)
        while left:
            written = os.pwrite(self._descriptor, left, self._size)
            self._size += written
            left = left[written:]

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)
        self._size = size

    def read(self, position: int = 0, size: int | None = None) -> bytes:
        wanted = max(0, self._size - position) if size is None else size
        parts: list[bytes] = []
        while wanted and (part := os.pread(self._descriptor, wanted, position)):
            parts.append(part)
            position, wanted = position + len(part), wanted - len(part)
        return b"".join(parts)

    def sync(self) -> None:
        if self._durable:
            os.fdatasync(self._descriptor)


class DiskFolder:
    """Files by name; the folder is created if it is missing. Without `durable` nothing waits for the disk: synced
    content survives a crash of the process, but not of the machine."""

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self._path = path
        self._durable = durable
        make_folder(path, durable=durable)

    def get(self, name: str) -> DiskFile | None:
        path = self._path / name
        return DiskFile(path, durable=self._durable) if path.exists() else None

    def create(self, name: str) -> DiskFile:
        file = DiskFile(self._path / name, durable=self._durable)
        file.truncate(0)
        return file

    def rename(self, name: str, new_name: str) -> None:
        (self._path / name).replace(self._path / new_name)

    def remove(self, name: str) -> None:
        (self._path / name).unlink()

    def sync_folder(self) -> None:
        if self._durable:
            sync_folder(self._path)
