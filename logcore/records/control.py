"""Control batches: one record that commits or aborts a producer's transaction in a partition."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from .batch import CONTROL, HEADER_SIZE, TRANSACTIONAL, BatchProducer, EncodedBatch, seal
from .varint import read_varint, write_varint

_KEY: Final = struct.Struct(">hh")  # version, type
_VALUE: Final = struct.Struct(">hi")  # version, coordinator epoch
_ABORT: Final = 0
_COMMIT: Final = 1
NUMBER_MAX: Final = 0x7FFFFFFF


def encode_marker(producer_id: int, epoch: int, *, committed: bool, timestamp_ms: int, number: int = 0) -> EncodedBatch:
    """The end of a transaction in Kafka's format. `number` takes the place of the coordinator's epoch, which readers
    ignore: here it counts the ends of the producer's transactions; it wraps around to 0 after 2**31 - 1."""
    record = bytearray(b"\0\0\0")  # attributes, timestamp delta, offset delta
    for part in (_KEY.pack(0, _COMMIT if committed else _ABORT), _VALUE.pack(0, number & NUMBER_MAX)):
        write_varint(record, len(part))
        record += part
    write_varint(record, 0)
    out = bytearray(HEADER_SIZE)
    write_varint(out, len(record))
    return seal(
        [out + record],
        attributes=CONTROL | TRANSACTIONAL,
        last_offset_delta=0,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        record_count=1,
        producer=BatchProducer(producer_id, epoch, -1, transactional=True),
    )


class Marker(NamedTuple):
    committed: bool
    number: int


def marker_commits(batch: memoryview) -> bool | None:
    """Whether this control batch commits (True) or aborts (False); None for another kind of control batch."""
    marker = read_marker(batch)
    return marker.committed if marker is not None else None


def read_marker(batch: memoryview) -> Marker | None:
    """The end of a transaction in this control batch; None for another kind of control batch."""
    _, position = read_varint(batch, HEADER_SIZE)
    _, position = read_varint(batch, position + 1)  # after the record's attributes: timestamp delta
    _, position = read_varint(batch, position)
    key_size, position = read_varint(batch, position)
    kind = _KEY.unpack_from(batch, position)[1]
    if kind not in (_ABORT, _COMMIT):
        return None
    value_size, position = read_varint(batch, position + key_size)
    number = _VALUE.unpack_from(batch, position)[1] if value_size >= _VALUE.size else 0
    return Marker(kind == _COMMIT, number)
