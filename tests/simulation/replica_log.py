"""The log of a replica on a simulated disk: one file of real record batches, and what its bytes mean."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from millstream.logcore.errors import write_error
from millstream.logcore.partition_state import PartitionState
from millstream.logcore.records.batch import HEADER_SIZE, EncodedBatch, checksum_of, read_header
from millstream.logcore.replication.epoch_cache import EpochCache
from millstream.logcore.replication.replica_core import SyncLog

from .disk import SimDisk

_NOW: Final = 0
_POINT: Final = struct.Struct(">qI")
_POINT_EVERY: Final = 8


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
        self._file = disk.get(name) or disk.create(name)
        self._point_file = disk.get(name + ".point") or disk.create(name + ".point")
        self._syncs = 0
        disk.sync_folder()
        self._start = 0
        self.stored: list[Stored] = []
        self.epochs = EpochCache()
        self.state = PartitionState()
        self.clean = True
        self._recover()

    @property
    def log_start_offset(self) -> int:
        return self._start

    @property
    def end_offset(self) -> int:
        return self.state.end_offset

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
        assert not kept or kept[-1].batch.header.last_offset < offset, "a truncation inside a batch"
        self._cut(kept[-1].position + kept[-1].batch.header.size if kept else 0)
        self.epochs.truncate(offset)
        self._fold(kept, offset)

    def restart_at(self, offset: int) -> None:
        self._cut(0)
        self.epochs.clear()
        self._start = offset
        self._fold([], offset)

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

    def apply(self, change: SyncLog) -> None:
        """What is to be made durable is in the file already."""

    def sync(self) -> None:
        self._file.sync()
        self._syncs += 1
        if self._syncs % _POINT_EVERY == 0:
            self._note_point(self._file.size)

    @property
    def recovery_point(self) -> int:
        """Position in the file."""
        content = self._point_file.read()
        if len(content) == _POINT.size:
            position, check = _POINT.unpack(content)
            if check == crc32c(content[:8]):
                return position
        return 0

    def _note_point(self, position: int) -> None:
        content = struct.pack(">q", position)
        self._point_file.write(content + struct.pack(">I", crc32c(content)), 0)
        self._point_file.sync()

    def _cut(self, size: int) -> None:
        if self.recovery_point > size:
            self._note_point(size)
        self._file.truncate(size)

    # Reading what is there

    def _recover(self) -> None:
        content = self._file.read()
        position = 0
        while (batch := _batch_at(content, position)) is not None:
            if not self.stored:
                self._start = self.state.end_offset = batch.header.base_offset
            if batch.header.base_offset != self.state.end_offset or batch.header.leader_epoch < self.epochs.last:
                break
            self._note(batch, position)
            position += batch.header.size
        point = min(self.recovery_point, position)
        if position < len(content):
            self.clean = position >= self.recovery_point
        # After a failed sync the system shows what the disk never got: what is not known to be safe is written again.
        self._file.truncate(point)
        self._file.append(content[point:position])
        self._file.sync()
        self._note_point(self._file.size)

    def _note(self, batch: EncodedBatch, position: int) -> None:
        header = batch.header
        self.epochs.note(header.leader_epoch, header.base_offset)
        self.state.note(header, lambda: memoryview(b"".join(batch.buffers)), _NOW)
        self.stored.append(Stored(batch, position))

    def _fold(self, stored: list[Stored], end_offset: int) -> None:
        self.state = PartitionState()
        self.stored = []
        for batch, position in stored:
            self.state.note(batch.header, lambda batch=batch: memoryview(b"".join(batch.buffers)), _NOW)
            self.stored.append(Stored(batch, position))
        self.state.end_offset = end_offset

    def _index_of(self, offset: int) -> int:
        low, high = 0, len(self.stored)
        while low < high:
            middle = (low + high) // 2
            if self.stored[middle].batch.header.last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low


def _batch_at(content: bytes, position: int) -> EncodedBatch | None:
    if position + HEADER_SIZE > len(content):
        return None
    header = read_header(content, position)
    if not header.plausible or position + header.size > len(content):
        return None
    whole = bytearray(content[position : position + header.size])
    return EncodedBatch([whole], header) if checksum_of(memoryview(whole)) == header.crc else None
