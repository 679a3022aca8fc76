"""The data folder is private to the user that runs the server: other users of the machine could otherwise bypass all
rights."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import structlog

from ...logcore.errors import unusable_directory

PRIVATE_UMASK: Final = 0o077
_FOLDER: Final = 0o700
_OF_OTHERS: Final = 0o077
_OURS: Final = frozenset({"log", "state", "connect.key"})

_log = structlog.get_logger("millstream.server")


def make_private(folder: Path) -> None:
    """Creates the folder, or removes the permissions of other users from an existing folder and its contents. A folder
    that contains other files than ours, or belongs to another user, keeps its permissions, and a warning is logged.

    Raises `UnusableDataDirectory`, `LogFull`."""
    try:
        if not folder.exists():
            folder.mkdir(parents=True)
            folder.chmod(_FOLDER)
            return
        ours = [folder] if {path.name for path in folder.iterdir()} <= _OURS else []
    except OSError as error:
        raise unusable_directory(error, folder) from error
    try:
        for each in (*ours, folder / "log", folder / "state"):
            _tighten(each)
    except OSError as error:
        _log.warning("the permissions of the data folder cannot be changed", data=str(folder), error=str(error))
    if _is_open(folder):
        _log.warning("other users of this machine can read the data folder", data=str(folder), hint="chmod 700")


def _tighten(folder: Path) -> None:
    """Removes the permissions of others. If others cannot enter the folder, its contents do not matter."""
    if folder.is_dir() and not folder.is_symlink() and _is_open(folder):
        for path in _below(folder):
            path.chmod(stat.S_IMODE(path.stat().st_mode) & ~_OF_OTHERS)
        folder.chmod(_FOLDER)


def _below(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        yield from (path for name in (*folders, *files) if not (path := Path(parent, name)).is_symlink())


def _is_open(folder: Path) -> bool:
    return bool(folder.stat().st_mode & _OF_OTHERS)
