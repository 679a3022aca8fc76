"""The SQL types, and their types in Arrow and DuckDB. Conversions between types are in `coercion.py`.

ksqlDB's types: https://docs.ksqldb.io/en/latest/reference/sql/data-types/ . All times have millisecond resolution and
no zone; DuckDB and Arrow store them in microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SqlType:
    """Base of all types. `str(t)` is ksqlDB's text for it; equality is structural."""

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of a column of this type."""
        raise AssertionError(f"{type(self).__name__} has no Arrow type")

    @property
    def duckdb(self) -> str:
        """The type's name in DuckDB SQL."""
        raise AssertionError(f"{type(self).__name__} has no DuckDB type")


@dataclass(frozen=True, slots=True)
class Primitive(SqlType):
    """A type without parameters; use the constants below, never the constructor."""

    name: str

    _ARROW: ClassVar[dict[str, pa.DataType]] = {
        "BOOLEAN": pa.bool_(),
        "INTEGER": pa.int32(),
        "BIGINT": pa.int64(),
        "DOUBLE": pa.float64(),
        "STRING": pa.string(),
        "BYTES": pa.binary(),
        "TIME": pa.time64("us"),
        "DATE": pa.date32(),
        "TIMESTAMP": pa.timestamp("us"),
        "NULL": pa.null(),
    }
    _DUCKDB: ClassVar[dict[str, str]] = {"STRING": "VARCHAR", "BYTES": "BLOB", "NULL": '"NULL"'}

    def __str__(self) -> str:
        return self.name

    @property
    def arrow(self) -> pa.DataType:
        return self._ARROW[self.name]

    @property
    def duckdb(self) -> str:
        return self._DUCKDB.get(self.name, self.name)


BOOLEAN = Primitive("BOOLEAN")
INTEGER = Primitive("INTEGER")
BIGINT = Primitive("BIGINT")
DOUBLE = Primitive("DOUBLE")
STRING = Primitive("STRING")
BYTES = Primitive("BYTES")
TIME = Primitive("TIME")
DATE = Primitive("DATE")
TIMESTAMP = Primitive("TIMESTAMP")
NULL = Primitive("NULL")  # the type of the literal NULL; compatible with every type
INTERVAL_UNIT = Primitive("INTERVALUNIT")  # the first argument of TIMESTAMPADD and the like; never a column's


PRECISION_MAX = 38  # digits of a DECIMAL


@dataclass(frozen=True, slots=True)
class Decimal(SqlType):
    """`precision` digits in total (1 to 38), `scale` of them after the point."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"DECIMAL({self.precision}, {self.scale})"

    @property
    def arrow(self) -> pa.DataType:
        return pa.decimal128(self.precision, self.scale)

    @property
    def duckdb(self) -> str:
        return f"DECIMAL({self.precision},{self.scale})"


def is_numeric(type_: SqlType) -> bool:
    return type_ in (INTEGER, BIGINT, DOUBLE) or isinstance(type_, Decimal)


@dataclass(frozen=True, slots=True)
class Array(SqlType):
    element: SqlType

    def __str__(self) -> str:
        return f"ARRAY<{self.element}>"

    @property
    def arrow(self) -> pa.DataType:
        return pa.list_(self.element.arrow)

    @property
    def duckdb(self) -> str:
        return f"{self.element.duckdb}[]"


@dataclass(frozen=True, slots=True)
class Map(SqlType):
    key: SqlType
    value: SqlType

    def __str__(self) -> str:
        return f"MAP<{self.key}, {self.value}>"

    @property
    def arrow(self) -> pa.DataType:
        return pa.map_(self.key.arrow, self.value.arrow)

    @property
    def duckdb(self) -> str:
        return f"MAP({self.key.duckdb}, {self.value.duckdb})"


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: SqlType


@dataclass(frozen=True, slots=True)
class Struct(SqlType):
    fields: tuple[Field, ...]

    def __str__(self) -> str:
        inner = ", ".join(f"`{field.name}` {field.type}" for field in self.fields)
        return f"STRUCT<{inner}>"

    @property
    def arrow(self) -> pa.DataType:
        return pa.struct([pa.field(name, type_.arrow) for name, type_ in self.stored])

    @property
    def duckdb(self) -> str:
        inner = ", ".join(f'"{name.replace(chr(34), chr(34) * 2)}" {type_.duckdb}' for name, type_ in self.stored)
        return f"STRUCT({inner})"

    @property
    def stored(self) -> tuple[tuple[str, SqlType], ...]:
        """The fields in Arrow and DuckDB. DuckDB has no struct without fields, so an empty one has a field that is
        always NULL.

        >>> Struct(()).duckdb
        'STRUCT("#" BOOLEAN)'
        """
        named = zip(self.engine_names, self.fields, strict=True)
        return tuple((name, field.type) for name, field in named) or (("#", BOOLEAN),)

    @property
    def engine_names(self) -> tuple[str, ...]:
        """The names of the fields in Arrow and DuckDB. Names there are not case-sensitive, so a field whose name
        differs from an earlier one's only in case gets a number.

        >>> Struct((Field("A", INTEGER), Field("a", INTEGER))).engine_names
        ('A', 'a#1')
        """
        taken: set[str] = set()
        names: list[str] = []
        for field in self.fields:
            name, number = field.name, 0
            while name.lower() in taken:
                number += 1
                name = f"{field.name}#{number}"
            taken.add(name.lower())
            names.append(name)
        return tuple(names)

    def engine_name(self, name: str) -> str:
        """The name in Arrow and DuckDB of the field with exactly this name."""
        return self.engine_names[next(i for i, field in enumerate(self.fields) if field.name == name)]

    def field(self, name: str) -> Field | None:
        """The field with exactly this name."""
        return next((field for field in self.fields if field.name == name), None)


@dataclass(frozen=True, slots=True)
class NamedType(SqlType):
    """A custom type (CREATE TYPE) that the planner has not resolved yet; only in ASTs."""

    name: str

    def __str__(self) -> str:
        return self.name
