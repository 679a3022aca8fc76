"""A disk that keeps what was synced and lies about the rest, as disks do.

A file is what readers see now, what is safe, and the writes between the two. At a crash a seeded part of those writes
is kept: a prefix, some sectors of them, half of the last one, or zeros in its place. Names (create, rename, remove)
have a journal of their own, which `sync_folder` makes safe.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from random import Random
from typing import Final, NamedTuple

_SECTOR: Final = 512


class _Write(NamedTuple):
    position: int
    content: bytes


class _Truncate(NamedTuple):
    size: int


_Change = _Write | _Truncate


class PowerLost(Exception):
    """The power went in the middle of what the node was writing. No program catches this."""


class _Named(NamedTuple):
    """The name stands for this file from now on; None: for none."""

    name: str
    file: SimFile | None


class SimFile:
    """The bytes of a file. They outlive its name."""

    __slots__ = ("_disk", "_safe", "_unsynced", "content")

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk
        self._safe = bytearray()
        self._unsynced: list[_Change] = []
        self.content = bytearray()  # what readers see

    @property
    def size(self) -> int:
        return len(self.content)

    @property
    def safe_size(self) -> int:
        """How many bytes are certain to be there after a crash (fewer, if a truncation is unsynced)."""
        return min(len(self._safe), len(self.content))

    def write(self, content: bytes, position: int) -> None:
        """Raises OSError when the disk is full; then a part of it may be written."""
        self._disk.count()
        content = content[: self._disk.room_for(self, position, len(content))] if self._disk.full else content
        if content or not self._disk.full:
            change = _Write(position, bytes(content))
            _apply(self.content, change)
            self._unsynced.append(change)
        if self._disk.full:
            raise OSError(errno.ENOSPC, "no space left on device")

    def append(self, content: bytes) -> None:
        self.write(content, len(self.content))

    def truncate(self, size: int) -> None:
        self._disk.count()
        change = _Truncate(size)
        _apply(self.content, change)
        self._unsynced.append(change)

    def read(self, position: int = 0, size: int | None = None) -> bytes:
        end = len(self.content) if size is None else position + size
        return bytes(self.content[position:end])

    def sync(self) -> None:
        """Raises OSError where a fault says so; then what was unsynced is gone, though readers still see it."""
        self._disk.count()
        if self._disk.failing_syncs > 0:
            self._disk.failing_syncs -= 1
            self._unsynced.clear()
            raise OSError(errno.EIO, "input/output error")
        for change in self._unsynced:
            _apply(self._safe, change)
        self._unsynced.clear()

    def crash(self, random: Random | None) -> None:
        """The power is gone: what was synced is left, and a part of the rest; with None nothing of it."""
        for change in _survivors(self._unsynced, random) if random else ():
            _apply(self._safe, change)
        self._unsynced.clear()
        self.content = bytearray(self._safe)

    def flip(self, position: int, bit: int) -> None:
        """Damages the safe copy and what readers see."""
        for image in (self._safe, self.content):
            if position < len(image):
                image[position] ^= 1 << bit


class SimDisk:
    """The files of one node, by name. It outlives the processes of the node."""

    def __init__(self) -> None:
        self._files: dict[str, SimFile] = {}
        self._safe_files: dict[str, SimFile] = {}
        self._unsynced: list[_Named] = []
        self.exchanged = 0  # how often there was a new one
        self.full = False
        self.failing_syncs = 0  # so many of the next syncs fail
        self.operations_left: int | None = None  # until the power goes
        self.slowness = 1.0  # how much longer everything takes

    def names(self) -> list[str]:
        return sorted(self._files)

    def get(self, name: str) -> SimFile | None:
        return self._files.get(name)

    def create(self, name: str) -> SimFile:
        """An empty file of this name; one that was there before is replaced."""
        if self.full:
            raise OSError(errno.ENOSPC, "no space left on device")
        file = SimFile(self)
        self._name(name, file)
        return file

    def rename(self, name: str, new_name: str) -> None:
        file = self._files[name]
        self._name(new_name, file)
        self._name(name, None)

    def remove(self, name: str) -> None:
        self._name(name, None)

    def sync_folder(self) -> None:
        """Makes names durable. Raises OSError where a fault says so."""
        self.count()
        if self.failing_syncs > 0:
            self.failing_syncs -= 1
            self._unsynced.clear()
            raise OSError(errno.EIO, "input/output error")
        self._safe_files = dict(self._files)
        self._unsynced.clear()

    def crash(self, random: Random | None) -> None:
        """The power is gone. Names are journalled: a prefix of their changes is kept; with None nothing unsynced is."""
        for change in self._unsynced[: random.randint(0, len(self._unsynced)) if random else 0]:
            _rename(self._safe_files, change)
        self._unsynced.clear()
        seen = {id(file): file for file in (*self._files.values(), *self._safe_files.values())}
        for file in seen.values():  # in the order of the names' making
            file.crash(random)
        self._files = dict(self._safe_files)

    def wipe(self) -> None:
        """A new disk in the place of the old one."""
        self._files, self._safe_files = {}, {}
        self._unsynced.clear()
        self.exchanged += 1

    def room_for(self, file: SimFile, position: int, wanted: int) -> int:
        """How many of these bytes still fit onto a full disk: those over old ones, and some of the others."""
        return min(wanted, max(0, file.size - position) + wanted // 2)

    def count(self) -> None:
        """Before each operation that changes something: the power may go here."""
        if self.operations_left is not None:
            self.operations_left -= 1
            if self.operations_left < 0:
                self.operations_left = None
                raise PowerLost

    def _name(self, name: str, file: SimFile | None) -> None:
        self.count()
        change = _Named(name, file)
        _rename(self._files, change)
        self._unsynced.append(change)


def _rename(files: dict[str, SimFile], change: _Named) -> None:
    if change.file is None:
        files.pop(change.name, None)
    else:
        files[change.name] = change.file


def _apply(image: bytearray, change: _Change) -> None:
    if isinstance(change, _Truncate):
        del image[change.size :]
        return
    position, content = change
    if position > len(image):
        image.extend(bytes(position - len(image)))
    image[position : position + len(content)] = content


def _survivors(changes: Sequence[_Change], random: Random) -> list[_Change]:
    if not changes:
        return []
    kind = random.randrange(5)
    prefix = list(changes[: random.randint(0, len(changes))])
    if kind <= 1:
        return prefix
    if kind == 2:  # the disk wrote sectors in an order of its own; truncations are journalled with the names
        return [kept for change in changes for kept in _some_sectors(change, random)]
    last = prefix[-1] if prefix else None
    if not isinstance(last, _Write) or not last.content:
        return prefix
    cut = random.randrange(len(last.content))
    torn = last.content[:cut]
    if kind == 3:
        return [*prefix[:-1], _Write(last.position, torn)]
    return [*prefix[:-1], _Write(last.position, torn + bytes(len(last.content) - cut))]


def _some_sectors(change: _Change, random: Random) -> list[_Change]:
    if isinstance(change, _Truncate):
        return [change]
    position, content = change
    kept: list[_Change] = []
    start = 0
    while start < len(content):
        end = min(len(content), start + _SECTOR - (position + start) % _SECTOR)
        if random.random() < 0.5:
            kept.append(_Write(position + start, content[start:end]))
        start = end
    return kept
