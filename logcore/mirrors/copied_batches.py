"""Records from a source as batches to append: only committed ones, at the same offsets, without their producers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ..protocol.wire.fetch_messages import AbortedTransaction, FetchedPartition
from ..records.batch import (
    HEADER_SIZE,
    NO_PRODUCER,
    NOBODY,
    BatchHeader,
    EncodedBatch,
    checksum_of,
    in_the_name_of,
    read_header,
)
from ..records.control import marker_commits
from ..records.thinning import fillers
from .mirror_errors import DivergedMirror

_MAGIC_POSITION: Final = 16


class CopiedBatches(NamedTuple):
    """`batches`: without gaps, up to `end_offset`. `epoch`: that of the leader that wrote the last records; None if
    there are none. `records`: the number of records."""

    batches: Sequence[EncodedBatch]
    end_offset: int
    epoch: int | None
    records: int


def copied_batches(fetched: FetchedPartition, end_offset: int, asked_offset: int) -> CopiedBatches:
    """In: `end_offset`: the end of the copy. `asked_offset`: the offset that was requested from the source; it is later
    than the copy's end if the source has removed the records between them. Batches without records fill offsets that
    have none (aborted transactions, markers, compacted records).

    Raises `DivergedMirror` if the source's records do not continue the copy; ValueError for damaged ones.
    """
    batches: list[EncodedBatch] = []
    placed = position = end_offset
    epoch, records = None, 0
    aborted = _Aborted(fetched.aborted)
    for header, batch in _whole(fetched.records):
        if header.last_offset < asked_offset:
            continue
        if checksum_of(batch) != header.crc:
            raise ValueError(f"the checksum of the batch at offset {header.base_offset} does not fit")
        if aborted.drops(header, batch) or not header.record_count:
            position = max(position, header.last_offset + 1)
            continue
        if header.base_offset < placed:
            raise DivergedMirror(
                f"a batch at the source has the offsets {header.base_offset} to {header.last_offset}, and the copy ends"
                f" inside of it, at {placed}"
            )
        batches += fillers(placed, header.base_offset, 0)
        batches.append(_of_nobody(header, batch))
        placed = position = header.last_offset + 1
        epoch, records = header.leader_epoch, records + header.last_offset_delta + 1
    batches += fillers(placed, position, 0)
    return CopiedBatches(batches, position, epoch, records)


class _Aborted:
    """State: the aborted transactions that begin later, and the producers with an aborted transaction now."""

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        self._later = sorted(transactions, key=lambda transaction: transaction.first_offset, reverse=True)
        self._now: set[int] = set()

    def drops(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether the batch is a marker or belongs to an aborted transaction. Must be called in order of offsets."""
        while self._later and self._later[-1].first_offset <= header.last_offset:
            self._now.add(self._later.pop().producer_id)
        if header.control:
            if marker_commits(batch) is False:
                self._now.discard(header.producer_id)
            return True
        return header.transactional and header.producer_id in self._now


def _whole(records: Sequence[bytes | bytearray | memoryview]) -> Iterable[tuple[BatchHeader, memoryview]]:
    """The complete batches; servers may truncate the last one. Raises ValueError for bytes that are not a batch."""
    data = memoryview(records[0]) if len(records) == 1 else memoryview(b"".join(records))
    position = 0
    while position + HEADER_SIZE <= len(data):
        if data[position + _MAGIC_POSITION] != 2:
            raise ValueError(f"record batches of version {data[position + _MAGIC_POSITION]} are not copied")
        header = read_header(data, position)
        if not header.plausible:
            raise ValueError("no record batch begins where one should")
        if position + header.size > len(data):
            return
        yield header, data[position : position + header.size]
        position += header.size


def _of_nobody(header: BatchHeader, batch: memoryview) -> EncodedBatch:
    """The batch without its producer: the source's producer ids have no meaning here, and its transactions are decided.
    Only the header is copied; the encoded records are used as they are."""
    copied = EncodedBatch([bytearray(batch[:HEADER_SIZE]), batch[HEADER_SIZE:]], header)
    if header.producer_id == NO_PRODUCER and not header.transactional:
        return copied
    return in_the_name_of(NOBODY, copied)
