"""JSON values as columns of Arrow: in the types that a table has, or in those that the values suggest."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa

from ..connector_errors import ConnectorFailed
from ..converters import json_text
from ..json_times import day_of, moment_of

_EXACT: Final = Context(prec=76)  # of the widest decimal of Arrow


def suggested_types(rows: Iterable[Mapping[str, Any]]) -> dict[str, pa.DataType]:
    """By column, in the order in which they come. A column without any value has none."""
    types: dict[str, pa.DataType] = {}
    for row in rows:
        for name, value in row.items():
            types[name] = _either(types.get(name, pa.null()), _type_of(value))
    return {name: type_ for name, type_ in types.items() if not _is_open(type_)}


def columns_of(rows: Sequence[Mapping[str, Any]], types: Mapping[str, pa.DataType]) -> pa.Table:
    """A value that a row lacks is NULL. Raises `ConnectorFailed` for a value that its column cannot hold."""
    columns: dict[str, pa.Array] = {}
    for name, type_ in types.items():
        try:
            columns[name] = pa.array([_fitted(row.get(name), type_) for row in rows], type_)
        except (pa.ArrowException, ValueError, TypeError, ArithmeticError, OverflowError) as error:
            raise ConnectorFailed(
                f"the column {name} of type {type_} cannot hold a value: {error}",
                hint="Change the table's type, or the value with a query or a transform, then RESTART CONNECTOR.",
            ) from None
    return pa.table(columns)


def _type_of(value: Any) -> pa.DataType:
    match value:
        case None:
            return pa.null()
        case bool():
            return pa.bool_()
        case int():
            return pa.int64()
        case float() | Decimal():
            return pa.float64()
        case dict():
            return pa.struct([(name, _type_of(item)) for name, item in value.items()])
        case list():
            item_type = pa.null()
            for item in value:
                item_type = _either(item_type, _type_of(item))
            return pa.list_(item_type)
        case _:
            return pa.string()


def _either(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """What holds values of both: text, where nothing else does."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_either(one.value_type, other.value_type))
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            fields[field.name] = _either(fields.get(field.name, pa.null()), field.type)
        return pa.struct(list(fields.items()))
    return pa.string()


def _is_open(type_: pa.DataType) -> bool:
    """Whether a part of it has had no value yet, so that a table cannot have it."""
    if pa.types.is_list(type_):
        return _is_open(type_.value_type)
    if pa.types.is_struct(type_):
        return type_.num_fields == 0 or any(_is_open(field.type) for field in type_)
    return pa.types.is_null(type_)


def _fitted(value: Any, type_: pa.DataType) -> Any:
    """As Arrow takes it. Times are milliseconds since 1970, dates days, or both ISO 8601; bytes are base64."""
    if value is None:
        return None
    match type_:
        case pa.ListType() | pa.LargeListType():
            return [_fitted(item, type_.value_type) for item in _of(value, list)]
        case pa.StructType():
            given = _of(value, dict)
            return {field.name: _fitted(given.get(field.name), field.type) for field in type_}
        case pa.MapType():
            return [(key, _fitted(item, type_.item_type)) for key, item in _of(value, dict).items()]
        case pa.TimestampType():
            return moment_of(value, zoned=type_.tz is not None)
        case pa.Decimal128Type() | pa.Decimal256Type():
            return Decimal(str(value)).quantize(Decimal(1).scaleb(-type_.scale), context=_EXACT)
        case _ if pa.types.is_date(type_):
            return day_of(value)
        case _ if pa.types.is_floating(type_):
            return float(value)
        case _ if pa.types.is_string(type_) or pa.types.is_large_string(type_):
            return value if isinstance(value, str) else json_text(value)
        case _ if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
            return base64.b64decode(value, validate=True) if isinstance(value, str) else value
        case _:
            return value


def _of(value: Any, kind: type[Any]) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"a value of type {type(value).__name__} is no {kind.__name__}")
    return value
