"""Decodes Kafka records into Arrow columns, and checks records that are stored as received; compiled. See `bulk.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..client import HEADERS, ROWS
from .memory import address_of, bitmap_of, compiled, copy_bytes, load_byte
from .record_layout import StoredBatch

Longs = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]

_LONGS_IN: Final = "Array(int64, 1, 'C', readonly=True)"
_FLAGS_IN: Final = "Array(bool, 1, 'C', readonly=True)"
_OPTIONS: Final[dict[str, Any]] = {"nogil": True, "cache": True}


@compiled("UniTuple(int64, 2)(int64, int64)", inline="always", **_OPTIONS)
def _read_varint(position: int, end: int) -> tuple[int, int]:
    """The number and the position after it; a position past `end` if the bytes are no number."""
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
    """Fills the columns and returns the number of rows; -1 if the bytes are not records."""
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
    """The rows at or after `from_offset`. Raises ValueError if the bytes are not records."""
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
    """The buffers of a binary column that is being filled. `data` is larger than needed, and cut at the end."""

    def __init__(self, rows_max: int, bytes_max: int) -> None:
        self.offsets = np.empty(rows_max + 1, np.int32)
        self.valid = np.empty(rows_max, np.bool_)
        self.data = np.frombuffer(pa.allocate_buffer(bytes_max), np.uint8)

    @property
    def parts(self) -> tuple[Ints, Flags, int]:
        return self.offsets, self.valid, address_of(self.data)

    def column(self, count: int, kind: pa.DataType) -> pa.Array:
        used = self.data[: self.offsets[count]]
        if len(used) < len(self.data) // 2:
            used = used.copy()  # frees the unused half of the buffer
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


@compiled("int64(int64, int64)", inline="always", **_OPTIONS)
def _skip_field(position: int, end: int) -> int:
    """The position after a field; `end` + 1 if the field is longer than the rest."""
    size, position = _read_varint(position, end)
    if position > end or size > end - position:
        return end + 1
    return position + max(size, 0)


@compiled("boolean(int64, int64, int64)", **_OPTIONS)
def _are_records(position: int, batch_end: int, count: int) -> bool:
    """Whether exactly `count` records are here, with offsets 0, 1, 2, …"""
    for row in range(count):
        length, position = _read_varint(position, batch_end)
        end = position + length
        if length < 0 or end > batch_end:
            return False
        _, position = _read_varint(position + 1, end)
        offset_delta, position = _read_varint(position, end)
        if position > end or offset_delta != row:
            return False
        position = _skip_field(position, end)
        position = _skip_field(position, end)
        header_count, position = _read_varint(position, end)
        if position > end or header_count < 0 or header_count > end - position:
            return False
        for _ in range(header_count):
            name_size, position = _read_varint(position, end)
            if position > end or name_size < 0 or name_size > end - position:
                return False
            position = _skip_field(position + name_size, end)
        if position != end:
            return False
    return position == batch_end


def check_rows(batch: StoredBatch) -> None:
    """Raises ValueError if the bytes are not exactly the records, with offsets 0, 1, 2, …"""
    address = pa.py_buffer(batch.buffer).address
    if not _are_records(address + batch.start, address + batch.end, batch.record_count):
        raise ValueError("not the records, or their offsets do not follow each other")
