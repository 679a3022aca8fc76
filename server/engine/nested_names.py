"""Converts nested arrays of clients to the structure of a SQL type: matches fields by name, turns dicts into maps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from millstream.errors import InvalidStatement, did_you_mean

from ...sql.types import STRING, Array, Map, SqlType, Struct


def in_shape(array: pa.Array, wanted: SqlType, column: str) -> pa.Array:
    """The array with the field names of `wanted`, at every level. The values in the fields still have to be cast.

    A field is found by its name, else by its name in upper case; a missing field is NULL. Arrow turns Python's dicts
    into structs: if a MAP with STRING keys is wanted, the struct's fields that are not NULL become its entries. In:
    `column`: for messages. Raises `InvalidStatement` for a field that `wanted` lacks.
    """
    given = array.type
    match wanted:
        case Struct() if pa.types.is_struct(given):
            return _struct(array, wanted, column)
        case Map(key, value) if pa.types.is_struct(given) and key == STRING:
            return _entries(array, value, column)
        case Map(key, value) if pa.types.is_map(given) and given != wanted.arrow:
            dense: Any = _dense(array)
            parts = in_shape(dense.keys, key, column), in_shape(dense.items, value, column)
            return pa.MapArray.from_arrays(dense.offsets, *parts, mask=dense.is_null())
        case Array(element) if _is_list(given) and given != wanted.arrow:
            dense = _dense(array.cast(pa.list_(given.value_type)))
            return pa.ListArray.from_arrays(
                dense.offsets, in_shape(dense.values, element, column), mask=dense.is_null()
            )
        case _:
            return array


def _struct(array: pa.Array, wanted: Struct, column: str) -> pa.Array:
    places = {field.name: place for place, field in enumerate(wanted.fields)}
    parts: dict[int, pa.Array] = {}
    for i, given in enumerate(array.type):
        place = places.get(given.name, places.get(given.name.upper()))
        if place is None or place in parts:
            wrong = "which it lacks" if place is None else "which is there twice"
            raise InvalidStatement(
                f"Column {column} is {wanted}, and the given rows have a field {given.name}, {wrong}",
                hint=did_you_mean(given.name, places) or f"It has {', '.join(places)}.",
            )
        parts[place] = in_shape(array.field(i), wanted.fields[place].type, column)
    types = [field.type.arrow for field in wanted.fields]
    every = [parts[i] if i in parts else pa.nulls(len(array), type_) for i, type_ in enumerate(types)]
    fields = [pa.field(name, part.type) for name, part in zip(wanted.engine_names, every, strict=True)]
    return pa.StructArray.from_arrays(every, fields=fields, mask=array.is_null())


def _entries(array: pa.Array, value: SqlType, column: str) -> pa.Array:
    names = [field.name for field in array.type]
    cells = [in_shape(array.field(i), value, column).to_pylist() for i in range(len(names))]
    there = array.is_valid().to_pylist()
    rows = [
        [(name, cell[row]) for name, cell in zip(names, cells, strict=True) if cell[row] is not None] if valid else None
        for row, valid in enumerate(there)
    ]
    return pa.array(rows, pa.map_(pa.string(), value.arrow))


def _is_list(given: pa.DataType) -> bool:
    return pa.types.is_list(given) or pa.types.is_large_list(given) or pa.types.is_fixed_size_list(given)


def _dense(array: pa.Array) -> pa.Array:
    """The array without an offset, and without data under NULLs."""
    return array.take(pa.array(np.arange(len(array))))
