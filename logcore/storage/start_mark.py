"""Where a partition's log begins, said by the name of an empty file: for that there is room on a full disk, too.

It counts until there is a checkpoint that says as much.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..failpoints import fp
from .disk import sync_folder

_BEGINS: Final = "begins-at-"


class StartMark:
    """State: `offset`, where the file in the folder says that the log begins; None where there is none."""

    def __init__(self, folder: Path, start_offset: int) -> None:
        """In: `start_offset`: what a recovery has found; no other mark is there (see `drop_marks`)."""
        self._folder = folder
        self.offset = start_offset if _mark_at(folder, start_offset).exists() else None

    def move(self, offset: int, *, durable: bool) -> None:
        """The new name is there before the old one goes. Raises OSError."""
        _mark_at(self._folder, offset).touch()
        old, self.offset = self.offset, offset
        if durable:
            sync_folder(self._folder)
        fp("start.marked")
        if old is not None and old != offset:
            _mark_at(self._folder, old).unlink(missing_ok=True)

    def remove(self) -> None:
        """A checkpoint says it now. Raises OSError."""
        if self.offset is not None:
            _mark_at(self._folder, self.offset).unlink(missing_ok=True)
            self.offset = None


def marked_start(names: Iterable[str]) -> int:
    """Where files of these names say that the log begins; 0 where they do not."""
    return max((int(name.removeprefix(_BEGINS)) for name in names if _is_mark(name)), default=0)


def drop_marks(folder: Path, names: Iterable[str], start_offset: int) -> None:
    """Of starts that the log does not have. Raises OSError."""
    wrong = [name for name in names if _is_mark(name) and folder / name != _mark_at(folder, start_offset)]
    for name in wrong:
        with suppress(FileNotFoundError):
            (folder / name).unlink()
    if wrong:
        sync_folder(folder)


def _is_mark(name: str) -> bool:
    return name.startswith(_BEGINS) and name.removeprefix(_BEGINS).isdecimal()


def _mark_at(folder: Path, offset: int) -> Path:
    return folder / f"{_BEGINS}{offset:020d}"
