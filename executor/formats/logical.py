"""The plain values of JSON: the type of its column determines what a number becomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...planner.schema import Column
from ...sql.types import Array, Decimal, Map, Primitive, SqlType, Struct
from .json_text import Real
from .reading import Mismatch, converter, fold


def typed_value(value: Any, columns: Sequence[Column], *, bare: bool) -> Any:
    """In: the parsed JSON value of the only column (`bare`), or of an object with the columns as fields."""
    if bare:
        return _typed(value, columns[0].type)
    return _typed_fields(value, {column.name: column.type for column in columns})


def _typed(value: Any, type_: SqlType | None) -> Any:
    if isinstance(value, str) and not isinstance(value, Real):
        return value  # a text stays one: "NaN"
    match type_:
        case Decimal() | Primitive(name="DOUBLE"):
            try:
                return converter(type_)(value)
            except Mismatch:
                return _plain(value)
        case Array() if isinstance(value, list):
            return [_typed(member, type_.element) for member in value]
        case Map() if isinstance(value, dict):
            return {key: _typed(member, type_.value) for key, member in value.items()}
        case Struct():
            return _typed_fields(value, {field.name: field.type for field in type_.fields})
        case _:
            return _plain(value)


def _typed_fields(value: Any, types: dict[str, SqlType]) -> Any:
    if not isinstance(value, dict):
        return _plain(value)
    folded = {fold(name): type_ for name, type_ in types.items()}
    return {name: _typed(member, types.get(name, folded.get(fold(name)))) for name, member in value.items()}


def _plain(value: Any) -> Any:
    """The value, with numbers without a known type as float."""
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, list):
        return [_plain(member) for member in value]
    if isinstance(value, dict):
        return {key: _plain(member) for key, member in value.items()}
    return value
