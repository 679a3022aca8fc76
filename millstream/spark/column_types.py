"""The Spark types of SQL types.

TIMESTAMP, a point in time, becomes Spark's TIMESTAMP, not TIMESTAMP_NTZ. TIME becomes a text, `13:04:05.678`: Spark 4
has a type TIME, but refuses it unless it is enabled.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa


def spark_type(type_: pa.DataType) -> pa.DataType:
    """In: the Arrow type of a SQL type."""
    return _mapped(type_, _shown)


def with_texts_of_times(table: pa.Table) -> pa.Table:
    """Casts each TIME, also in nested values, to milliseconds; Arrow formats the text from that."""
    schema = pa.schema([(field.name, _mapped(field.type, _in_ms)) for field in table.schema])
    return table if schema.equals(table.schema) else table.cast(schema)


def _shown(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", "UTC")
    return pa.string() if pa.types.is_time(type_) else type_


def _in_ms(type_: pa.DataType) -> pa.DataType:
    return pa.time32("ms") if pa.types.is_time(type_) else type_


def _mapped(type_: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    if pa.types.is_map(type_):
        return pa.map_(_mapped(type_.key_type, change), _mapped(type_.item_type, change))
    if pa.types.is_list(type_):
        return pa.list_(_mapped(type_.value_type, change))
    if pa.types.is_struct(type_):
        fields = [type_.field(number) for number in range(type_.num_fields)]
        return pa.struct([(field.name, _mapped(field.type, change)) for field in fields])
    return change(type_)
