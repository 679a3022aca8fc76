"""Batches of exact sizes, offsets and times, and segments of them: what the storage takes for records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from millstream.logcore.records.batch import HEADER_SIZE, NO_PRODUCER, BatchProducer, EncodedBatch, place, seal
from millstream.logcore.records.control import encode_marker
from millstream.logcore.storage.segment import file_name

BYTES = 100  # of a batch, unless a test wants another size


def batch(
    offset: int, count: int = 1, *, size: int = BYTES, time: int = 7, producer: int = NO_PRODUCER, epoch: int = 0
) -> EncodedBatch:
    """Of `count` records from this offset on, `size` bytes long. A producer's batch is part of a transaction. What
    stands for the records cannot be decoded, and no byte of it is zero."""
    of_whom = BatchProducer(producer, 0, 0, producer != NO_PRODUCER)
    sealed = seal(
        [bytearray(HEADER_SIZE) + b"\x07" * (size - HEADER_SIZE)],
        attributes=0,
        last_offset_delta=count - 1,
        base_timestamp_ms=time,
        max_timestamp_ms=time,
        record_count=count,
        producer=of_whom,
    )
    return place(sealed, offset, epoch)


def marker(offset: int, producer: int, *, committed: bool, time: int = 7) -> EncodedBatch:
    return place(encode_marker(producer, 0, committed=committed, timestamp_ms=time), offset, 0)


def bytes_of(*batches: EncodedBatch) -> bytes:
    return b"".join(bytes(buffer) for each in batches for buffer in each.buffers)


def write_segment(folder: Path, base_offset: int, batches: Sequence[EncodedBatch] = (), rest: bytes = b"") -> Path:
    """A file of these batches; `rest` follows them."""
    path = folder / file_name(base_offset)
    path.write_bytes(bytes_of(*batches) + rest)
    return path
