"""Small disks of their own for nodes, in memory, so that they can run full. Needs the namespaces of `network`."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from .network import run

_CHUNK: Final = 1 << 20


class SmallDisk:
    """A file system of `mebibytes` at `folder`. What is written outlives the process that wrote it."""

    def __init__(self, folder: Path, mebibytes: int) -> None:
        folder.mkdir(parents=True)
        run("mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "none", str(folder))
        self.data = folder / "data"
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Not a byte is left."""
        file = os.open(self._filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        size = _CHUNK
        try:
            while size:
                try:
                    os.write(file, bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    size //= 2
        finally:
            os.close(file)

    def free(self) -> None:
        with suppress(FileNotFoundError):
            self._filler.unlink()
