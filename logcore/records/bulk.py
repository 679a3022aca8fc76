"""The codec for many rows, compiled by numba. This module encodes Arrow columns as Kafka records, `bulk_decoding.py`
decodes them. Load it through `codec.py`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..client import HEADERS
from ..errors import InvalidRecords
from .batch import BATCH_BYTES_MAX, HEADER_SIZE, BatchProducer, EncodedBatch, next_sequence, seal
from .bulk_decoding import check_rows, decode_rows
from .columns import RowColumns
from .memory import (
    address_of,
    bit_length,
    compiled,
    copy_short,
    data_address_of,
    offsets_of,
    store_byte,
    validity_of,
)
from .record_layout import ROWS_MAX, STORED_BYTES_MAX

__all__ = ["check_rows", "decode_rows", "encode_rows"]

Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]

_LONGS_IN: Final = "Array(int64, 1, 'C', readonly=True)"
_INTS_IN: Final = "Array(int32, 1, 'C', readonly=True)"
_FLAGS_IN: Final = "Array(bool, 1, 'C', readonly=True)"
_BYTES_COLUMN: Final = f"{_INTS_IN}, int64, {_FLAGS_IN}"  # offsets, address of the data, validity
_OPTIONS: Final[dict[str, Any]] = {"nogil": True, "cache": True}


@compiled("int64(int64)", inline="always", **_OPTIONS)
def _varint_size(value: int) -> int:
    return int((bit_length(np.uint64((value << 1) ^ (value >> 63)) | np.uint64(1)) * 9 + 64) >> 6)


@compiled("int64(int64, int64)", inline="always", **_OPTIONS)
def _write_varint(position: int, value: int) -> int:
    encoded = np.uint64((value << 1) ^ (value >> 63))
    while encoded > np.uint64(0x7F):
        store_byte(position, np.int64(encoded & np.uint64(0x7F)) | 0x80)
        encoded >>= np.uint64(7)
        position += 1
    store_byte(position, np.int64(encoded))
    return position + 1


# Helpers inside the loops take numbers, not arrays: numba counts references to an array at every inlined call, which
# cost more than everything else (42 ns per record instead of 6 in `_plan`). Length -1 means NULL.


@compiled("int64(int64)", inline="always", **_OPTIONS)
def _field_size(length: int) -> int:
    return _varint_size(length) + max(length, 0)


@compiled("int64(int64, int64, int64)", inline="always", **_OPTIONS)
def _write_field(position: int, source: int, length: int) -> int:
    position = _write_varint(position, length)
    if length > 0:
        copy_short(position, source, length)
        position += length
    return position


@compiled(
    f"int64({_LONGS_IN}, {_BYTES_COLUMN}, {_BYTES_COLUMN}, {_LONGS_IN}, int64, int64, int64[::1], int64[::1])",
    **_OPTIONS,
)
def _plan(
    timestamps: Longs,
    key_offsets: Ints,
    key_data: int,
    key_valid: Flags,
    value_offsets: Ints,
    value_data: int,
    value_valid: Flags,
    header_sizes: Longs,
    rows_max: int,
    bytes_max: int,
    lengths: Longs,
    starts: Longs,
) -> int:
    """Computes the length of each record and the first row of each batch. Returns the number of batches."""
    batch_count, start, batch_bytes = 0, 0, 0
    key_nulls, value_nulls = len(key_valid) > 0, len(value_valid) > 0
    starts[0] = 0
    for row in range(len(timestamps)):
        key_length = np.int64(key_offsets[row + 1]) - np.int64(key_offsets[row])
        if key_nulls and not key_valid[row]:
            key_length = -1
        value_length = np.int64(value_offsets[row + 1]) - np.int64(value_offsets[row])
        if value_nulls and not value_valid[row]:
            value_length = -1
        fixed = 1 + _field_size(key_length) + _field_size(value_length)
        fixed += header_sizes[row] if len(header_sizes) else 1
        length = fixed + _varint_size(timestamps[row] - timestamps[start]) + _varint_size(row - start)
        size = length + _varint_size(length)
        if row > start and (row - start >= rows_max or batch_bytes + size > bytes_max):
            start, batch_bytes = row, 0
            batch_count += 1
            starts[batch_count] = row
            length = fixed + 2
            size = length + _varint_size(length)
        lengths[row] = length
        batch_bytes += size
    starts[batch_count + 1] = len(timestamps)
    return batch_count + 1


@compiled(
    f"void({_LONGS_IN}, {_BYTES_COLUMN}, {_BYTES_COLUMN}, {_INTS_IN}, {_BYTES_COLUMN}, {_BYTES_COLUMN},"
    " int64[::1], int64[::1], int64, int64, int64, int64[::1], int64[::1])",
    **_OPTIONS,
)
def _write(
    timestamps: Longs,
    key_offsets: Ints,
    key_data: int,
    key_valid: Flags,
    value_offsets: Ints,
    value_data: int,
    value_valid: Flags,
    header_offsets: Ints,
    name_offsets: Ints,
    name_data: int,
    name_valid: Flags,
    content_offsets: Ints,
    content_data: int,
    content_valid: Flags,
    lengths: Longs,
    starts: Longs,
    batch_count: int,
    header_size: int,
    out: int,
    positions: Longs,
    max_timestamps: Longs,
) -> None:
    """Writes all records from address `out` on, and leaves space for a header before each batch."""
    position = out
    key_nulls, value_nulls = len(key_valid) > 0, len(value_valid) > 0
    for batch in range(batch_count):
        positions[batch] = position - out
        position += header_size
        start = starts[batch]
        newest = timestamps[start]
        for row in range(start, starts[batch + 1]):
            newest = max(newest, timestamps[row])
            position = _write_varint(position, lengths[row])
            store_byte(position, 0)
            position = _write_varint(position + 1, timestamps[row] - timestamps[start])
            position = _write_varint(position, row - start)
            key_length = np.int64(key_offsets[row + 1]) - np.int64(key_offsets[row])
            if key_nulls and not key_valid[row]:
                key_length = -1
            position = _write_field(position, key_data + np.int64(key_offsets[row]), key_length)
            value_length = np.int64(value_offsets[row + 1]) - np.int64(value_offsets[row])
            if value_nulls and not value_valid[row]:
                value_length = -1
            position = _write_field(position, value_data + np.int64(value_offsets[row]), value_length)
            if not len(header_offsets):
                store_byte(position, 0)
                position += 1
                continue
            position = _write_varint(position, np.int64(header_offsets[row + 1] - header_offsets[row]))
            for item in range(header_offsets[row], header_offsets[row + 1]):
                name_length = np.int64(name_offsets[item + 1]) - np.int64(name_offsets[item])
                position = _write_field(position, name_data + np.int64(name_offsets[item]), name_length)
                content_length = np.int64(content_offsets[item + 1]) - np.int64(content_offsets[item])
                if len(content_valid) and not content_valid[item]:
                    content_length = -1
                position = _write_field(position, content_data + np.int64(content_offsets[item]), content_length)
        max_timestamps[batch] = newest
    positions[batch_count] = position - out


@compiled(f"void({_INTS_IN}, {_BYTES_COLUMN}, {_BYTES_COLUMN}, int64[::1])", **_OPTIONS)
def _measure_headers(
    header_offsets: Ints,
    name_offsets: Ints,
    name_data: int,
    name_valid: Flags,
    content_offsets: Ints,
    content_data: int,
    content_valid: Flags,
    sizes: Longs,
) -> None:
    for row in range(len(sizes)):
        size = _varint_size(np.int64(header_offsets[row + 1] - header_offsets[row]))
        for item in range(header_offsets[row], header_offsets[row + 1]):
            size += _field_size(np.int64(name_offsets[item + 1]) - np.int64(name_offsets[item]))
            if len(content_valid) and not content_valid[item]:
                size += _field_size(-1)
            else:
                size += _field_size(np.int64(content_offsets[item + 1]) - np.int64(content_offsets[item]))
        sizes[row] = size


_NO_INTS: Final = np.zeros(0, np.int32)
_NO_LONGS: Final = np.zeros(0, np.int64)
_NO_ITEMS: Final = pa.nulls(0, pa.binary())  # `pa.array` would import pandas, where it is installed: 58 MB, 0.4 s


def encode_rows(columns: RowColumns, producer: BatchProducer) -> list[EncodedBatch]:
    row_count = len(columns)
    timestamps = columns.timestamps.to_numpy()
    keys, values = _column_of(columns.keys), _column_of(columns.values)
    names, contents, header_offsets = _header_columns(columns.headers)  # keeps the arrays alive: we use their addresses
    headers = (header_offsets, _column_of(names), _column_of(contents))
    header_sizes = _NO_LONGS
    if len(headers[0]):
        header_sizes = np.empty(row_count, np.int64)
        _measure_headers(headers[0], *headers[1], *headers[2], header_sizes)
    lengths, starts = np.empty(row_count, np.int64), np.empty(row_count + 1, np.int64)
    batch_count = _plan(timestamps, *keys, *values, header_sizes, ROWS_MAX, STORED_BYTES_MAX, lengths, starts)
    if int(lengths.max()) > BATCH_BYTES_MAX:
        raise InvalidRecords(f"a record of {lengths.max()} bytes is too large for one record batch")
    out = np.empty(int(lengths.sum()) + 10 * row_count + HEADER_SIZE * batch_count, np.uint8)
    positions, newest = np.empty(batch_count + 1, np.int64), np.empty(batch_count, np.int64)
    _write(
        timestamps,
        *keys,
        *values,
        headers[0],
        *headers[1],
        *headers[2],
        lengths,
        starts,
        batch_count,
        HEADER_SIZE,
        address_of(out),
        positions,
        newest,
    )
    return _sealed(memoryview(out.data), timestamps, starts, positions.tolist(), newest.tolist(), producer)


def _column_of(column: pa.Array) -> tuple[Ints, int, Flags]:
    return offsets_of(column), data_address_of(column), validity_of(column)


def _header_columns(headers: pa.ListArray | None) -> tuple[pa.Array, pa.Array, Ints]:
    """Names and contents of all headers, and where those of each row begin; no offsets if there are no headers."""
    if headers is None or not len(headers.flatten()):
        return _NO_ITEMS, _NO_ITEMS, _NO_INTS
    present: Any = headers
    if headers.null_count:  # a NULL list may still span items, so the array is rebuilt without them
        present = pa.array([row or [] for row in headers.to_pylist()], HEADERS)
    items = present.values
    return items.field("key").fill_null(""), items.field("value"), offsets_of(present)


def _sealed(
    out: memoryview,
    timestamps: Longs,
    starts: Longs,
    positions: list[int],
    newest: list[int],
    producer: BatchProducer,
) -> list[EncodedBatch]:
    batches: list[EncodedBatch] = []
    for batch, max_timestamp_ms in enumerate(newest):
        start, end = int(starts[batch]), int(starts[batch + 1])
        who = producer
        if producer.base_sequence >= 0:
            who = producer._replace(base_sequence=next_sequence(producer.base_sequence, start))
        batches.append(
            seal(
                [out[positions[batch] : positions[batch + 1]]],
                attributes=0,
                last_offset_delta=end - start - 1,
                base_timestamp_ms=int(timestamps[start]),
                max_timestamp_ms=max_timestamp_ms,
                record_count=end - start,
                producer=who,
            )
        )
    return batches
