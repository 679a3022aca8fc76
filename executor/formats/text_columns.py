"""Turns Arrow columns into columns of text: encoding of large batches, for JSON and delimited records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...sql.compiling.loops import read_only
from ...sql.types import Array, Decimal, Map, Primitive, SqlType, Struct
from .codec import byte_view, valid_flags
from .compiled import write
from .compiled.write_numbers import SCALE_MAX, write_fixed_point, write_integers
from .json_text import quote

_NULL = read_only(np.frombuffer(b"null", np.uint8))
_PADDING = read_only(np.zeros(write.WORD, np.uint8))
_PADDED_NULL = read_only(np.concatenate([_NULL, _PADDING]))
_PLAIN_SCALE_MAX = 6  # up to this scale, Arrow writes decimals without an exponent


@dataclass(frozen=True, slots=True)
class TextColumn:
    """Row i is data[offsets[i]:offsets[i + 1]], if valid[i]."""

    offsets: NDArray[np.int64]
    data: NDArray[np.uint8]
    valid: NDArray[np.uint8]

    @classmethod
    def of(cls, array: pa.Array) -> TextColumn:
        """From an array of strings or bytes."""
        data, offsets = byte_view(array)
        return cls(read_only(offsets.astype(np.int64)), data, read_only(valid_flags(array)))

    def replaced(self, written: tuple[NDArray[np.int64], NDArray[np.uint8]]) -> TextColumn:
        return TextColumn(read_only(written[0]), read_only(written[1]), self.valid)


def to_text(type_: SqlType, array: pa.Array, *, json: bool) -> TextColumn:
    """The values as JSON or, if `json` is False, without quotes. Types that have parts are always JSON."""
    match type_:
        case Primitive(name="STRING"):
            column = TextColumn.of(array.cast(pa.string()))
            return column.replaced(write.quote_json(column.offsets, column.data, column.valid)) if json else column
        case Primitive(name="BYTES"):
            column = TextColumn.of(array.cast(pa.binary()))
            return column.replaced(write.write_base64(column.offsets, column.data, column.valid, json))
        case Primitive(name="DOUBLE"):
            column = TextColumn.of(array.cast(pa.string()))
            return column.replaced(write.write_doubles(column.offsets, column.data, column.valid, json))
        case Primitive(name="BOOLEAN"):
            return TextColumn.of(array.cast(pa.string()))
        case Primitive():
            return _integers(wire_array(type_, array))
        case Decimal():
            small = _small_decimals(array)
            if small is not None and type_.scale <= SCALE_MAX:
                valid = read_only(valid_flags(array))
                offsets, data = write_fixed_point(read_only(small), valid, type_.scale)
                return TextColumn(read_only(offsets), read_only(data), valid)
            column = TextColumn.of(array.cast(pa.string()))
            if type_.scale <= _PLAIN_SCALE_MAX:
                return column
            return column.replaced(write.write_decimals(column.offsets, column.data, column.valid, type_.scale))
        case Struct():
            names = [field.name for field in type_.fields]
            children = [
                to_text(field.type, child, json=True)
                for field, child in zip(type_.fields, array.flatten()[: len(type_.fields)], strict=True)
            ]
            valid = read_only(valid_flags(array))
            return join(object_punctuation(names), children, _PADDED_NULL, valid)
        case Array():
            return _members(array, to_text(type_.element, array.values, json=True), b"[]")
        case Map():
            keys = to_text(type_.key, array.keys, json=True)
            values = to_text(type_.value, array.items, json=True)
            return _members(array, join([b"", b":", b""], [keys, values], _PADDED_NULL, keys.valid), b"{}")
        case _:
            raise AssertionError(f"no format holds {type_}")


def _small_decimals(array: pa.Array) -> NDArray[np.int64] | None:
    """The unscaled values of decimals; None if one of them does not fit into 64 bits. Undefined for NULL."""
    words = np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset : 2 * (array.offset + len(array))]
    low, high = words[0::2], words[1::2]
    return np.ascontiguousarray(low) if bool((high == low >> 63).all()) else None


def _integers(array: pa.Array) -> TextColumn:
    valid = read_only(valid_flags(array))
    filled = array.fill_null(0) if array.null_count else array
    values = filled.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    offsets, data = write_integers(read_only(values), valid)
    return TextColumn(read_only(offsets), read_only(data), valid)


def wire_array(type_: Primitive, array: pa.Array) -> pa.Array:
    """Times in the units in which formats write them (days, milliseconds); other types unchanged."""
    match type_.name:
        case "DATE":
            return array.cast(pa.int32())
        case "TIME" | "TIMESTAMP":
            micros = array.cast(pa.int64()).fill_null(0).to_numpy()
            mask = None if array.null_count == 0 else array.is_null().to_numpy(zero_copy_only=False)
            return pa.array(micros // 1000, mask=mask)
        case _:
            return array


def object_punctuation(names: Sequence[str]) -> list[bytes]:
    """The text before, between and after the values of a JSON object."""
    if not names:
        return [b"{}"]
    keys = [f"{quote(name)}:" for name in names]
    return [f"{'{' if i == 0 else ','}{key}".encode() for i, key in enumerate(keys)] + [b"}"]


def join(
    between: list[bytes], columns: Sequence[TextColumn], null: NDArray[np.uint8], present: NDArray[np.uint8]
) -> TextColumn:
    """Joins the columns to one text per row, with `between` around them. In: `null`: with padding (see
    `join_fields`)."""
    ends = read_only(np.cumsum([0, *map(len, between)], dtype=np.int64))
    bases = np.cumsum([0, *(len(column.data) for column in columns)], dtype=np.int64)
    count = len(present)
    offsets = np.empty((len(columns), count + 1), np.int64)
    valid = np.empty((len(columns), count), np.uint8)
    for i, column in enumerate(columns):
        np.add(column.offsets, bases[i], out=offsets[i])
        valid[i] = column.valid
    data = read_only(np.concatenate([*(column.data for column in columns), _PADDING]))
    text = read_only(np.frombuffer(b"".join(between) + bytes(write.WORD), np.uint8))
    out_offsets, out = write.join_fields(text, ends, data, read_only(offsets), read_only(valid), null, present)
    return TextColumn(read_only(out_offsets), read_only(out[: out_offsets[-1]]), present)


def join_json(names: Sequence[str], columns: Sequence[TextColumn], present: NDArray[np.uint8]) -> TextColumn:
    """One JSON object per row."""
    return join(object_punctuation(names), columns, _PADDED_NULL, present)


def join_delimited(delimiter: str, columns: Sequence[TextColumn], present: NDArray[np.uint8]) -> TextColumn:
    """One line per row."""
    separator = read_only(np.frombuffer(delimiter.encode(), np.uint8))
    quoted = [
        column.replaced(write.quote_delimited(column.offsets, column.data, column.valid, separator, i == 0))
        for i, column in enumerate(columns)
    ]
    between = [b"", *[delimiter.encode()] * (len(columns) - 1), b""]
    return join(between if columns else [b""], quoted, _PADDING, present)


def _members(array: pa.Array, members: TextColumn, brackets: bytes) -> TextColumn:
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    valid = read_only(valid_flags(array))
    written = write.join_members(
        read_only(offsets), valid, members.offsets, members.data, members.valid, brackets[0], brackets[1], _NULL
    )
    return TextColumn(read_only(written[0]), read_only(written[1]), valid)


def to_binary(column: TextColumn) -> pa.BinaryArray:
    """The rows as an Arrow binary array. Raises: OverflowError if a batch has 2 GiB or more."""
    if len(column.data) >= 2**31:
        raise OverflowError(f"a batch encodes to {len(column.data)} bytes; at most 2 GiB fit")
    bitmap = None if column.valid.all() else pa.py_buffer(np.packbits(column.valid != 0, bitorder="little"))
    offsets = pa.py_buffer(column.offsets.astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(column.valid), [bitmap, offsets, pa.py_buffer(column.data)])
