"""The log of a replica on a simulated disk: one file of real record batches, and what its bytes mean."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from millstream.logcore.errors import write_error
from millstream.logcore.records.batch import HEADER_SIZE, EncodedBatch, checksum_of, read_header
from millstream.logcore.replication.machine_messages import Change
from millstream.logcore.replication.replica.replica_core import SyncLog
from millstream.logcore.storage.epoch_cache import EpochCache
from millstream.logcore.storage.partition_state import LogState

from .disk import SimDisk, SimFile

_NOW: Final = 0
_POINT: Final = struct.Struct(">II")  # length and checksum of: `_PLACES`, epochs
_PLACES: Final = struct.Struct(">qqq")  # what is safe of the file, the log's start, the offset of the file's beginning
_POINT_EVERY: Final = 8
LOST: Final = ".lost"


class Stored(NamedTuple):
    batch: EncodedBatch
    position: int


class SimReplicaLog:
    """`ReplicaLog` and `Storage` in one.

    Opening it is recovery: a torn tail is cut off. Below the recovery point, which a file beside the log says, nothing
    can be torn: there bad bytes are damage, the log ends in front of them, and `clean` is False (R17).
    """

    def __init__(self, disk: SimDisk, name: str) -> None:
        self.name = name
        self._disk = disk
        self._file = disk.get(name) or disk.create(name)
        self._point_file = disk.get(name + ".point") or disk.create(name + ".point")
        self._syncs = self._noted_start = 0
        disk.sync_folder()
        self._start = self._base = 0
        self._published = 0, 0
        self.stored: list[Stored] = []
        self.state = LogState()
        self.clean = self.usable = True
        self._recover()
        self._published = self._start, self._start

    @property
    def whole(self) -> bool:
        return self.clean

    @property
    def log_start_offset(self) -> int:
        return self._start

    @property
    def end_offset(self) -> int:
        return self.state.end_offset

    @property
    def epochs(self) -> EpochCache:
        return self.state.epochs

    @property
    def size_bytes(self) -> int:
        return self._file.size

    # ReplicaLog

    def append(self, batches: Sequence[EncodedBatch]) -> None:
        for batch in batches:
            position = self._file.size
            try:
                self._file.append(b"".join(batch.buffers))
            except OSError as error:
                self._file.truncate(position)
                raise write_error(error, "to the log") from error
            self._note(batch, position)

    def truncate(self, offset: int) -> None:
        kept = self.stored
        while kept and kept[-1].batch.header.base_offset >= offset:
            kept.pop()
        if kept and kept[-1].batch.header.last_offset >= offset == self._start:
            self.restart_at(offset)
            return
        assert not kept or kept[-1].batch.header.last_offset < offset, "a truncation inside a batch"
        self._cut(kept[-1].position + kept[-1].batch.header.size if kept else 0)
        self._fold(kept, offset)

    def restart_at(self, offset: int) -> None:
        self._cut(0)
        self._start = self._base = offset
        self._note_point(0)
        self._fold([], offset)

    def move_start(self, offset: int) -> None:
        self._start = max(self._start, min(offset, self._published[0]))
        self._forget_before_start()

    def publish(self, high_watermark: int, last_stable_offset: int) -> None:
        assert self._start <= last_stable_offset <= high_watermark <= self.end_offset, "I17"
        self._published = last_stable_offset, high_watermark

    def read(self, offset: int, limit: int, max_bytes: int) -> Sequence[EncodedBatch]:
        found: list[EncodedBatch] = []
        size = 0
        for batch, _ in self.stored[self._index_of(offset) :]:
            if batch.header.last_offset >= limit or (found and size + batch.header.size > max_bytes):
                break
            found.append(batch)
            size += batch.header.size
        return found

    # Storage

    def apply(self, change: Change) -> None:
        """What is to be made durable is in the file already."""
        assert isinstance(change, SyncLog)

    def sync(self) -> None:
        self._file.sync()
        self._syncs += 1
        if self._syncs % _POINT_EVERY == 0 or self._start != self._noted_start:
            self._note_point(self._file.size)

    @property
    def recovery_point(self) -> tuple[int, int]:
        """Position in the file, and the log's start."""
        return recovery_point_in(self._point_file)

    def _note_point(self, position: int) -> None:
        self._noted_start = self._start
        content = _PLACES.pack(position, self._start, self._base) + json.dumps(self.epochs.starts).encode()
        self._point_file.write(_POINT.pack(len(content), crc32c(content)) + content, 0)
        self._point_file.sync()

    def _cut(self, size: int) -> None:
        if self.recovery_point[0] > size:
            self._note_point(size)
        self._file.truncate(size)

    # Reading what is there

    def _recover(self) -> None:
        content = self._file.read()
        position = 0
        known = known_epochs_in(self._point_file)
        self._base = self.state.end_offset = _base_in(self._point_file)
        while (batch := _batch_at(content, position)) is not None:
            if batch.header.base_offset != self.state.end_offset or not self._has_its_epoch(batch, position, known):
                break
            self._note(batch, position)
            position += batch.header.size
        safe, start = self.recovery_point
        self._note_loss(lost=position < safe)
        if not self.stored:
            self._base = self.state.end_offset = start
        self._start = min(max(start, self._base), self.end_offset)
        self._forget_before_start()
        point = min(safe, position)
        # After a failed sync the system shows what the disk never got: what is not known to be safe is written again.
        self._file.truncate(point)
        self._file.append(content[point:position])
        self._file.sync()
        self._note_point(self._file.size)

    def _has_its_epoch(self, batch: EncodedBatch, position: int, known: EpochCache) -> bool:
        """The checksum of a batch says nothing of its epoch: below the recovery point it is what it was there."""
        header = batch.header
        if position < self.recovery_point[0] and known.starts and header.base_offset >= known.starts[0].offset:
            return header.leader_epoch == known.at(header.base_offset)
        return header.leader_epoch >= self.epochs.last

    def _note_loss(self, *, lost: bool) -> None:
        """It is remembered before the recovery point is lowered, until somebody knows (`loss_is_known`)."""
        if lost and self._disk.get(self.name + LOST) is None:
            self._disk.create(self.name + LOST)
            self._disk.sync_folder()
        self.clean = self._disk.get(self.name + LOST) is None

    def loss_is_known(self) -> None:
        if self._disk.get(self.name + LOST) is not None:
            self._disk.remove(self.name + LOST)
            self._disk.sync_folder()

    def _note(self, batch: EncodedBatch, position: int) -> None:
        header = batch.header
        self.state.note(header, lambda: memoryview(b"".join(batch.buffers)), _NOW)
        self.stored.append(Stored(batch, position))

    def _fold(self, stored: list[Stored], end_offset: int) -> None:
        self.state = LogState()
        self.stored = []
        for batch, position in stored:
            self.state.note(batch.header, lambda batch=batch: memoryview(b"".join(batch.buffers)), _NOW)
            self.stored.append(Stored(batch, position))
        self.state.end_offset = end_offset
        self._forget_before_start()

    def _forget_before_start(self) -> None:
        self.state.epochs.start_at(self._start)
        self.state.transactions.forget_before(self._start)

    def _index_of(self, offset: int) -> int:
        low, high = 0, len(self.stored)
        while low < high:
            middle = (low + high) // 2
            if self.stored[middle].batch.header.last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low


def recovery_point_in(file: SimFile) -> tuple[int, int]:
    """What the file beside a log says: the position below which all is safe, and the log's start."""
    position, start, _ = _places_in(file)
    return position, start


def known_epochs_in(file: SimFile) -> EpochCache:
    """Likewise where epochs began below that position."""
    return EpochCache(json.loads(_point_in(file)[_PLACES.size :] or "[]"))


def _base_in(file: SimFile) -> int:
    """Likewise the offset of the log's first batch, which no checksum covers; real files have it as their name."""
    return _places_in(file)[2]


def _places_in(file: SimFile) -> tuple[int, int, int]:
    position, start, base = _PLACES.unpack_from(_point_in(file) or bytes(_PLACES.size))
    return position, start, base


def _point_in(file: SimFile) -> bytes:
    content = file.read()
    if len(content) < _POINT.size:
        return b""
    size, check = _POINT.unpack_from(content)
    content = content[_POINT.size : _POINT.size + size]
    return content if check == crc32c(content) else b""


def _batch_at(content: bytes, position: int) -> EncodedBatch | None:
    if position + HEADER_SIZE > len(content):
        return None
    header = read_header(content, position)
    if not header.plausible or position + header.size > len(content):
        return None
    whole = bytearray(content[position : position + header.size])
    return EncodedBatch([whole], header) if checksum_of(memoryview(whole)) == header.crc else None
