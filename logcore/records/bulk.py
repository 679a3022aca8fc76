"""The codec for many rows: Arrow columns to Kafka records and back, compiled by numba. Load it through `codec.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..client import HEADERS, ROWS
from ..errors import InvalidRecords
from .batch import BATCH_BYTES_MAX, HEADER_SIZE, EncodedBatch, Producer, next_sequence, seal
from .columns import RowColumns
from .layout import ROWS_MAX, STORED_BYTES_MAX, StoredBatch
from .memory import (
    address_of,
    bit_length,
    bitmap_of,
    compiled,
    copy_bytes,
    copy_short,
    data_address_of,
    load_byte,
    offsets_of,
    store_byte,
    validity_of,
)

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
# cost more than all else (42 ns a record instead of 6, for `_plan`). Length -1 stands for NULL.


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
    """Fills the length of each record and the first row of each batch; gives the count of batches."""
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
    """Writes all records from address `out` on; room for a header is left before each batch."""
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
_NO_ITEMS: Final = pa.array([], pa.binary())


def encode_rows(columns: RowColumns, producer: Producer) -> list[EncodedBatch]:
    row_count = len(columns)
    timestamps = columns.timestamps.to_numpy()
    keys, values = _column_of(columns.keys), _column_of(columns.values)
    names, contents, header_offsets = _header_columns(columns.headers)  # arrays that stay while we use their addresses
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
    """Names and contents of all headers, and where each row's begin; no offsets where there are no headers."""
    if headers is None or not len(headers.flatten()):
        return _NO_ITEMS, _NO_ITEMS, _NO_INTS
    present: Any = headers
    if headers.null_count:  # a NULL list may still span items: write it anew without them
        present = pa.array([row or [] for row in headers.to_pylist()], HEADERS)
    items = present.values
    return items.field("key").fill_null(""), items.field("value"), offsets_of(present)


def _sealed(
    out: memoryview,
    timestamps: Longs,
    starts: Longs,
    positions: list[int],
    newest: list[int],
    producer: Producer,
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


@compiled("UniTuple(int64, 2)(int64, int64)", inline="always", **_OPTIONS)
def _read_varint(position: int, end: int) -> tuple[int, int]:
    """The number and the position after it; a position past `end` where the bytes are no number."""
    encoded, shift = np.uint64(0), np.uint64(0)
    while position < end and shift < np.uint64(70):
        byte = load_byte(position)
        position += 1
        encoded |= np.uint64(byte & 0x7F) << shift
        if byte < 0x80:
            return int(np.int64(encoded >> np.uint64(1)) ^ -np.int64(encoded & np.uint64(1))), position
        shift += np.uint64(7)
    return 0, end + 1


@compiled(
    f"int64({_LONGS_IN}, {_LONGS_IN}, {_LONGS_IN}, {_LONGS_IN}, {_LONGS_IN}, {_LONGS_IN}, {_FLAGS_IN}, int64,"
    " int64[::1], int64[::1], int32[::1], bool[::1], int64, int32[::1], bool[::1], int64,"
    " int32[::1], int64[::1], int64[::1])",
    **_OPTIONS,
)
def _read(
    record_starts: Longs,
    record_ends: Longs,
    counts: Longs,
    base_offsets: Longs,
    base_timestamps: Longs,
    fixed_timestamps: Longs,
    timestamp_fixed: Flags,
    from_offset: int,
    offsets: Longs,
    timestamps: Longs,
    key_offsets: Ints,
    key_valid: Flags,
    key_data: int,
    value_offsets: Ints,
    value_valid: Flags,
    value_data: int,
    header_offsets: Ints,
    header_starts: Longs,
    header_ends: Longs,
) -> int:
    """Fills the columns and gives the count of rows; -1 where the bytes are not records."""
    row, key_end, value_end, header_count = 0, np.int64(0), np.int64(0), np.int64(0)
    key_offsets[0] = 0
    value_offsets[0] = 0
    header_offsets[0] = 0
    for batch in range(len(counts)):
        position, batch_end = record_starts[batch], record_ends[batch]
        for _ in range(counts[batch]):
            length, position = _read_varint(position, batch_end)
            end = position + length
            if length < 0 or end > batch_end:
                return -1
            timestamp_delta, position = _read_varint(position + 1, end)
            offset_delta, position = _read_varint(position, end)
            if position > end:
                return -1
            if base_offsets[batch] + offset_delta < from_offset:
                position = end
                continue
            offsets[row] = base_offsets[batch] + offset_delta
            timestamps[row] = (
                fixed_timestamps[batch] if timestamp_fixed[batch] else base_timestamps[batch] + timestamp_delta
            )
            size, position = _read_varint(position, end)
            if position > end or size > end - position:
                return -1
            key_valid[row] = size >= 0
            if size > 0:
                copy_bytes(key_data + key_end, position, size)
                key_end += size
                position += size
            size, position = _read_varint(position, end)
            if position > end or size > end - position:
                return -1
            value_valid[row] = size >= 0
            if size > 0:
                copy_bytes(value_data + value_end, position, size)
                value_end += size
                position += size
            size, position = _read_varint(position, end)
            if position > end or size > end - position:
                return -1
            header_count += max(size, 0)
            row += 1
            key_offsets[row] = key_end
            value_offsets[row] = value_end
            header_offsets[row] = header_count
            header_starts[row - 1] = position
            header_ends[row - 1] = end
            position = end
    return row


@compiled(
    "boolean(int32[::1], int64, int64[::1], int64[::1], int32[::1], int64, int32[::1], bool[::1], int64)", **_OPTIONS
)
def _read_headers(
    header_offsets: Ints,
    row_count: int,
    header_starts: Longs,
    header_ends: Longs,
    name_offsets: Ints,
    name_data: int,
    content_offsets: Ints,
    content_valid: Flags,
    content_data: int,
) -> bool:
    item, name_end, content_end = 0, np.int64(0), np.int64(0)
    name_offsets[0] = 0
    content_offsets[0] = 0
    for row in range(row_count):
        position, end = header_starts[row], header_ends[row]
        for _ in range(header_offsets[row + 1] - header_offsets[row]):
            size, position = _read_varint(position, end)
            if position > end or size > end - position:
                return False
            if size > 0:
                copy_bytes(name_data + name_end, position, size)
                name_end += size
                position += size
            size, position = _read_varint(position, end)
            if position > end or size > end - position:
                return False
            content_valid[item] = size >= 0
            if size > 0:
                copy_bytes(content_data + content_end, position, size)
                content_end += size
                position += size
            item += 1
            name_offsets[item] = name_end
            content_offsets[item] = content_end
    return True


def decode_rows(batches: Sequence[StoredBatch], from_offset: int) -> pa.Table:
    """The rows at or after `from_offset`. Raises ValueError where the bytes are not records."""
    rows_max = sum(batch.record_count for batch in batches)
    bytes_max = sum(batch.end - batch.start for batch in batches)
    if rows_max > bytes_max:
        raise ValueError("more records than bytes")
    addresses = [pa.py_buffer(batch.buffer).address for batch in batches]
    longs = [
        np.array(column, np.int64)
        for column in (
            [address + batch.start for address, batch in zip(addresses, batches, strict=True)],
            [address + batch.end for address, batch in zip(addresses, batches, strict=True)],
            [batch.record_count for batch in batches],
            [batch.base_offset for batch in batches],
            [batch.base_timestamp_ms for batch in batches],
            [batch.fixed_timestamp_ms or 0 for batch in batches],
        )
    ]
    fixed = np.array([batch.fixed_timestamp_ms is not None for batch in batches], np.bool_)
    offsets, timestamps = np.empty(rows_max, np.int64), np.empty(rows_max, np.int64)
    keys, values = _BytesOut(rows_max, bytes_max), _BytesOut(rows_max, bytes_max)
    header_offsets = np.empty(rows_max + 1, np.int32)
    header_starts, header_ends = np.empty(rows_max, np.int64), np.empty(rows_max, np.int64)
    count = _read(
        *longs,
        fixed,
        from_offset,
        offsets,
        timestamps,
        *keys.parts,
        *values.parts,
        header_offsets,
        header_starts,
        header_ends,
    )
    if count < 0:
        raise ValueError("not records")
    headers = _decoded_headers(header_offsets[: count + 1], header_starts, header_ends)
    columns = [
        pa.array(offsets[:count]),
        pa.array(timestamps[:count]),
        keys.column(count, pa.binary()),
        values.column(count, pa.binary()),
        headers,
    ]
    return pa.Table.from_arrays(columns, schema=ROWS)


class _BytesOut:
    """The buffers of a binary column that is being filled; `data` is taken larger than needed, and cut at the end."""

    def __init__(self, rows_max: int, bytes_max: int) -> None:
        self.offsets = np.empty(rows_max + 1, np.int32)
        self.valid = np.empty(rows_max, np.bool_)
        self.data = np.empty(bytes_max, np.uint8)

    @property
    def parts(self) -> tuple[Ints, Flags, int]:
        return self.offsets, self.valid, address_of(self.data)

    def column(self, count: int, kind: pa.DataType) -> pa.Array:
        used = self.data[: self.offsets[count]]
        if len(used) < len(self.data) // 2:
            used = used.copy()  # lets go of the room that another column took
        buffers = [bitmap_of(self.valid[:count]), pa.py_buffer(self.offsets[: count + 1]), pa.py_buffer(used)]
        return pa.Array.from_buffers(kind, count, buffers)


def _decoded_headers(header_offsets: Ints, header_starts: Longs, header_ends: Longs) -> pa.ListArray:
    row_count, item_count = len(header_offsets) - 1, int(header_offsets[-1])
    bytes_max = int((header_ends[:row_count] - header_starts[:row_count]).sum()) if item_count else 0
    if item_count > bytes_max:
        raise ValueError("more headers than bytes")
    names, contents = _BytesOut(item_count, bytes_max), _BytesOut(item_count, bytes_max)
    names.valid[:] = True
    if not _read_headers(
        header_offsets,
        row_count,
        header_starts,
        header_ends,
        names.offsets,
        address_of(names.data),
        *contents.parts,
    ):
        raise ValueError("not record headers")
    items = pa.StructArray.from_arrays(
        [_as_text(names.column(item_count, pa.binary())), contents.column(item_count, pa.binary())],
        fields=list(HEADERS.value_type),
    )
    return pa.ListArray.from_arrays(pa.array(header_offsets), items, type=HEADERS)


def _as_text(names: pa.Array) -> pa.Array:
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())
