"""Converts the schema of a table in MySQL or MariaDB to columns of a stream or table."""

from __future__ import annotations

import re
from typing import Any, Final

from millstream.errors import did_you_mean

from ..cdc.cdc_records import topic_of
from ..connector import SourceColumn, SourceTable
from ..connector_errors import UnknownSourceTable
from .mysql_server import all_tables, described_table, is_captured
from .mysql_settings import MySqlSettings
from .mysql_values import MySqlColumn

_DIGITS_MAX: Final = 38
_TYPES: Final = {
    "year": "INTEGER", "float": "DOUBLE", "double": "DOUBLE", "binary": "BYTES",
    "geometry": "STRUCT<`wkb` STRING, `srid` INTEGER>",
    "point": "STRUCT<`x` DOUBLE, `y` DOUBLE, `wkb` STRING, `srid` INTEGER>",
}  # fmt: skip


def table_schema(connection: Any, settings: MySqlSettings, name: str) -> SourceTable:
    """The schema of a table. In: `name`: `database.table`. Raises `UnknownSourceTable`."""
    database, _, table = name.partition(".")
    known = all_tables(connection)
    if (database, table) not in known:
        raise UnknownSourceTable(
            f"the server has no table {name}",
            hint=did_you_mean(name, [".".join(each) for each in known]) or "Its name is database.table.",
        )
    described = described_table(connection, database, table) if is_captured(settings, database, table) else None
    if described is None:
        raise UnknownSourceTable(
            f"the connector does not read the table {name}", hint="Add it to table.include.list with ALTER CONNECTOR."
        )
    columns = tuple(
        SourceColumn(column.name, _type(column, settings))
        for column in described.columns
        if column.name in described.key or not _is_hidden(settings, f"{name}.{column.name}")
    )
    return SourceTable(topic_of(settings.topic_prefix, database, table), columns, described.key)


def _is_hidden(settings: MySqlSettings, column: str) -> bool:
    return any(re.fullmatch(pattern, column) for pattern in settings.column_exclude_list)


def _type(column: MySqlColumn, settings: MySqlSettings) -> str:
    """The type of the values of the column's readers."""
    iso = settings.time_precision_mode == "isostring"
    coarse = settings.time_precision_mode == "connect" or column.size <= 3
    match column.kind:
        case "int":
            return _integer(column, settings)
        case "decimal":
            if settings.decimal_handling_mode == "double":
                return "DOUBLE"
            exact = settings.decimal_handling_mode == "number" and column.size <= _DIGITS_MAX
            return f"DECIMAL({column.size}, {column.scale})" if exact else "STRING"
        case "bit":
            return "BOOLEAN" if column.size == 1 else "BYTES"
        case "date" | "datetime" if iso:
            return "STRING"
        case "date":
            return "DATE"
        case "time":
            return "STRING" if iso else "BIGINT"
        case "datetime":
            return "TIMESTAMP" if coarse else "BIGINT"
        case _:
            return _TYPES.get(column.kind, "STRING")


def _integer(column: MySqlColumn, settings: MySqlSettings) -> str:
    """The type for an integer. An unsigned one may have one digit more than the signed type of its size."""
    if column.size == 8 and column.unsigned:
        return "STRING" if settings.bigint_unsigned_handling_mode == "precise" else "DECIMAL(20, 0)"
    return "BIGINT" if column.size == 8 or (column.size == 4 and column.unsigned) else "INTEGER"
