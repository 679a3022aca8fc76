"""Records, in a file of its own, up to which entry the metadata log was durable. It detects a log that was shortened at
the end of a whole frame.

    quorum-durable    rows of 12 bytes: an index, and its checksum; the last whole row counts

A row is written after each sync of the log, and is not synced itself. Each row was true when it was written, and stays
true until the log is truncated. Before a truncation a lower row is written and synced. A killed process leaves the file
exact. After a power cut the file may be older, or torn: then it shows less, and the marks in the log show what was
durable.
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
    """State: `index`, up to which the log is known to have been durable; 0 if unknown."""

    def __init__(self, folder: Folder) -> None:
        """Reads the file and writes nothing. Raises OSError."""
        self._folder = folder
        self._file = folder.get(_NAME)
        self.index = 0 if self._file is None else _last_index(self._file.read())

    def note(self, index: int) -> None:
        """Records that the log is durable up to this entry. If the disk has no space for the row, the previous row is
        still true."""
        if index > self.index:
            with suppress(OSError):
                self._write(index)

    def lower(self, index: int) -> None:
        """Call it before the entries after this one are truncated. Raises OSError."""
        if index < self.index:
            self._write(index).sync()
            self._folder.sync_folder()

    def forget(self) -> None:
        """Removes the file: from now on, writes may not survive a crash of the machine. Raises OSError."""
        if self._file is not None:
            self._folder.remove(_NAME)
        self._file, self.index = None, 0

    def _write(self, index: int) -> File:
        """Appends the row, or writes it as the first row of a new file, so that a valid row exists at any time."""
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
