"""Temporary folders of this process, which are removed at a next start where the process was killed.

The owner holds a lock on a file in its folder for as long as it lives, also where another process cannot see it by its
number (containers that share a temporary directory), or where the number belongs to somebody else by now.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Final

_PREFIX: Final = "millstream-"
_OWNER: Final = "owner.lock"


class TemporaryFolder:
    """A new folder, for this user alone. State: the lock, until `remove`."""

    def __init__(self, kind: str) -> None:
        """In: `kind`: a word for its name."""
        directory = tempfile.gettempdir()
        _clear_away_once(directory, os.getpid())
        owned = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-", dir=directory))
        self._lock: int | None = _locked(owned)
        self._owned = owned
        self.path = owned / "kept"
        self.path.mkdir(mode=0o700)

    def remove(self) -> None:
        """May be called again."""
        if self._lock is not None:
            shutil.rmtree(self._owned, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def _locked(folder: Path) -> int:
    """The file gets its name when it is locked: nobody ever finds it free while its owner lives."""
    unnamed = folder / f"{_OWNER}.new"
    lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    unnamed.rename(folder / _OWNER)
    return lock


@functools.cache
def _clear_away_once(directory: str, process: int) -> None:
    """In: `process`: its number, which a copy of it (fork) does not share."""
    clear_away(Path(directory))


def clear_away(directory: Path) -> None:
    """Removes the folders of this user whose owners are gone. Other folders stay, whatever they are called."""
    for folder in directory.glob(f"{_PREFIX}*"):
        if _is_ours(folder):
            _remove_where_free(folder)


def _is_ours(folder: Path) -> bool:
    try:
        found = folder.lstat()  # a link is not followed
    except OSError:
        return False  # its owner has just removed it
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _remove_where_free(folder: Path) -> None:
    try:
        lock = os.open(folder / _OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return  # no folder of this kind, or gone
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return  # its owner lives
    else:
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
