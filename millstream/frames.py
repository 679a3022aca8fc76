"""Data frames of other libraries: their conversion to Arrow tables, and the SQL types of their columns."""

from __future__ import annotations

import decimal
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from millstream.errors import InvalidStatement
from millstream.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    Array,
    Decimal,
    Field,
    Map,
    SqlType,
    Struct,
)


def arrow_table(frame: Any) -> pa.Table:
    """The frame as an Arrow table: of pyarrow, pandas, Polars, DuckDB, or any other object with Arrow's C stream
    interface; a dict of columns, or a list of dicts. Raises `TypeError` for anything else, `InvalidStatement`, which
    names the column, for values that Arrow cannot represent."""
    match frame:
        case pa.Table():
            return frame
        case pa.RecordBatch():
            return pa.Table.from_batches([frame])
        case dict():
            return _table_of(frame)
        case list():
            for row in frame:
                if not isinstance(row, Mapping):
                    raise TypeError(f"a list of rows has dicts, not {type(row).__name__}")
            names = dict.fromkeys(name for row in frame for name in row)  # Arrow takes the first row's only
            return _table_of({name: [row.get(name) for row in frame] for name in names})
        case _ if hasattr(frame, "__arrow_c_stream__"):
            try:
                return _decoded(pa.table(frame))
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise InvalidStatement(f"the data frame cannot be read: {'; '.join(map(str, error.args))}") from None
        case _ if type(frame).__module__.partition(".")[0] == "pandas":
            return pa.Table.from_pandas(frame, preserve_index=False)
        case _:
            raise TypeError(
                f"{type(frame).__name__} is no data frame: pass one of pyarrow, pandas or Polars, or a dict"
            )


def is_missing(value: Any) -> bool:
    """Whether this is the value of pandas for one that is missing, `NaT` or `NA`.

    >>> is_missing(None), is_missing(float("nan"))
    (False, False)
    """
    return type(value).__module__.startswith("pandas.") and type(value).__name__ in ("NaTType", "NAType")


def _decoded(table: pa.Table) -> pa.Table:
    """The table with plain values in place of dictionaries (categories), at every level.

    Polars has views in its dictionaries, which Arrow does not decode: they become plain texts first.
    """
    for views_only in (True, False):
        fields = [field.with_type(_decoded_type(field.type, views_only)) for field in table.schema]
        if [field.type for field in fields] != table.schema.types:
            table = table.cast(pa.schema(fields))
    return table


def _decoded_type(arrow: pa.DataType, views_only: bool) -> pa.DataType:
    types = pa.types
    match arrow:
        case _ if types.is_dictionary(arrow):
            values = pa.large_string() if types.is_string_view(arrow.value_type) else arrow.value_type
            return pa.dictionary(arrow.index_type, values, arrow.ordered) if views_only else values
        case _ if types.is_list(arrow):
            return pa.list_(_decoded_type(arrow.value_type, views_only))
        case _ if types.is_large_list(arrow):
            return pa.large_list(_decoded_type(arrow.value_type, views_only))
        case _ if types.is_struct(arrow):
            return pa.struct([(field.name, _decoded_type(field.type, views_only)) for field in arrow])
        case _:
            return arrow


def _table_of(columns: Mapping[str, Any]) -> pa.Table:
    arrays = {name: _column(name, values) for name, values in columns.items()}
    if len({len(array) for array in arrays.values()}) > 1:
        lengths = ", ".join(f"{name} {len(array)}" for name, array in arrays.items())
        raise InvalidStatement(f"the columns have different numbers of values: {lengths}")
    return pa.table(arrays)


def _column(name: str, values: Any) -> pa.ChunkedArray:
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise TypeError(f"column {name} is one {type(values).__name__}: pass a list of values")
    try:
        try:
            return pa.table({name: values})[name]
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            if not isinstance(values, Sequence):
                raise
            return pa.table({name: _plain(values)})[name]
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidStatement(
            f"column {name} has values that cannot be read: {error}", hint="Pass values of one type, or None."
        ) from None


def _plain(values: Sequence[Any]) -> list[Any]:
    """The values with None for those that are missing, and decimals if one of them has more than 64 bits."""
    plain = [None if is_missing(value) else value for value in values]
    if any(isinstance(value, int) and not -(2**63) <= value < 2**63 for value in plain):
        return [decimal.Decimal(value) if isinstance(value, int) else value for value in plain]
    return plain


def sql_type(arrow: pa.DataType, name: str = "") -> SqlType:
    """The SQL type that can represent every value of an Arrow type. Raises `InvalidStatement` if there is none.

    In: `name` of the column, for the message.
    """
    types = pa.types
    match arrow:
        case _ if types.is_boolean(arrow):
            return BOOLEAN
        case _ if types.is_int8(arrow) or types.is_int16(arrow) or types.is_int32(arrow):
            return INTEGER
        case _ if types.is_uint8(arrow) or types.is_uint16(arrow):
            return INTEGER
        case _ if types.is_int64(arrow) or types.is_uint32(arrow):
            return BIGINT
        case _ if types.is_uint64(arrow):
            return Decimal(20, 0)
        case _ if types.is_floating(arrow):
            return DOUBLE
        case _ if types.is_decimal(arrow):
            return Decimal(arrow.precision, arrow.scale)
        case _ if types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow):
            return STRING
        case _ if types.is_binary(arrow) or types.is_large_binary(arrow) or types.is_fixed_size_binary(arrow):
            return BYTES
        case _ if types.is_date(arrow):
            return DATE
        case _ if types.is_time(arrow):
            return TIME
        case _ if types.is_timestamp(arrow):
            return TIMESTAMP
        case _ if types.is_dictionary(arrow):
            return sql_type(arrow.value_type, name)
        case _ if types.is_list(arrow) or types.is_large_list(arrow) or types.is_fixed_size_list(arrow):
            return Array(sql_type(arrow.value_type, name))
        case _ if types.is_map(arrow):
            return Map(sql_type(arrow.key_type, name), sql_type(arrow.item_type, name))
        case _ if types.is_struct(arrow):
            return Struct(tuple(Field(f.name, sql_type(f.type, name)) for f in arrow))
        case _:
            raise InvalidStatement(
                f"column {name} is {arrow}, which no SQL type holds", hint="Cast it first, or leave it out."
            )
