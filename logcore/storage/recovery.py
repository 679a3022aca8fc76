"""Opens a partition after any kind of stop: decides which bytes belong to the log, and builds its state.

A checkpoint has a position up to which everything was durable, and the state at that position. The file `durable` says
how far the log became durable after that (`durable_point.py`). Missing bytes below that point are damage: the records
there are lost, the loss is remembered, everything else is used, and new records get offsets after the lost ones. Above
that point, the log ends at the first incomplete batch. The bytes after it were never acknowledged, unless they are
damaged too; so a tail that is more than a torn write is kept in a separate file.

A transaction that is open where records are lost may have ended among them. Its outcome is unknown, so its records
count as lost from the first one on.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import structlog

from ..compaction.cleaning_state import CleaningState
from ..compaction.segment_swap import finish_swap
from ..errors import CorruptLog
from ..records.batch import HEADER_SIZE, BatchHeader, read_header
from .checked_json import read_checked_json, write_checked_json
from .damage import DamagedRange, next_batch
from .disk import LogFile, sync_folder
from .durable_point import NOTHING_KNOWN, Extent
from .open_files import OpenFiles
from .partition_state import LogState, scan
from .segment import Segment, file_name, offsets_of
from .start_mark import StartMark, drop_marks, marked_start

CHECKPOINT: Final = "checkpoint.json"
_log = structlog.get_logger("millstream.logcore")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Invariant: the file of `segment` was written up to `position`, and the next offset there is `state.end_offset`.

    With `synced` it was durable up to there; else it may end earlier after a power cut. `began_ms`: when that segment
    got its first record. `lost`: records below that position that cannot be read.
    """

    log_start_offset: int
    segment: int
    position: int
    synced: bool
    state: LogState
    cleaning: CleaningState = field(default_factory=CleaningState)
    began_ms: int | None = None
    lost: Sequence[DamagedRange] = ()


@dataclass(slots=True)
class RecoveredPartition:
    """Invariant: `segments` is not empty, is in order, and holds exactly the batches that `state` covers, except those
    in `damage`. `noted_segment`: the segment named by the checkpoint; 0 if none was used and all segments were read."""

    segments: list[Segment]
    state: LogState
    log_start_offset: int
    scanned: bool  # batches after the checkpoint were added: they may not be durable yet
    checkpoint_exact: bool  # the checkpoint covers the whole log
    cleaning: CleaningState
    began_ms: int | None
    damage: list[DamagedRange]
    noted_segment: int


def checkpoint_content(checkpoint: Checkpoint) -> Any:
    """The checkpoint as JSON. It shares objects with the checkpoint's state."""
    return {
        "log_start_offset": checkpoint.log_start_offset,
        "segment": checkpoint.segment,
        "position": checkpoint.position,
        "synced": checkpoint.synced,
        "state": checkpoint.state.to_json(),
        "cleaning": checkpoint.cleaning.to_json(),
        "began_ms": checkpoint.began_ms,
        "lost": checkpoint.lost,
    }


def write_checkpoint(folder: Path, checkpoint: Checkpoint, *, durable: bool) -> None:
    write_checked_json(folder / CHECKPOINT, checkpoint_content(checkpoint), durable=durable)


def read_checkpoint(folder: Path, name: str = CHECKPOINT) -> Checkpoint | None:
    """The checkpoint; None if it is missing or torn, because it only saves reading."""
    try:
        content: Any = read_checked_json(f"{folder}/{name}")
    except ValueError:
        return None
    if content is None:
        return None
    return Checkpoint(
        content["log_start_offset"],
        content["segment"],
        content["position"],
        content["synced"],
        LogState.from_json(content["state"]),
        CleaningState.from_json(content.get("cleaning")),
        content.get("began_ms"),
        [DamagedRange(*lost) for lost in content.get("lost", ())],
    )


def create_files(folder: Path, *, durable: bool) -> None:
    """Creates a folder with an empty log."""
    folder.mkdir()
    _create_file(folder, 0, durable=durable)


def create_segment(folder: Path, base_offset: int, files: OpenFiles, *, durable: bool) -> Segment:
    _create_file(folder, base_offset, durable=durable)
    return Segment(folder, base_offset, files)


def _create_file(folder: Path, base_offset: int, *, durable: bool) -> None:
    file = LogFile(folder / file_name(base_offset), create=True)
    if durable:
        file.sync()
        sync_folder(folder)


def recover(
    folder: Path, files: OpenFiles, now_ms: int, *, durable: bool, known: Extent = NOTHING_KNOWN
) -> RecoveredPartition:
    """In: `known`: the content of the file `durable`. Raises `CorruptLog` if neither segments nor these files are left
    to tell what the partition contained."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError as error:
        raise _missing(folder) from error
    if finish_swap(folder, names, durable=durable):
        names = os.listdir(folder)
    checkpoint = read_checkpoint(folder) if CHECKPOINT in names else None
    return recover_from(checkpoint, folder, names, files, now_ms, known, durable=durable)


def recover_from(
    checkpoint: Checkpoint | None,
    folder: Path,
    names: Sequence[str],
    files: OpenFiles,
    now_ms: int,
    known: Extent,
    *,
    durable: bool,
) -> RecoveredPartition:
    """In: `names`: the names of the files in the folder. Raises as `recover` does."""
    segments = [Segment(folder, base_offset, files) for base_offset in offsets_of(names)]
    start = max(marked_start(names), known.start_offset)
    if checkpoint is not None:
        segments = _without_deleted(segments, min(max(checkpoint.log_start_offset, start), checkpoint.segment))
    if checkpoint is not None and not checkpoint.synced and not _reaches(segments, checkpoint):
        checkpoint = None
    if checkpoint is None and not segments and not known.end_offset:
        raise _missing(folder / file_name(0))
    recovered = _Recovery(folder, files, checkpoint, segments, now_ms, start, known, durable=durable).run()
    if marked_start(names) > recovered.log_start_offset:
        StartMark(folder, 0).move(recovered.log_start_offset, durable=durable)  # the log ended before the mark
    drop_marks(folder, names, recovered.log_start_offset)
    return recovered


def _missing(path: Path) -> CorruptLog:
    return CorruptLog(f"{path} is missing", hint="Restore it from a backup, or delete the topic.")


class _Recovery:
    """State: the state of the log up to `state.end_offset`, and the damage found so far."""

    def __init__(
        self,
        folder: Path,
        files: OpenFiles,
        checkpoint: Checkpoint | None,
        segments: list[Segment],
        now_ms: int,
        start: int,
        known: Extent,
        *,
        durable: bool,
    ) -> None:
        """In: `start`: where the log begins, unless the checkpoint has a higher offset; -1: only the checkpoint can
        tell."""
        self._now_ms = now_ms
        self._folder = folder
        self._files = files
        self._checkpoint = checkpoint
        self._segments = segments
        self._noted_start = max(start, checkpoint.log_start_offset if checkpoint else -1)
        self._known = known
        self._durable = durable
        self._damage: list[DamagedRange] = list(checkpoint.lost) if checkpoint else []
        self._known_damage = len(self._damage)
        self._first_offset = self._begins_at()
        self._state = checkpoint.state if checkpoint else LogState.beginning_at(self._first_offset)
        self._scanned = self._cut = False
        self._ends_damaged = False  # if true, nothing may be appended to the last segment

    def run(self) -> RecoveredPartition:
        checkpoint, segments = self._checkpoint, self._segments
        if checkpoint is not None:
            self._check_begins(checkpoint)
            self._check_present(checkpoint)
        for segment in list(segments):
            if checkpoint is None or segment.base_offset >= checkpoint.segment:
                self._take(segment)
        self._check_end()
        if len(segments) > 1 and not segments[-1].size and segments[-1].base_offset != self._state.end_offset:
            segments.pop().remove()  # it was never used
        if not segments or (self._ends_damaged and segments[-1].base_offset != self._state.end_offset):
            end_offset = self._state.end_offset
            segments.append(create_segment(self._folder, end_offset, self._files, durable=self._durable))
        for segment in segments[:-1]:
            segment.seal()
        start = self._start()
        return RecoveredPartition(
            segments,
            self._state,
            start,
            self._scanned,
            self._is_exact(),
            checkpoint.cleaning if checkpoint else CleaningState(),
            checkpoint.began_ms if checkpoint and checkpoint.segment == segments[-1].base_offset else None,
            [lost for lost in self._damage if lost.end_offset > start or lost.is_empty],
            checkpoint.segment if checkpoint else 0,
        )

    def _begins_at(self) -> int:
        """Where reading begins without a checkpoint."""
        first = self._segments[0].base_offset if self._segments else self._noted_start
        return max(0, first if self._noted_start < 0 else min(first, self._noted_start))

    def _start(self) -> int:
        if self._noted_start < 0:
            return self._first_offset
        start = min(self._noted_start, self._state.end_offset)
        if self._checkpoint is None or self._checkpoint.log_start_offset < start:
            self._state.transactions.forget_before(start)
        return start

    def _is_exact(self) -> bool:
        checkpoint = self._checkpoint
        if checkpoint is None or checkpoint.log_start_offset < self._noted_start:
            return False
        damaged = len(self._damage) > self._known_damage
        return checkpoint.synced >= self._durable and not (self._scanned or self._cut or damaged)

    def _check_begins(self, checkpoint: Checkpoint) -> None:
        first = self._segments[0].base_offset if self._segments else checkpoint.segment
        if self._noted_start < first:
            path = self._folder / file_name(first)
            end = min(first, self._state.end_offset)
            self._note_damage(self._noted_start, end, f"no file has what comes before {path.name}", decided=True)

    def _check_present(self, checkpoint: Checkpoint) -> None:
        """Reports damage if the bytes that the checkpoint covers are not there. They are not read again."""
        if _reaches(self._segments, checkpoint):
            return
        self._ends_damaged = not self._segments or self._segments[-1].base_offset <= checkpoint.segment
        if not checkpoint.position:
            return
        path = self._folder / file_name(checkpoint.segment)
        present = [segment for segment in self._segments if segment.base_offset == checkpoint.segment]
        found, size = checkpoint.segment, 0
        for segment in present:
            found, size = segment.index.end_offset, segment.size
        what = f"ends at position {size}, but {checkpoint.position} bytes were written" if present else "is missing"
        self._note_damage(found, self._state.end_offset, f"{path} {what}", decided=True)

    def _take(self, segment: Segment) -> None:
        """Reads the batches after the checkpoint."""
        checkpoint, state = self._checkpoint, self._state
        start = 0
        if checkpoint is not None and segment.base_offset == checkpoint.segment:
            if segment.size < checkpoint.position:
                return
            start = checkpoint.position
        # An empty segment shows where the log ended only if there is no other segment.
        if segment.base_offset > state.end_offset and (segment.size or len(self._segments) == 1):
            self._note_damage(state.end_offset, segment.base_offset, self._gap_before(segment))
            state.end_offset = segment.base_offset
        if segment.size == start:
            return
        end = replay(state, segment, start, segment.size, self._now_ms)
        self._scanned = True
        is_last = segment is self._segments[-1]
        while end < segment.size and (not is_last or state.end_offset < self._known.end_offset):
            found = next_batch(segment.file, end + 1, segment.size, state.end_offset + 1)
            if found is None:
                break  # the next segment, or the file `durable`, says where the log continues
            reason = f"{segment.path} is damaged at position {end}"
            self._note_damage(state.end_offset, found.header.base_offset, reason)
            state.end_offset = found.header.base_offset
            self._ends_damaged = is_last
            end = replay(state, segment, found.position, segment.size, self._now_ms)
        if is_last and end < segment.size and state.end_offset >= self._known.end_offset and not self._ends_damaged:
            self._end_at(segment, end)

    def _gap_before(self, segment: Segment) -> str:
        earlier = self._segments[: self._segments.index(segment)]
        if not earlier:
            return f"no file has what comes before {segment.path}"
        return f"{earlier[-1].path} ends at offset {self._state.end_offset}, and {segment.path.name} follows"

    def _check_end(self) -> None:
        """Records that were durable are lost if the log ends before them."""
        state, known = self._state, self._known
        # A tail that was cut off was not acknowledged. A marker in it is written again, at the same offset.
        found_lost = any(not lost.is_empty for lost in self._damage[self._known_damage :])
        lost = found_lost or state.end_offset < known.end_offset
        # Markers after lost records cannot be written again, so their offsets are not given to other records.
        end_offset = max(known.end_offset, known.seen_offset) if lost else known.end_offset
        if state.end_offset >= end_offset:
            return
        where = self._segments[-1].path if self._segments else self._folder
        reason = f"{where} ends at offset {state.end_offset}, but the log went on to {end_offset}"
        self._note_damage(state.end_offset, end_offset, reason)
        state.end_offset = end_offset
        self._ends_damaged = True

    def _end_at(self, segment: Segment, end: int) -> None:
        """Ends the log here. The bytes after it were not acknowledged, as far as is known."""
        if segment.file.is_unwritten(end, segment.size):
            segment.end_at(end)
            return
        size, end_offset = segment.size, self._state.end_offset
        last = _last_batch(segment, end + 1, end_offset + 1)
        aside = _cut(segment, end, durable=self._durable)
        self._cut = True
        if aside is not None:
            upto = f" (up to offset {last.last_offset})" if last is not None else ""
            rest = f"{size - end} bytes from there on{upto} are in {aside.name}"
            what = f"{segment.path} is damaged at position {end}; {rest}"
            self._report(DamagedRange(end_offset, end_offset, what))

    def _note_damage(self, first_offset: int, end_offset: int, reason: str, *, decided: bool = False) -> None:
        """In: `decided`: the checkpoint knows how each transaction with records there ended."""
        if not decided:
            first_offset = self._state.transactions.first_open_offset(first_offset)
            self._state.producers.complete = False
        self._report(DamagedRange(first_offset, end_offset, reason))

    def _report(self, lost: DamagedRange) -> None:
        if lost not in self._damage:
            self._damage.append(lost)
            _log.error("records are lost", from_offset=lost.first_offset, to_offset=lost.end_offset, reason=lost.reason)


def _reaches(segments: list[Segment], checkpoint: Checkpoint) -> bool:
    """Whether the bytes that the checkpoint covers are there."""
    return any(
        segment.base_offset == checkpoint.segment and segment.size >= checkpoint.position for segment in segments
    )


def replay(state: LogState, segment: Segment, position: int, end: int, now_ms: int) -> int:
    """Adds the batches in between to the state. Returns the position after the last complete batch."""
    for scanned in scan(segment.file, position, end):
        if scanned.header.base_offset != state.end_offset:
            break
        state.note(scanned.header, lambda scanned=scanned: scanned.batch, now_ms)
        position = scanned.position + scanned.header.size
    return position


def _without_deleted(segments: list[Segment], log_start_offset: int) -> list[Segment]:
    """Removes segments that end before the log start offset: a crash may have prevented their removal."""
    while len(segments) > 1 and segments[1].base_offset <= log_start_offset:
        segments.pop(0).remove()
    return segments


def _last_batch(segment: Segment, position: int, offset_min: int) -> BatchHeader | None:
    """The last complete batch from this position on; None if there is none."""
    last: BatchHeader | None = None
    while (found := next_batch(segment.file, position, segment.size, offset_min)) is not None:
        last = found.header
        position, offset_min = found.position + last.size, last.last_offset + 1
    return last


def _cut(segment: Segment, end: int, *, durable: bool) -> Path | None:
    """Truncates the segment. Returns the file with the bytes that were cut off; None for a torn write."""
    aside: Path | None = None
    dropped = memoryview(bytearray(segment.size - end))
    segment.file.read_into(dropped, end)
    if not _torn(dropped):
        aside = segment.path.with_name(f"{segment.path.name}.dropped-from-{end}")
        aside.write_bytes(dropped)
    segment.truncate(end)
    if durable:
        segment.file.sync()
    return aside


def _torn(dropped: memoryview) -> bool:
    """True for what a crash leaves of a last write: the beginning of a batch, followed by zeros."""
    written = len(bytes(dropped).rstrip(b"\0"))
    if written < HEADER_SIZE:
        return True
    header = read_header(dropped)
    return header.plausible and header.size > written + 1  # a batch often ends in one zero
