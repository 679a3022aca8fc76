"""Opens a replica's log after any crash: finds the intact beginning of the log, and whether that is everything.

In a cluster a replica never continues after damage, because other replicas have the missing records at the same
offsets. So the log ends before the first batch that is not intact. If more was durable once, records are lost: the
unusable rest is kept in separate files, and the node must report the loss (R17). Otherwise the rest was never durable,
and was never acknowledged.

A node that is alone has the only copy. There the log continues after the lost records, so that none of their offsets is
used again, and the loss is recorded. If more than a torn write is cut off at its end, that is kept in a separate file
(`logcore/storage/recovery.py`). A loss can be derived from the files alone, which stay unchanged, so a crash before it
is recorded does not hide it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from ...compaction.cleaning_state import CleaningState
from ...compaction.segment_swap import finish_swap
from ...errors import CorruptLog
from ...records.batch import BatchHeader
from ...storage.damage import DamagedRange, next_batch
from ...storage.disk import LogFile, sync_folder
from ...storage.durable_point import DurablePoint, Extent
from ...storage.epoch_cache import EpochCache
from ...storage.open_files import OpenFiles
from ...storage.partition_state import LogState, scan
from ...storage.recovery import (
    CHECKPOINT,
    Checkpoint,
    RecoveredPartition,
    create_segment,
    read_checkpoint,
    recover_from,
)
from ...storage.segment import Segment, file_name, offsets_of
from ...storage.start_mark import drop_marks, marked_start
from .disk_checkpoint import EARLIER

RESCAN: Final = "rescan"  # a file of this name exists if damage was found: then recovery ignores the checkpoint
_ASIDE: Final = ".dropped"
_COPY_BYTES: Final = 4 * 1024 * 1024
_log = structlog.get_logger("millstream.logcore")


class _Place(NamedTuple):
    segment: Segment
    position: int


@dataclass(frozen=True, slots=True)
class RecoveredReplica:
    """Invariant: everything in `recovered` is durable, if `durable` was requested. `clean`: nothing is missing that
    was durable once."""

    recovered: RecoveredPartition
    clean: bool


def begin_log(folder: Path, files: OpenFiles) -> None:
    """Creates a folder with an empty log. Nothing of it is durable before the first sync. Raises OSError."""
    folder.mkdir()
    create_segment(folder, 0, files, durable=False)


def recover_replica(
    folder: Path, files: OpenFiles, now_ms: int, point: DurablePoint, *, durable: bool = True, alone: bool = False
) -> RecoveredReplica:
    """In: `durable`: whether to make the recovered log durable; `alone`: no other node has a copy. Raises OSError;
    `CorruptLog` if a node of a cluster finds a log that lacks records since the node was alone."""
    names = os.listdir(folder)
    if finish_swap(folder, names, durable=durable):
        names = os.listdir(folder)
    return _Recovery(folder, files, now_ms, names, point.read(), durable=durable).run(alone=alone)


def written_size(folder: Path) -> dict[str, int]:
    """How far the last segment of a log that is not open is written, by its name; nothing where it is as long as its
    file. Raises OSError."""
    names = offsets_of(os.listdir(folder))
    if not names:
        return {}
    known, name = _newest_checkpoint(folder), file_name(names[-1])
    end = known.position if known is not None and known.segment == names[-1] else 0
    file = LogFile(folder / name, writable=False)
    size = file.size()
    for batch in scan(file, end, size):
        end = batch.position + batch.header.size
    return {name: end} if end < size and file.is_unwritten(end, size) else {}


class _Recovery:
    """State: the log as read up to `_state.end_offset`. Everything up to `_durable_offset` was durable once."""

    def __init__(
        self, folder: Path, files: OpenFiles, now_ms: int, names: list[str], noted: Extent, *, durable: bool
    ) -> None:
        self._folder = folder
        self._durable = durable
        self._files = files
        self._now_ms = now_ms
        self._names = names
        self._rescan = RESCAN in names
        known = _newest_checkpoint(folder)
        self._known = known
        self._noted_start = max(known.log_start_offset if known else 0, marked_start(names), noted.start_offset)
        self._checkpoint_lost = known is None and (CHECKPOINT in names or EARLIER in names)
        self._segments = [Segment(folder, base_offset, files) for base_offset in offsets_of(names)]
        self._durable_offset = max(noted.end_offset, known.state.end_offset if known else 0)
        self._seen_offset = noted.seen_offset
        self._known_end_offset = known.state.end_offset if known else 0
        self._known_epochs = known.state.epochs.copy() if known else EpochCache()
        self._checkpoint = self._usable(known)
        self._state = self._checkpoint.state if self._checkpoint else LogState.beginning_at(self._first_offset())
        self._kept: list[Segment] = []
        self._ahead: list[Segment] = []  # segments whose files are longer than what was written
        self._safe: _Place | None = None  # the last place up to which everything is known to be durable

    def run(self, *, alone: bool) -> RecoveredReplica:
        """Raises OSError, `CorruptLog`."""
        if self._known is not None and self._known.lost and not alone:
            raise _lacks_records(self._folder, self._known.lost[0])
        bad_from = self._take_all()
        clean = self._state.end_offset >= self._durable_offset and not self._checkpoint_lost
        if alone and (not clean or self._is_more_than_torn(bad_from)):
            return RecoveredReplica(self._gone_on_behind_damage(), clean)
        changed = self._drop_behind(bad_from, aside=not clean)
        if not self._kept:
            self._kept.append(create_segment(self._folder, self._state.end_offset, self._files, durable=self._durable))
        self._seal()
        self._write_again()
        if changed and self._durable:
            self._kept[-1].file.sync()
            sync_folder(self._folder)
        recovered = self._recovered(exact=clean and not changed and self._is_exact())
        drop_marks(self._folder, self._names, recovered.log_start_offset)
        return RecoveredReplica(recovered, clean)

    def _is_more_than_torn(self, bad_from: int | None) -> bool:
        """Whether intact batches follow the bad place. They are not known to have been durable, but a torn write has
        no intact batches after it."""
        if bad_from is None or len(self._kept) < len(self._segments):
            return False
        last = self._kept[-1]
        return next_batch(last.file, bad_from + 1, last.size, self._state.end_offset) is not None

    def _gone_on_behind_damage(self) -> RecoveredPartition:
        """Recovers everything that can be read, also after damage. It reads the log again from the checkpoint on."""
        folder = self._folder
        known = None if self._rescan else _newest_checkpoint(folder)
        noted = Extent(self._durable_offset, self._noted_start if self._is_start_known else -1, self._seen_offset)
        names = os.listdir(folder)
        found = recover_from(known, folder, names, self._files, self._now_ms, noted, durable=self._durable)
        found.state.epochs.start_at(found.log_start_offset)
        found.state.transactions.forget_before(found.log_start_offset)
        if self._durable:
            self._write_again_behind(self._durable_offset, found)
        return found

    def _write_again_behind(self, offset: int, found: RecoveredPartition) -> None:
        """Like `_write_again`, for the segments that have records from this offset on."""
        ends = [*(segment.base_offset for segment in found.segments[1:]), found.state.end_offset]
        for segment, end_offset in zip(found.segments, ends, strict=True):
            if end_offset > offset:
                _copy(segment.file, 0, segment.size, segment.file, 0)
                segment.file.sync()
        sync_folder(self._folder)

    # What is kept

    def _usable(self, known: Checkpoint | None) -> Checkpoint | None:
        """The checkpoint, if the log has what it describes."""
        segments = self._segments
        if known is None:
            return None
        while len(segments) > 1 and segments[1].base_offset <= min(self._noted_start, known.segment):
            segments.pop(0).remove()  # a crash prevented their removal
        reached = any(each.base_offset == known.segment and each.size >= known.position for each in segments)
        begins = bool(segments) and segments[0].base_offset <= self._noted_start
        return known if reached and begins and not self._rescan else None

    def _first_offset(self) -> int:
        """The offset at which the log has to begin."""
        start = self._noted_start
        first = self._segments[0].base_offset if self._segments else start
        return min(first, start) if self._is_start_known else first

    @property
    def _is_start_known(self) -> bool:
        return self._known is not None or self._noted_start > 0

    def _take_all(self) -> int | None:
        """Reads what follows the checkpoint. Returns the position where the last kept segment is bad, if it is."""
        checkpoint, state = self._checkpoint, self._state
        for segment in self._segments:
            start = 0
            if checkpoint is not None and segment.base_offset <= checkpoint.segment:
                start = checkpoint.position if segment.base_offset == checkpoint.segment else segment.size
            elif segment.base_offset != state.end_offset:
                return None  # the records before it are missing
            self._kept.append(segment)
            end = self._replay(segment, start)
            if end < segment.size:
                if not segment.file.is_unwritten(end, segment.size):
                    return end
                segment.end_at(end)
                self._ahead.append(segment)
        return None

    def _replay(self, segment: Segment, position: int) -> int:
        """Adds the following batches to the state. Returns the position after the last intact one."""
        state = self._state
        self._note_safe(segment, position)
        for scanned in scan(segment.file, position, segment.size):
            header = scanned.header
            if header.base_offset != state.end_offset or not self._fits(header):
                break
            state.note(header, lambda scanned=scanned: scanned.batch, self._now_ms)
            position = scanned.position + header.size
            self._note_safe(segment, position)
        return position

    def _fits(self, header: BatchHeader) -> bool:
        """Whether the leader epoch is right, which the checksum does not cover: it never decreases, and up to the
        checkpoint's end it must equal the checkpoint's."""
        if header.base_offset < self._known_end_offset:
            return header.leader_epoch == self._known_epochs.at(header.base_offset)
        return header.leader_epoch >= self._state.epochs.last

    def _note_safe(self, segment: Segment, position: int) -> None:
        if self._state.end_offset <= self._durable_offset:
            self._safe = _Place(segment, position)

    # What is dropped

    def _drop_behind(self, bad_from: int | None, *, aside: bool) -> bool:
        """Ends the log after what is kept. True if something followed. In: `aside`: whether to keep that in files."""
        rest = self._segments[len(self._kept) :]
        if aside:
            _log.error(
                "records are lost",
                folder=str(self._folder),
                end_offset=self._state.end_offset,
                durable_offset=self._durable_offset,
            )
        for segment in rest:
            if aside and segment.size:
                segment.path.rename(segment.path.with_name(segment.path.name + _ASIDE))
            else:
                segment.remove()
        if bad_from is not None:
            last = self._kept[-1]
            if aside:
                _copy_aside(last, bad_from)
            last.truncate(bad_from)
        return bool(rest) or bad_from is not None

    def _seal(self) -> None:
        """Only the last segment may end in zeros, even after a power cut: later starts do not check the others."""
        for segment in self._kept[:-1]:
            if segment in self._ahead:
                segment.trim()
                segment.file.sync()
            segment.seal()

    # Durability

    def _write_again(self) -> None:
        """Writes again what is not known to be durable: after a failed sync, the page cache shows what the disk never
        got, and counts it as clean, so a new sync would not write it. File sizes and names may not be durable either.
        An empty log that never was durable has nothing to lose: its first sync makes its names durable, too.
        """
        if self._is_exact() or self._is_unused() or not self._durable:
            return
        safe = self._safe or _Place(self._kept[0], 0)
        for segment in self._kept:
            if self._checkpoint is None or segment.base_offset >= self._checkpoint.segment:
                if segment.base_offset >= safe.segment.base_offset:
                    start = safe.position if segment is safe.segment else 0
                    _copy(segment.file, start, segment.size, segment.file, start)
                segment.file.sync()
        sync_folder(self._folder)
        if self._known is None:
            sync_folder(self._folder.parent)

    def _is_unused(self) -> bool:
        never_durable = self._known is None and not self._checkpoint_lost
        return never_durable and self._durable_offset == self._state.end_offset == 0

    def _is_exact(self) -> bool:
        checkpoint, last = self._checkpoint, self._kept[-1]
        return checkpoint is not None and (checkpoint.segment, checkpoint.position) == (last.base_offset, last.size)

    def _recovered(self, *, exact: bool) -> RecoveredPartition:
        known, state, last = self._known, self._state, self._kept[-1]
        start = min(max(self._noted_start, self._kept[0].base_offset), state.end_offset)
        state.epochs.start_at(start)
        state.transactions.forget_before(start)
        damage = [lost for lost in self._checkpoint.lost if lost.end_offset > start] if self._checkpoint else []
        if state.end_offset < self._durable_offset:
            reason = f"the log in {self._folder} is damaged; what was there is kept in files that end in {_ASIDE}"
            damage.append(DamagedRange(state.end_offset, self._durable_offset, reason))
        return RecoveredPartition(
            self._kept,
            state,
            start,
            scanned=not exact,
            checkpoint_exact=exact,
            cleaning=known.cleaning if known and state.end_offset >= self._durable_offset else CleaningState(),
            began_ms=known.began_ms if known and known.segment == last.base_offset else None,
            damage=damage,
            noted_segment=self._checkpoint.segment if self._checkpoint else 0,
        )


def _newest_checkpoint(folder: Path) -> Checkpoint | None:
    return read_checkpoint(folder, CHECKPOINT) or read_checkpoint(folder, EARLIER)


def _lacks_records(folder: Path, lost: DamagedRange) -> CorruptLog:
    """In a cluster, this node would send other replicas a log with a hole."""
    return CorruptLog(
        f"the log in {folder} lacks {lost}",
        hint="Restore its files from a backup; or give the lost records up, with the node stopped:"
        " millstream log accept-loss.",
    )


def _copy_aside(segment: Segment, position: int) -> None:
    aside = LogFile(segment.path.with_name(f"{segment.path.name}.from-{position}{_ASIDE}"), create=True)
    _copy(segment.file, position, segment.size, aside, 0)
    aside.sync()


def _copy(source: LogFile, position: int, end: int, target: LogFile, target_position: int) -> None:
    while position < end:
        part = memoryview(bytearray(min(_COPY_BYTES, end - position)))
        filled = source.read_into(part, position)
        if not filled:
            return
        target.write([part[:filled]], target_position)
        position, target_position = position + filled, target_position + filled
