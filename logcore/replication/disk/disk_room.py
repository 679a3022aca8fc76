"""Tracks which replicas of a node have no space on the disk. It logs one warning when the disk fills up, not one each.

They recover by themselves when there is space: followers keep fetching until the records fit, and checkpoints are
retried. A leader is known to have space again when a producer writes to it successfully.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

import structlog

from ...errors import WAYS_OUT, LogFull

_HINT: Final = (
    "Free disk space, delete records or topics that are no longer needed, or move replicas to other nodes"
    " (`millstream cluster reassign`); it goes on by itself when there is room."
)
_HINT_ALONE: Final = (
    "Free disk space, or delete records or topics that are no longer needed; it goes on by itself when there is room."
)
_WHAT: Final = "the disk is full: replicas of this node take no records, followers among them do not stay in sync"
_WHAT_ALONE: Final = "the disk is full: records of some partitions are refused"
_log = structlog.get_logger("millstream.logcore")


class DiskRoom:
    """State, by folder: the names of logs whose records were refused, and how many bytes each must store until it
    counts as having space (small batches may fit where large ones do not); the names of logs whose checkpoints were
    refused; and the last error about records. Any thread may call any method."""

    def __init__(self, *, alone: bool = False) -> None:
        """In: `alone`: there is no other node to move replicas to."""
        self._hint, self._what = (_HINT_ALONE, _WHAT_ALONE) if alone else (_HINT, _WHAT)
        self._records: dict[Path, str] = {}
        self._missing: dict[Path, int] = {}
        self._checkpoints: dict[Path, str] = {}
        self._why = ""
        self._lock = threading.Lock()

    def records_refused(self, folder: Path, name: str, size: int, why: str) -> None:
        """In: `size`: in bytes."""
        with self._lock:
            first = not self._records
            self._records[folder] = name
            self._missing[folder] = size
            self._why = why
        if first:
            _log.warning(
                self._what,
                folder=str(folder),
                partition=name,
                error=why,
                hint=self._hint,
            )

    def records_taken(self, folder: Path, size: int) -> None:
        if not self._records or folder not in self._records:  # nearly always the first test; hashing a path is slow
            return
        with self._lock:
            left = self._missing[folder] = self._missing.get(folder, 0) - size
        if left <= 0:
            self._records_fit(folder)

    def _records_fit(self, folder: Path) -> None:
        self._missing.pop(folder, None)
        if folder in self._records:
            self._leave(self._records, folder, "the disk is not too full for any replica's records any more")

    def checkpoint_refused(self, folder: Path, name: str, why: str) -> None:
        with self._lock:
            first = not self._checkpoints
            self._checkpoints[folder] = name
        if first:
            _log.warning(
                "the disk is full: a checkpoint was not written, which makes the next start slower, and no more;"
                " it is tried again",
                folder=str(folder),
                partition=name,
                error=why,
                hint=self._hint,
            )

    def checkpoint_written(self, folder: Path) -> None:
        if folder in self._checkpoints:
            self._leave(self._checkpoints, folder, "the disk is not too full for any checkpoint any more")

    def forget(self, folder: Path) -> None:
        """The log was deleted or closed."""
        self._records_fit(folder)
        self.checkpoint_written(folder)

    @property
    def without(self) -> int:
        """How many replicas refuse records for lack of space."""
        return len(self._records)

    def refusal(self) -> LogFull | None:
        """The last error about records that did not fit; None if all logs have space again."""
        return LogFull(self._why, hint=WAYS_OUT[LogFull]) if self._records else None

    def problems(self) -> list[str]:
        """One line for each log whose records do not fit."""
        with self._lock:
            return [f"{name} takes no records: the disk has no room" for name in self._records.values()]

    def _leave(self, refused: dict[Path, str], folder: Path, what: str) -> None:
        with self._lock:
            left = refused.pop(folder, None) is not None and not refused
        if left:
            _log.info(what, folder=str(folder.parent))
