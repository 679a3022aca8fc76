"""Rows that clients send as JSON objects, converted to the values of a source's columns. The other way:
`row_values.py`.

An unquoted name is a column name in upper case; in backticks or double quotes it is taken literally. Unknown members
are ignored, missing columns are NULL, except for key columns.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import decimal
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from millstream.errors import InvalidStatement

from ...planner.source_info import SourceInfo
from ...sql.types import Array, Decimal, Map, SqlType, Struct

Reader = Callable[[Any], Any]

_SPECIAL_DOUBLES: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_SPECIAL_EXPONENT: Final = 400  # no DECIMAL and no DOUBLE needs more, but a text may contain billions


class JsonRows:
    """Reads rows for one source."""

    def __init__(self, source: SourceInfo) -> None:
        self._columns = [column for column in source.schema if column.role != "HEADERS"]
        self._keys = {column.name for column in source.schema.key}
        self._readers = {column.name: reader(column.type) for column in self._columns}

    def values(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A value for each column. Raises `InvalidStatement`."""
        given = {column_name(name): value for name, value in row.items()}
        return {name: self._value(name, read, given.get(name)) for name, read in self._readers.items()}

    def table(self, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
        """In: `rows`: results of `values`."""
        kept = list(rows)
        arrays = [pa.array([row[column.name] for row in kept], column.type.arrow) for column in self._columns]
        return pa.table(arrays, names=[column.name for column in self._columns])

    def _value(self, name: str, read: Reader, value: Any) -> Any:
        if value is None:
            if name in self._keys:
                raise InvalidStatement(f"Key field must be specified: {name}")
            return None
        try:
            return read(value)
        except ValueError as error:
            raise InvalidStatement(f"the value of {name} cannot be used: {error}") from None


def column_name(text: str) -> str:
    """The column that a name in a request refers to.

    >>> column_name("id"), column_name("`id`")
    ('ID', 'id')
    """
    if len(text) > 1 and text[0] == text[-1] and text[0] in '`"':
        return text[1:-1].replace(text[0] * 2, text[0])
    return text.upper()


def reader(type_: SqlType) -> Reader:
    """A function that converts a JSON value to one that Arrow accepts for the type; NULL inside a value stays NULL. The
    function raises ValueError."""
    match type_:
        case Array(element):
            return functools.partial(_array, reader(element))
        case Map(_, value):
            return functools.partial(_map, reader(value))
        case Struct():
            named = zip(type_.engine_names, type_.fields, strict=True)
            return functools.partial(_struct, [(known, field.name, reader(field.type)) for known, field in named])
        case Decimal(precision, scale):
            return functools.partial(_decimal, precision, scale)
        case _:
            return _PRIMITIVES[str(type_)]


def _or_null(read: Reader, value: Any) -> Any:
    return None if value is None else read(value)


def _array(read: Reader, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _unfit(value, "an array")
    return [_or_null(read, item) for item in value]


def _map(read: Reader, value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise _unfit(value, "an object")
    return [(name, _or_null(read, item)) for name, item in value.items()]


def _struct(fields: list[tuple[str, str, Reader]], value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _unfit(value, "an object")
    given = {column_name(name): item for name, item in value.items()}
    return {known: _or_null(read, given.get(name)) for known, name, read in fields}


def _decimal(precision: int, scale: int, value: Any) -> decimal.Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _unfit(value, f"DECIMAL({precision}, {scale})")
    try:
        number = decimal.Decimal(str(value))
        if not number.is_finite() or abs(number.adjusted()) > _SPECIAL_EXPONENT:
            raise _unfit(value, f"DECIMAL({precision}, {scale})")
        context = decimal.Context(prec=1000, rounding=decimal.ROUND_HALF_UP)
        rounded = number.quantize(decimal.Decimal(1).scaleb(-scale), context=context)
    except decimal.InvalidOperation:
        raise _unfit(value, f"DECIMAL({precision}, {scale})") from None
    if rounded and rounded.adjusted() >= precision - scale:
        raise _unfit(value, f"DECIMAL({precision}, {scale})")
    return rounded


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _unfit(value, "BOOLEAN")
    return value


def _whole(name: str, bits: int, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise _unfit(value, name)
    return value


def _double(value: Any) -> float:
    if isinstance(value, str) and value in _SPECIAL_DOUBLES:
        return _SPECIAL_DOUBLES[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _unfit(value, "DOUBLE")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _unfit(value, "STRING")
    return value


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_text(value), validate=True)
    except binascii.Error:
        raise _unfit(value, "BYTES, which are written as base64") from None


def _date(value: Any) -> datetime.date:
    return datetime.date.fromisoformat(_text(value))


def _time(value: Any) -> datetime.time:
    return datetime.time.fromisoformat(_text(value)).replace(tzinfo=None)


def _timestamp(value: Any) -> datetime.datetime:
    """A time with a zone is converted to UTC."""
    moment = datetime.datetime.fromisoformat(_text(value))
    try:
        return moment if moment.tzinfo is None else moment.astimezone(datetime.UTC).replace(tzinfo=None)
    except OverflowError:
        raise _unfit(value, "TIMESTAMP") from None


_PRIMITIVES: Final[Mapping[str, Reader]] = {
    "BOOLEAN": _boolean,
    "INTEGER": functools.partial(_whole, "INTEGER", 32),
    "BIGINT": functools.partial(_whole, "BIGINT", 64),
    "DOUBLE": _double,
    "STRING": _text,
    "BYTES": _bytes,
    "DATE": _date,
    "TIME": _time,
    "TIMESTAMP": _timestamp,
}


def _unfit(value: Any, wanted: str) -> ValueError:
    shown = repr(value)
    return ValueError(f"{shown if len(shown) <= 100 else shown[:100] + '…'} is not {wanted}")
