"""Data frames of other libraries: their conversion to Arrow tables, and the SQL types of their columns."""

from __future__ import annotations

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
    interface; a dict of columns, or a list of dicts. Raises `TypeError` for anything else."""
    match frame:
        case pa.Table():
            return frame
        case pa.RecordBatch():
            return pa.Table.from_batches([frame])
        case dict():
            return pa.table(frame)
        case list():
            names = dict.fromkeys(name for row in frame for name in row)  # Arrow takes the first row's only
            return pa.table({name: pa.array([row.get(name) for row in frame]) for name in names})
        case _ if hasattr(frame, "__arrow_c_stream__"):
            return pa.table(frame)
        case _ if type(frame).__module__.partition(".")[0] == "pandas":
            return pa.Table.from_pandas(frame, preserve_index=False)
        case _:
            raise TypeError(
                f"{type(frame).__name__} is no data frame: pass one of pyarrow, pandas or Polars, or a dict"
            )


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
