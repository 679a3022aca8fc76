"""The interface to the files of machines: a folder on the disk, or on the simulator's disk."""

from __future__ import annotations

from typing import Protocol


class File(Protocol):
    """An open file. Written bytes are durable after a sync. All methods raise OSError."""

    @property
    def size(self) -> int: ...

    def append(self, content: bytes) -> None:
        """If it raises, any part of `content` may have been written."""
        ...

    def truncate(self, size: int) -> None: ...

    def read(self, position: int = 0, size: int | None = None) -> bytes: ...

    def sync(self) -> None:
        """After a failure, the state of all writes since the last success is unknown: never retry it (R17)."""
        ...


class Folder(Protocol):
    """Files by name. Names are durable once the folder is synced."""

    def get(self, name: str) -> File | None: ...

    def create(self, name: str) -> File:
        """Creates an empty file; it replaces an existing file of this name."""
        ...

    def rename(self, name: str, new_name: str) -> None: ...

    def remove(self, name: str) -> None: ...

    def sync_folder(self) -> None: ...
