"""What machines' files are written through: a folder of the disk, or of the simulator's disk."""

from __future__ import annotations

from typing import Protocol


class File(Protocol):
    """An open file. What is written is safe once it is synced. Everything raises OSError."""

    @property
    def size(self) -> int: ...

    def append(self, content: bytes) -> None:
        """Any part may be written where it raises."""
        ...

    def truncate(self, size: int) -> None: ...

    def read(self, position: int = 0, size: int | None = None) -> bytes: ...

    def sync(self) -> None:
        """After a failure nothing is known of what was written since the last success: never tried again (R17)."""
        ...


class Folder(Protocol):
    """Files by name. Names are safe once the folder is synced."""

    def get(self, name: str) -> File | None: ...

    def create(self, name: str) -> File:
        """An empty file; one of this name before is replaced."""
        ...

    def rename(self, name: str, new_name: str) -> None: ...

    def remove(self, name: str) -> None: ...

    def sync_folder(self) -> None: ...
