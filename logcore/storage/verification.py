"""Checks the files of a log that is not open: what they contain, and what is wrong. It changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from ..records.batch import HEADER_SIZE, BatchHeader, read_header
from ..records.codec import decode_rows, stored_batch
from ..records.control import marker_commits
from ..records.envelope import decode_columns
from .checked_json import read_checked_json
from .damage import is_whole, next_batch
from .disk import LogFile
from .durable_point import DurablePoint
from .open_files import OpenFiles
from .recovery import CHECKPOINT, read_checkpoint
from .segment import Segment, base_offsets
from .segment_index import load_index
from .start_mark import marked_start

_COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_BLANK_BYTES: Final = 1 << 20


class FileFinding(NamedTuple):
    """A problem of a file."""

    path: Path
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


@dataclass(slots=True)
class Verified:
    """How much was checked."""

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    bytes: int = 0


class DumpedBatch(NamedTuple):
    path: Path
    position: int
    header: BatchHeader
    whole: bool  # the checksum is correct

    def __str__(self) -> str:
        header = self.header
        fields = [
            f"offsets {header.base_offset}..{header.last_offset}",
            f"records {header.record_count}",
            f"position {self.position}",
            f"bytes {header.size}",
            f"epoch {header.leader_epoch}",
            f"time {header.max_timestamp_ms}",
            f"compression {_COMPRESSIONS[header.attributes & 7] if header.attributes & 7 < 5 else '?'}",
        ]
        if header.producer_id >= 0:
            fields.append(f"producer {header.producer_id}/{header.producer_epoch} from {header.base_sequence}")
        fields += [name for name in ("transactional", "control", "columnar") if getattr(header, name)]
        return ", ".join(fields if self.whole else [*fields, "CHECKSUM WRONG"])


def dump(path: Path) -> Iterator[DumpedBatch]:
    """The batches of a segment file, in order, up to the first position where no batch begins. Raises OSError."""
    file = LogFile(path, writable=False)
    return _batches_from(path, file, 0, file.size())


def damaged_bytes(path: Path, position: int) -> int:
    """How many bytes of a segment file lie at and after `position`; 0 if all are zeros, which an open log preallocates.
    In: where the last batch ends. Raises OSError."""
    file = LogFile(path, writable=False)
    size = file.size()
    return 0 if _is_blank(file, position, size) else size - position


def records_of(batch: DumpedBatch) -> list[str]:
    """The records of a batch, one line each. Raises ValueError if the bytes are not a batch."""
    content = memoryview(bytearray(batch.header.size))
    LogFile(batch.path, writable=False).read_into(content, batch.position)
    if batch.header.control:
        return [{True: "commit", False: "abort", None: "control"}[marker_commits(content)]]
    if not batch.header.record_count:
        return []
    if batch.header.columnar:
        return [str(row) for row in decode_columns(content[HEADER_SIZE:]).to_pylist()]
    rows = decode_rows([stored_batch(batch.header, content)], 0)
    return [f"offset {row['offset']}, time {row['timestamp']}, key {row['key']}, value {row['value']}"
            for row in rows.to_pylist()]  # fmt: skip


def verify_files(described_in: Sequence[Path], partitions: Sequence[Path]) -> tuple[Verified, list[FileFinding]]:
    """Reads every byte and checks checksums, offsets, epochs, indexes and checkpoints. In: `described_in`: files of
    checked JSON; `partitions`: folders. Raises OSError."""
    verified = Verified(len(partitions))
    findings = [finding for path in described_in for finding in _checked_json(path)]
    for partition in partitions:
        findings += _verify_partition(partition, verified)
    return verified, findings


def _checked_json(path: Path) -> list[FileFinding]:
    try:
        return [FileFinding(path, "is missing")] if read_checked_json(path) is None else []
    except ValueError as error:
        return [FileFinding(path, str(error))]


def _verify_partition(folder: Path, verified: Verified) -> Iterator[FileFinding]:
    files = OpenFiles(8)
    segments = [Segment(folder, base_offset, files) for base_offset in base_offsets(folder)]
    checkpoint = read_checkpoint(folder)
    if checkpoint is None and (folder / CHECKPOINT).exists():
        yield FileFinding(folder / CHECKPOINT, "the checksum does not fit")
    for name in ("*.damaged-at-*", "*.dropped-from-*", "*.dropped"):
        for path in sorted(folder.glob(name)):
            yield FileFinding(path, "was set aside when the log was opened")
    if checkpoint is not None and segments:
        start = max(checkpoint.log_start_offset, marked_start(os.listdir(folder)))
        if segments[0].base_offset > start:
            yield FileFinding(folder, f"offsets {start}..{segments[0].base_offset - 1} are missing")
    ends: list[int] = []
    for segment in segments:
        verified.segments += 1
        reading = _SegmentReading(segment, verified, last=segment is segments[-1])
        yield from reading.findings()
        ends.append(reading.end_offset)
    for (before, end_offset), (segment, _) in pairwise(zip(segments, ends, strict=True)):
        if end_offset != segment.base_offset:
            yield FileFinding(before.path, f"ends at offset {end_offset}, and the next begins at {segment.base_offset}")
    if checkpoint is not None and ends and ends[-1] < checkpoint.state.end_offset:
        yield FileFinding(
            folder, f"ends at offset {ends[-1]}, but records up to {checkpoint.state.end_offset} were stored"
        )
    elif ends and ends[-1] < (known_end := DurablePoint(folder).read().end_offset):
        yield FileFinding(folder, f"ends at offset {ends[-1]}, but was durable up to {known_end}")


class _SegmentReading:
    """Checks one segment. State: the next offset, and the largest epoch so far."""

    def __init__(self, segment: Segment, verified: Verified, *, last: bool) -> None:
        self.end_offset = segment.base_offset
        self._segment = segment
        self._verified = verified
        self._last = last
        self._epoch = -1

    def findings(self) -> Iterator[FileFinding]:
        segment, position = self._segment, 0
        file = segment.file
        while position < segment.size:
            for batch in _batches_from(segment.path, file, position, segment.size):
                if not batch.whole or batch.header.base_offset != self.end_offset:
                    break
                position = batch.position + batch.header.size
                yield from self._take(batch.header)
            else:
                if position >= segment.size or self._is_unwritten(file, position):
                    break
            found = next_batch(file, position + 1, segment.size, self.end_offset + 1)
            yield FileFinding(
                segment.path, f"position {position}: no whole batch with offset {self.end_offset} lies here"
            )
            if found is None:
                return
            position, self.end_offset = found.position, found.header.base_offset
        self._verified.bytes += position
        yield from self._check_index()

    def _take(self, header: BatchHeader) -> Iterator[FileFinding]:
        self._verified.batches += 1
        self.end_offset = header.last_offset + 1
        if header.leader_epoch < self._epoch:
            yield FileFinding(self._segment.path, f"epoch {header.leader_epoch} comes after {self._epoch}")
        self._epoch = max(self._epoch, header.leader_epoch)

    def _is_unwritten(self, file: LogFile, position: int) -> bool:
        """True for the zeros that an open log preallocates at the end of its last segment."""
        return self._last and _is_blank(file, position, self._segment.size)

    def _check_index(self) -> Iterator[FileFinding]:
        path, segment = self._segment.index_path, self._segment
        if not path.exists():
            return
        index = load_index(path, segment.base_offset, segment.size)
        if index is None:
            yield FileFinding(path, "the checksum does not fit, or it is of another segment")
        elif index.covered == segment.size and index.end_offset != self.end_offset:
            yield FileFinding(path, f"says that the segment ends at offset {index.end_offset}, not {self.end_offset}")


def _is_blank(file: LogFile, position: int, end: int) -> bool:
    while position < end:
        rest = bytearray(min(_BLANK_BYTES, end - position))
        file.read_into(memoryview(rest), position)
        if any(rest):
            return False
        position += len(rest)
    return True


def _batches_from(path: Path, file: LogFile, position: int, size: int) -> Iterator[DumpedBatch]:
    buffer = memoryview(bytearray(HEADER_SIZE))
    while position + HEADER_SIZE <= size and file.read_into(buffer, position) == HEADER_SIZE:
        header = read_header(buffer)
        if not header.plausible or position + header.size > size:
            return
        yield DumpedBatch(path, position, header, is_whole(file, position, header))
        position += header.size
