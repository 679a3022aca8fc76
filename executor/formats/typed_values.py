"""Between the plain values of one record and Arrow columns, for formats that are read record by record.

Plain values are those of the conformance driver: None, bool, int (also days and milliseconds), float, Decimal, str,
bytes, list, dict. Reading takes them as a column's type wants them, without guessing: a text is no number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal as Number
from typing import Any

import pyarrow as pa

from ...planner.schema import Column
from ...sql.types import Array, Decimal, Map, Primitive, SqlType, Struct
from .json_text import Real
from .limits import INTEGER_RANGES, UNITS
from .reading import Convert, FieldReader, Mismatch, array_reader, convert_fields
from .reading import converter as json_converter
from .writing import double_text, wire_type


def converter(type_: SqlType) -> Convert:
    """A function from a plain value to what `pyarrow.array` takes for `type_`; None stays None. It raises Mismatch."""
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
            return array_reader(type_, converter(type_.element))
        case Map():
            return _map(type_)
        case Struct():
            return _struct(type_)
        case _:
            raise AssertionError(f"no column has the type {type_}")


def _wrong(type_: SqlType | str, value: Any) -> Mismatch:
    shown = repr(value)
    return Mismatch(f"{type_} wanted, {type(value).__name__} {shown if len(shown) <= 40 else shown[:40] + '…'} came")


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
    low, high = INTEGER_RANGES[type_.name]
    unit = UNITS.get(type_.name, 1)

    def convert(value: Any) -> int | None:
        if value is None:
            return None
        if type(value) is not int:
            raise _wrong(type_, value)
        if not low <= value <= high:
            raise Mismatch(f"the number {value} is out of range for {type_}")
        return value * unit

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


def _map(type_: Map) -> Convert:
    key_converter, value_converter = converter(type_.key), converter(type_.value)

    def convert(value: Any) -> list[tuple[Any, Any]] | None:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise _wrong(type_, value)
        return [(key_converter(key), value_converter(member)) for key, member in value.items()]  # pyright: ignore[reportUnknownVariableType]

    return convert


def _struct(type_: Struct) -> Convert:
    names, engine_names = [field.name for field in type_.fields], type_.engine_names
    reader = FieldReader(names)
    converters = [converter(field.type) for field in type_.fields]
    wrapper = len(names) == 1 and names[0].upper() == "VALUE"

    def convert(value: Any) -> dict[str, Any] | None:
        if value is None:
            return None
        if not isinstance(value, dict):
            if not wrapper:
                raise _wrong(type_, value)
            value = {names[0]: value}  # a wrapper message, whose value stands for it
        return dict(zip(engine_names, convert_fields(names, converters, reader.read(value)), strict=True))  # pyright: ignore[reportUnknownArgumentType]

    return convert


# ------------------------------------------------------------------ from Arrow


def plain_columns(columns: Sequence[Column], arrays: Sequence[pa.Array]) -> list[list[Any]]:
    """The plain values of each column."""
    return [_plain_values(column.type, array) for column, array in zip(columns, arrays, strict=True)]


def _plain_values(type_: SqlType, array: pa.Array) -> list[Any]:
    wire = wire_type(type_)
    values = (array if array.type == wire else array.cast(wire)).to_pylist()
    convert = _plain(type_)
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _plain(type_: SqlType) -> Callable[[Any], Any] | None:
    """What is left to do to a value that Arrow gave; None for nothing."""
    match type_:
        case Primitive(name="TIME" | "TIMESTAMP"):
            return lambda value: value // 1000
        case Array(element=element):
            inner = _optional(element)
            return inner and (lambda value: [inner(member) for member in value])
        case Map(value=member_type):
            inner = _optional(member_type)
            if inner is None:
                return dict
            return lambda value: {key: inner(member) for key, member in value}
        case Struct(fields=fields):
            inside = {field.name: convert for field in fields if (convert := _optional(field.type))}
            if not inside:
                return None
            return lambda value: {
                name: inside[name](member) if name in inside else member for name, member in value.items()
            }
        case _:
            return None


def _optional(type_: SqlType) -> Callable[[Any], Any] | None:
    convert = _plain(type_)
    return convert and (lambda value: None if value is None else convert(value))
