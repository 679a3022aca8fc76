"""Encodes rows of Arrow columns as compact bytes, one value per row, and decodes them: for logs that cannot store
columnar batches.

    row     = one bit per column (1: not NULL), then the columns that are not NULL, in order
    number, date, time, timestamp, decimal, boolean   its bytes as in Arrow, booleans as one byte
    text, bytes                                       length (4 bytes), then the bytes
    list, map       count (4 bytes), the length of each element (4 bytes each), then the elements as rows of one column
    struct          a row of its fields

Equal keys have equal bytes, because brokers compact by them (0.0 equals -0.0, and all NaN are equal). Other values are
unchanged. The bytes do not contain the schema; its `fingerprint` shows whether another schema wrote them. Whole columns
are encoded and decoded at once: no code here loops over rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_LENGTH: Final = 4


class MalformedRow(ValueError):
    """Bytes that are not a row of these columns."""


def fingerprint(schema: pa.Schema) -> bytes:
    """Four bytes that are very probably different for different schemas."""
    text = ",".join(f"{field.name} {field.type}" for field in schema)
    return zlib.crc32(text.encode()).to_bytes(4, "big")


def encode_rows(columns: Sequence[pa.Array], rows: int, *, keys: bool = True) -> pa.BinaryArray:
    """One value per row, never NULL. In: `rows`: their number, because there may be no columns. `keys`: whether equal
    rows must have equal bytes."""
    parts = [_bits([_validity(column) for column in columns], rows)] if columns else []
    parts += [_encode(column, keys) for column in columns]
    if not parts:
        return pa.array([b""] * rows, pa.binary())
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, b"")


def decode_rows(values: pa.BinaryArray, types: Sequence[pa.DataType], skipped: int = 0) -> list[pa.Array]:
    """The columns. In: values without NULL; `skipped`: bytes of each value before its row. Raises `MalformedRow`."""
    data, starts, ends = _contents(values)
    starts = starts + skipped
    if not len(values):
        return [pa.nulls(0, type_) for type_ in types]
    try:
        columns, reached = _decode_fields(data, starts, types)
    except (IndexError, ValueError, OverflowError, pa.ArrowInvalid) as error:
        raise MalformedRow(f"not a row of these columns: {error}") from error
    if (reached != ends).any():
        raise MalformedRow("a row ends somewhere else than its columns do")
    return columns


# ------------------------------------------------------------------ encoding


def _encode(column: pa.Array, keys: bool) -> pa.BinaryArray:
    """The bytes of each value; empty for NULL."""
    type_ = column.type
    if pa.types.is_null(type_):
        return pa.array([b""] * len(column), pa.binary())
    if pa.types.is_struct(type_):
        fields = [_field(column, i) for i in range(type_.num_fields)]
        return _where_valid(column, encode_rows(fields, len(column), keys=keys))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_map(type_):
        return _encode_lists(column, keys)
    if is_text(type_):
        return _with_length(column)
    return _encode_fixed(column, keys)


def _encode_fixed(column: pa.Array, keys: bool) -> pa.BinaryArray:
    raw = _fixed_bytes(column)
    raw = _one_form(raw) if keys and pa.types.is_floating(column.type) else raw
    width = raw.shape[1]
    valid = _validity(column)
    starts = np.zeros(len(column) + 1, np.int32)
    np.cumsum(valid * width, out=starts[1:])
    return _binary(starts, raw[valid].reshape(-1))


def _fixed_bytes(column: pa.Array) -> Bytes:
    """One row of bytes per value; undefined for NULL."""
    type_, count = column.type, len(column)
    if pa.types.is_boolean(type_):
        return column.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint8).reshape(-1, 1)
    width = _width(type_)
    buffer = column.buffers()[1]
    if buffer is None:
        return np.zeros((count, width), np.uint8)
    begin = column.offset * width
    return np.frombuffer(buffer, np.uint8, count * width, begin).reshape(count, width)


def _one_form(raw: Bytes) -> Bytes:
    """The floats in a form in which equal values have equal bytes."""
    width = raw.shape[1]
    floats = raw.reshape(-1).view(f"<f{width}") + 0.0  # -0.0 becomes 0.0
    return np.where(np.isnan(floats), floats.dtype.type(np.nan), floats).view(np.uint8).reshape(-1, width)


def _with_length(column: pa.Array) -> pa.BinaryArray:
    text = column.cast(pa.binary())
    lengths = _numbers(pc.binary_length(text).fill_null(0).to_numpy(zero_copy_only=False))
    return _where_valid(column, pc.binary_join_element_wise(lengths, text.fill_null(b""), b""))


def _encode_lists(column: pa.Array, keys: bool) -> pa.BinaryArray:
    """The bytes of each list. All elements are encoded at once, and each list is a range of their bytes."""
    lists = _as_list(column)
    counts = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    flat = lists.flatten()  # without hidden elements of NULL lists
    encoded = encode_rows([flat], len(flat), keys=keys)
    data, starts, ends = _contents(encoded)
    bounds = np.concatenate([[0], np.cumsum(counts)])
    places = np.append(starts, ends[-1] if len(ends) else 0)
    elements = _binary(places[bounds].astype(np.int32), data)
    lengths = _binary((bounds * _LENGTH).astype(np.int32), (ends - starts).astype("<u4").view(np.uint8))
    return _where_valid(column, pc.binary_join_element_wise(_numbers(counts), lengths, elements, b""))


def _where_valid(column: pa.Array, encoded: pa.BinaryArray) -> pa.BinaryArray:
    return pc.if_else(column.is_valid(), encoded, b"") if column.null_count else encoded


def _bits(valid: Sequence[Flags], rows: int) -> pa.BinaryArray:
    """One bit per row and column: whether the value is not NULL."""
    packed = np.packbits(np.stack(valid, axis=1), axis=1, bitorder="little")
    starts = np.arange(rows + 1, dtype=np.int32) * packed.shape[1]
    return _binary(starts.astype(np.int32), packed.reshape(-1))


def _numbers(values: npt.NDArray[Any]) -> pa.BinaryArray:
    starts = np.arange(len(values) + 1, dtype=np.int32) * _LENGTH
    return _binary(starts.astype(np.int32), values.astype("<u4").view(np.uint8))


# ------------------------------------------------------------------ decoding


def _decode_fields(data: Bytes, places: Places, types: Sequence[pa.DataType]) -> tuple[list[pa.Array], Places]:
    """Decodes a row of these types at each place. Out: the columns, and where the rows end."""
    if not types:
        return [], places
    width = (len(types) + 7) // 8
    packed = _take(data, places, width)
    flags = np.unpackbits(packed, axis=1, count=len(types), bitorder="little").astype(np.bool_)
    places = places + width
    columns: list[pa.Array] = []
    for number, type_ in enumerate(types):
        column, places = _decode(data, places, flags[:, number], type_)
        columns.append(column)
    return columns, places


def _decode(data: Bytes, places: Places, valid: Flags, type_: pa.DataType) -> tuple[pa.Array, Places]:
    """Decodes the value at each place; NULL if it is not `valid`. Out: the column, and where reading continues."""
    if pa.types.is_null(type_):
        return pa.nulls(len(places)), places
    if pa.types.is_struct(type_):
        return _decode_structs(data, places, valid, type_)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_map(type_):
        return _decode_lists(data, places, valid, type_)
    if is_text(type_):
        return _decode_text(data, places, valid, type_)
    width = _width(type_)
    raw = np.zeros((len(places), width), np.uint8)
    raw[valid] = _take(data, places[valid], width)
    return _from_fixed(raw, valid, type_), places + valid * width


def _from_fixed(raw: Bytes, valid: Flags, type_: pa.DataType) -> pa.Array:
    if pa.types.is_boolean(type_):
        return pa.array(raw[:, 0].astype(np.bool_), pa.bool_(), mask=~valid)
    return pa.Array.from_buffers(type_, len(raw), [_bitmap(valid), pa.py_buffer(np.ascontiguousarray(raw))])


def _decode_text(data: Bytes, places: Places, valid: Flags, type_: pa.DataType) -> tuple[pa.Array, Places]:
    lengths = np.zeros(len(places), np.int64)
    lengths[valid] = _read_numbers(data, places[valid])
    begin = places + valid * _LENGTH
    content = _stretches(data, begin, lengths)
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    binary = pa.Array.from_buffers(
        pa.binary(), len(places), [_bitmap(valid), pa.py_buffer(bounds), pa.py_buffer(content)]
    )
    return binary if type_.equals(pa.binary()) else binary.cast(type_), begin + lengths


def _decode_structs(data: Bytes, places: Places, valid: Flags, type_: pa.DataType) -> tuple[pa.Array, Places]:
    fields = [type_.field(index) for index in range(type_.num_fields)]
    found, ends = _decode_fields(data, places[valid], [field.type for field in fields])
    reached = places.copy()
    reached[valid] = ends
    taken = _spread(valid)
    children = [column.take(taken) for column in found]
    return pa.StructArray.from_arrays(children, fields=fields, mask=pa.array(~valid)), reached


def _decode_lists(data: Bytes, places: Places, valid: Flags, type_: pa.DataType) -> tuple[pa.Array, Places]:
    counts = np.zeros(len(places), np.int64)
    counts[valid] = _read_numbers(data, places[valid])
    if counts.sum() * _LENGTH > len(data):
        raise MalformedRow("a list is longer than what there is")
    lengths_at = places + valid * _LENGTH
    owner = np.repeat(np.arange(len(places)), counts)
    rank = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    lengths = _read_numbers(data, lengths_at[owner] + rank * _LENGTH)
    begin = lengths_at + counts * _LENGTH
    before = np.cumsum(lengths) - lengths
    bounds = np.concatenate([[0], np.cumsum(counts)])
    first = np.where(counts > 0, np.append(before, 0)[np.minimum(bounds[:-1], len(before))], 0)
    at = begin[owner] + before - first[owner]
    (flat,), ends = _decode_fields(data, at, [_element_type(type_)])
    if (ends != at + lengths).any():
        raise MalformedRow("an element of a list ends somewhere else than it says")
    total = np.zeros(len(places), np.int64)
    np.add.at(total, owner, lengths)
    return _as_lists(flat, bounds.astype(np.int32), valid, type_), begin + total


def _as_lists(flat: pa.Array, bounds: npt.NDArray[np.int32], valid: Flags, type_: pa.DataType) -> pa.Array:
    kind = type_ if pa.types.is_list(type_) else pa.list_(_element_field(type_))
    lists = pa.Array.from_buffers(kind, len(valid), [_bitmap(valid), pa.py_buffer(bounds)], children=[flat])
    if pa.types.is_map(type_):
        return pa.Array.from_buffers(type_, len(valid), lists.buffers()[:2], children=[flat])
    return lists if pa.types.is_list(type_) else lists.cast(type_)


# ------------------------------------------------------------------ both


def is_text(type_: pa.DataType) -> bool:
    return (
        pa.types.is_string(type_)
        or pa.types.is_binary(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_large_binary(type_)
    )


def _width(type_: pa.DataType) -> int:
    return 1 if pa.types.is_boolean(type_) else type_.bit_width // 8


def _element_field(type_: pa.DataType) -> pa.Field:
    if pa.types.is_map(type_):
        entries = pa.struct([type_.key_field.with_nullable(False), type_.item_field])
        return pa.field("entries", entries, nullable=False)
    return type_.value_field


def _element_type(type_: pa.DataType) -> pa.DataType:
    return _element_field(type_).type


def _as_list(column: pa.Array) -> pa.Array:
    """A map as a list of its entries; other columns unchanged."""
    if not pa.types.is_map(column.type):
        return column
    kind = pa.list_(_element_field(column.type))
    return pa.Array.from_buffers(
        kind, len(column), column.buffers()[:2], offset=column.offset, children=[_entries(column)]
    )


def _entries(column: pa.Array) -> pa.Array:
    field = _element_field(column.type)
    fields = [field.type.field(0), field.type.field(1)]
    return pa.StructArray.from_arrays([column.keys, column.items], fields=fields)


def _field(column: pa.Array, index: int) -> pa.Array:
    return pc.struct_field(column, [index])


def _validity(column: pa.Array) -> Flags:
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    return column.is_valid().to_numpy(zero_copy_only=False)


def _bitmap(valid: Flags) -> pa.Buffer | None:
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _spread(valid: Flags) -> pa.Array:
    """For each row, the position of its value among the valid ones; NULL if it has none."""
    return pa.array(np.cumsum(valid) - 1, mask=~valid)


def _binary(bounds: npt.NDArray[np.int32], data: Bytes) -> pa.BinaryArray:
    return pa.Array.from_buffers(
        pa.binary(),
        len(bounds) - 1,
        [None, pa.py_buffer(np.ascontiguousarray(bounds)), pa.py_buffer(np.ascontiguousarray(data))],
    )


def _contents(values: pa.BinaryArray) -> tuple[Bytes, Places, Places]:
    """The bytes of all values, and where each value begins and ends."""
    _, bounds, data = values.buffers()
    if not len(values):
        return np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64)
    places = np.frombuffer(bounds, np.int32, len(values) + 1, values.offset * 4).astype(np.int64)
    content = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return content, places[:-1], places[1:]


def _take(data: Bytes, places: Places, width: int) -> Bytes:
    """The `width` bytes from each place on, as rows. Raises IndexError beyond the end."""
    return data[places[:, None] + np.arange(width)]


def _read_numbers(data: Bytes, places: Places) -> Places:
    return np.ascontiguousarray(_take(data, places, _LENGTH)).view("<u4").reshape(-1).astype(np.int64)


def _stretches(data: Bytes, begin: Places, lengths: Places) -> Bytes:
    """The ranges of bytes that begin at each place, concatenated. Raises `MalformedRow` beyond the end."""
    total = int(lengths.sum())
    if total > len(data) or (len(begin) and (begin + lengths).max() > len(data)):
        raise MalformedRow("a text is longer than what there is")
    inside = np.arange(total) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return data[np.repeat(begin, lengths) + inside]
