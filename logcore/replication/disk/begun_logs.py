"""A list, beside the folders, of the partitions of a node that is alone and that have a folder.

Such a node opens a log when it is first requested. So a missing folder means that the log was never created, or that
somebody removed it and its records are lost. The list tells these cases apart. A name is added once its folder is
durable, without a sync: a killed process leaves the list exact. After a power cut names may be missing from it; then
the removal of their folders goes unnoticed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ...storage.disk import replace_file
from ..replica.replica_messages import PartitionId

_NAME: Final = "begun"
_LINE: Final = re.compile(r"(.+)-(\d+)")


class BegunLogs:
    """State: the partitions in the list, and whether some were removed since the list was last written as a whole."""

    def __init__(self, folder: Path, *, durable: bool) -> None:
        """In: `folder`: the folder of all logs; `durable`: whether a new list waits for the disk. Raises OSError."""
        self._path = folder / _NAME
        self._durable = durable
        self._size = 0  # of the complete lines; a torn line would corrupt the next name
        self._known: dict[PartitionId, None] = dict.fromkeys(self._read())
        self._removed = False

    def _read(self) -> list[PartitionId]:
        """Skips torn and damaged lines."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return []
        self._size = content.rfind(b"\n") + 1
        found = map(_LINE.fullmatch, content[: self._size].decode("utf-8", errors="replace").split("\n"))
        return [PartitionId(line[1], int(line[2])) for line in found if line is not None]

    def __contains__(self, partition: PartitionId) -> bool:
        return partition in self._known

    def note(self, partitions: Iterable[PartitionId]) -> None:
        """Adds partitions whose folders are durable. If the disk has no space, the next call tries again."""
        new = [each for each in partitions if each not in self._known]
        if not new:
            return
        lines = "".join(map(_line, new)).encode()
        with contextlib.suppress(OSError):
            with self._path.open("ab") as file:
                file.truncate(self._size)
                file.write(lines)
            self._size += len(lines)
            self._known.update(dict.fromkeys(new))

    def forget(self, partition: PartitionId) -> None:
        """Removes a partition whose folder is about to be deleted."""
        if partition in self._known:
            del self._known[partition]
            self._removed = True

    def close(self) -> None:
        """Rewrites the list without removed partitions. If the disk has no space, their lines stay, which is harmless:
        they are never requested again."""
        if self._removed:
            with contextlib.suppress(OSError):
                replace_file(self._path, "".join(map(_line, self._known)).encode(), durable=self._durable)


def _line(partition: PartitionId) -> str:
    return f"{partition.topic}-{partition.number}\n"
