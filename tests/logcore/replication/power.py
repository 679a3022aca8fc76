"""A power cut for real files: what was not synced is lost, or half of it is, and names that were not synced, too.

While it watches, it keeps of each file what the last fsync of it has made safe, and of each folder the names. A cut
then makes the folder what a disk could have: per file what is safe, what was written, or sectors of both; per folder
the names of then or of now.

Threads of the log write, rename and delete files while another one syncs, and other logs of the process may sync
theirs: the first is seen as it is at some moment, the second is none of this disk's business.
"""

from __future__ import annotations

import os
import shutil
import stat
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest

_SECTOR = 512

T = TypeVar("T")

Disk = dict[Path, dict[str, bytes | None]]


class PowerCut(BaseException):
    """The machine stops here. No handler of errors may go on."""


class Power:
    """State: what is safe, by inode, and how many syncs there are until the power goes (negative: it does not)."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root.resolve()
        self.syncs_left = -1
        self.syncs = 0
        self._turns = threading.RLock()  # what is seen of the disk is of one moment: nobody is told of a sync meanwhile
        self.around_syncs: Callable[[], None] = lambda: None  # called before what is synced is safe, and after
        self._contents: dict[int, bytes] = {}
        self._names: dict[Path, dict[str, int]] = {}
        self._held: dict[int, int] = {}  # an inode that is held is not given out again
        weakref.finalize(self, _let_go, self._held)
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, self._watched(getattr(os, name)))
        patch.setattr(os, "sync", self._note_all)
        self._note_all()

    def _watched(self, sync: Callable[[int], None]) -> Callable[[int], None]:
        def watched(descriptor: int) -> None:
            if not Path(os.readlink(f"/proc/self/fd/{descriptor}")).is_relative_to(self.root):
                sync(descriptor)
                return
            before = self.syncs_left == 0
            self.syncs += 1
            self.syncs_left -= 1
            if before:
                raise PowerCut
            with self._turns:
                self.around_syncs()
                self._note(descriptor)
                self.around_syncs()
            if self.syncs_left == 0 and self.syncs % 2:
                raise PowerCut  # it is safe, and nobody was told

        return watched

    def _note(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            self._names[path] = _at_one_moment(lambda: {each.name: self._hold(each) for each in path.iterdir()})
        else:
            self._contents[status.st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()

    def _hold(self, path: Path) -> int:
        descriptor = os.open(path, os.O_RDONLY)
        inode = os.fstat(descriptor).st_ino
        if inode in self._held:
            os.close(descriptor)
        else:
            self._held[inode] = descriptor
        return inode

    def cut(self, random: Random) -> None:
        """Makes the folder what the disk may have."""
        self.become(self.possible(random))

    def possible(self, random: Random) -> Disk:
        """What the disk may have if the power goes now: per folder the files, and None for a folder in it."""
        with self._turns:  # no sync of another thread is done meanwhile, and nothing is written that follows from one
            watched = sorted({*self._names, self.root})
            return {path.relative_to(self.root): self._chosen(path, random) for path in watched}

    def close(self) -> None:
        """Lets go of the files that it holds. Nothing more is to be asked of it."""
        _let_go(self._held)

    def become(self, disk: Disk) -> None:
        """Makes the folder so. All that is in it is safe then."""
        shutil.rmtree(self.root)
        self.root.mkdir()
        self.close()
        lay_out(disk, self.root)
        self._note_all()

    def _note_all(self) -> None:
        self._contents = {path.stat().st_ino: path.read_bytes() for path in self.root.rglob("*") if path.is_file()}
        self._names = {
            path: {each.name: self._hold(each) for each in path.iterdir()}
            for path in (self.root, *self.root.rglob("*"))
            if path.is_dir()
        }

    def _chosen(self, folder: Path, random: Random) -> dict[str, bytes | None]:
        """The names that the disk has, with what is in the files; None for a folder."""
        now = _at_one_moment(lambda: _what_is_in(folder))
        safe = self._names.get(folder, {})
        some = {name for name in sorted({*safe, *now}) if (name in safe and name in now) or random.random() < 0.5}
        names = random.choice([set(safe), set(now), some])
        found: dict[str, bytes | None] = {}
        for name in sorted(names):
            inode, current = now.get(name, (None, None))
            if name in safe and (inode is None or (safe[name] != inode and random.random() < 0.5)):
                inode, current = safe[name], self._content_of(safe[name])
            found[name] = None if current is None else _mixed(self._contents.get(inode or 0, b""), current, random)
        return found

    def _content_of(self, inode: int) -> bytes | None:
        descriptor = self._held[inode]
        status = os.fstat(descriptor)
        return None if stat.S_ISDIR(status.st_mode) else os.pread(descriptor, status.st_size, 0)


def _let_go(held: dict[int, int]) -> None:
    for descriptor in held.values():
        os.close(descriptor)
    held.clear()


def _at_one_moment(look: Callable[[], T]) -> T:
    """What `look` sees: once more when what it saw the name of was renamed or deleted before it looked there."""
    while True:
        with suppress(FileNotFoundError):
            return look()


def _what_is_in(folder: Path) -> dict[str, tuple[int, bytes | None]]:
    """By name the inode, and what is in a file. A folder that is gone has nothing."""
    paths = list(folder.iterdir()) if folder.is_dir() else []
    return {path.name: (path.stat().st_ino, None if path.is_dir() else path.read_bytes()) for path in paths}


def lay_out(disk: Disk, root: Path) -> None:
    """Writes what a disk had into an empty folder."""
    for folder, files in disk.items():
        if not (root / folder).is_dir():
            continue  # its own name was lost
        for name, content in files.items():
            if content is None:
                (root / folder / name).mkdir(exist_ok=True)
            else:
                (root / folder / name).write_bytes(content)


def _mixed(safe: bytes, current: bytes, random: Random) -> bytes:
    way = random.randrange(4)
    if way < 2:
        return (safe, current)[way]
    size = random.choice([len(safe), len(current), max(len(safe), len(current))])
    sectors: list[bytes] = []
    for start in range(0, size, _SECTOR):
        end = min(start + _SECTOR, size)
        sector = random.choice([safe, current])[start:end]
        sectors.append(sector.ljust(end - start, b"\0"))
    return b"".join(sectors)
