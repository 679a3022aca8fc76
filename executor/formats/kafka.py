"""KAFKA: one column in the form of Kafka's own serializers: big-endian numbers, UTF-8 text, unchanged bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...planner.formats.kafka import KAFKA
from ...planner.schema import Column
from .codec import Decoded, Decoder, Encoder, RowError, boolean_array, byte_view, one_array, valid_flags
from .coding import Coding, RecordPart, codes

NUMBERS: dict[str, str] = {"INTEGER": ">i4", "BIGINT": ">i8", "DOUBLE": ">f8"}
TYPES = (*NUMBERS, "STRING", "BYTES")


class KafkaDecoder:
    """At most one of `columns` is `wanted`. Even if none is, the bytes are checked: whether a record has errors must
    not depend on what a query reads of it."""

    def __init__(self, columns: Sequence[Column], wanted: Sequence[bool]) -> None:
        self._columns = columns
        self._wanted = wanted

    def decode(self, data: pa.Array | pa.ChunkedArray) -> Decoded:
        rows = one_array(data)
        null_rows = boolean_array(1 - valid_flags(rows))
        arrays: list[pa.Array] = []
        errors: list[RowError] = []
        for column, wanted in zip(self._columns, self._wanted, strict=True):
            array, found = _read(rows, column)
            arrays.append(array if wanted else pa.nulls(len(rows), column.type.arrow))
            errors += found
        return Decoded(arrays, null_rows, errors)


def _read(rows: pa.BinaryArray, column: Column) -> tuple[pa.Array, list[RowError]]:
    type_name = str(column.type)
    if type_name == "BYTES":
        return rows, []
    return _strings(rows) if type_name == "STRING" else _numbers(rows, type_name)


def _numbers(rows: pa.BinaryArray, type_name: str) -> tuple[pa.Array, list[RowError]]:
    data, offsets = byte_view(rows)
    wire = np.dtype(NUMBERS[type_name])
    lengths = np.diff(offsets)
    valid = valid_flags(rows) != 0
    good = valid & (lengths == wire.itemsize)
    values = np.zeros(len(rows), wire.newbyteorder("="))
    places = offsets[:-1][good].astype(np.int64)[:, None] + np.arange(wire.itemsize)
    values[good] = data[places].reshape(-1).view(wire)
    errors = [
        RowError(int(row), f"{type_name} wants {wire.itemsize} bytes, {int(lengths[row])} came")
        for row in np.flatnonzero(valid & ~good)
    ]
    return pa.array(values, mask=None if good.all() else ~good), errors


def _strings(rows: pa.BinaryArray) -> tuple[pa.Array, list[RowError]]:
    try:
        return rows.cast(pa.string()), []
    except pa.ArrowInvalid:
        pass
    texts: list[str | None] = []
    errors: list[RowError] = []
    for number, row in enumerate(rows.to_pylist()):
        try:
            texts.append(None if row is None else row.decode())
        except UnicodeDecodeError as error:
            texts.append(None)
            errors.append(RowError(number, f"invalid UTF-8 at byte {error.start}"))
    return pa.array(texts, pa.string()), errors


class KafkaEncoder:
    """In: `number`: the position of the column in the argument of `encode`."""

    def __init__(self, column: Column | None, number: int) -> None:
        self._column = column
        self._number = number

    def encode(
        self,
        columns: Sequence[pa.Array],
        *,
        null_rows: pa.BooleanArray | None = None,
        window_start: pa.Array | None = None,
        window_end: pa.Array | None = None,
    ) -> pa.BinaryArray:
        if self._column is None:
            count = len(columns[0]) if columns else 0 if null_rows is None else len(null_rows)
            return pa.nulls(count, pa.binary())
        array = columns[self._number]
        valid = valid_flags(array) != 0
        if null_rows is not None:
            valid &= ~null_rows.fill_null(False).to_numpy(zero_copy_only=False).astype(np.bool_)
        type_name = str(self._column.type)
        if type_name in NUMBERS:
            return _fixed(array.fill_null(0).to_numpy(zero_copy_only=False).astype(NUMBERS[type_name]), valid)
        return with_nulls(array.cast(pa.string()).cast(pa.binary()) if type_name == "STRING" else array, valid)


def _fixed(values: NDArray[np.generic], valid: NDArray[np.bool_]) -> pa.BinaryArray:
    width = values.dtype.itemsize
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.where(valid, width, 0), out=offsets[1:])
    buffers = [_bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values[valid]))]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def with_nulls(array: pa.BinaryArray, valid: NDArray[np.bool_]) -> pa.BinaryArray:
    """The array, with null where `valid` is false."""
    if valid.all():
        return array
    return pa.Array.from_buffers(pa.binary(), len(array), [_bitmap(valid), *_from_start(array)])


def _from_start(array: pa.BinaryArray) -> list[pa.Buffer | None]:
    _, offsets = byte_view(array)
    return [pa.py_buffer(np.ascontiguousarray(offsets)), array.buffers()[2]]


def _bitmap(valid: NDArray[np.bool_]) -> pa.Buffer | None:
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


@codes(KAFKA.name)
class KafkaCoding(Coding):
    def decoder(self, part: RecordPart) -> Decoder:
        return KafkaDecoder(part.columns, part.wanted)

    def encoder(self, part: RecordPart) -> Encoder:
        return KafkaEncoder(part.held[0] if part.held else None, part.numbers[0] if part.held else 0)

    def encode_one(self, part: RecordPart, value: Any) -> bytes:
        layout = _LAYOUTS.get(_type_name(part))
        if layout is None:
            return super().encode_one(part, value)
        return layout.pack(float(value) if layout.format == ">d" else int(value))

    def decode_one(self, part: RecordPart, data: bytes) -> Any:
        type_name = _type_name(part)
        layout = _LAYOUTS.get(type_name)
        if layout is not None:
            return layout.unpack(data)[0]
        return data if type_name == "BYTES" else data.decode()


_LAYOUTS = {"INTEGER": struct.Struct(">i"), "BIGINT": struct.Struct(">q"), "DOUBLE": struct.Struct(">d")}


def _type_name(part: RecordPart) -> str:
    """The type of the only column. Without columns, the bytes are text."""
    return str(part.columns[0].type) if part.columns else "STRING"
