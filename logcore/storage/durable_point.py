"""Records how far a log is durable, in a small file beside it. The file tells lost records from a torn end.

The file is written after each sync and is not synced itself. What it says was true when it was written, and stays true
until the log is truncated. Before a truncation it is lowered, durably. A killed process leaves it exact. After a power
cut it may be old or torn: then less is known. It also records where the log begins, because without it a lost
checkpoint would bring deleted records back. Each of many logs has such a file, so `OpenFiles` may close it.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final, NamedTuple

from crc32c import crc32c

from .disk import LogFile
from .open_files import OpenFiles

POINT: Final = "durable"
_OFFSETS: Final = struct.Struct(">qqq")
_CHECKSUM: Final = struct.Struct(">I")
_SIZE: Final = _OFFSETS.size + _CHECKSUM.size
_EARLIER_SIZE: Final = 12  # earlier versions wrote only the end offset and its checksum


class Extent(NamedTuple):
    """What is known about a log: it was durable at least up to `end_offset`, and began at `start_offset` or later (-1:
    unknown). Readers have seen offsets below `seen_offset`: markers of decided transactions are visible before they are
    durable, because a recovery writes them again."""

    end_offset: int = 0
    start_offset: int = -1
    seen_offset: int = 0


NOTHING_KNOWN: Final = Extent()


class DurablePoint:
    """The file `durable` of the log in one folder. State: `reserved`: the disk has space for the file; its content, if
    known; the open file, if any."""

    def __init__(self, folder: Path, files: OpenFiles | None = None) -> None:
        """In: `files`: keeps the file open between notes; without it each note opens it."""
        self._path = f"{folder}/{POINT}"
        self._files = files
        self._file: LogFile | None = None
        self._said = NOTHING_KNOWN
        self.reserved = False

    @property
    def noted_end_offset(self) -> int:
        """Up to where the file says that the log is durable."""
        return self._said.end_offset

    def read(self) -> Extent:
        """The content; `NOTHING_KNOWN` if the file is missing or damaged. Raises OSError."""
        try:
            with open(self._path, "rb", buffering=0) as file:
                content = file.read(_SIZE + 1)
        except FileNotFoundError:
            return NOTHING_KNOWN
        if len(content) not in (_SIZE, _EARLIER_SIZE):
            return NOTHING_KNOWN
        self.reserved = True
        offsets, checksum = content[: -_CHECKSUM.size], content[-_CHECKSUM.size :]
        if _CHECKSUM.unpack(checksum)[0] != crc32c(offsets):
            return NOTHING_KNOWN
        self._said = Extent(*struct.unpack(f">{len(offsets) // 8}q", offsets))
        return self._said

    def reserve(self) -> None:
        """Takes the space of the file now, so that a full disk fails here and not at a sync. Raises OSError."""
        if not self.reserved:
            self.note(0)

    def note(self, end_offset: int, start_offset: int = -1, seen_offset: int = 0, *, durably: bool = False) -> None:
        """Raises OSError."""
        offsets = _OFFSETS.pack(end_offset, start_offset, seen_offset)
        file = self._file or LogFile(self._path, create=True)
        if self._files is not None:
            self._file = file
            self._files.used(self)
        file.overwrite(offsets + _CHECKSUM.pack(crc32c(offsets)))
        if durably:
            file.sync()
        self._said = Extent(end_offset, start_offset, seen_offset)
        self.reserved = True

    def note_synced(self, end_offset: int, start_offset: int) -> None:
        """Like `note`, with `seen_offset` unchanged. Raises OSError."""
        self.note(end_offset, start_offset, self._said.seen_offset)

    def note_seen(self, seen_offset: int) -> None:
        """Readers have seen the log up to here. Raises OSError."""
        end_offset, start_offset, seen_before = self._said
        if seen_offset > seen_before:
            self.note(end_offset, start_offset, seen_offset)

    def let_go(self) -> None:
        """Closes the file; the next note opens it again."""
        self._file = None
