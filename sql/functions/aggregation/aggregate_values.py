"""Columns as Python values and back, the way aggregates keep them: times as integers, nested values as lists and dicts.

Times are integers because Python's own types end with the year 9999, and because they compare and add up faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from ...types import DOUBLE, Array, Map, SqlType, Struct


def physical(type_: pa.DataType) -> pa.DataType:
    """The type with every time in it replaced by the integer that holds it."""
    if pa.types.is_timestamp(type_) or pa.types.is_time64(type_):
        return pa.int64()
    if pa.types.is_date32(type_):
        return pa.int32()
    if pa.types.is_list(type_):
        return pa.list_(physical(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(field.name, physical(field.type)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(physical(type_.key_type), physical(type_.item_type))
    return type_


def as_physical(column: pa.Array) -> pa.Array:
    target = physical(column.type)
    return column if target == column.type else column.cast(target)


def values_of(column: pa.Array) -> list[Any]:
    """The column as Python values; a MAP is a list of (key, value)."""
    return as_physical(column).to_pylist()


def column_of(values: Sequence[Any], type_: SqlType) -> pa.Array:
    """The reverse of `values_of`."""
    target = type_.arrow
    kept = physical(target)
    column = pa.array(values, kept)
    return column if kept == target else column.cast(target)


def as_type(column: pa.Array, type_: SqlType) -> pa.Array:
    return column if column.type == type_.arrow else column.cast(type_.arrow)


def rank(value: Any) -> tuple[bool, Any]:
    """By which values are ordered: NaN is equal to NaN and greater than all numbers, as in comparisons."""
    return (True, 0.0) if value != value else (False, value)


def canonical(type_: SqlType) -> Callable[[Any], Any]:
    """Gives values of the type a form in which equal ones have the same `repr`: the order of a MAP's entries means
    nothing, and -0.0 is 0.0."""
    if not _has_several_forms(type_):
        return lambda value: value

    def convert(value: Any) -> Any:
        if value is None:
            return None
        match type_:
            case Map():
                inner = canonical(type_.value)
                return sorted(((key, inner(item)) for key, item in value), key=lambda entry: entry[0])
            case Array():
                return list(map(canonical(type_.element), value))
            case Struct():
                named = zip(type_.engine_names, type_.fields, strict=True)
                return {name: canonical(field.type)(value[name]) for name, field in named}
            case _:
                return value + 0.0 if type_ == DOUBLE else value

    return convert


def hashable(type_: SqlType) -> Callable[[Any], Any]:
    """Gives values of the type a form by which a dict finds them: equal ones are equal, NaN and NaN too."""
    match type_:
        case Map():
            inner = hashable(type_.value)
            return lambda entries: None if entries is None else frozenset((key, inner(item)) for key, item in entries)
        case Array():
            inner = hashable(type_.element)
            return lambda elements: None if elements is None else tuple(map(inner, elements))
        case Struct():
            parts = [(name, hashable(part.type)) for name, part in zip(type_.engine_names, type_.fields, strict=True)]
            return lambda value: None if value is None else tuple(inner(value[name]) for name, inner in parts)
        case _:
            return (lambda value: value if value == value else "NaN") if type_ == DOUBLE else lambda value: value


def _has_several_forms(type_: SqlType) -> bool:
    match type_:
        case Map():
            return True
        case Array():
            return _has_several_forms(type_.element)
        case Struct():
            return any(_has_several_forms(field.type) for field in type_.fields)
        case _:
            return type_ == DOUBLE
