"""What a source has sent, as batches to append: committed records only, at their offsets, without their producers."""

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
    """`batches` follow each other from the asked offset to `end_offset`. `epoch`: of the leader that wrote the last
    records; None where there are none. `records`: how many of them."""

    batches: Sequence[EncodedBatch]
    end_offset: int
    epoch: int | None
    records: int


def copied_batches(fetched: FetchedPartition, end_offset: int, asked_offset: int) -> CopiedBatches:
    """In: `end_offset`: where the copy ends; `asked_offset`: from which the source was asked, later where the source
    has removed what is before it. Where offsets have no records (of aborted transactions, of markers, or because they
    were compacted), batches without records stand for them.

    Raises `DivergedMirror` where the records of the source do not fit behind the copy; ValueError for damaged ones.
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
    """State: the transactions that begin later, and the producers whose records do not count now."""

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        self._later = sorted(transactions, key=lambda transaction: transaction.first_offset, reverse=True)
        self._now: set[int] = set()

    def drops(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether the batch is a marker, or of an aborted transaction. Batches come in the order of their offsets."""
        while self._later and self._later[-1].first_offset <= header.last_offset:
            self._now.add(self._later.pop().producer_id)
        if header.control:
            if marker_commits(batch) is False:
                self._now.discard(header.producer_id)
            return True
        return header.transactional and header.producer_id in self._now


def _whole(records: Sequence[bytes | bytearray | memoryview]) -> Iterable[tuple[BatchHeader, memoryview]]:
    """Servers may cut the last batch off. Raises ValueError where no batch begins."""
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
    """Producer ids of the source mean nothing here; its transactions are decided. Records stay as they are encoded, and
    where they are: only the header is copied."""
    copied = EncodedBatch([bytearray(batch[:HEADER_SIZE]), batch[HEADER_SIZE:]], header)
    if header.producer_id == NO_PRODUCER and not header.transactional:
        return copied
    return in_the_name_of(NOBODY, copied)
