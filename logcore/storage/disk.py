"""Files and folders with the durability that a log needs: complete writes, syncs, and names that survive a crash."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..failpoints import fp
from ..records.batch import Buffer

_BLOCK: Final = 4096
_ZEROS: Final = bytes(64 * 1024)
_BUFFERS_MAX: Final = 512  # per system call; Linux takes 1024


class LogFile:
    """An open file that is written at its end and read anywhere.

    The descriptor is closed with the last reference, so a reader can continue while the file's topic is deleted.
    """

    def __init__(self, path: Path | str, *, create: bool = False, writable: bool = True) -> None:
        self.path = path
        mode = os.O_RDWR if writable else os.O_RDONLY
        self._descriptor = os.open(path, mode | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o600)

    def __del__(self) -> None:
        descriptor = getattr(self, "_descriptor", -1)
        if descriptor >= 0:
            os.close(descriptor)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        """Writes everything and returns the position after it. Raises OSError; then any part may have been written."""
        fp("append.write")
        for start in range(0, len(buffers), _BUFFERS_MAX):
            left = list(map(memoryview, buffers[start : start + _BUFFERS_MAX]))
            while left:
                written = os.pwritev(self._descriptor, left, position)
                position += written
                left = _behind(left, written)
        return position

    def overwrite(self, content: bytes) -> None:
        """Writes a few bytes at the beginning, at once. Raises OSError."""
        os.pwrite(self._descriptor, content, 0)

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fills the buffer, or reads to the end of the file. Returns the number of bytes read."""
        done = 0
        while done < len(buffer):
            count = os.preadv(self._descriptor, [buffer[done:]], position + done)
            if count == 0:
                break
            done += count
        return done

    def is_unwritten(self, start: int, end: int) -> bool:
        """True if there are only zeros in between. Preallocated space is skipped, not read."""
        position, size = start, _BLOCK - start % _BLOCK
        while position < end:
            found = os.pread(self._descriptor, min(size, end - position), position)
            if found != _ZEROS[: len(found)]:
                return False
            position, size = self._next_data(position + (len(found) or end), end), len(_ZEROS)
        return True

    def _next_data(self, position: int, end: int) -> int:
        """The next position, from `position` on, where the file may hold something other than zeros; else `end`."""
        try:
            return os.lseek(self._descriptor, position, os.SEEK_DATA)
        except OSError as error:
            return end if error.errno == errno.ENXIO else position

    def allocate(self, start: int, end: int) -> None:
        """Makes the file at least `end` long, with zeros. Raises OSError."""
        os.posix_fallocate(self._descriptor, start, end - start)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        os.fdatasync(self._descriptor)


def _behind(buffers: list[memoryview], written: int) -> list[memoryview]:
    for index, buffer in enumerate(buffers):
        if written < len(buffer):
            return [buffer[written:], *buffers[index + 1 :]]
        written -= len(buffer)
    return []


def sync_folder(path: Path) -> None:
    """Makes the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path, *, durable: bool) -> None:
    """Creates a folder that only its owner may enter, and its missing parents. Raises OSError.

    Without a sync of its parent, a power cut removes the folder's name, and with it everything durable below. An
    earlier process may have died before that sync, so it is also done for a folder that already exists.
    """
    new = [folder for folder in path.parents if not folder.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if durable:
        for folder in (path, *new):
            with suppress(PermissionError):  # we did not create a folder that we may not read
                sync_folder(folder.parent)


def write_aside(path: Path, content: bytes, *, durable: bool) -> Path:
    """Writes a file with this content beside `path`, to replace it later. Raises OSError after removing the file."""
    temporary = path.with_name(path.name + ".new")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
    return temporary


def replace_file(path: Path, content: bytes, *, durable: bool) -> None:
    """Replaces the file's content: after a crash the file has the old content or the new one."""
    write_aside(path, content, durable=durable).replace(path)
    if durable:
        sync_folder(path.parent)
