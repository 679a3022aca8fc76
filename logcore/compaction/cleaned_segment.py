"""The file that compaction writes: batches in order, without gaps in their offsets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from ..failpoints import fp
from ..records.batch import EncodedBatch, place
from ..records.thinning import fillers
from ..storage.disk import LogFile
from ..storage.epoch_cache import EpochCache
from .segment_swap import cleaned_path

_BUFFERED_BYTES: Final = 4 * 1024 * 1024


class CleanedSegment:
    """State: what was written, and the offset after it. A batch without records takes the place of removed batches."""

    def __init__(self, folder: Path, base_offset: int, epochs: EpochCache) -> None:
        """`epochs`: those of the whole log. Batches that replace removed ones have the same epoch as these."""
        self.base_offset = base_offset
        self._epochs = epochs
        self.size = 0
        self._path = cleaned_path(folder, base_offset)
        self._path.unlink(missing_ok=True)
        self._file = LogFile(self._path, create=True)
        self._next_offset = base_offset
        self._written = 0
        self._buffered: list[EncodedBatch] = []

    def add(self, batch: EncodedBatch) -> None:
        """Raises OSError."""
        first_offset = batch.header.base_offset
        self._fill(first_offset)
        epoch = self._epochs.at(first_offset)
        # Everything before the log's start counts as its first epoch, including the remains of a producer's last batch.
        self._put(place(batch, first_offset, epoch) if epoch > batch.header.leader_epoch else batch)
        if self.size - self._written > _BUFFERED_BYTES:
            self._write()

    def finish(self, end_offset: int, written_ms: int, *, durable: bool) -> None:
        """Completes the file. In: `written_ms`: when the latest of its records was written. Raises OSError."""
        self._fill(end_offset)
        self._write()
        os.utime(self._path, ns=(written_ms * 1_000_000, written_ms * 1_000_000))
        if durable:
            self._file.sync()
        fp("clean.written")

    def discard(self) -> None:
        self._path.unlink(missing_ok=True)

    def _fill(self, end_offset: int) -> None:
        if self._next_offset < end_offset:
            stretches = list(self._epochs.split(self._next_offset, end_offset))
            ends = [*(following.offset for following in stretches[1:]), end_offset]
            for (epoch, offset), end in zip(stretches, ends, strict=True):
                for batch in fillers(offset, end, max(epoch, 0)):
                    self._put(batch)

    def _put(self, batch: EncodedBatch) -> None:
        self._buffered.append(batch)
        self.size += batch.header.size
        self._next_offset = batch.header.last_offset + 1

    def _write(self) -> None:
        buffers = [buffer for batch in self._buffered for buffer in batch.buffers]
        self._written = self._file.write(buffers, self._written)
        self._buffered = []
