"""The checkpoint of a replica's log on the disk, and where the log begins while there is no room for a newer one.

A checkpoint makes a start quick, and lets segments go that no start has to read any more. A full disk may refuse it:
then the one that is there stays, which is as true as before, and where the log begins is said by the name of an empty
file, for which there is room in a folder on any disk. Segments behind the beginning of the one that the checkpoint
names stay until a newer one is written: what producers did in them is nowhere else.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final, NamedTuple

from ...errors import FULL
from ...failpoints import fp
from ...storage.checked_json import checked_json
from ...storage.disk import sync_folder, write_aside
from ...storage.recovery import CHECKPOINT, Checkpoint, checkpoint_content, read_checkpoint
from ...storage.start_mark import StartMark
from .disk_room import DiskRoom

EARLIER: Final = "checkpoint-before.json"
_TRY_AGAIN_S: Final = 5.0


class Noted(NamedTuple):
    """A checkpoint as it was at one moment: its content, and what it says of the log."""

    content: bytes
    log_start_offset: int
    segment: int

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Noted:
        content = checked_json(checkpoint_content(checkpoint))
        return cls(content, checkpoint.log_start_offset, checkpoint.segment)


class ReplicaCheckpoint:
    """State: `start_offset`, where the log begins for certain after a crash; `segment`, from whose base offset on a
    start needs segments (0: all of them); whether there is a checkpoint at all, and when to try again after the disk
    had no room for one."""

    def __init__(self, folder: Path, room: DiskRoom, segment: int, start_offset: int, *, durable: bool = True) -> None:
        """In: what a recovery has found; `durable`: whether it waits for the disk."""
        self._durable = durable
        self.segment = segment
        self.start_offset = start_offset
        self.exists = (folder / CHECKPOINT).exists()
        self._folder = folder
        self._room = room
        self._mark = StartMark(folder, start_offset)
        self._again_s: float | None = None

    @property
    def owed(self) -> bool:
        """The disk had no room for one."""
        return self._again_s is not None

    @property
    def rests(self) -> bool:
        """It had not a moment ago, so it is not tried now."""
        return self._again_s is not None and time.monotonic() < self._again_s

    def hurry(self) -> None:
        """There may be room now."""
        if self._again_s is not None:
            self._again_s = 0.0

    def sync_names(self) -> None:
        """Makes durable that the segments are there, and the log itself. Raises OSError."""
        self._sync_folder()
        if not self.exists and self._durable:
            sync_folder(self._folder.parent)

    def _sync_folder(self) -> None:
        if self._durable:
            sync_folder(self._folder)

    def try_to_replace(self, noted: Noted, name: str) -> bool:
        """Durable on return. False where the disk has no room for it: then only the log's start is.

        In: what it names is durable, and so are the names; `name`: of the log, for people. Raises OSError.
        """
        moved = noted.log_start_offset > self.start_offset
        keep = not moved and self._mark.offset is None
        try:
            self._put(noted, keep=keep)
        except OSError as error:
            if error.errno not in FULL:
                raise
            self._room.checkpoint_refused(self._folder, name, error.strerror or str(error))
            self._again_s = time.monotonic() + _TRY_AGAIN_S
            if moved:
                self._mark_start(noted.log_start_offset)
            return False
        self._settle(noted, keep=keep)
        return True

    def replace(self, noted: Noted, older: Checkpoint | None = None) -> None:
        """Durable on return; nothing is left of the one before. Raises OSError.

        In: `older`: one that is on the disk, and true, too: it is the newest from now on where there is no room.
        """
        self.sync_names()
        try:
            self._put(noted, keep=False)
        except OSError as error:
            if error.errno not in FULL or older is None or not self._says_start(older):
                raise
            self._go_back_to(older)
            return
        self._settle(noted, keep=False)

    def _says_start(self, checkpoint: Checkpoint) -> bool:
        return self._mark.offset is not None or checkpoint.log_start_offset >= self.start_offset

    def _go_back_to(self, older: Checkpoint) -> None:
        path = self._folder / CHECKPOINT
        newest = read_checkpoint(self._folder)
        if newest is None or newest.state.end_offset > older.state.end_offset:
            (self._folder / EARLIER).replace(path)
        self._sync_folder()
        self.segment, self._again_s = older.segment, time.monotonic() + _TRY_AGAIN_S

    def _put(self, noted: Noted, *, keep: bool) -> None:
        """In: `keep`: the one before, as long as it is true: a truncation may need it, or a start that finds this one
        damaged. Raises OSError; then the one before counts."""
        fp("replica.before_checkpoint")
        path, earlier = self._folder / CHECKPOINT, self._folder / EARLIER
        aside = write_aside(path, noted.content, durable=self._durable)
        if keep and path.exists():
            path.replace(earlier)
        aside.replace(path)

    def _settle(self, noted: Noted, *, keep: bool) -> None:
        self._sync_folder()
        if not keep:
            (self._folder / EARLIER).unlink(missing_ok=True)
            self._mark.remove()
            self._sync_folder()
        self.exists, self._again_s = True, None
        self.start_offset, self.segment = noted.log_start_offset, noted.segment
        self._room.checkpoint_written(self._folder)

    def _mark_start(self, offset: int) -> None:
        self._mark.move(offset, durable=self._durable)
        self.start_offset = offset
        if (self._folder / CHECKPOINT).exists():
            (self._folder / EARLIER).unlink(missing_ok=True)  # it may name a segment that goes now
