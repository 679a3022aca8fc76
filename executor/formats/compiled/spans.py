"""Turns spans of text into Arrow arrays of a SQL type: decoding of large batches, for all formats that find spans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ....planner.schemas.json_schemas import is_choice
from ....sql.compiling.loops import read_only
from ....sql.types import Array, Decimal, Map, Primitive, SqlType, Struct
from ..limits import INTEGER_RANGES, UNITS
from . import parse, scan

Bytes = NDArray[np.uint8]
Positions = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Spans:
    """Ranges of `data`, each with a kind (see `scan.py`). `row`: the record of each."""

    data: Bytes
    start: Positions
    end: Positions
    kind: Bytes
    row: NDArray[np.int64]
    words: bool = False  # the texts true and false are booleans

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True)
class FieldNames:
    """Field names in the form that `scan_objects` takes."""

    text: Bytes
    ends: Positions
    unique: bool
    wide: bool

    @classmethod
    def of(cls, names: list[str]) -> FieldNames:
        encoded = [name.encode() for name in names]
        ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
        return cls(
            text=read_only(np.frombuffer(b"".join(encoded), np.uint8)),
            ends=read_only(ends),
            unique=len({name.upper() for name in names}) == len(names),
            wide=not all(name.isascii() for name in names),
        )


def to_arrow(type_: SqlType, spans: Spans, redo: Bytes) -> pa.Array:
    """An array of `type_`, one value per span. Sets `redo` for rows with a span that is uncertain."""
    match type_:
        case Primitive(name="BOOLEAN"):
            return _booleans(spans, redo)
        case Primitive(name="DOUBLE"):
            return _doubles(spans, redo)
        case Primitive(name="STRING"):
            return _texts(spans, redo, parse.parse_strings, pa.string())
        case Primitive(name="BYTES"):
            return _texts(spans, redo, parse.parse_base64, pa.binary())
        case Primitive():
            return _integers(type_, spans, redo)
        case Decimal():
            return _decimals(type_, spans, redo)
        case Struct():
            return _structs(type_, spans, redo)
        case Array() | Map():
            return _containers(type_, spans, redo)
        case _:
            raise AssertionError(f"no format holds {type_}")


def _flags(spans: Spans) -> tuple[Bytes, Bytes]:
    return np.empty(len(spans), np.uint8), np.zeros(len(spans), np.uint8)


def _mark(redo: Bytes, spans: Spans, bad: Bytes) -> None:
    if bad.any():
        redo[spans.row[bad != 0]] = scan.REDO


def _bitmap(valid: Bytes) -> pa.Buffer | None:
    return None if valid.all() else pa.py_buffer(np.packbits(valid != 0, bitorder="little"))


def _integers(type_: Primitive, spans: Spans, redo: Bytes) -> pa.Array:
    valid, bad = _flags(spans)
    arrow = type_.arrow
    out = np.empty(len(spans), np.int32 if arrow.bit_width == 32 else np.int64)
    low, high = INTEGER_RANGES[type_.name]
    factor = UNITS.get(type_.name, 1)
    parse.parse_integers(spans.data, spans.start, spans.end, spans.kind, low, high, factor, out, valid, bad)
    _mark(redo, spans, bad)
    return pa.Array.from_buffers(arrow, len(spans), [_bitmap(valid), pa.py_buffer(out)])


def _booleans(spans: Spans, redo: Bytes) -> pa.Array:
    valid, bad = _flags(spans)
    out = np.empty(len(spans), np.uint8)
    parse.parse_booleans(spans.data, spans.start, spans.end, spans.kind, spans.words, out, valid, bad)
    _mark(redo, spans, bad)
    bits = pa.py_buffer(np.packbits(out, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(spans), [_bitmap(valid), bits])


def _doubles(spans: Spans, redo: Bytes) -> pa.Array:
    valid, bad = _flags(spans)
    out = np.empty(len(spans), np.float64)
    slow = np.empty(len(spans), np.uint8)
    if parse.parse_doubles(spans.data, spans.start, spans.end, spans.kind, out, valid, bad, slow):
        # Arrow rounds long numbers correctly, and its text parser accepts every number of JSON's grammar.
        chosen = np.flatnonzero(slow)
        kinds = np.full(len(chosen), scan.TEXT, np.uint8)
        part = Spans(spans.data, read_only(spans.start[chosen]), read_only(spans.end[chosen]), read_only(kinds), chosen)
        try:
            values = _texts(part, redo, parse.parse_strings, pa.string()).cast(pa.float64()).to_numpy()
        except pa.ArrowInvalid:
            values = np.full(len(chosen), np.inf)
        out[chosen] = values
        bad[chosen[~np.isfinite(values)]] = 1
    _mark(redo, spans, bad)
    return pa.Array.from_buffers(pa.float64(), len(spans), [_bitmap(valid), pa.py_buffer(out)])


def _decimals(type_: Decimal, spans: Spans, redo: Bytes) -> pa.Array:
    valid, bad = _flags(spans)
    out = np.empty(2 * len(spans), np.int64)
    parse.parse_decimals(spans.data, spans.start, spans.end, spans.kind, type_.precision, type_.scale, out, valid, bad)
    _mark(redo, spans, bad)
    return pa.Array.from_buffers(type_.arrow, len(spans), [_bitmap(valid), pa.py_buffer(out)])


def _texts(spans: Spans, redo: Bytes, parser: Any, arrow: pa.DataType) -> pa.Array:
    valid, bad = _flags(spans)
    offsets = np.empty(len(spans) + 1, np.int32)
    out = np.empty(int(np.sum(spans.end - spans.start, dtype=np.int64)) + 8, np.uint8)
    length = parser(spans.data, spans.start, spans.end, spans.kind, offsets, out, valid, bad)
    _mark(redo, spans, bad)
    return pa.Array.from_buffers(arrow, len(spans), [_bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(out[:length])])


def find_fields(
    data: Bytes, start: Positions, end: Positions, names: FieldNames, status: Bytes, wide: Bytes
) -> tuple[Positions, Positions, Bytes]:
    """Finds the named fields of one JSON object per row. Out: start, end and kind of each, as [field, row]."""
    shape = (len(names.ends) - 1, len(start))
    starts, ends, kinds = np.empty(shape, np.int32), np.empty(shape, np.int32), np.empty(shape, np.uint8)
    scan.scan_objects(
        data, start, end, names.text, names.ends, names.unique, names.wide, starts, ends, kinds, status, wide
    )
    return read_only(starts), read_only(ends), read_only(kinds)


def _structs(type_: Struct, spans: Spans, redo: Bytes) -> pa.Array:
    present = spans.kind == scan.OBJECT
    status = np.where(present, scan.OK, scan.NULL_ROW).astype(np.uint8)
    names = FieldNames.of([field.name for field in type_.fields])
    starts, ends, kinds = find_fields(spans.data, spans.start, spans.end, names, status, np.zeros(len(spans), np.uint8))
    uncertain = (status == scan.REDO) | (~present & (spans.kind != scan.NULL)) | (present & is_choice(type_))
    _mark(redo, spans, uncertain.astype(np.uint8))
    children = [
        to_arrow(field.type, Spans(spans.data, starts[i], ends[i], kinds[i], spans.row), redo)
        for i, field in enumerate(type_.fields)
    ]
    mask = None if present.all() else pa.array(~present)
    if not children:
        children = [pa.nulls(len(spans), stored.arrow) for _, stored in type_.stored]
    return pa.StructArray.from_arrays(children, fields=list(type_.arrow), mask=mask)


def _containers(type_: Array | Map, spans: Spans, redo: Bytes) -> pa.Array:
    container = scan.OBJECT if isinstance(type_, Map) else scan.ARRAY
    counts = np.empty(len(spans), np.int32)
    total = scan.count_elements(spans.data, spans.start, spans.end, spans.kind, container, counts)
    offsets = np.zeros(len(spans) + 1, np.int32)
    np.cumsum(np.maximum(counts, 0), out=offsets[1:])
    starts, ends, key_starts, key_ends = (np.zeros(total, np.int32) for _ in range(4))
    kinds, key_kinds = np.zeros(total, np.uint8), np.zeros(total, np.uint8)
    rows = np.repeat(spans.row, np.maximum(counts, 0))
    scan.split_elements(
        spans.data, spans.start, spans.end, spans.kind, container, counts, offsets,
        key_starts, key_ends, key_kinds, starts, ends, kinds,
    )  # fmt: skip
    _mark(redo, spans, (counts < 0).astype(np.uint8))
    members = Spans(spans.data, read_only(starts), read_only(ends), read_only(kinds), rows)
    valid = _bitmap((spans.kind == container).astype(np.uint8))
    if isinstance(type_, Array):
        values = to_arrow(type_.element, members, redo)
        return pa.Array.from_buffers(type_.arrow, len(spans), [valid, pa.py_buffer(offsets)], children=[values])
    keys = Spans(spans.data, read_only(key_starts), read_only(key_ends), read_only(key_kinds), rows)
    entries = pa.StructArray.from_arrays(
        [to_arrow(type_.key, keys, redo), to_arrow(type_.value, members, redo)],
        fields=[type_.arrow.key_field, type_.arrow.item_field],
    )
    return pa.Array.from_buffers(type_.arrow, len(spans), [valid, pa.py_buffer(offsets)], children=[entries])
