"""A SQLAlchemy dialect, so that JupySQL, pandas.read_sql and Superset can use Millstream.

    engine = sqlalchemy.create_engine("millstream://127.0.0.1:8088")     # a server
    engine = sqlalchemy.create_engine("millstream:///folder")            # an engine in this process

Streams and tables are tables in SQLAlchemy. The dialect is for reading, for INSERT, and for tables without a query, as
`DataFrame.to_sql` creates them (`sqlalchemy_ddl.py`); create persistent queries with SQL text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import schema, types
from sqlalchemy.engine import Connection, default, reflection
from sqlalchemy.engine.url import URL
from sqlalchemy.exc import NoSuchTableError
from sqlalchemy.sql import compiler

from millstream.sql.settings.property import says_true

from . import dbapi
from .sqlalchemy_ddl import TABLE_OPTIONS, MillstreamDdl, MillstreamTypes
from .sqlalchemy_queries import MillstreamQueries, NestedValues

_TYPES: dict[str, Callable[[], types.TypeEngine[Any]]] = {
    "BOOLEAN": types.BOOLEAN,
    "INTEGER": types.INTEGER,
    "BIGINT": types.BIGINT,
    "DOUBLE": types.DOUBLE,
    "STRING": types.VARCHAR,
    "BYTES": types.LargeBinary,
    "DATE": types.DATE,
    "TIME": types.TIME,
    "TIMESTAMP": types.TIMESTAMP,
}


class MillstreamIdentifiers(compiler.IdentifierPreparer):
    """Names in upper case need no quotes."""

    def __init__(self, dialect: default.DefaultDialect) -> None:
        super().__init__(dialect, initial_quote="`")

    def _requires_quotes(self, value: str) -> bool:
        return value != value.upper() or super()._requires_quotes(value.lower())


class MillstreamDialect(default.DefaultDialect):
    """One schema, no transactions."""

    name = "millstream"
    driver = "millstream"
    preparer = MillstreamIdentifiers
    statement_compiler = MillstreamQueries
    ddl_compiler = MillstreamDdl
    colspecs = {types.JSON: NestedValues}  # noqa: RUF012
    type_compiler_cls = MillstreamTypes
    construct_arguments = [(schema.Table, TABLE_OPTIONS)]  # noqa: RUF012
    default_paramstyle = "qmark"
    supports_statement_cache = True
    supports_native_boolean = True
    supports_native_decimal = True
    supports_multivalues_insert = True
    supports_alter = False
    supports_sane_rowcount = False
    supports_default_values = False
    supports_empty_insert = False
    postfetch_lastrowid = False

    @classmethod
    def import_dbapi(cls) -> Any:  # the module `dbapi`
        return dbapi

    def create_connect_args(self, url: URL) -> tuple[list[Any], dict[str, Any]]:
        """`millstream://HOST:PORT`, `?tls=true` for https, or `millstream:///FOLDER`; other options are properties."""
        options = dict(url.query)
        scheme = "https" if says_true(options.pop("tls", None)) else "http"
        target = url.database or None
        if url.host is not None:
            target = f"{scheme}://{url.host}:{url.port or 8088}"
        return [target, options], {}

    def do_execute(self, cursor: Any, statement: str, parameters: Any, context: Any = None) -> None:
        """Does nothing if Millstream needs no statement for SQLAlchemy's operation."""
        if statement:
            cursor.execute(statement, parameters)

    def do_ping(self, dbapi_connection: Any) -> bool:
        dbapi_connection.millstream.client.info()
        return True

    def initialize(self, connection: Connection) -> None:
        """Does nothing: there are no different versions or modes to detect."""

    def get_table_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        """Tables and streams."""
        del schema, kw
        beneath: Any = connection.connection.dbapi_connection
        tables, streams = beneath.millstream.execute("SHOW TABLES; SHOW STREAMS;")
        return sorted(source["name"] for source in (*tables["tables"], *streams["streams"]))

    def get_view_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        return []

    def get_schema_names(self, connection: Connection, **kw: Any) -> list[str]:
        return []

    def has_table(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> bool:
        return table_name.upper() in (name.upper() for name in self.get_table_names(connection, schema))

    def get_columns(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[reflection.ReflectedColumn]:
        return [
            {"name": field["name"], "type": _column_type(field["schema"]), "nullable": True, "default": None}
            for field in self._fields(connection, table_name)
        ]

    def get_pk_constraint(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> reflection.ReflectedPrimaryKeyConstraint:
        """The key of a table. A stream has none, because rows may have the same key."""
        described = self._described(connection, table_name)
        keys = (
            [f["name"] for f in described["fields"] if f.get("type") == "KEY"] if described["type"] == "TABLE" else []
        )
        return {"constrained_columns": keys, "name": None}

    def get_foreign_keys(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> Any:
        return []

    def get_indexes(self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any) -> Any:
        return []

    def _fields(self, connection: Connection, name: str) -> list[dict[str, Any]]:
        return self._described(connection, name)["fields"]

    def _described(self, connection: Connection, name: str) -> dict[str, Any]:
        names = self.get_table_names(connection)
        stored = name if name in names else name.upper()
        if stored not in names:
            raise NoSuchTableError(name)
        beneath: Any = connection.connection.dbapi_connection
        quoted = self.identifier_preparer.quote(stored)
        (entity,) = beneath.millstream.execute(f"DESCRIBE {quoted};")
        return entity["sourceDescription"]


def _column_type(schema: dict[str, Any]) -> types.TypeEngine[Any]:
    """Arrays, maps and structs become JSON, because SQLAlchemy has no more specific type."""
    if schema["type"] == "DECIMAL":
        return types.DECIMAL(schema["parameters"]["precision"], schema["parameters"]["scale"])
    return _TYPES.get(schema["type"], types.JSON)()
