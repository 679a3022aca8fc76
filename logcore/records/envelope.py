"""Columnar batches: a Kafka batch with one record, whose value is an Arrow IPC stream of one record batch.

The record's header `ms.enc` names the encoding; its offset delta is the last row's, so that the batch uses one offset
per row and a Kafka client that reads it goes on behind it.
"""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa

from ..client import ColumnarRecords
from ..errors import InvalidRecords
from .batch import BATCH_BYTES_MAX, COLUMNAR, HEADER_SIZE, EncodedBatch, Producer, seal
from .varint import read_varint, write_varint

_HEADERS: Final = b"\x02\x0cms.enc\x0aarrow"  # one header: varint lengths before name and value
_ALIGNMENT: Final = 8
_USHORT: Final = struct.Struct("<H")
_INT: Final = struct.Struct("<i")
_UINT: Final = struct.Struct("<I")
_DICTIONARY: Final = 2  # kinds of Arrow messages
_RECORD_BATCH: Final = 3


def encode_columns(records: ColumnarRecords, producer: Producer) -> EncodedBatch:
    batch = records.batch
    payload = _ipc_stream(batch)
    if len(payload) > BATCH_BYTES_MAX:
        raise InvalidRecords(
            f"a columnar batch of {len(payload)} bytes is too large for one record batch",
            hint="Cut it into several batches.",
        )
    fields = bytearray(1)  # attributes
    write_varint(fields, 0)  # timestamp delta
    write_varint(fields, batch.num_rows - 1)
    write_varint(fields, -1)  # no key
    write_varint(fields, len(payload))
    out = bytearray(HEADER_SIZE)
    write_varint(out, len(fields) + len(payload) + len(_HEADERS))
    return seal(
        [out + fields, payload, _HEADERS],
        attributes=COLUMNAR,
        last_offset_delta=batch.num_rows - 1,
        base_timestamp_ms=records.timestamp_ms,
        max_timestamp_ms=records.timestamp_ms,
        record_count=1,
        producer=producer,
    )


def _ipc_stream(batch: pa.RecordBatch) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return memoryview(sink.getvalue()).cast("B")


def decode_columns(records: memoryview) -> pa.RecordBatch:
    """The batch in these records (what follows the 61 bytes). Raises ValueError where they hold none.

    The columns point into `records`, unless the payload lies so that its numbers would be misaligned.
    """
    try:
        value = _value_of(records)
        with pa.ipc.open_stream(_aligned(value)) as reader:
            return reader.read_next_batch()
    except (IndexError, StopIteration, OSError, pa.ArrowException) as error:
        raise ValueError(f"not a columnar batch: {error}") from error


def checked_columns(records: memoryview) -> pa.RecordBatch:
    """As `decode_columns`, for bytes that anybody may have made. Raises ValueError for what would crash a reader, or
    fill its memory: compressed columns may grow without bound, and ours never are."""
    try:
        value = _aligned(_value_of(records))
        for message in pa.ipc.MessageReader.open_stream(value):
            if _is_compressed(memoryview(message.metadata).cast("B")):
                raise ValueError("a columnar batch whose columns are compressed")
        columns = decode_columns(records)
        columns.validate(full=True)
    except (IndexError, struct.error, OSError, pa.ArrowException) as error:
        raise ValueError(f"not a columnar batch: {error}") from error
    return columns


def _is_compressed(metadata: memoryview) -> bool:
    """Whether this Arrow message, a flatbuffer, names a compression of its body."""
    message = _UINT.unpack_from(metadata, 0)[0]
    kind, header = _field(metadata, message, 1), _field(metadata, message, 2)
    if kind is None or header is None or metadata[kind] not in (_DICTIONARY, _RECORD_BATCH):
        return False
    batch = header + _UINT.unpack_from(metadata, header)[0]
    if metadata[kind] == _DICTIONARY:
        data = _field(metadata, batch, 1)
        if data is None:
            return False
        batch = data + _UINT.unpack_from(metadata, data)[0]
    return _field(metadata, batch, 3) is not None


def _field(buffer: memoryview, table: int, index: int) -> int | None:
    """The position of a field of a flatbuffer's table; None where it is absent."""
    vtable = table - _INT.unpack_from(buffer, table)[0]
    slot = 4 + 2 * index
    offset = _USHORT.unpack_from(buffer, vtable + slot)[0] if slot < _USHORT.unpack_from(buffer, vtable)[0] else 0
    return table + offset if offset else None


def _value_of(records: memoryview) -> memoryview:
    _, position = read_varint(records, 0)
    _, position = read_varint(records, position + 1)  # after the attributes: timestamp delta
    _, position = read_varint(records, position)
    key_length, position = read_varint(records, position)
    length, position = read_varint(records, position + max(key_length, 0))
    if length < 0 or position + length > len(records):
        raise ValueError("not a columnar batch: its value ends behind it")
    return records[position : position + length]


def _aligned(value: memoryview) -> pa.Buffer:
    buffer = pa.py_buffer(value)
    if buffer.address % _ALIGNMENT == 0:
        return buffer
    copy = pa.allocate_buffer(len(value))
    memoryview(copy).cast("B")[:] = value
    return copy
