"""Values of Arrow arrays as Python has them, and as numbers where Python has no such date."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def python_values(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """As `to_pylist`; but where a date is later than the year 9999 or before year 1, all are days or milliseconds since
    1970."""
    try:
        return array.to_pylist()
    except (OverflowError, ValueError):
        in_milliseconds = array.cast(_with_times(array.type, pa.date32(), pa.timestamp("ms")), safe=False)
        return in_milliseconds.cast(_with_times(array.type, pa.int32(), pa.int64())).to_pylist()


def _with_times(type_: pa.DataType, date: pa.DataType, timestamp: pa.DataType) -> pa.DataType:
    """The type with other types for the dates and timestamps in it."""
    if pa.types.is_date32(type_):
        return date
    if pa.types.is_timestamp(type_):
        return timestamp
    if pa.types.is_map(type_):
        return pa.map_(type_.key_type, _with_times(type_.item_type, date, timestamp))
    if pa.types.is_list(type_):
        return pa.list_(_with_times(type_.value_type, date, timestamp))
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_with_times(field.type, date, timestamp)) for field in type_])
    return type_
