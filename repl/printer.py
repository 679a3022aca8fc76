"""What the shell writes: answers and rows to the output, errors and remarks to the error output."""

from __future__ import annotations

import decimal
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TextIO

import orjson

from millstream.errors import MillstreamError

from ..server.client import Row, Rows
from .entity_text import entity_lines
from .tables import Table, cell_text, printable, render_table, streaming_table

OutputFormat = Literal["tabular", "json"]

FORMATS: Final = ("tabular", "json")
_PULL_ROWS_ALIGNED: Final = 1000  # a table is as wide as its first rows need
_RED, _BOLD, _DIM, _RESET = "\033[31m", "\033[1m", "\033[2m", "\033[0m"
_CARETS: Final = re.compile(r"\s*\|\s*\^+")


@dataclass(slots=True)
class Printer:
    """`format` may change while the shell runs. Where a stream is a terminal, it gets colours and cut tables."""

    out: TextIO
    err: TextIO
    format: OutputFormat = "tabular"

    @property
    def width_max(self) -> int | None:
        """Of a table; None where nobody looks at it on a screen."""
        return shutil.get_terminal_size().columns if self.out.isatty() else None

    def entity(self, entity: Mapping[str, Any]) -> None:
        if self.format == "json":
            self.line(_json(entity))
            return
        for line in entity_lines(entity, self.width_max):
            self.line(line)

    def rows(self, rows: Rows) -> None:
        """Prints all rows, as they come. Raises what the query raises."""
        if rows.kind == "PRINT":
            for row in rows:
                self.line(printable(str(row.values[0])))
        elif self.format == "json":
            for row in rows:
                self.line(_row_json(rows.column_names, row))
        elif rows.kind == "PULL":
            self._whole_table(rows)
        else:
            self._growing_table(rows)
        if rows.final_message and self.format == "tabular":
            self.remark(rows.final_message)

    def error(self, error: MillstreamError) -> None:
        """The error with its place and its hint."""
        for line in error.render().splitlines():
            self._to_err(self._coloured(printable(line)))

    def remark(self, text: str) -> None:
        """For people only, so not part of the output."""
        self._to_err(f"{_DIM}{text}{_RESET}" if self.err.isatty() else text)

    def line(self, text: str) -> None:
        self.out.write(text + "\n")
        self.out.flush()

    def _whole_table(self, rows: Rows) -> None:
        first: list[Sequence[Any]] = []
        iterator = iter(rows)
        for row in iterator:
            first.append(row.values)
            if len(first) == _PULL_ROWS_ALIGNED:
                break
        for line in render_table(rows.column_names, first, self.width_max):
            self.line(line)
        rest = streaming_table(rows.column_names, rows.column_types, self.width_max)
        for row in iterator:
            self.line(_row_text(rest, row))

    def _growing_table(self, rows: Rows) -> None:
        table = streaming_table(rows.column_names, rows.column_types, self.width_max)
        for line in table.head():
            self.line(line)
        for row in rows:
            self.line(_row_text(table, row))

    def _coloured(self, line: str) -> str:
        if not self.err.isatty():
            return line
        label, separator, rest = line.partition(": ")
        if separator and label in ("error", "hint"):
            colour = _RED + _BOLD if label == "error" else _BOLD
            return f"{colour}{label}:{_RESET} {rest}"
        return f"{_RED}{line}{_RESET}" if _CARETS.fullmatch(line) else line

    def _to_err(self, text: str) -> None:
        self.err.write(text + "\n")
        self.err.flush()


def _row_text(table: Table, row: Row) -> str:
    return table.row(["<gone>" if row.tombstone and value is None else cell_text(value) for value in row.values])


def _row_json(names: Sequence[str], row: Row) -> str:
    members: dict[str, Any] = dict(zip(names, row.values, strict=True))
    if row.tombstone:
        members = {name: value for name, value in members.items() if value is not None} | {"@tombstone": True}
    return _json(members)


def _json(value: object) -> str:
    return orjson.dumps(value, default=_decimal).decode()


def _decimal(value: object) -> object:
    """A number with all the digits of its scale; orjson knows everything else that rows have."""
    return orjson.Fragment(format(value, "f").encode()) if isinstance(value, decimal.Decimal) else str(value)
