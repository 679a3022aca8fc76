"""Temporary folders of this process. If the process is killed, a later start removes them.

The owner holds a lock on a file in its folder as long as it lives. This works even if other processes cannot see its
process id (containers that share a temporary directory), or if the id was reused.
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
    """A new folder, private to this user. State: the lock, until `remove`."""

    def __init__(self, kind: str) -> None:
        """In: `kind`: a word that becomes a part of the folder's name."""
        directory = tempfile.gettempdir()
        _clear_away_once(directory, os.getpid())
        owned = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-", dir=directory))
        self._lock: int | None = _locked(owned)
        self._owned = owned
        self.path = owned / "kept"
        self.path.mkdir(mode=0o700)

    def remove(self) -> None:
        """Removes the folder. It may be called again."""
        if self._lock is not None:
            shutil.rmtree(self._owned, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def _locked(folder: Path) -> int:
    """Makes the lock file. It gets its name only after it is locked, so no process finds it unlocked while its owner
    lives."""
    unnamed = folder / f"{_OWNER}.new"
    lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    unnamed.rename(folder / _OWNER)
    return lock


@functools.cache
def _clear_away_once(directory: str, process: int) -> None:
    """Clears the directory once per process. In: `process`: the process id, which a forked process does not share."""
    clear_away(Path(directory))


def clear_away(directory: Path) -> None:
    """Removes the folders of this user whose owners are gone. Other folders stay, whatever their names are."""
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
