"""Partitions of files and checkpoints that a test writes by itself, and what a recovery makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from millstream.logcore.compaction.cleaning_state import CleaningState
from millstream.logcore.records.batch import EncodedBatch
from millstream.logcore.storage.damage import DamagedRange
from millstream.logcore.storage.durable_point import NOTHING_KNOWN, Extent
from millstream.logcore.storage.open_files import OpenFiles
from millstream.logcore.storage.partition_state import LogState
from millstream.logcore.storage.recovery import (
    Checkpoint,
    RecoveredPartition,
    recover,
    write_checkpoint,
)

from .batches import bytes_of

NOW_MS = 1_000_000


def recovered(folder: Path, known: Extent = NOTHING_KNOWN, *, durable: bool = False) -> RecoveredPartition:
    return recover(folder, OpenFiles(8), NOW_MS, durable=durable, known=known)


def files_of(found: RecoveredPartition) -> list[tuple[int, int]]:
    """Base offset and size of each segment."""
    return [(segment.base_offset, segment.size) for segment in found.segments]


def lost(found: RecoveredPartition) -> list[tuple[int, int]]:
    return [(each.first_offset, each.end_offset) for each in found.damage]


def extent(found: RecoveredPartition) -> tuple[int, int]:
    return found.log_start_offset, found.state.end_offset


def state_after(*batches: EncodedBatch, beginning_at: int = 0) -> LogState:
    state = LogState.beginning_at(beginning_at)
    for each in batches:
        state.note(each.header, lambda each=each: memoryview(bytes_of(each)), NOW_MS - 1)
    return state


def note_checkpoint(
    folder: Path,
    state: LogState,
    segment: int,
    position: int,
    *,
    start: int = 0,
    synced: bool = True,
    began_ms: int | None = None,
    known_lost: Sequence[DamagedRange] = (),
) -> None:
    checkpoint = Checkpoint(start, segment, position, synced, state, CleaningState(7), began_ms, known_lost)
    write_checkpoint(folder, checkpoint, durable=False)


def damage_at(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
