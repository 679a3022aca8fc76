"""The codec for a few rows, in plain Python. It starts at once, whereas `bulk.py` first loads a compiler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from ..client import HEADERS, ROWS
from .batch import HEADER_SIZE, BatchProducer, EncodedBatch, next_sequence, seal
from .columns import RowColumns
from .record_layout import ROWS_MAX, STORED_BYTES_MAX, StoredBatch
from .varint import read_varint, varint

Header = tuple[str, bytes | None]


def encode_rows(columns: RowColumns, producer: BatchProducer) -> list[EncodedBatch]:
    batches: list[EncodedBatch] = []
    timestamps: list[int] = columns.timestamps.to_pylist()
    keys: list[bytes | None] = columns.keys.to_pylist()
    values: list[bytes | None] = columns.values.to_pylist()
    headers = _headers_of(columns)
    out, start = bytearray(HEADER_SIZE), 0
    for row, timestamp in enumerate(timestamps):
        record = encode_record(timestamp - timestamps[start], row - start, keys[row], values[row], headers[row])
        if row > start and (row - start >= ROWS_MAX or len(out) + len(record) > STORED_BYTES_MAX):
            batches.append(_sealed(out, timestamps[start:row], start, producer))
            out, start = bytearray(HEADER_SIZE), row
            record = encode_record(0, 0, keys[row], values[row], headers[row])
        out += varint(len(record))
        out += record
    batches.append(_sealed(out, timestamps[start:], start, producer))
    return batches


def _sealed(out: bytearray, timestamps: list[int], start: int, producer: BatchProducer) -> EncodedBatch:
    if start and producer.base_sequence >= 0:
        producer = producer._replace(base_sequence=next_sequence(producer.base_sequence, start))
    return seal(
        [out],
        attributes=0,
        last_offset_delta=len(timestamps) - 1,
        base_timestamp_ms=timestamps[0],
        max_timestamp_ms=max(timestamps),
        record_count=len(timestamps),
        producer=producer,
    )


def _headers_of(columns: RowColumns) -> Sequence[Sequence[Header]]:
    if columns.headers is None:
        return [()] * len(columns)
    return [
        [(header["key"] or "", header["value"]) for header in row or () if header is not None]
        for row in columns.headers.to_pylist()
    ]


def encode_record(
    timestamp_delta: int, offset_delta: int, key: bytes | None, value: bytes | None, headers: Sequence[Header]
) -> bytes:
    parts = [
        b"\0",  # attributes
        varint(_as_long(timestamp_delta)),
        varint(offset_delta),
        varint(-1 if key is None else len(key)),
        key or b"",
        varint(-1 if value is None else len(value)),
        value or b"",
        varint(len(headers)),
    ]
    for name, content in headers:
        text = name.encode()
        parts += (varint(len(text)), text, varint(-1 if content is None else len(content)), content or b"")
    return b"".join(parts)


def _as_long(number: int) -> int:
    """Wraps a number to a signed 64-bit integer. Timestamps may be further apart than that, but adding the wrapped
    difference still gives the right timestamp."""
    return ((number + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


_EMPTY: Final[list[dict[str, Any]]] = []


def decode_rows(batches: Sequence[StoredBatch], from_offset: int) -> pa.Table:
    """The rows at or after `from_offset`. Raises ValueError or IndexError if the bytes are not records."""
    offsets: list[int] = []
    timestamps: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    headers: list[list[dict[str, Any]]] = []
    for batch in batches:
        position, buffer = batch.start, batch.buffer
        for _ in range(batch.record_count):
            length, position = read_varint(buffer, position)
            end = position + length
            if length < 0 or end > batch.end:
                raise ValueError("a record that ends behind its batch")
            timestamp_delta, position = read_varint(buffer, position + 1)
            offset_delta, position = read_varint(buffer, position)
            if batch.base_offset + offset_delta >= from_offset:
                key, position = read_bytes(buffer, position)
                value, position = read_bytes(buffer, position)
                row_headers, position = _read_headers(buffer, position)
                if position > end:
                    raise ValueError("a record that is longer than it says")
                offsets.append(batch.base_offset + offset_delta)
                fixed = batch.fixed_timestamp_ms
                timestamps.append(_as_long(batch.base_timestamp_ms + timestamp_delta) if fixed is None else fixed)
                keys.append(key)
                values.append(value)
                headers.append(row_headers)
            position = end
    columns = [
        pa.array(offsets, pa.int64()),
        pa.array(timestamps, pa.int64()),
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(headers, HEADERS),
    ]
    return pa.Table.from_arrays(columns, schema=ROWS)


def check_rows(batch: StoredBatch) -> None:
    """Raises ValueError or IndexError if the bytes are not exactly the records, with offsets 0, 1, 2, …"""
    position, buffer = batch.start, batch.buffer
    for row in range(batch.record_count):
        length, position = read_varint(buffer, position)
        end = position + length
        if length < 0 or end > batch.end:
            raise ValueError("a record that ends behind its batch")
        _, position = read_varint(buffer, position + 1)
        offset_delta, position = read_varint(buffer, position)
        if offset_delta != row:
            raise ValueError("the offsets of the records do not follow each other")
        position = _skip_bytes(buffer, _skip_bytes(buffer, position))
        header_count, position = read_varint(buffer, position)
        if header_count < 0:
            raise ValueError("a negative number of headers")
        for _ in range(header_count):
            name_size, position = read_varint(buffer, position)
            if name_size < 0:
                raise ValueError("a header without a name")
            position = _skip_bytes(buffer, position + name_size)
        if position != end:
            raise ValueError("a record that is longer or shorter than it says")
    if position != batch.end:
        raise ValueError("bytes after the last record")


def _skip_bytes(buffer: memoryview, position: int) -> int:
    length, position = read_varint(buffer, position)
    return position + max(length, 0)


def read_bytes(buffer: memoryview, position: int) -> tuple[bytes | None, int]:
    length, position = read_varint(buffer, position)
    if length < 0:
        return None, position
    end = position + length
    if end > len(buffer):
        raise ValueError("a field that ends behind its batch")
    return bytes(buffer[position:end]), end


def _read_headers(buffer: memoryview, position: int) -> tuple[list[dict[str, Any]], int]:
    count, position = read_varint(buffer, position)
    if count <= 0:
        return _EMPTY, position
    headers: list[dict[str, Any]] = []
    for _ in range(count):
        name, position = read_bytes(buffer, position)
        content, position = read_bytes(buffer, position)
        headers.append({"key": (name or b"").decode(errors="replace"), "value": content})
    return headers, position
