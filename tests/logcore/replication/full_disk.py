"""A disk that is full when a test says so."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Any

import pytest

from millstream.logcore.records.batch import Buffer
from millstream.logcore.replication.disk import disk_checkpoint
from millstream.logcore.storage import disk
from millstream.logcore.storage.disk import LogFile


class FullDisk:
    """While it is full no file gets a byte more; names can be made, changed and removed, and bytes be overwritten."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.full = False
        write, pwrite, allocate = LogFile.write, os.pwrite, os.posix_fallocate
        aside = disk.write_aside

        def write_within(file: LogFile, buffers: Sequence[Buffer], position: int) -> int:
            if position + sum(map(len, buffers)) > file.size():
                self.room()
            return write(file, buffers, position)

        def pwrite_within(descriptor: int, content: bytes, position: int) -> int:
            if position + len(content) > os.fstat(descriptor).st_size:
                self.room()
            return pwrite(descriptor, content, position)

        patch.setattr(LogFile, "write", write_within)
        patch.setattr(os, "pwrite", pwrite_within)
        for module in (disk, disk_checkpoint):
            patch.setattr(module, "write_aside", lambda *given, **more: self.room() or aside(*given, **more))
        patch.setattr(os, "posix_fallocate", lambda *given: self.room() or allocate(*given))
        patch.setattr(disk_checkpoint, "_TRY_AGAIN_S", 0.0)

    def room(self) -> Any:
        """Raises OSError where there is none."""
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
