"""Converts the schema of a table in PostgreSQL to columns of a stream or table."""

from __future__ import annotations

from typing import Any, Final

import psycopg

from millstream.errors import did_you_mean

from ..cdc.cdc_records import is_named, topic_of
from ..connector import SourceColumn, SourceTable
from ..connector_errors import UnknownSourceTable
from .pg_connections import explained
from .pg_tables import captured_table
from .pg_values import ARRAYS, ValueModes, scale_of
from .postgres_settings import PostgresSettings

_DIGITS_MAX: Final = 38
_TYPES: Final = {
    16: "BOOLEAN", 17: "BYTES", 20: "BIGINT", 21: "INTEGER", 23: "INTEGER", 26: "BIGINT", 28: "BIGINT", 700: "DOUBLE",
    701: "DOUBLE", 1186: "BIGINT", 1562: "BYTES",
    600: "STRUCT<`x` DOUBLE, `y` DOUBLE, `wkb` STRING, `srid` INTEGER>",
}  # fmt: skip


def table_schema(connection: psycopg.Connection[Any], settings: PostgresSettings, name: str) -> SourceTable:
    """The schema of a table. In: `name`: `schema.table`, or a table of the schema public. Raises
    `UnknownSourceTable`."""
    schema, dot, table = name.rpartition(".")
    schema = schema if dot else "public"
    with explained("the list of tables"):
        rows = connection.execute(
            """SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE c.relkind IN ('r', 'p') AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'"""
        ).fetchall()
        if (schema, table) not in rows:
            known = [f"{row[0]}.{row[1]}" for row in rows]
            raise UnknownSourceTable(
                f"PostgreSQL has no table {schema}.{table} in the database {settings.database_dbname}",
                hint=did_you_mean(f"{schema}.{table}", known) or "Its name is schema.table, as PostgreSQL writes it.",
            )
        if not is_named(f"{schema}.{table}", settings.table_include_list, settings.table_exclude_list):
            raise UnknownSourceTable(
                f"the connector does not read the table {schema}.{table}",
                hint="Add it to table.include.list with ALTER CONNECTOR.",
            )
        found = captured_table(connection, schema, table)
        depths = _depths(connection, found.relation.oid)
    modes = ValueModes(settings.decimal_handling_mode, settings.time_precision_mode)
    columns = tuple(
        SourceColumn(column.name, _type(column.type_oid, column.modifier, modes, depths.get(column.name, 1)))
        for column in found.relation.columns
    )
    return SourceTable(topic_of(settings.topic_prefix, schema, table), columns, found.key)


def _depths(connection: psycopg.Connection[Any], oid: int) -> dict[str, int]:
    """How many dimensions the columns of arrays were declared with."""
    rows = connection.execute(
        "SELECT attname, attndims FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND attndims > 1", [oid]
    )
    return dict(rows.fetchall())


def _type(oid: int, modifier: int, modes: ValueModes, depth: int = 1) -> str:
    """The type of the values of `value_reader`. In: `depth`: the number of dimensions of an array."""
    element = ARRAYS.get(oid)
    if element is not None:
        return f"{'ARRAY<' * depth}{_type(element, modifier, modes)}{'>' * depth}"
    in_ms = modes.times == "connect" or 0 <= modifier <= 3
    match oid:
        case 1700:
            return _decimal(modifier, modes)
        case 790:
            return {"number": "DECIMAL(19, 2)", "double": "DOUBLE"}.get(modes.decimals, "STRING")
        case 1082 | 1083 | 1114 if modes.times == "isostring":
            return "STRING"
        case 1082:
            return "DATE"
        case 1083:
            return "TIME" if in_ms else "BIGINT"
        case 1114:
            return "TIMESTAMP" if in_ms else "BIGINT"
        case 1560:
            return "BOOLEAN" if modifier == 1 else "BYTES"
        case _:
            return _TYPES.get(oid, "STRING")


def _decimal(modifier: int, modes: ValueModes) -> str:
    """The type for NUMERIC. Without a precision it is a text, because none of our types has all its digits."""
    if modes.decimals == "double":
        return "DOUBLE"
    precision, scale = (modifier - 4) >> 16 & 0xFFFF, scale_of(modifier)
    whole = modifier >= 4 and 1 <= precision <= _DIGITS_MAX and 0 <= scale <= precision
    return f"DECIMAL({precision}, {scale})" if modes.decimals == "number" and whole else "STRING"
