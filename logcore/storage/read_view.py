"""What a reader of a partition may see at one moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..client import Offsets
from ..records.batch import BatchHeader
from .disk import LogFile
from .segment import Segment
from .transaction_index import AbortedRanges


class ReadableFile(NamedTuple):
    """`first_offset` is the base offset of the batch at `start`."""

    segment: Segment
    file: LogFile
    start: int
    end: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class ReadView:
    """The batches below `limit_offset`. `gapless`: every offset is in some batch, as in our own logs."""

    files: Sequence[ReadableFile]
    limit_offset: int
    aborted: AbortedRanges
    offsets: Offsets
    gapless: bool = True


class Sequel:
    """Checks that each batch follows the previous one: if offsets are missing in a log without gaps, records are lost.
    State: the offset at which the next batch has to begin."""

    def __init__(self, view: ReadView) -> None:
        self._gapless = view.gapless
        self._next_offset = view.files[0].first_offset if view.files else 0

    def check(self, file: ReadableFile, position: int, header: BatchHeader) -> None:
        """Raises `CorruptLog` if this batch does not follow the previous one."""
        if self._gapless and header.base_offset != self._next_offset:
            raise file.segment.corrupt(
                position, f"a batch with offset {header.base_offset} lies where {self._next_offset} should"
            )
        self._next_offset = header.last_offset + 1
