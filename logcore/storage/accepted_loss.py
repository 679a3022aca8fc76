"""Accepts that records of a topic are lost, while the log is closed. After that the topic is usable without them.

Reading lost records is an error and stops the reader, until an operator decides to continue without them. Then empty
batches take their offsets, as after compaction. The damaged files are kept beside the new ones.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from ..compaction.cleaned_segment import CleanedSegment
from ..compaction.segment_swap import swap
from ..records.batch import EncodedBatch
from .damage import DamagedRange, next_batch
from .durable_point import DurablePoint
from .open_files import OpenFiles
from .partition_state import scan
from .recovery import CHECKPOINT, Checkpoint, RecoveredPartition, recover, write_checkpoint
from .segment import Segment

_ASIDE: Final = ".damaged-at-"


def give_up(folder: Path, stale: Sequence[str] = ()) -> list[tuple[int, int]]:
    """Gives up the lost records of the partition in this folder. Returns the ranges of their offsets, each as first
    offset and end offset. In: `stale`: files, besides the checkpoint, that describe the damaged files and are deleted.
    Raises `CorruptLog` if nothing usable is left; OSError."""
    return _Mending(folder, (CHECKPOINT, *stale)).run()


def _now_ms() -> int:
    return int(time.time() * 1000)


class _Mending:
    """Repairs one partition. State: what a recovery found, and the ranges of offsets given up so far."""

    def __init__(self, folder: Path, stale: Sequence[str]) -> None:
        self._folder = folder
        self._stale = stale
        self._files = OpenFiles(8)
        self._point = DurablePoint(folder)
        self._found = self._recovered()
        self._given_up: list[tuple[int, int]] = []

    def run(self) -> list[tuple[int, int]]:
        found, lost = self._found, [each for each in self._found.damage if not each.is_empty]
        end_offset, start = found.state.end_offset, found.log_start_offset
        bounds = [*(segment.base_offset for segment in found.segments), end_offset]
        damaged = [
            (segment, end)
            for segment, (_, end) in zip(found.segments, pairwise(bounds), strict=True)
            if lost or not _is_whole(segment, end)
        ]
        if not damaged and start >= bounds[0]:
            return []
        self._point.note(end_offset, start, end_offset, durably=True)
        for name in self._stale:  # positions in checkpoints refer to the damaged files
            (self._folder / name).unlink(missing_ok=True)
        if start < bounds[0]:
            self._put(start, (), bounds[0])
        for segment, end in damaged:
            aside = segment.path.with_name(f"{segment.path.name}{_ASIDE}{segment.base_offset}")
            with contextlib.suppress(FileExistsError):
                os.link(segment.path, aside)
            self._put(segment.base_offset, _kept(segment, end, lost), end)
        mended = self._recovered()
        write_checkpoint(self._folder, _checkpoint(mended), durable=True)
        return self._given_up

    def _recovered(self) -> RecoveredPartition:
        return recover(self._folder, self._files, _now_ms(), durable=True, known=self._point.read())

    def _put(self, base_offset: int, batches: Sequence[EncodedBatch] | Iterator[EncodedBatch], end: int) -> None:
        """Puts a new segment in place, with these batches and empty ones for all missing offsets up to `end`."""
        new = CleanedSegment(self._folder, base_offset, self._found.state.epochs)
        next_offset = base_offset
        for batch in batches:
            self._note_gap(next_offset, batch.header.base_offset)
            new.add(batch)
            next_offset = batch.header.last_offset + 1
        self._note_gap(next_offset, end)
        new.finish(end, _now_ms(), durable=True)
        swap(self._folder, [base_offset], durable=True)

    def _note_gap(self, first_offset: int, end_offset: int) -> None:
        if first_offset < end_offset:
            self._given_up.append((first_offset, end_offset))


def _is_whole(segment: Segment, end_offset: int) -> bool:
    offset, position = segment.base_offset, 0
    for scanned in scan(segment.file, 0, segment.size):
        if scanned.header.base_offset != offset:
            return False
        offset, position = scanned.header.last_offset + 1, scanned.position + scanned.header.size
    return offset == end_offset and (position == segment.size or segment.file.is_unwritten(position, segment.size))


def _kept(segment: Segment, end_offset: int, lost: Sequence[DamagedRange]) -> Iterator[EncodedBatch]:
    """The intact batches, in order, without those of transactions whose end is lost."""
    offset, position = segment.base_offset, 0
    while position < segment.size:
        for scanned in scan(segment.file, position, segment.size):
            header = scanned.header
            if header.base_offset < offset or header.last_offset >= end_offset:
                break
            position, offset = scanned.position + header.size, header.last_offset + 1
            undecided = header.transactional and not header.control
            if not (undecided and any(each.first_offset <= header.base_offset < each.end_offset for each in lost)):
                yield EncodedBatch([bytearray(scanned.batch)], header)
        found = next_batch(segment.file, position + 1, segment.size, offset)
        if found is None:
            return
        position = found.position


def _checkpoint(mended: RecoveredPartition) -> Checkpoint:
    last = mended.segments[-1]
    state = mended.state
    state.producers.complete = False  # the producers of the lost batches are unknown
    return Checkpoint(mended.log_start_offset, last.base_offset, last.size, True, state, began_ms=mended.began_ms)
