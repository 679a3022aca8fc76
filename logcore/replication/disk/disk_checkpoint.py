"""The checkpoint of a replica's log on the disk, and the log's start while there is no space for a newer checkpoint.

A checkpoint makes the next start fast, and allows removing segments that no start has to read. A full disk may refuse
it. Then the existing checkpoint stays, and is still true; the name of an empty file records the start of the log,
because a folder has space for that on any disk. Segments from the one that the checkpoint names on stay until a newer
checkpoint is written: the state of producers in them is stored nowhere else.
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
    """The encoded checkpoint, and the offsets in it."""

    content: bytes
    log_start_offset: int
    segment: int

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Noted:
        content = checked_json(checkpoint_content(checkpoint))
        return cls(content, checkpoint.log_start_offset, checkpoint.segment)


class ReplicaCheckpoint:
    """State: `start_offset`: the start of the log that would survive a crash; `segment`: the base offset from which on
    a start needs the segments (0: all of them); whether a checkpoint exists, and when to try again after the disk had
    no space for one."""

    def __init__(self, folder: Path, room: DiskRoom, segment: int, start_offset: int, *, durable: bool = True) -> None:
        """In: `segment`, `start_offset`: what recovery has found; `durable`: whether to wait for the disk."""
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
        """Whether the disk had no space for the last checkpoint."""
        return self._again_s is not None

    @property
    def rests(self) -> bool:
        """Whether that was a moment ago, so that it should not be tried now."""
        return self._again_s is not None and time.monotonic() < self._again_s

    def hurry(self) -> None:
        """There may be space now: the next sync tries again."""
        if self._again_s is not None:
            self._again_s = 0.0

    def sync_names(self) -> None:
        """Makes the names of the segments durable, and that of the log's folder. Raises OSError."""
        self._sync_folder()
        if not self.exists and self._durable:
            sync_folder(self._folder.parent)

    def _sync_folder(self) -> None:
        if self._durable:
            sync_folder(self._folder)

    def try_to_replace(self, noted: Noted, name: str) -> bool:
        """Writes the checkpoint; it is durable on return. False if the disk has no space: then only the log's start is.

        In: what the checkpoint names is durable, and so are the file names; `name`: of the log, for log lines. Raises
        OSError.
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
        """Writes the checkpoint, which is durable on return, and removes the previous one. Raises OSError.

        In: `older`: an older checkpoint on the disk that is also true. If there is no space, it becomes the newest.
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
        """In: `keep`: whether to keep the previous checkpoint, if it is still true: a truncation may need it, or a
        start that finds the new one damaged. Raises OSError; then the previous one is valid."""
        fp("replica.before_checkpoint")
        path, earlier = self._folder / CHECKPOINT, self._folder / EARLIER
        aside = write_aside(path, noted.content, durable=self._durable)
        if keep and path.exists():
            path.replace(earlier)
        aside.replace(path)

    def _settle(self, noted: Noted, *, keep: bool) -> None:
        self._sync_folder()
        if not keep:
            self._remove_what_it_replaces()
        self.exists, self._again_s = True, None
        self.start_offset, self.segment = noted.log_start_offset, noted.segment
        self._room.checkpoint_written(self._folder)

    def _remove_what_it_replaces(self) -> None:
        earlier = self._folder / EARLIER
        if self._mark.offset is not None or earlier.exists():
            earlier.unlink(missing_ok=True)
            self._mark.remove()
            self._sync_folder()

    def _mark_start(self, offset: int) -> None:
        self._mark.move(offset, durable=self._durable)
        self.start_offset = offset
        if (self._folder / CHECKPOINT).exists():
            (self._folder / EARLIER).unlink(missing_ok=True)  # it may name a segment that is removed now
