"""The checkpoint of a single node's partition, and where the log begins while the disk has no room for a newer one."""

from __future__ import annotations

from pathlib import Path

from .disk import LogFile
from .recovery import CHECKPOINT, Checkpoint, write_checkpoint
from .start_mark import StartMark


class PartitionCheckpoint:
    """State: `segment`, from whose base offset on a start needs segments: what producers did in them is nowhere else
    (0: all of them)."""

    def __init__(self, folder: Path, segment: int, start_offset: int) -> None:
        """In: what a recovery has found."""
        self.segment = segment
        self._folder = folder
        self._mark = StartMark(folder, start_offset)

    def replace(self, checkpoint: Checkpoint, *, durable: bool) -> None:
        """Raises OSError; then the one before counts."""
        write_checkpoint(self._folder, checkpoint, durable=durable)
        self.segment = checkpoint.segment
        if durable:
            self._mark.remove()

    def mark_start(self, offset: int, *, durable: bool) -> None:
        """The log begins here from now on, and the segments below `segment` are not needed. Raises OSError."""
        if durable and self.segment:
            LogFile(self._folder / CHECKPOINT).sync()  # it may have been written in passing
        self._mark.move(offset, durable=durable)
