"""SQLAlchemy's CREATE TABLE, DROP TABLE and CREATE INDEX as Millstream's statements, for `DataFrame.to_sql` and
`create_all`.

A table with a primary key becomes a TABLE. A table without one becomes a STREAM, to which rows are appended: a TABLE
keeps one row for each key, and without a key, rows cannot be identified.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import schema
from sqlalchemy.exc import CompileError
from sqlalchemy.sql import compiler

TABLE_OPTIONS: dict[str, Any] = {"topic": None, "format": "JSON", "partitions": 1}
"""Options as in `Table(…, millstream_format="AVRO")`. By default, the topic has the table's name."""


class MillstreamTypes(compiler.GenericTypeCompiler):
    """Millstream's names of types. A type without an equivalent is refused by name."""

    def visit_VARCHAR(self, type_: Any, **kw: Any) -> str:
        return "STRING"

    visit_CHAR = visit_NCHAR = visit_NVARCHAR = visit_TEXT = visit_CLOB = visit_VARCHAR
    visit_UUID = visit_uuid = visit_VARCHAR

    def visit_SMALLINT(self, type_: Any, **kw: Any) -> str:
        return "INTEGER"

    def visit_FLOAT(self, type_: Any, **kw: Any) -> str:
        return "DOUBLE"

    visit_REAL = visit_DOUBLE = visit_DOUBLE_PRECISION = visit_FLOAT

    def visit_DATETIME(self, type_: Any, **kw: Any) -> str:
        return "TIMESTAMP"

    visit_TIMESTAMP = visit_DATETIME

    def visit_TIME(self, type_: Any, **kw: Any) -> str:
        return "TIME"

    def visit_BLOB(self, type_: Any, **kw: Any) -> str:
        return "BYTES"

    visit_BINARY = visit_VARBINARY = visit_BLOB

    def visit_NUMERIC(self, type_: Any, **kw: Any) -> str:
        if type_.precision is None:
            raise CompileError("a DECIMAL needs its digits: write Numeric(10, 2), or Double()")
        return f"DECIMAL({type_.precision}, {type_.scale or 0})"

    visit_DECIMAL = visit_NUMERIC

    def visit_JSON(self, type_: Any, **kw: Any) -> str:
        raise CompileError(
            f"no column of type {type(type_).__name__} is made here: make the stream with CREATE STREAM and an ARRAY, "
            "MAP or STRUCT, or name another type (dtype= of to_sql)"
        )

    visit_ARRAY = visit_INTERVAL = visit_interval = visit_JSON


class MillstreamDdl(compiler.DDLCompiler):
    """CREATE and DROP of streams and tables."""

    def visit_create_table(self, create: schema.CreateTable, **kw: Any) -> str:
        table = create.element
        keys = {column.name for column in table.primary_key}
        columns = ", ".join(self._column(column, column.name in keys) for column in table.columns)
        options: dict[str, Any] = {**TABLE_OPTIONS, **table.dialect_options["millstream"]}
        within = [
            f"kafka_topic={self._text(options['topic'] or table.name)}",
            f"format={self._text(options['format'])}" if keys else f"value_format={self._text(options['format'])}",
            f"partitions={int(options['partitions'])}",
        ]
        name = self.preparer.quote(table.name)
        exists = "IF NOT EXISTS " if create.if_not_exists else ""
        return f"CREATE {_kind(table)} {exists}{name} ({columns}) WITH ({', '.join(within)})"

    def visit_drop_table(self, drop: schema.DropTable, **kw: Any) -> str:
        """Also deletes the topic, so that a new table with this name starts without rows."""
        exists = "IF EXISTS " if drop.if_exists else ""
        return f"DROP {_kind(drop.element)} {exists}{self.preparer.quote(drop.element.name)} DELETE TOPIC"

    def visit_create_index(
        self, create: schema.CreateIndex, include_schema: bool = False, include_table_schema: bool = True, **kw: Any
    ) -> str:
        """Does nothing: a data frame's index is an ordinary column, and there are no indexes for faster searches."""
        return ""

    def visit_drop_index(self, drop: schema.DropIndex, **kw: Any) -> str:
        return ""

    def _column(self, column: Any, is_key: bool) -> str:
        type_ = self.dialect.type_compiler_instance.process(column.type, type_expression=column)
        return f"{self.preparer.quote(column.name)} {type_}{' PRIMARY KEY' if is_key else ''}"

    def _text(self, text: str) -> str:
        return "'" + text.replace("'", "''") + "'"


def _kind(table: Any) -> str:
    return "TABLE" if len(table.primary_key) else "STREAM"
