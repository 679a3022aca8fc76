"""Up to where a replica's log is durable: a small file beside it, which makes damage differ from a torn end.

It is written after each sync and not synced itself: whatever is found in it was true once, and is true until the log is
cut. Before that it is lowered, durably. It is not kept open: there is one for each of many logs.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Final

from crc32c import crc32c

POINT: Final = "durable"
_CONTENT: Final = struct.Struct(">qI")  # the offset, and the CRC32C of its eight bytes


class DurablePoint:
    """Of the log in one folder. State: `reserved`: the disk has room for it."""

    def __init__(self, folder: Path) -> None:
        self._path = f"{folder}/{POINT}"
        self.reserved = False

    def read(self) -> int:
        """The offset; 0 where nothing is known, or nothing that can be believed. Raises OSError."""
        try:
            with open(self._path, "rb", buffering=0) as file:
                content = file.read()
        except FileNotFoundError:
            return 0
        if len(content) != _CONTENT.size:
            return 0
        self.reserved = True
        offset, checksum = _CONTENT.unpack(content)
        return offset if checksum == crc32c(content[:8]) else 0

    def reserve(self) -> None:
        """Takes the room that a note needs, so that a full disk refuses it here, and no sync. Raises OSError."""
        if not self.reserved:
            self.note(0)

    def note(self, offset: int, *, durably: bool = False) -> None:
        """Raises OSError."""
        content = struct.pack(">q", offset)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(descriptor, content + struct.pack(">I", crc32c(content)), 0)
            if durably:
                os.fdatasync(descriptor)
            self.reserved = True
        finally:
            os.close(descriptor)
