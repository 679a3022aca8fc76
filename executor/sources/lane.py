"""A lane: one partition as its reader sees it, with the records that were fetched and not yet taken."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...logcore.client import Fetched, FetchedRows
from .source_decoder import DecodedRecords, Records
from .time_order import BEFORE_ALL, Times, running_maximum


@dataclass(frozen=True, slots=True)
class LanePiece:
    """Decoded records of one partition, in offset order.

    `decoded`: one per source of the topic. `headers`: None if no record has headers.
    """

    partition: int
    offsets: npt.NDArray[np.int64]
    decoded: tuple[DecodedRecords, ...]
    headers: pa.Array | None
    byte_count: int

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def times(self) -> Times:
        """The times that define the order; -1 for a record that cannot be read."""
        return self.decoded[0].times

    def slice(self, begin: int, end: int) -> LanePiece:
        """The records between the two places, without a copy."""
        if begin == 0 and end == len(self):
            return self
        offsets = self.offsets[begin:end]
        return LanePiece(
            self.partition,
            offsets,
            tuple(part.slice(begin, end, self.partition, offsets) for part in self.decoded),
            None if self.headers is None else self.headers.slice(begin, end - begin),
            self.byte_count * (end - begin) // max(1, len(self)),
        )


def joined(pieces: Sequence[LanePiece]) -> LanePiece:
    """One piece with copies of their records. In: pieces of one partition that do not overlap, at least one."""
    ordered = sorted(pieces, key=lambda each: int(each.offsets[0]))
    return LanePiece(
        ordered[0].partition,
        np.concatenate([piece.offsets for piece in ordered]),
        tuple(map(DecodedRecords.joined, zip(*(piece.decoded for piece in ordered), strict=True))),
        headers_of(ordered),
        sum(piece.byte_count for piece in ordered),
    )


def headers_of(pieces: Sequence[LanePiece]) -> pa.Array | None:
    """One value per record, piece after piece; None if no record has headers."""
    type_ = next((piece.headers.type for piece in pieces if piece.headers is not None), None)
    if type_ is None:
        return None
    return pa.concat_arrays(
        [pa.nulls(len(piece), type_) if piece.headers is None else piece.headers for piece in pieces]
    )


class Lane:
    """`fetch_position`: where the next fetch begins. `complete`: whether all available records are pending."""

    def __init__(self, partition: int, position: int) -> None:
        self.partition = partition
        self.fetch_position = position
        self.complete = False
        self._pending: list[LanePiece] = []
        self._count = 0
        self._fetched = 0  # the number of records in the last fetch

    def __len__(self) -> int:
        """How many records are pending."""
        return self._count

    @property
    def position(self) -> int:
        """The offset after everything that was taken."""
        return int(self._pending[0].offsets[0]) if self._pending else self.fetch_position

    @property
    def is_low(self) -> bool:
        """Whether it is time for the next fetch. A lane that fetched only when empty would hold back all others."""
        return not self._count or self._count < self._fetched

    @property
    def running_times(self) -> Times:
        """The running maxima of the pending records' times."""
        running: list[Times] = []
        before = int(BEFORE_ALL)
        for piece in self._pending:
            running.append(running_maximum(piece.times, before))
            before = int(running[-1][-1])
        return np.concatenate(running) if running else np.empty(0, np.int64)

    def records(self, fetched: Fetched, end: int | None) -> tuple[list[Records], int]:
        """The records below `end` of a fetch from `fetch_position`, and their bytes. Advances the position."""
        pieces: list[Records] = []
        size = 0
        for run in fetched.runs:
            if isinstance(run, FetchedRows):
                offsets = run.table["offset"].to_numpy()
                count = len(offsets) if end is None else int(np.searchsorted(offsets, end))
                table = run.table if count == len(offsets) else run.table.slice(0, count)
                size += table.nbytes
                pieces.append(self._of_rows(offsets[:count], table))
            else:
                offsets = run.row_offsets
                count = len(offsets) if end is None else int(np.searchsorted(offsets, end))
                columns = run.batch.slice(0, count)
                size += columns.nbytes
                partitions = np.full(count, self.partition, np.int32)
                pieces.append(Records(partitions, offsets[:count], columns=columns, timestamp_ms=run.timestamp_ms))
        self.fetch_position = fetched.next_offset if end is None else min(fetched.next_offset, end)
        self.complete = self.fetch_position >= (fetched.last_stable_offset if end is None else end)
        self._fetched = sum(map(len, pieces)) or self._fetched
        return [piece for piece in pieces if len(piece)], size

    def _of_rows(self, offsets: npt.NDArray[np.int64], table: pa.Table) -> Records:
        return Records(np.full(len(offsets), self.partition, np.int32), offsets, rows=table)

    def put(self, piece: LanePiece) -> None:
        """Adds decoded records of a fetch to the pending ones. Pieces may come in any order, but do not overlap."""
        insort(self._pending, piece, key=lambda each: int(each.offsets[0]))
        self._count += len(piece)

    def take_over(self, pieces: Sequence[LanePiece], next_offset: int) -> None:
        """Adds pieces that another reader has read from `fetch_position` on, and advances the position."""
        for piece in pieces:
            self.put(piece)
        self._fetched = sum(map(len, pieces)) or self._fetched
        self.fetch_position = next_offset

    def cut_off(self, offset: int) -> None:
        """Drops the pending records from this offset on, so that they are fetched again."""
        kept = [piece.slice(0, int(np.searchsorted(piece.offsets, offset))) for piece in self._pending]
        self._pending = [piece for piece in kept if len(piece)]
        self._count = sum(map(len, self._pending))
        self.fetch_position = min(offset, self.fetch_position)
        self.complete = False

    def take(self, count: int | None) -> list[LanePiece]:
        """Takes the first `count` pending records; None takes all."""
        taken: list[LanePiece] = []
        left = self._count if count is None else min(count, self._count)
        self._count -= left
        while left:
            first = self._pending.pop(0)
            if len(first) > left:
                self._pending.insert(0, first.slice(left, len(first)))
                first = first.slice(0, left)
            taken.append(first)
            left -= len(first)
        return taken
