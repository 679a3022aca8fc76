"""Removes records from record batches, for compaction. The other records keep their offsets and times."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from .batch import (
    COMPRESSION,
    HEADER_SIZE,
    NOBODY,
    PREFIX_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    EncodedBatch,
    place,
    reseal,
    seal,
)
from .codec import stored_batch
from .compression import compress
from .varint import read_varint

_GAP_MAX: Final = 1 << 30
_NO_TIME: Final = -1


def decided(header: BatchHeader, batch: memoryview) -> EncodedBatch:
    """The whole batch without its transaction, so that it needs no marker. In: a batch of a committed transaction, or
    of none."""
    if not header.transactional:
        return EncodedBatch([batch], header)
    return reseal([bytearray(batch)], header._replace(attributes=header.attributes & ~TRANSACTIONAL))


def thin_rows(header: BatchHeader, batch: memoryview, keep: npt.NDArray[np.bool_]) -> EncodedBatch:
    """The batch with only the records to `keep`, one flag per record. Raises ValueError or IndexError for an invalid
    batch."""
    stored = stored_batch(header, batch)
    kind = header.attributes & COMPRESSION
    records = bytearray()
    position = stored.start
    for wanted in keep.tolist():
        length, start = read_varint(stored.buffer, position)
        end = start + length
        if length < 0 or end > stored.end:
            raise ValueError("a record that ends behind its batch")
        if wanted:
            records += stored.buffer[position:end]
        position = end
    content = compress(kind, memoryview(records)) if kind and records else records
    return _of_size(header, bytearray(HEADER_SIZE) + content, int(keep.sum()))


def emptied(header: BatchHeader) -> EncodedBatch:
    """The batch without records. It keeps the last sequence number of its producer."""
    return _of_size(header, bytearray(HEADER_SIZE), 0)


def fillers(first_offset: int, end_offset: int, leader_epoch: int) -> Iterable[EncodedBatch]:
    """Batches without records for the offsets in between. They show that the records were removed and are not lost."""
    while first_offset < end_offset:
        count = min(end_offset - first_offset, _GAP_MAX)
        batch = seal(
            [bytearray(HEADER_SIZE)],
            attributes=0,
            last_offset_delta=count - 1,
            base_timestamp_ms=_NO_TIME,
            max_timestamp_ms=_NO_TIME,
            record_count=0,
            producer=NOBODY,
        )
        yield place(batch, first_offset, leader_epoch)
        first_offset += count


def _of_size(header: BatchHeader, content: bytearray, record_count: int) -> EncodedBatch:
    attributes = header.attributes & ~TRANSACTIONAL
    if not record_count:
        attributes &= ~COMPRESSION
    fields = header._replace(batch_length=len(content) - PREFIX_SIZE, attributes=attributes, record_count=record_count)
    return reseal([content], fields)
