"""The columns of a source or of a step, and how they are named inside batches.

In batches, columns have positional names (`k0`, `k1`, … for the key, `v0`, `v1`, … for the value). So generated SQL
never contains a user's name, and columns whose names differ only in case do not collide. `PSEUDO` lists the pseudo
columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ..sql.types import BIGINT, INTEGER, SqlType

Role = Literal["KEY", "VALUE", "HEADERS"]

PSEUDO: dict[str, tuple[str, SqlType]] = {
    "ROWTIME": ("_ts", BIGINT),
    "ROWPARTITION": ("_rowpartition", INTEGER),
    "ROWOFFSET": ("_offset", BIGINT),
    "WINDOWSTART": ("_ws", BIGINT),
    "WINDOWEND": ("_we", BIGINT),
}

WINDOW_BOUNDS = ("WINDOWSTART", "WINDOWEND")
RECORD_PLACE = ("ROWPARTITION", "ROWOFFSET")
"""Where the record of a row is in its topic; only rows that nothing has moved have it."""


@dataclass(frozen=True, slots=True)
class Column:
    """`header_key` is set for a HEADER('key') column; a HEADERS column without it holds all headers."""

    name: str
    type: SqlType
    role: Role = "VALUE"
    header_key: str | None = None

    def __str__(self) -> str:
        suffix = ""
        if self.role == "KEY":
            suffix = " KEY"
        elif self.role == "HEADERS":
            suffix = f" HEADER('{self.header_key}')" if self.header_key else " HEADERS"
        return f"`{self.name}` {self.type}{suffix}"


@dataclass(frozen=True, slots=True)
class Schema:
    """Columns in the order of declaration. Header columns count as value columns, but no format encodes them."""

    columns: tuple[Column, ...]

    @property
    def key(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.role == "KEY")

    @property
    def value(self) -> tuple[Column, ...]:
        """Value and header columns, in order; `v{i}` in batches is the i-th of these."""
        return tuple(column for column in self.columns if column.role != "KEY")

    def find(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)

    def physical_name(self, column: Column) -> str:
        """The column's name inside batches: `k0`, `v3`."""
        if column.role == "KEY":
            return f"k{self.key.index(column)}"
        return f"v{self.value.index(column)}"

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __str__(self) -> str:
        return ", ".join(map(str, self.columns))
