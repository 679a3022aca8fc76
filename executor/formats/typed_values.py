"""Converts between the plain values of single records and Arrow columns, for formats that are read record by record.

Plain values are those of the conformance driver: None, bool, int (also days and milliseconds), float, Decimal, str,
bytes, list, dict. Reading accepts only values that fit the column's type, without guessing: text is no number. If a
format has its own representation of a type, it has an `Own` for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal as Number
from typing import Any

import pyarrow as pa

from ...planner.schema import Column
from ...sql.types import Array, Decimal, Map, Primitive, SqlType, Struct
from .json_text import Real
from .limits import UNITS, in_range
from .reading import Convert, FieldReader, Mismatch, array_reader, convert_fields, describe, shorten
from .reading import converter as json_converter
from .writing import double_text, wire_type

Own = Callable[[SqlType], Convert | None]
"""A format's own conversion for a type, at any depth; None if it has none."""


def as_others(type_: SqlType) -> Convert | None:
    """The `Own` of a format without its own conversions."""
    return None


def converter(type_: SqlType, own: Own = as_others) -> Convert:
    """A function from a plain value to a value that `pyarrow.array` takes for `type_`; None stays None. It raises
    Mismatch."""
    return own(type_) or _converter(type_, own)


def _converter(type_: SqlType, own: Own) -> Convert:
    match type_:
        case Primitive(name="BOOLEAN"):
            return _exactly(type_, bool)
        case Primitive(name="BYTES"):
            return _exactly(type_, bytes)
        case Primitive(name="DOUBLE"):
            return _double
        case Primitive(name="STRING"):
            return _string
        case Primitive():
            return _integer(type_)
        case Decimal():
            return _decimal(type_)
        case Array():
            return array_reader(type_, converter(type_.element, own))
        case Map():
            return _map(type_, own)
        case Struct():
            return _struct(type_, own)
        case _:
            raise AssertionError(f"no column has the type {type_}")


def _wrong(type_: SqlType | str, value: Any) -> Mismatch:
    return Mismatch(f"{type_} wanted, {describe(value)} came")


def _exactly(type_: SqlType, wanted: type) -> Convert:
    def convert(value: Any) -> Any:
        if value is None or type(value) is wanted:
            return value
        raise _wrong(type_, value)

    return convert


def _double(value: Any) -> float | None:
    if value is None or type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    raise _wrong("DOUBLE", value)


def _string(value: Any) -> str | None:
    if value is None or type(value) is str:
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, Number)):
        return str(value)
    if isinstance(value, float):
        return double_text(value)
    raise _wrong("STRING", value)


def _integer(type_: Primitive) -> Convert:
    unit = UNITS.get(type_.name, 1)

    def convert(value: Any) -> int | None:
        if value is None:
            return None
        if type(value) is not int:
            raise _wrong(type_, value)
        number = in_range(type_.name, value)
        if number is None:
            raise Mismatch(f"the number {value} is out of range for {type_}")
        return number * unit

    return convert


def _decimal(type_: Decimal) -> Convert:
    exact = json_converter(type_)

    def convert(value: Any) -> Number | None:
        if value is None:
            return None
        if isinstance(value, Number) or type(value) is int:
            return exact(Real(value))
        raise _wrong(type_, value)

    return convert


def _map(type_: Map, own: Own) -> Convert:
    key_converter, value_converter = converter(type_.key, own), converter(type_.value, own)

    def convert(value: Any) -> list[tuple[Any, Any]] | None:
        """Different keys may become equal by conversion (1 and "1"). Then the last one counts, as for equal keys."""
        if value is None:
            return None
        if not isinstance(value, dict):
            raise _wrong(type_, value)
        result: dict[Any, Any] = {}
        for key, member in value.items():
            try:
                if key is None:
                    raise Mismatch("a key of a MAP is null")
                result[key_converter(key)] = value_converter(member)
            except Mismatch as error:
                raise error.at(f".{shorten(str(key))}") from None
        return list(result.items())

    return convert


def _struct(type_: Struct, own: Own) -> Convert:
    names, engine_names = [field.name for field in type_.fields], type_.engine_names
    reader = FieldReader(names)
    converters = [converter(field.type, own) for field in type_.fields]
    wrapper = len(names) == 1 and names[0].upper() == "VALUE"

    def convert(value: Any) -> dict[str, Any] | None:
        if value is None:
            return None
        if not isinstance(value, dict):
            if not wrapper:
                raise _wrong(type_, value)
            value = {names[0]: value}  # a wrapper message, which was read as the value in it
        return dict(zip(engine_names, convert_fields(names, converters, reader.read(value)), strict=True))

    return convert


# ------------------------------------------------------------------ from Arrow


def plain_columns(columns: Sequence[Column], arrays: Sequence[pa.Array], own: Own = as_others) -> list[list[Any]]:
    """The plain values of each column."""
    return [_plain_values(column.type, array, own) for column, array in zip(columns, arrays, strict=True)]


def _plain_values(type_: SqlType, array: pa.Array, own: Own) -> list[Any]:
    wire = wire_type(type_)
    values = (array if array.type == wire else array.cast(wire)).to_pylist()
    convert = _optional(type_, own)
    return values if convert is None else [convert(value) for value in values]


def _plain(type_: SqlType, own: Own) -> Convert | None:
    """The conversion from Arrow's Python value to the plain value; None if they are the same."""
    match type_:
        case Primitive(name="TIME" | "TIMESTAMP"):
            return lambda value: value // 1000
        case Array(element=element):
            inner = _optional(element, own)
            return inner and (lambda value: [inner(member) for member in value])
        case Map(value=member_type):
            inner = _optional(member_type, own)
            if inner is None:
                return dict
            return lambda value: {key: inner(member) for key, member in value}
        case Struct():
            return _plain_struct(type_, own)
        case _:
            return None


def _plain_struct(type_: Struct, own: Own) -> Convert | None:
    """A conversion of structs to their own field names: the names in Arrow may differ."""
    names, inside = type_.engine_names, [_optional(field.type, own) for field in type_.fields]
    if names == tuple(field.name for field in type_.fields) and not any(inside) and type_.fields:
        return None
    fields = [(name, field.name, inner) for name, field, inner in zip(names, type_.fields, inside, strict=True)]
    return lambda value: {
        written: inner(value[name]) if inner is not None else value[name] for name, written, inner in fields
    }


def _optional(type_: SqlType, own: Own) -> Convert | None:
    plain, last = _plain(type_, own), own(type_)
    if plain is None or last is None:
        convert = plain or last
        return convert and (lambda value: None if value is None else convert(value))
    return lambda value: None if value is None else last(plain(value))
