"""Unpacks the package once per host of a cluster, into a folder that stays.

Spark sends the package as an archive, and each executor stores the archive under a different path. If the package were
imported from there, each process of each executor would compile it again, because numba caches compiled code by the
path of its source. That takes half a minute of CPU time before the first batch. So Python imports only this module from
the archive. It unpacks the package into a folder named after its content and imports it from there. This module needs
only Python's standard library.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib
import os
import stat
import sys
import tempfile
import zipfile
from collections.abc import Generator
from pathlib import Path

INSIDE = "package"
"""The folder in the archive that is unpacked."""

_UNPACKED = "unpacked"
_COMPILED = "compiled"


def enter(archive: str) -> None:
    """Imports the unpacked package. Call it while the package's stand-in in the archive is imported."""
    sys.path.insert(0, str(unpacked(Path(archive))))
    del sys.modules["millstream"]
    importlib.import_module("millstream")


def unpacked(archive: Path) -> Path:
    """The folder with the unpacked package of this archive; unpacks it if necessary."""
    name = hashlib.sha256(archive.read_bytes()).hexdigest()[:32]
    folder = _private_folder() / name
    folder.mkdir(mode=0o700, exist_ok=True)
    with once(folder, _UNPACKED) as first:
        if first:
            _unpack(archive, folder)
    return folder


@contextlib.contextmanager
def compiled_once(file: str) -> Generator[bool]:
    """Whether the caller should compile for this host; other processes wait for it. In: `file`: the path of a module
    three folders below the folder with the unpacked package."""
    folder = Path(file).parents[3]
    if not (folder / _UNPACKED).is_file():
        yield False
        return
    with once(folder, _COMPILED) as first:
        yield first


@contextlib.contextmanager
def once(folder: Path, name: str) -> Generator[bool]:
    """Whether to do the work of the block: True for one process of the host, and for the next process if that one
    fails."""
    done = folder / name
    if done.is_file():
        yield False
        return
    with (folder / f"{name}.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        first = not done.is_file()
        yield first
        done.touch()


def _unpack(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            inside = Path(member.filename)
            if inside.parts[0] == INSIDE:
                path = folder.joinpath(*inside.parts[1:])
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(opened.read(member))


def _private_folder() -> Path:
    """A folder to which only this user can write, because its content is executed. If there is no such folder, a new
    temporary one for this process."""
    with contextlib.suppress(RuntimeError):  # this user has no home directory
        home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        folder = Path(home, "millstream", "packages")
        if _is_private(folder):
            return folder
    folder = Path(tempfile.gettempdir(), f"millstream-packages-{os.geteuid()}")
    return folder if _is_private(folder) else Path(tempfile.mkdtemp(prefix="millstream-package-"))


def _is_private(folder: Path) -> bool:
    """Creates the folder if necessary. False if other users can write to it, or this process cannot."""
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        private = stat.S_ISDIR(found.st_mode) and not stat.S_IMODE(found.st_mode) & 0o022
        return private and found.st_uid == os.geteuid() and os.access(folder, os.W_OK)
    return False
