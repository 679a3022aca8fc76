"""Columns of every type, and formats for them as the planner would make them."""

from __future__ import annotations

import datetime
from decimal import Decimal as Number
from typing import Any

import pyarrow as pa

from millstream.planner.schema import Column
from millstream.planner.schemas import avro_schemas, json_schemas, protobuf_schemas
from millstream.planner.specs import FormatSpec, RecordSchema
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
    Struct,
)

COLUMNS = (
    Column("B", BOOLEAN),
    Column("I", INTEGER),
    Column("L", BIGINT),
    Column("D", DOUBLE),
    Column("S", STRING),
    Column("Y", BYTES),
    Column("N", Decimal(10, 2)),
    Column("DA", DATE),
    Column("TI", TIME),
    Column("TS", TIMESTAMP),
    Column("A", Array(STRING)),
    Column("M", Map(STRING, TIMESTAMP)),
    Column("ST", Struct((Field("X", INTEGER), Field("W", DATE)))),
)
MOMENT = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000)
ROW: dict[str, Any] = {
    "B": True,
    "I": -(2**31),
    "L": 2**63 - 1,
    "D": 1.5,
    "S": "grüße",
    "Y": b"\0\xff",
    "N": Number("-12345678.90"),
    "DA": datetime.date(1815, 12, 10),
    "TI": datetime.time(23, 59, 59, 999_000),
    "TS": MOMENT,
    "A": ["a", ""],
    "M": [("k", MOMENT)],
    "ST": {"X": 7, "W": datetime.date(2000, 1, 1)},
}
NULLS: dict[str, Any] = dict.fromkeys(ROW)


def spec_of(
    name: str, columns: tuple[Column, ...] = COLUMNS, *, wrapped: bool = True, nullable: str = ""
) -> FormatSpec:
    """The format with the schema for its columns under the id 7."""
    match name:
        case "AVRO":
            schema = RecordSchema(7, "AVRO", avro_schemas.write_schema(columns, "a.R", wrapped=wrapped))
        case "JSON_SR":
            schema = RecordSchema(7, "JSON", json_schemas.write_schema(columns, wrapped=wrapped))
        case _:
            schema = RecordSchema(7, "PROTOBUF", protobuf_schemas.write_schema(columns, "a.R", nullable))
    return FormatSpec(name, wrap_single=wrapped, schema=schema, nullable=nullable)


def arrays_of(rows: list[dict[str, Any]], columns: tuple[Column, ...] = COLUMNS) -> list[pa.Array]:
    return [pa.array([row[column.name] for row in rows], column.type.arrow) for column in columns]


def rows_of(arrays: list[pa.Array], columns: tuple[Column, ...] = COLUMNS) -> list[dict[str, Any]]:
    names = [column.name for column in columns]
    return [dict(zip(names, cells, strict=True)) for cells in zip(*(a.to_pylist() for a in arrays), strict=True)]
