"""Converts JSON values to columns of Arrow with types that hold them exactly: any loss is an error.

If the columns are not declared, their types follow from all values of the first records. Numbers become DOUBLE, because
later ones may have a fraction, unless a DOUBLE would change one of them: whole numbers beyond 2^53 become BIGINT, and
other numbers that would lose digits become text.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, Final

import pyarrow as pa

from ..connector_errors import ConnectorFailed
from ..converters import is_far_from_one, json_text
from ..json_times import day_of, moment_of, time_of

_EXACT: Final = Context(prec=76, traps=[Inexact, InvalidOperation])  # 76: digits of the widest decimal of Arrow
_WHOLE_IN_DOUBLE: Final = 2**53
_MICROSECONDS: Final = {"s": 1_000_000, "ms": 1000}
"""The microseconds of coarser time units."""
_SMALL_WHOLE: Final = pa.int32()
"""Represents whole numbers that a DOUBLE holds exactly, while types are compared."""
_LARGE_WHOLE: Final = pa.int64()
_FRACTION: Final = pa.float64()
_NOTHING: Final = pa.null()


def suggested_types(rows: Iterable[Mapping[str, Any]]) -> dict[str, pa.DataType]:
    """The types of the columns, in order of appearance. Columns and fields of structs without any value are left
    out."""
    types: dict[str, pa.DataType] = {}
    for row in rows:
        for name, value in row.items():
            types[name] = _either(types.get(name, _NOTHING), _type_of(value))
    return {name: known for name, type_ in types.items() if (known := _known(type_)) is not None}


def grown(type_: pa.DataType | None, suggested: pa.DataType) -> pa.DataType:
    """The type with the additional fields of `suggested`, at any depth; the same object if there are none."""
    if type_ is None:
        return suggested
    if pa.types.is_struct(type_) and pa.types.is_struct(suggested):
        fields = [(field.name, field.type) for field in type_]
        names = SpelledNames([name for name, _ in fields])
        more = {names.of(field.name): field.type for field in suggested}
        both = [(name, grown(old, more.pop(name, _NOTHING))) for name, old in fields]
        if not more and all(new is old for (_, old), (_, new) in zip(fields, both, strict=True)):
            return type_
        return pa.struct([*both, *more.items()])
    if _is_list(type_) and _is_list(suggested):
        before = type_.value_type
        item = grown(before, suggested.value_type)
        return type_ if item is before else pa.list_(item)
    if pa.types.is_map(type_) and pa.types.is_struct(suggested):
        before = item = type_.item_type
        for field in suggested:
            item = grown(item, field.type)
        return type_ if item is before else pa.map_(type_.key_type, item)
    return type_


def added_name(name: str, before: pa.DataType | None, after: pa.DataType) -> str:
    """The path of the first field that `grown` has added to a column, as `column.field`."""
    if before is not None and _is_list(after):
        return added_name(name, before.value_type, after.value_type)
    if before is not None and pa.types.is_map(after):
        return added_name(name, before.item_type, after.item_type)
    if before is None or not pa.types.is_struct(after):
        return name
    old = {field.name: field.type for field in before}
    for field in after:
        if field.name not in old or old[field.name] != field.type:
            return added_name(f"{name}.{field.name}", old.get(field.name), field.type)
    return name


def columns_of(
    rows: Sequence[Mapping[str, Any]], types: Mapping[str, pa.DataType], declared: Collection[str] = ()
) -> pa.Table:
    """The columns of the rows. Missing values are NULL. In: `declared`: columns in which a DOUBLE may be rounded to the
    nearest one. Raises `ConnectorFailed` for a value that its column cannot hold."""
    columns: dict[str, pa.Array] = {}
    for name, type_ in types.items():
        fitter = _Fitter(nearest=name in declared)
        try:
            columns[name] = pa.array([fitter.fit(row.get(name), type_) for row in rows], type_)
        except (pa.ArrowException, ValueError, TypeError, ArithmeticError) as error:
            raise ConnectorFailed(
                f"the column {name} of type {type_} cannot hold a value: {_reason(error)}",
                hint="Change the table's type, or the value with a query or a transform, then RESTART CONNECTOR."
                " A new table has the types of a stream or table that is declared on the topic.",
            ) from None
    return pa.table(columns)


class SpelledNames:
    """Finds the spelling of columns: the exact name, else one that differs in case, since ksqlDB's names are in upper
    case."""

    def __init__(self, names: Iterable[str]) -> None:
        self._exact = dict.fromkeys(names)
        self._folded = {name.lower(): name for name in reversed(self._exact)}

    def of(self, name: str) -> str:
        return name if name in self._exact else self._folded.get(name.lower(), name)

    def row(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row with the names of the columns. Two names of the row never become the same name."""
        if row.keys() <= self._exact.keys():
            return row
        found: dict[str, Any] = {}
        for name, value in row.items():
            spelled = self.of(name)
            found[name if spelled != name and (spelled in row or spelled in found) else spelled] = value
        return found


# The types of values


def _type_of(value: Any) -> pa.DataType:
    match value:
        case None:
            return _NOTHING
        case bool():
            return pa.bool_()
        case int():
            if abs(value) <= _WHOLE_IN_DOUBLE:
                return _SMALL_WHOLE
            return _LARGE_WHOLE if -(2**63) <= value < 2**63 else pa.string()
        case float() | Decimal():
            return _FRACTION if _in_double(value) else pa.string()
        case dict():
            return pa.struct([(name, _type_of(item)) for name, item in value.items()])
        case list():
            item_type = _NOTHING
            for item in value:
                item_type = _either(item_type, _type_of(item))
            return pa.list_(item_type)
        case _:
            return pa.string()


def _in_double(value: float | Decimal) -> bool:
    """Whether a DOUBLE has all digits of the value."""
    return isinstance(value, float) or Decimal(repr(float(value))) == value


def _either(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """A type that holds values of both types; text if no other does."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if _SMALL_WHOLE in (one, other):
        wider = other if one == _SMALL_WHOLE else one
        return wider if wider in (_LARGE_WHOLE, _FRACTION) else pa.string()
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_either(one.value_type, other.value_type))
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            fields[field.name] = _either(fields.get(field.name, _NOTHING), field.type)
        return pa.struct(list(fields.items()))
    return pa.string()


def _known(type_: pa.DataType) -> pa.DataType | None:
    """The type for a table, without fields that had no value so far; None if nothing is left."""
    if pa.types.is_null(type_):
        return None
    if pa.types.is_list(type_):
        item = _known(type_.value_type)
        return None if item is None else pa.list_(item)
    if pa.types.is_struct(type_):
        fields = [(field.name, known) for field in type_ if (known := _known(field.type)) is not None]
        return pa.struct(fields) if fields else None
    return _FRACTION if type_ == _SMALL_WHOLE else type_


def _is_list(type_: pa.DataType) -> bool:
    return pa.types.is_list(type_) or pa.types.is_large_list(type_)


# Values in their types


@dataclass(frozen=True, slots=True)
class _Fitter:
    """Converts values for Arrow; each is exact, or raises. Times are milliseconds since 1970, dates are days, or both
    are ISO 8601; bytes are base64. `nearest`: whether a DOUBLE may be rounded to the nearest one, as wherever SQL reads
    a number."""

    nearest: bool

    def fit(self, value: Any, type_: pa.DataType) -> Any:
        if value is None:
            return None
        match type_:
            case pa.ListType() | pa.LargeListType():
                return [self.fit(item, type_.value_type) for item in _of(value, list)]
            case pa.StructType():
                return self._struct(_of(value, dict), type_)
            case pa.MapType():
                items = _of(value, dict).items()
                return [(self.fit(key, type_.key_type), self.fit(item, type_.item_type)) for key, item in items]
            case pa.TimestampType():
                moment = moment_of(value, zoned=type_.tz is not None)
                if moment.microsecond % _MICROSECONDS.get(type_.unit, 1):
                    raise ValueError(f"{value} has a finer time")
                return moment
            case pa.Decimal128Type() | pa.Decimal256Type():
                return _EXACT.quantize(_number(value), Decimal(1).scaleb(-type_.scale))
            case _ if pa.types.is_date(type_):
                return day_of(value)
            case _ if pa.types.is_time(type_):
                return time_of(value)
            case _ if pa.types.is_integer(type_):
                return _whole(value)
            case _ if pa.types.is_floating(type_):
                return self._double(value, exact=not self.nearest and type_ == pa.float64())
            case _ if pa.types.is_boolean(type_):
                return _of(value, bool)
            case _ if pa.types.is_string(type_) or pa.types.is_large_string(type_):
                return value if isinstance(value, str) else json_text(value)
            case _ if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
                return base64.b64decode(value, validate=True) if isinstance(value, str) else value
            case _:
                return value

    def _struct(self, given: dict[str, Any], type_: pa.StructType) -> dict[str, Any]:
        names = [field.name for field in type_]
        given = SpelledNames(names).row(given)
        for name in given.keys() - set(names):
            if _known(_type_of(given[name])) is not None:
                raise ValueError(f"it has no field {name}")
        return {field.name: self.fit(given.get(field.name), field.type) for field in type_}

    def _double(self, value: Any, *, exact: bool) -> float:
        if isinstance(value, float | str):
            return float(value)
        number = float(_number(value))
        if exact and Decimal(repr(number)) != value:
            raise ValueError(f"a DOUBLE does not have all digits of {value}")
        return number


def _number(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise TypeError(f"{json_text(value)} is no number")
    return Decimal(str(value))


def _whole(value: Any) -> int:
    if type(value) is int:
        return value
    number = _number(value)
    if is_far_from_one(number):
        raise ValueError("it is out of range")
    if number != number.to_integral_value():
        raise ValueError(f"{value} is no whole number")
    return int(number)


def _of(value: Any, kind: type[Any]) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"a value of type {type(value).__name__} is no {kind.__name__}")
    return value


def _reason(error: Exception) -> str:
    if isinstance(error, Inexact):
        return "it would be rounded"
    if isinstance(error, InvalidOperation):
        return "it is out of range, or no number"
    return str(error)
