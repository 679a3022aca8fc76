"""Opening a partition after whatever happened: which bytes count, and what they mean.

A checkpoint says up to where everything was durable once, and what it meant. Below it, bytes that are missing are
damage: the file is put aside and the partition refuses to work. Behind it, the log ends at the first batch that is
not whole; what follows was never acknowledged, unless it is damage too, so a tail that is not just a torn write is
kept in a file of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from .checked_json import read_checked_json, write_checked_json
from .disk import LogFile, sync_folder
from .errors import CorruptLog
from .partition_state import PartitionState, scan
from .records.batch import HEADER_SIZE, read_header
from .segment import Segment, base_offsets, file_name

CHECKPOINT: Final = "checkpoint.json"
_SET_ASIDE: Final = re.compile(r"(?P<file>\d{20}\.log)\.damaged-at-(?P<position>\d+)")
_log = structlog.get_logger("millstream.logcore")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Invariant: the file of `segment` was written up to `position`, where `state.end_offset` comes next.

    It was durable up to there if `synced`; else it may end earlier after a power cut.
    """

    log_start_offset: int
    segment: int
    position: int
    synced: bool
    state: PartitionState


@dataclass(slots=True)
class Recovered:
    """Invariant: `segments` is not empty, is in order, and holds exactly the batches that `state` covers."""

    segments: list[Segment]
    state: PartitionState
    log_start_offset: int
    scanned: bool  # bytes behind the checkpoint were taken over: they may not be durable yet
    checkpoint_exact: bool  # the checkpoint says all that is here


def write_checkpoint(folder: Path, checkpoint: Checkpoint, *, durable: bool) -> None:
    content = {
        "log_start_offset": checkpoint.log_start_offset,
        "segment": checkpoint.segment,
        "position": checkpoint.position,
        "synced": checkpoint.synced,
        "state": checkpoint.state.to_json(),
    }
    write_checked_json(folder / CHECKPOINT, content, durable=durable)


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """None where there is none, or a torn one: it is a short cut, no more."""
    try:
        content: Any = read_checked_json(folder / CHECKPOINT)
    except ValueError:
        return None
    if content is None:
        return None
    state = PartitionState.from_json(content["state"])
    return Checkpoint(content["log_start_offset"], content["segment"], content["position"], content["synced"], state)


def create_files(folder: Path, *, durable: bool) -> None:
    """A folder with an empty log."""
    folder.mkdir()
    create_segment(folder, 0, durable=durable)


def create_segment(folder: Path, base_offset: int, *, durable: bool) -> Segment:
    file = LogFile(folder / file_name(base_offset), create=True)
    if durable:
        file.sync()
        sync_folder(folder)
    return Segment(folder, base_offset)


def recover(folder: Path, *, durable: bool) -> Recovered:
    """Raises `CorruptLog` where bytes are missing that were durable once."""
    _refuse_set_aside(folder)
    checkpoint = read_checkpoint(folder)
    segments = [Segment(folder, base_offset) for base_offset in base_offsets(folder)]
    if checkpoint is not None:
        segments = _without_deleted(segments, checkpoint.log_start_offset)
    if checkpoint is not None and not checkpoint.synced and not _reaches(segments, checkpoint):
        checkpoint = None
    _check_present(folder, segments, checkpoint)
    state = checkpoint.state if checkpoint else PartitionState(segments[0].base_offset)
    first = checkpoint.segment if checkpoint else segments[0].base_offset
    position = checkpoint.position if checkpoint else 0
    scanned = cut = False
    for segment in segments:
        if segment.base_offset < first:
            continue
        start = position if segment.base_offset == first else 0
        end = replay(state, segment, start, segment.size)
        scanned = scanned or segment.size > start
        if end < segment.size:
            if segment is not segments[-1]:
                raise _put_aside(segment, end, "no whole record batch begins here, though later segments exist")
            _cut(segment, end, durable=durable)
            cut = True
    if len(segments) > 1 and not segments[-1].size and segments[-1].base_offset != state.end_offset:
        segments.pop().path.unlink()  # it was never used
    for segment in segments[:-1]:
        segment.seal()
    log_start_offset = checkpoint.log_start_offset if checkpoint else segments[0].base_offset
    exact = checkpoint is not None and checkpoint.synced >= durable and not scanned and not cut
    return Recovered(segments, state, log_start_offset, scanned, exact)


def _reaches(segments: list[Segment], checkpoint: Checkpoint) -> bool:
    return any(
        segment.base_offset == checkpoint.segment and segment.size >= checkpoint.position for segment in segments
    )


def replay(state: PartitionState, segment: Segment, position: int, end: int) -> int:
    """Takes the batches in between into the state; returns the position behind the last one that is whole."""
    for scanned in scan(segment, position, end):
        if scanned.header.base_offset != state.end_offset:
            break
        state.note(scanned.header, lambda scanned=scanned: scanned.batch)
        position = scanned.position + scanned.header.size
    return position


def _refuse_set_aside(folder: Path) -> None:
    for path in folder.iterdir():
        matched = _SET_ASIDE.fullmatch(path.name)
        if matched and not (folder / matched["file"]).exists():
            raise _damaged(folder / matched["file"], int(matched["position"]), "it was put aside", path)


def _without_deleted(segments: list[Segment], log_start_offset: int) -> list[Segment]:
    """Drops segments that end before the log start offset: a crash came before they were removed."""
    while len(segments) > 1 and segments[1].base_offset <= log_start_offset:
        segments.pop(0).path.unlink()
    return segments


def _check_present(folder: Path, segments: list[Segment], checkpoint: Checkpoint | None) -> None:
    if checkpoint is None:
        if not segments:
            path = folder / file_name(0)
            raise CorruptLog(f"{path} is missing", hint="Restore it from a backup, or delete the topic.")
        return
    for segment in segments:
        if segment.base_offset == checkpoint.segment:
            if segment.size < checkpoint.position:
                raise _put_aside(segment, segment.size, f"it ends there, but {checkpoint.position} bytes were written")
            return
    path = folder / file_name(checkpoint.segment)
    raise CorruptLog(f"{path} is missing", hint="Restore it from a backup, or delete the topic.")


def _put_aside(segment: Segment, position: int, reason: str) -> CorruptLog:
    aside = segment.path.with_name(f"{segment.path.name}.damaged-at-{position}")
    segment.path.rename(aside)
    return _damaged(segment.path, position, reason, aside)


def _damaged(path: Path, position: int, reason: str, aside: Path) -> CorruptLog:
    return CorruptLog(
        f"{path} is damaged at position {position}: {reason}",
        hint=f"The file was kept as {aside.name}. Put an undamaged copy in its place, or delete the topic.",
    )


def _cut(segment: Segment, end: int, *, durable: bool) -> None:
    dropped = memoryview(bytearray(segment.size - end))
    segment.file.read_into(dropped, end)
    if not _torn(dropped):
        aside = segment.path.with_name(f"{segment.path.name}.dropped-from-{end}")
        aside.write_bytes(dropped)
        _log.warning("log tail dropped", path=str(segment.path), position=end, bytes=len(dropped), kept_in=aside.name)
    segment.truncate(end)
    if durable:
        segment.file.sync()


def _torn(dropped: memoryview) -> bool:
    """True for what a crash leaves of a last write: the beginning of a batch, and zeros where nothing was written."""
    written = len(bytes(dropped).rstrip(b"\0"))
    if written < HEADER_SIZE:
        return True
    header = read_header(dropped)
    return header.plausible and header.size > written + 1  # a batch often ends in one zero
