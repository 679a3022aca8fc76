"""Columnar batches: a Kafka batch with one record, whose value is an Arrow IPC stream of one record batch.

The record's header `ms.enc` names the encoding. Its offset delta is that of the last row, so the batch uses one offset
per row, and a Kafka client that reads it continues after it.

If compaction removed rows, the last column has the offsets that are left: `_offset_delta`, with the field metadata
`millstream.meta` = offset. The Arrow schema's metadata tells compaction what the key is: `column_keys.py`.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..client import ColumnarRecords
from ..errors import InvalidRecords
from .batch import (
    BATCH_BYTES_MAX,
    COLUMNAR,
    COMPRESSION,
    HEADER_SIZE,
    PREFIX_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    BatchProducer,
    Buffer,
    EncodedBatch,
    reseal,
    seal,
)
from .varint import read_varint, write_varint

_HEADERS: Final = b"\x02\x0cms.enc\x0aarrow"  # one header: varint lengths before name and value
Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_DELTAS: Final = "_offset_delta"
_META: Final = b"millstream.meta"
_OFFSET: Final = b"offset"
ALIGNMENT: Final = 8
"""Numbers at addresses that are multiples of this are read without a copy."""
_USHORT: Final = struct.Struct("<H")
_INT: Final = struct.Struct("<i")
_UINT: Final = struct.Struct("<I")
_DICTIONARY: Final = 2  # kinds of Arrow messages
_RECORD_BATCH: Final = 3


def encode_columns(records: ColumnarRecords, producer: BatchProducer) -> EncodedBatch:
    batch = records.batch
    buffers = _record(batch, batch.num_rows - 1)
    return seal(
        buffers,
        attributes=COLUMNAR,
        last_offset_delta=batch.num_rows - 1,
        base_timestamp_ms=records.timestamp_ms,
        max_timestamp_ms=records.timestamp_ms,
        record_count=1,
        producer=producer,
    )


def thin_columns(header: BatchHeader, columns: pa.RecordBatch, deltas: Longs, keep: Flags) -> EncodedBatch:
    """The columnar batch with only the rows to `keep`; all else is unchanged. In: `deltas`: each row's offset delta."""
    kept = columns.filter(pa.array(keep))
    left = pa.array(deltas[keep].astype(np.int32))
    field = pa.field(_DELTAS, pa.int32(), metadata={_META: _OFFSET})
    thinned = pa.RecordBatch.from_arrays(
        [*kept.columns, left], schema=pa.schema([*kept.schema, field], metadata=kept.schema.metadata)
    )
    buffers = _record(thinned, header.last_offset_delta)
    size = sum(len(buffer) for buffer in buffers)
    attributes = header.attributes & ~(TRANSACTIONAL | COMPRESSION)
    return reseal(buffers, header._replace(batch_length=size - PREFIX_SIZE, attributes=attributes, record_count=1))


def split_deltas(columns: pa.RecordBatch, row_count: int) -> tuple[pa.RecordBatch, Longs | None]:
    """The columns without `_offset_delta`, and its values: None if the batch has all its rows.

    In: `row_count`: the number of offsets of the batch. Raises ValueError if rows are missing without such a column.
    """
    last = columns.schema[-1] if columns.num_columns else None
    if last is not None and last.name == _DELTAS and (last.metadata or {}).get(_META) == _OFFSET:
        deltas = columns.column(columns.num_columns - 1).to_numpy(zero_copy_only=False).astype(np.int64)
        if len(deltas) and not (0 <= deltas[0] and deltas[-1] < row_count and bool((np.diff(deltas) > 0).all())):
            raise ValueError("a columnar batch whose offsets are not in order")
        return columns.select(columns.schema.names[:-1]), deltas
    if columns.num_rows != row_count:
        raise ValueError(f"a columnar batch of {columns.num_rows} rows for {row_count} offsets")
    return columns, None


def _record(batch: pa.RecordBatch, offset_delta: int) -> list[Buffer]:
    """The bytes of a batch with one record that holds these columns; its header is left empty."""
    payload = _ipc_stream(batch)
    if len(payload) > BATCH_BYTES_MAX:
        raise InvalidRecords(
            f"a columnar batch of {len(payload)} bytes is too large for one record batch",
            hint="Cut it into several batches.",
        )
    fields = bytearray(1)  # attributes
    write_varint(fields, 0)  # timestamp delta
    write_varint(fields, offset_delta)
    write_varint(fields, -1)  # no key
    write_varint(fields, len(payload))
    out = bytearray(HEADER_SIZE)
    write_varint(out, len(fields) + len(payload) + len(_HEADERS))
    return [out + fields, payload, _HEADERS]


def _ipc_stream(batch: pa.RecordBatch) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return memoryview(sink.getvalue()).cast("B")


def decode_columns(records: memoryview) -> pa.RecordBatch:
    """The columns in these records (the bytes after the header). Raises ValueError if they contain none.

    The columns point into `records`, unless the payload is not aligned.
    """
    try:
        value = _value_of(records)
        with pa.ipc.open_stream(_aligned(value)) as reader:
            return reader.read_next_batch()
    except (IndexError, StopIteration, OSError, pa.ArrowException) as error:
        raise ValueError(f"not a columnar batch: {error}") from error


def checked_columns(records: memoryview) -> pa.RecordBatch:
    """Like `decode_columns`, for untrusted bytes. Raises ValueError for content that would crash a reader or fill its
    memory: compressed columns may grow without bound, and ours are never compressed."""
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
    """Whether this Arrow message, a flatbuffer, says that its body is compressed."""
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
    """The position of a field in a table of a flatbuffer; None if it is absent."""
    vtable = table - _INT.unpack_from(buffer, table)[0]
    slot = 4 + 2 * index
    offset = _USHORT.unpack_from(buffer, vtable + slot)[0] if slot < _USHORT.unpack_from(buffer, vtable)[0] else 0
    return table + offset if offset else None


def misalignment(records: memoryview) -> int:
    """By how many bytes the records must be shifted from an aligned address so that their columns can be read without a
    copy. In: `records`: their first bytes are enough."""
    try:
        _, position = _value_position(records)
    except (IndexError, ValueError):
        return 0
    return -position % ALIGNMENT


def _value_position(records: memoryview) -> tuple[int, int]:
    """The length and the position of the value."""
    _, position = read_varint(records, 0)
    _, position = read_varint(records, position + 1)  # after the attributes: timestamp delta
    _, position = read_varint(records, position)
    key_length, position = read_varint(records, position)
    return read_varint(records, position + max(key_length, 0))


def _value_of(records: memoryview) -> memoryview:
    length, position = _value_position(records)
    if length < 0 or position + length > len(records):
        raise ValueError("not a columnar batch: its value ends behind it")
    return records[position : position + length]


def _aligned(value: memoryview) -> pa.Buffer:
    buffer = pa.py_buffer(value)
    if buffer.address % ALIGNMENT == 0:
        return buffer
    copy = pa.allocate_buffer(len(value))
    memoryview(copy).cast("B")[:] = value
    return copy
