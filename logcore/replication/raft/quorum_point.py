"""Up to which entry the metadata log was safe, noted beside it: one that ends earlier, at a whole frame, was shortened.

    quorum-durable    rows of 12 bytes: an index, and its checksum; the last whole row counts

A row is written after each sync of the log, and is not synced itself. Whatever it says was true once, and stays true
until the log is cut. Before a cut a lower one is written, durably. A killed process leaves the file exact. After a
power cut it may be older, or torn: then less is known, and the marks in the log say what was safe.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Final

from crc32c import crc32c

from ..ports import File, Folder

_NAME: Final = "quorum-durable"
_INDEX: Final = struct.Struct(">Q")
_CHECKSUM: Final = struct.Struct(">I")
_ROW: Final = _INDEX.size + _CHECKSUM.size
_SIZE_MAX: Final = 1_000 * _ROW


class QuorumPoint:
    """State: `index`, up to which the log was safe as far as is known; 0 where nothing is."""

    def __init__(self, folder: Folder) -> None:
        """Reads, and writes nothing. Raises OSError."""
        self._folder = folder
        self._file = folder.get(_NAME)
        self.index = 0 if self._file is None else _last_index(self._file.read())

    def note(self, index: int) -> None:
        """The log is safe up to this entry. Where the disk has no room for the row, the one before stays true."""
        if index > self.index:
            with suppress(OSError):
                self._write(index)

    def lower(self, index: int) -> None:
        """What is behind this entry is about to be cut off. Raises OSError."""
        if index < self.index:
            self._write(index).sync()
            self._folder.sync_folder()

    def forget(self) -> None:
        """Nothing that is written from now on is safe from the end of the machine. Raises OSError."""
        if self._file is not None:
            self._folder.remove(_NAME)
        self._file, self.index = None, 0

    def _write(self, index: int) -> File:
        """Behind the rows that are there, or as the first of a new file: at any time there is one to be believed."""
        file = self._file
        if file is None or file.size % _ROW or file.size >= _SIZE_MAX:
            file = self._folder.create(_NAME + ".tmp")
            file.append(_row(index))
            self._folder.rename(_NAME + ".tmp", _NAME)
            self._file = file
        else:
            file.append(_row(index))
        self.index = index
        return file


def _row(index: int) -> bytes:
    packed = _INDEX.pack(index)
    return packed + _CHECKSUM.pack(crc32c(packed))


def _last_index(content: bytes) -> int:
    for start in range(len(content) // _ROW * _ROW - _ROW, -1, -_ROW):
        packed, checksum = content[start : start + _INDEX.size], content[start + _INDEX.size : start + _ROW]
        if _CHECKSUM.pack(crc32c(packed)) == checksum:
            return int(_INDEX.unpack(packed)[0])
    return 0
