"""Keys with one zero: -0.0 becomes 0.0, also inside of ARRAY and STRUCT.

They are equal in SQL, but neither their bytes nor their groups in DuckDB are the same.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...sql.types import DOUBLE, Array, SqlType, Struct

_ELEMENT = '"$e"'


def with_one_zero(array: pa.Array) -> pa.Array:
    type_ = array.type
    if pa.types.is_floating(type_):
        return pc.add(array, 0.0)
    if not _holds_doubles(type_):
        return array
    missing = array.is_null() if array.null_count else None
    if pa.types.is_struct(type_):
        return pa.StructArray.from_arrays([with_one_zero(each) for each in array.flatten()], fields=type_, mask=missing)
    counts = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, with_one_zero(array.flatten()), type_, mask=missing)


def _holds_doubles(type_: pa.DataType) -> bool:
    if pa.types.is_struct(type_):
        return any(_holds_doubles(field.type) for field in type_)
    return _holds_doubles(type_.value_type) if pa.types.is_list(type_) else pa.types.is_floating(type_)


def one_zero_sql(text: str, type_: SqlType) -> str:
    """The same in DuckDB's SQL. In: an expression of this type."""
    if not has_zeros(type_):
        return text
    match type_:
        case Array():
            return f"list_transform({text}, lambda {_ELEMENT}: {one_zero_sql(_ELEMENT, type_.element)})"
        case Struct():
            fields = {name: f"struct_extract({text}, {_quoted(name)})" for name, _ in type_.stored}
            listed = ", ".join(f"{_quoted(name)}: {one_zero_sql(fields[name], each)}" for name, each in type_.stored)
            return f"CASE WHEN {text} IS NOT NULL THEN {{{listed}}} END"
        case _:
            return f"({text} + 0.0::DOUBLE)"


def has_zeros(type_: SqlType) -> bool:
    """Whether values of the type may have a -0.0 in them."""
    match type_:
        case Array():
            return has_zeros(type_.element)
        case Struct():
            return any(has_zeros(field.type) for field in type_.fields)
        case _:
            return type_ == DOUBLE


def _quoted(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"
