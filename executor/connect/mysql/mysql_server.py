"""Facts about the server: its flavor, whether its binary log can be read, its tables and their columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..cdc.cdc_records import is_named
from ..connector_errors import ConnectorFailed
from .binlog_tables import LoggedTable
from .gtids import Flavor
from .mysql_connections import explained, quoted, rows_of, variables
from .mysql_settings import MySqlSettings
from .mysql_values import MySqlColumn

_WANTED: Final = (
    ("log_bin", "ON", "Start it with log_bin, binlog_format=ROW and binlog_row_metadata=FULL."),
    ("binlog_format", "ROW", "SET GLOBAL binlog_format = 'ROW', and end the sessions that began before."),
    ("binlog_row_image", "FULL", "SET GLOBAL binlog_row_image = 'FULL', and end the sessions that began before."),
    ("binlog_row_metadata", "FULL", "SET GLOBAL binlog_row_metadata = 'FULL': it has the names of columns."),
    ("binlog_row_value_options", "", "SET GLOBAL binlog_row_value_options = ''."),
    ("binlog_transaction_compression", "OFF", "SET GLOBAL binlog_transaction_compression = OFF."),
)
_OPTIONAL: Final = ("binlog_row_value_options", "binlog_transaction_compression")
_SYSTEM: Final = ("mysql", "information_schema", "performance_schema", "sys")
_INTS: Final = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
_TEXTS: Final = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
_BYTES: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_TIMES: Final = ("date", "time", "datetime", "timestamp")
_PERIOD: Final = ("ROW START", "ROW END")
_GEOMETRIES: Final = (
    "geometry", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection",
    "geomcollection",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """`has_gtids`: whether transactions have ids. `charsets`: names of character sets by collation number."""

    flavor: Flavor
    server_id: int
    has_gtids: bool
    charsets: Mapping[int, str]


def server_facts(connection: Any) -> ServerFacts:
    """The facts about the server. Raises `ConnectorFailed` if the settings of its binary log are not as required."""
    found = variables(connection, *(name for name, _, _ in _WANTED), "gtid_mode")
    for name, wanted, hint in _WANTED:
        value = found.get(name)
        if value is None and name in _OPTIONAL:
            continue
        if value is None:
            raise ConnectorFailed(
                f"this server has no setting {name}",
                hint="MySQL 8.0.1 and MariaDB 10.5 are the oldest that can be read.",
            )
        if value.upper() != wanted:
            raise ConnectorFailed(f'{name} of this server is "{value}", but must be "{wanted}"', hint=hint)
    with explained("the server's version"):
        ((version, server_id),) = rows_of(connection, "SELECT VERSION(), @@server_id")
        flavor: Flavor = "mariadb" if "mariadb" in version.lower() else "mysql"
        gtids = flavor == "mariadb" or found.get("gtid_mode", "OFF").upper() == "ON"
        return ServerFacts(flavor, int(server_id), gtids, _charsets(connection, flavor))


def _charsets(connection: Any, flavor: Flavor) -> dict[int, str]:
    query = "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS WHERE ID IS NOT NULL"
    found = rows_of(connection, query)
    if flavor == "mariadb":  # its newer collations have one number per character set
        query = """SELECT COUNT(*) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = 'information_schema'
                   AND TABLE_NAME = 'COLLATION_CHARACTER_SET_APPLICABILITY' AND COLUMN_NAME = 'ID'"""
        if rows_of(connection, query)[0][0] != "0":
            query = "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY"
            found += rows_of(connection, query)
    return {int(number): charset for number, charset in found if charset}


def is_captured(settings: MySqlSettings, database: str, table: str) -> bool:
    if database in _SYSTEM:
        return False
    return is_named(database, settings.database_include_list, settings.database_exclude_list) and is_named(
        f"{database}.{table}", settings.table_include_list, settings.table_exclude_list
    )


def all_tables(connection: Any) -> list[tuple[str, str]]:
    """The tables that the user may see."""
    with explained("the list of tables"):
        query = """SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES
                   WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') ORDER BY 1, 2"""
        return [(database, table) for database, table in rows_of(connection, query) if database not in _SYSTEM]


def captured_tables(connection: Any, settings: MySqlSettings) -> list[tuple[str, str]]:
    """The tables that the settings select. Raises `ConnectorFailed` if they select none."""
    found = [(database, table) for database, table in all_tables(connection) if is_captured(settings, database, table)]
    if not found:
        raise ConnectorFailed(
            f"no table is named by table.include.list={','.join(settings.table_include_list) or '(all)'}",
            hint="Its items are regular expressions for database.table, such as shop.orders; the user needs SELECT.",
        )
    return found


def described_table(connection: Any, database: str, table: str) -> LoggedTable | None:
    """The current definition of the table; None if it does not exist."""
    with explained(f"the columns of {database}.{table}"):
        rows = rows_of(
            connection,
            """SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, CHARACTER_MAXIMUM_LENGTH, NUMERIC_PRECISION,
                      NUMERIC_SCALE, DATETIME_PRECISION, COLUMN_KEY, GENERATION_EXPRESSION
               FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s
               ORDER BY ORDINAL_POSITION""",
            [database, table],
        )
    rows = [row for row in rows if row[9] not in _PERIOD]
    if not rows:
        return None
    columns = tuple(_column(*row[:8]) for row in rows)
    return LoggedTable(database, table, columns, tuple(row[0] for row in rows if row[8] == "PRI"))


def table_kind(connection: Any, database: str, table: str) -> tuple[str, tuple[str, str] | None]:
    """MariaDB's kind of a table, such as `SEQUENCE`, empty if it does not exist now. With system versioning, also the
    columns of the period."""
    with explained(f"the kind of {database}.{table}"):
        found = rows_of(
            connection,
            "SELECT TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
            [database, table],
        )
        kind = found[0][0] if found else ""
        if kind != "SYSTEM VERSIONED":
            return kind, None
        named = rows_of(
            connection,
            """SELECT GENERATION_EXPRESSION, COLUMN_NAME FROM information_schema.COLUMNS
               WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND GENERATION_EXPRESSION IN ('ROW START', 'ROW END')""",
            [database, table],
        )
    names = {"ROW START": "row_start", "ROW END": "row_end", **dict(named)}
    return kind, (names["ROW START"], names["ROW END"])


def _column(
    name: str, data_type: str, full_type: str, nullable: str, length: str | None, precision: str | None,
    scale: str | None, fraction: str | None,
) -> MySqlColumn:  # fmt: skip
    kind, size = data_type.lower(), 0
    if kind in _INTS:
        kind, size = "int", _INTS[kind]
    elif kind in _TIMES:
        size = int(fraction or 0)
    elif kind in ("decimal", "bit"):
        size = int(precision or 0)
    elif kind in _TEXTS:
        kind = "text"
    elif kind in _BYTES:
        kind, size = "binary", int(length or 0) if kind == "binary" else 0
    elif kind in _GEOMETRIES:
        kind = "geometry"
    elif kind not in ("float", "double", "year", "enum", "set", "json", "point"):
        kind = data_type
    unsigned = "unsigned" in full_type.lower().split(")")[-1].split() or full_type.lower().endswith("unsigned zerofill")
    return MySqlColumn(name, kind, size, int(scale or 0), unsigned, nullable == "YES")


def selected(column: MySqlColumn) -> str:
    """The expression that selects a column. A FLOAT is selected as a DOUBLE, because only that shows all its digits."""
    return f"({quoted(column.name)} + 0e0)" if column.kind == "float" else quoted(column.name)
