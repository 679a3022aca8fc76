"""Up to where a log is durable: a small file beside it, which tells lost records from a torn end.

The file is written after each sync and is not synced itself. Whatever it says was true once, and stays true until the
log is cut. Before a cut it is lowered, durably. A killed process leaves it exact. After a power cut it may be older, or
torn: then less is known. It also says where the log begins, because a lost checkpoint would bring deleted records back.
There is one for each of many logs, so it is kept open only as long as `OpenFiles` has room for it.
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
_EARLIER_SIZE: Final = 12  # earlier versions wrote the end offset and its checksum


class Extent(NamedTuple):
    """What is known of a log: it was durable up to `end_offset` or further, and began at `start_offset` or later; -1
    where nobody noted that. Readers have seen offsets below `seen_offset`: the markers of decided transactions are seen
    before they are durable, because a recovery writes them again."""

    end_offset: int = 0
    start_offset: int = -1
    seen_offset: int = 0


NOTHING_KNOWN: Final = Extent()


class DurablePoint:
    """Of the log in one folder. State: `reserved`: the disk has room for it; what the file says, as far as is known;
    the file, while it is open."""

    def __init__(self, folder: Path, files: OpenFiles | None = None) -> None:
        """In: `files`: keeps the file open between notes; without it each note opens it."""
        self._path = f"{folder}/{POINT}"
        self._files = files
        self._file: LogFile | None = None
        self._said: tuple[int, int, int] = NOTHING_KNOWN
        self.reserved = False

    def read(self) -> Extent:
        """The default where nothing is known, or nothing that can be believed. Raises OSError."""
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
        found = self._said = Extent(*struct.unpack(f">{len(offsets) // 8}q", offsets))
        return found

    def reserve(self) -> None:
        """Takes the room that a note needs, so that a full disk refuses it here, and no sync. Raises OSError."""
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
        self._said = end_offset, start_offset, seen_offset
        self.reserved = True

    def note_synced(self, end_offset: int, start_offset: int) -> None:
        """The same; readers have seen what they had seen before. Raises OSError."""
        self.note(end_offset, start_offset, self._said[2])

    def note_seen(self, seen_offset: int) -> None:
        """Readers have seen the log up to here. Raises OSError."""
        end_offset, start_offset, seen_before = self._said
        if seen_offset > seen_before:
            self.note(end_offset, start_offset, seen_offset)

    def let_go(self) -> None:
        """Closes the file; the next note opens it again."""
        self._file = None
