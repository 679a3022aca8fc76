"""How a host of a cluster gets the package: unpacked once, at a place that stays.

The package travels as an archive, which each executor has at a place of its own. Imported from there, it would be
compiled anew in each process of each executor, for what numba has compiled is kept by the path of its source: half a
minute of CPU time before the first batch. So the archive holds little more than this module, which puts the package
into a folder named by its content, and imports it from there. It needs nothing but Python.
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
"""The folder in the archive with what is unpacked."""

_UNPACKED = "unpacked"
_COMPILED = "compiled"


def enter(archive: str) -> None:
    """Imports the package from where it is unpacked. To be called while its stand-in in the archive is imported."""
    sys.path.insert(0, str(unpacked(Path(archive))))
    del sys.modules["millstream"]
    importlib.import_module("millstream")


def unpacked(archive: Path) -> Path:
    """The folder with the archive's package, made where it is not there yet."""
    name = hashlib.sha256(archive.read_bytes()).hexdigest()[:32]
    folder = _private_folder() / name
    folder.mkdir(mode=0o700, exist_ok=True)
    with once(folder, _UNPACKED) as first:
        if first:
            _unpack(archive, folder)
    return folder


@contextlib.contextmanager
def compiled_once(file: str) -> Generator[bool]:
    """Whether the caller compiles for this host, while others wait. In: `file`: of a module of the package, three
    folders below its own."""
    folder = Path(file).parents[3]
    if not (folder / _UNPACKED).is_file():
        yield False
        return
    with once(folder, _COMPILED) as first:
        yield first


@contextlib.contextmanager
def once(folder: Path, name: str) -> Generator[bool]:
    """Whether the block is to be done: True for one process of the host, for the next one where it fails."""
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
    """What is in it runs, so nobody else may write to it. A folder of this process alone where the user has none."""
    with contextlib.suppress(RuntimeError):  # this user has no home
        home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        folder = Path(home, "millstream", "packages")
        if _is_private(folder):
            return folder
    folder = Path(tempfile.gettempdir(), f"millstream-packages-{os.geteuid()}")
    return folder if _is_private(folder) else Path(tempfile.mkdtemp(prefix="millstream-package-"))


def _is_private(folder: Path) -> bool:
    """Makes the folder where it is not there yet."""
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        private = stat.S_ISDIR(found.st_mode) and not stat.S_IMODE(found.st_mode) & 0o022
        return private and found.st_uid == os.geteuid() and os.access(folder, os.W_OK)
    return False
