"""Applies Spark's filters to rows that are still in Python, so that dropped rows need not be sent to the JVM.

Spark checks all rows again, so a filter may keep too many rows. It must not drop a row that Spark keeps: filters on
types that Arrow and Spark may treat differently (DOUBLE with NaN, nested types) are not applied.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource

Compare = Callable[[pa.ChunkedArray, pa.Scalar], pa.ChunkedArray]

_COMPARED: Final[dict[str, Compare]] = {
    "EqualTo": pc.equal,
    "GreaterThan": pc.greater,
    "GreaterThanOrEqual": pc.greater_equal,
    "LessThan": pc.less,
    "LessThanOrEqual": pc.less_equal,
}
_SEARCHED: Final[dict[str, Callable[..., pa.ChunkedArray]]] = {
    "StringStartsWith": pc.starts_with,
    "StringEndsWith": pc.ends_with,
    "StringContains": pc.match_substring,
}


def usable(filters: Sequence[Any], schema: pa.Schema) -> list[Any]:
    """The filters that `filtered` supports, for tables of this schema."""
    return [each for each in filters if _mask(each, schema.empty_table()) is not None]


def filtered(table: pa.Table, filters: Sequence[Any]) -> pa.Table:
    """The rows that Spark might keep. In: usable filters."""
    masks = [mask for each in filters if (mask := _mask(each, table)) is not None]
    if not masks:
        return table
    return table.filter(functools.reduce(pc.and_kleene, masks))  # NULL drops a row, as in Spark


def _mask(filter_: Any, table: pa.Table) -> pa.ChunkedArray | None:
    """None if the filter is not supported."""
    if isinstance(filter_, datasource.Not):
        inner = filter_.child
        mask = _mask(inner, table) if type(inner).__name__ in ("EqualTo", *_SEARCHED) else None
        return None if mask is None else pc.invert(mask)
    kind, path = type(filter_).__name__, filter_.attribute
    if len(path) != 1 or path[0] not in table.column_names:
        return None
    column = table[path[0]]
    match kind:
        case "IsNull":
            return pc.is_null(column)
        case "IsNotNull":
            return pc.is_valid(column)
        case "In":
            given = [value for value in filter_.value if value is not None]
            values = [value.as_py() for each in given if (value := _value(each, column.type)) is not None]
            if not values or len(values) < len(given):
                return None
            return pc.is_in(column, value_set=pa.array(values, column.type))
        case _ if kind in _COMPARED:
            value = _value(filter_.value, column.type)
            return None if value is None else _COMPARED[kind](column, value)
        case _ if kind in _SEARCHED and pa.types.is_string(column.type):
            return _SEARCHED[kind](column, filter_.value)
        case _:
            return None


def _value(value: Any, type_: pa.DataType) -> pa.Scalar | None:
    """The value in the column's type; None if they do not match."""
    fits = (
        (pa.types.is_string(type_) and isinstance(value, str))
        or (pa.types.is_integer(type_) and isinstance(value, int) and not isinstance(value, bool))
        or (pa.types.is_boolean(type_) and isinstance(value, bool))
        or pa.types.is_date(type_)
        or pa.types.is_timestamp(type_)
    )
    if not fits:
        return None
    try:
        return pa.scalar(value, type_)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
