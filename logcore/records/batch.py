"""The header of a record batch (Kafka's version 2, 61 bytes), its checksum, and batches that are ready to be written.

The checksum covers everything from `attributes` on. So the log can write base offset and leader epoch into a batch
without computing the checksum again.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

Buffer = memoryview | bytearray | bytes

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = HEADER.size
PREFIX_SIZE: Final = 12  # base offset and batch length, which the batch length does not include
CHECKED_FROM: Final = 21  # position of `attributes`
BATCH_BYTES_MAX: Final = 1 << 30

COMPRESSION: Final = 0x07
APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
COLUMNAR: Final = 0x100

NO_PRODUCER: Final = -1

_BASE_OFFSET: Final = struct.Struct(">q")
_LEADER_EPOCH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")


class BatchHeader(NamedTuple):
    """The fields in their order on disk."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return PREFIX_SIZE + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def columnar(self) -> bool:
        return bool(self.attributes & COLUMNAR)

    @property
    def plausible(self) -> bool:
        """False for zeros, garbage and other versions: then no field of this header can be trusted."""
        return (
            self.magic == 2
            and HEADER_SIZE - PREFIX_SIZE <= self.batch_length
            and self.last_offset_delta >= 0
            and self.record_count >= 0
        )


class BatchProducer(NamedTuple):
    """The producer of a batch, and the producer's sequence number of the first record for this partition."""

    producer_id: int = NO_PRODUCER
    epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False


NOBODY: Final = BatchProducer()


class EncodedBatch(NamedTuple):
    """One batch, ready to be written. `buffers[0]` begins with the header and is writable."""

    buffers: Sequence[Buffer]
    header: BatchHeader


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    return BatchHeader._make(HEADER.unpack_from(buffer, position))


def place(batch: EncodedBatch, base_offset: int, leader_epoch: int) -> EncodedBatch:
    """Writes the offset and the epoch, which only the log knows, into the batch's first buffer. Returns the batch."""
    _BASE_OFFSET.pack_into(batch.buffers[0], 0, base_offset)
    _LEADER_EPOCH.pack_into(batch.buffers[0], PREFIX_SIZE, leader_epoch)
    _, batch_length, _, *others = batch.header
    return EncodedBatch(batch.buffers, BatchHeader(base_offset, batch_length, leader_epoch, *others))


def stamp(batch: EncodedBatch, now_ms: int) -> EncodedBatch:
    """Writes the time of the append into the first buffer, as the time of all records. Returns the batch."""
    header = batch.header._replace(attributes=batch.header.attributes | APPEND_TIME, max_timestamp_ms=now_ms)
    return reseal(batch.buffers, header)


def checksum_of(batch: memoryview) -> int:
    """The correct `crc` of this whole batch."""
    return crc32c(batch[CHECKED_FROM:])


def seal(
    buffers: Sequence[Buffer],
    *,
    attributes: int,
    last_offset_delta: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    record_count: int,
    producer: BatchProducer,
) -> EncodedBatch:
    """Fills the 61 bytes that are reserved at the start of `buffers[0]`. The records follow them."""
    length = sum(map(len, buffers)) - PREFIX_SIZE
    producer_id, epoch, base_sequence, transactional = producer
    if transactional:
        attributes |= TRANSACTIONAL
    return _sealed(
        buffers,
        (0, length, 0, 2),
        (
            attributes,
            last_offset_delta,
            base_timestamp_ms,
            max_timestamp_ms,
            producer_id,
            epoch,
            base_sequence,
            record_count,
        ),
    )


def reseal(buffers: Sequence[Buffer], header: BatchHeader) -> EncodedBatch:
    """Writes this header, with a new checksum, into the first buffer. Returns the batch."""
    return _sealed(buffers, header[:4], header[5:])


def in_the_name_of(producer: BatchProducer, batch: EncodedBatch) -> EncodedBatch:
    """Writes this producer into the batch's first buffer. Returns the batch."""
    attributes = batch.header.attributes & ~TRANSACTIONAL
    header = batch.header._replace(
        attributes=attributes | TRANSACTIONAL if producer.transactional else attributes,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=producer.base_sequence,
    )
    return reseal(batch.buffers, header)


def _sealed(buffers: Sequence[Buffer], before: tuple[int, ...], behind: tuple[int, ...]) -> EncodedBatch:
    """In: the fields of the header before the checksum, and those after it."""
    first = memoryview(buffers[0])
    HEADER.pack_into(first, 0, *before, 0, *behind)
    crc = crc32c(first[CHECKED_FROM:])
    if len(buffers) > 1:
        for buffer in buffers[1:]:
            crc = crc32c(buffer, crc)
    _CRC.pack_into(first, 17, crc)
    return EncodedBatch(buffers, BatchHeader._make((*before, crc, *behind)))


def next_sequence(sequence: int, record_count: int) -> int:
    """The sequence number `record_count` after `sequence`; it wraps around to 0 after 2**31 - 1."""
    return (sequence + record_count) & 0x7FFFFFFF
