"""JSON_SR: JSON after the id of a schema. Reading does not need the schema: it is the same as for JSON.

JSON has no NaN and no Infinity. The format JSON writes them as text, and reads that text again. Here, text contradicts
"type": "number" of the schema: validating readers refuse the record, and Kafka Connect's converter reads it as 0. So
this format refuses to write them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...planner.formats.json import JSON_SR
from ...planner.schema import Column
from ...planner.schemas.json_schemas import ObjectMember, members_of
from ...sql.types import BIGINT, BOOLEAN, DOUBLE, STRING, SqlType, Struct
from .codec import Decoded, Decoder, Encoder, RowError, UnwritableRows, boolean_array, one_array, valid_flags
from .coding import Coding, RecordPart, codes
from .json_format import JsonCoding
from .wire import HEADER_BYTES, Unreadable, blank_header, header, schema_id_of, with_header

_ENDLESS = "JSON_SR holds no NaN and no Infinity: its schema says number, and JSON has no such numbers"
_TYPES = {bool: BOOLEAN, int: BIGINT, float: DOUBLE, str: STRING, type(None): STRING}  # of defaults


class JsonSrDecoder:
    """Checks the header; `inner` decodes the rest."""

    def __init__(self, inner: Decoder) -> None:
        self._inner = inner

    def decode(self, data: pa.Array | pa.ChunkedArray) -> Decoded:
        rows = one_array(data)
        blanked, good = blank_header(rows)
        decoded = self._inner.decode(blanked)
        bad = (valid_flags(rows) != 0) & ~good
        if not bad.any():
            return decoded
        errors = [RowError(int(row), _problem(rows[int(row)].as_py())) for row in np.flatnonzero(bad)]
        null_rows = boolean_array(decoded.null_rows.to_numpy(zero_copy_only=False) & ~bad)
        return Decoded(decoded.columns, null_rows, sorted(decoded.errors + errors, key=lambda error: error.row))


def _problem(data: bytes) -> str:
    try:
        schema_id_of(data)
    except Unreadable as error:
        return str(error)
    raise AssertionError("the row has a header")


class JsonSrEncoder:
    """Writes the header before the output of `inner`. Raises `UnwritableRows` for NaN and Infinity."""

    def __init__(self, inner: Encoder, schema_id: int) -> None:
        self._inner = inner
        self._schema_id = schema_id

    def encode(
        self,
        columns: Sequence[pa.Array],
        *,
        null_rows: pa.BooleanArray | None = None,
        window_start: pa.Array | None = None,
        window_end: pa.Array | None = None,
    ) -> pa.BinaryArray:
        endless = [found for column in columns if (found := _endless(column)) is not None]
        rows = set[int]().union(*(np.flatnonzero(found).tolist() for found in endless))
        if rows and null_rows is not None:
            rows -= set(np.flatnonzero(null_rows.to_numpy(zero_copy_only=False)).tolist())
        if rows:
            raise UnwritableRows([RowError(row, _ENDLESS) for row in sorted(rows)])
        return with_header(self._inner.encode(columns, null_rows=null_rows), self._schema_id)


class ByGivenSchema:
    """Writes objects with all members of a schema that a statement names by its id: members that are no columns get
    their default, or NULL, and so does NULL where the schema has no null. Raises `UnwritableRows` for rows without a
    value for a member that the schema requires.
    """

    def __init__(self, json: JsonCoding, part: RecordPart, members: Sequence[ObjectMember]) -> None:
        numbers = {part.columns[number].name: number for number in part.numbers}
        absent = [member for member in members if member.name not in numbers]
        self._defaults = [pa.scalar(member.default, _TYPES[type(member.default)].arrow) for member in absent]
        self._missing = [member.name for member in absent if member.needs_value]
        self._held = [
            (member, numbers[member.name], part.columns[numbers[member.name]].type)
            for member in members
            if member.name in numbers
        ]
        added = tuple(Column(member.name, _TYPES[type(member.default)]) for member in absent)
        self._inner = json.encoder(replace(part, columns=(*part.columns, *added)))

    def encode(
        self,
        columns: Sequence[pa.Array],
        *,
        null_rows: pa.BooleanArray | None = None,
        window_start: pa.Array | None = None,
        window_end: pa.Array | None = None,
    ) -> pa.BinaryArray:
        count = len(columns[0])
        written = np.ones(count, np.bool_) if null_rows is None else ~null_rows.to_numpy(zero_copy_only=False)
        wrong = dict[int, str]()
        columns = list(columns)
        for member, number, type_ in self._held:
            columns[number] = _completed(columns[number], type_, member)
            for name, empty in _without_value(columns[number], type_, member):
                wrong |= dict.fromkeys(np.flatnonzero(written & empty).tolist(), name)
        for name in self._missing:
            wrong |= dict.fromkeys(np.flatnonzero(written).tolist(), name)
        if wrong:
            why = "the member {} has no value, and the JSON schema requires it"
            raise UnwritableRows([RowError(row, why.format(name)) for row, name in sorted(wrong.items())])
        added = [pa.repeat(default, count) for default in self._defaults]
        return self._inner.encode([*columns, *added], null_rows=null_rows)


def _completed(array: pa.Array, type_: SqlType, member: ObjectMember) -> pa.Array:
    """The values, with the defaults of the schema for NULLs that it does not take."""
    if member.default is not None and not member.takes_null and array.null_count:
        with contextlib.suppress(pa.ArrowException):  # a default of another type
            return array.fill_null(pa.scalar(member.default).cast(array.type))
    if not isinstance(type_, Struct) or not type_.fields or not member.members:
        return array
    members = {inner.name: inner for inner in member.members}
    children = [
        _completed(child, field.type, members[field.name]) if field.name in members else child
        for field, child in zip(type_.fields, array.flatten(), strict=True)
    ]
    return pa.StructArray.from_arrays(children, fields=list(array.type), mask=array.is_null())


def _without_value(array: pa.Array, type_: SqlType, member: ObjectMember) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """The members that need a value, and the rows in which they have none."""
    empty = array.is_null().to_numpy(zero_copy_only=False)
    if member.needs_value:
        yield member.name, empty
    if isinstance(type_, Struct):
        members = {inner.name: inner for inner in member.members}
        for field, child in zip(type_.fields, array.flatten() if type_.fields else (), strict=True):
            if field.name in members:
                for name, inside in _without_value(child, field.type, members[field.name]):
                    yield f"{member.name}->{name}", inside & ~empty


def _endless(array: pa.Array | pa.ChunkedArray) -> NDArray[np.bool_] | None:
    """The rows that contain NaN or an Infinity, at any depth; None if no row does."""
    if pa.types.is_floating(array.type):
        found = pc.invert(pc.is_finite(array)).fill_null(False).to_numpy(zero_copy_only=False)
    elif pa.types.is_struct(array.type):
        members = [inside for member in array.flatten() if (inside := _endless(member)) is not None]
        found = np.logical_or.reduce(members) if members else np.zeros(0, np.bool_)
    elif pa.types.is_list(array.type) or pa.types.is_map(array.type):
        lists = _entries(array) if pa.types.is_map(array.type) else array
        inside = _endless(pc.list_flatten(lists))
        found = np.zeros(len(array), np.bool_)
        if inside is not None:
            found[pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)[inside]] = True
    else:
        return None
    return found if found.any() else None


def _entries(array: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    return array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))


@codes(JSON_SR.name)
class JsonSrCoding(Coding):
    _json = JsonCoding()

    def decoder(self, part: RecordPart) -> Decoder:
        return JsonSrDecoder(self._json.decoder(part))

    def encoder(self, part: RecordPart) -> Encoder:
        assert part.spec.schema is not None, "the planner gives every source of this format a schema"
        schema = part.spec.schema
        members = members_of(schema.text) if schema.given and not part.bare else ()
        inner = ByGivenSchema(self._json, part, members) if members else self._json.encoder(part)
        return JsonSrEncoder(inner, schema.id)

    def encode_one(self, part: RecordPart, value: Any) -> bytes:
        if part.spec.schema is None:
            return super().encode_one(part, value)
        return header(part.spec.schema.id) + self._json.encode_one(part, value)

    def decode_one(self, part: RecordPart, data: bytes) -> Any:
        schema_id_of(data)
        return self._json.decode_one(part, data[HEADER_BYTES:])
