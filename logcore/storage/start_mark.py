"""Records where a partition's log begins, in the name of an empty file: this needs no space, even on a full disk.

The mark is valid until a checkpoint contains the same log start offset.
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
    """State: `offset`, the log start offset in the name of the file; None if there is no file."""

    def __init__(self, folder: Path, start_offset: int) -> None:
        """In: `start_offset`: the one that recovery found; there is no other mark (see `drop_marks`)."""
        self._folder = folder
        self.offset = start_offset if _mark_at(folder, start_offset).exists() else None

    def move(self, offset: int, *, durable: bool) -> None:
        """Creates the new file before it removes the old one. Raises OSError."""
        _mark_at(self._folder, offset).touch()
        old, self.offset = self.offset, offset
        if durable:
            sync_folder(self._folder)
        fp("start.marked")
        if old is not None and old != offset:
            _mark_at(self._folder, old).unlink(missing_ok=True)

    def remove(self) -> None:
        """Call it when a checkpoint contains the log start offset. Raises OSError."""
        if self.offset is not None:
            _mark_at(self._folder, self.offset).unlink(missing_ok=True)
            self.offset = None


def marked_start(names: Iterable[str]) -> int:
    """The log start offset in these file names; 0 if there is no mark."""
    return max((int(name.removeprefix(_BEGINS)) for name in names if _is_mark(name)), default=0)


def drop_marks(folder: Path, names: Iterable[str], start_offset: int) -> None:
    """Removes the marks of other log start offsets. Raises OSError."""
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
