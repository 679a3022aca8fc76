"""Decodes lines of files: text, NDJSON or CSV. A row of CSV may have line breaks in quoted values."""

from __future__ import annotations

import codecs
import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..connector_errors import ConnectorFailed
from .json_pointers import exact_json

LINE_FORMATS: Final = ("text", "ndjson", "csv")
_NAMES_SHOWN: Final = 12


@dataclass(frozen=True, slots=True)
class LineFormat:
    """`name`: one of `LINE_FORMATS`."""

    name: str
    csv_delimiter: str = ","

    def end(self, data: bytes) -> int:
        """The end of the last complete line, or row of CSV."""
        end = data.rfind(b"\n") + 1
        while self.name == "csv" and end and data.count(b'"', 0, end) % 2:
            end = data.rfind(b"\n", 0, end - 1) + 1
        return end

    def split(self, data: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
        """Lines with their offsets, without empty lines, line breaks and the byte order mark. In: `offset`: the offset
        of `data`."""
        row = b""
        for line in data.splitlines(keepends=True) if self.name != "csv" else data.split(b"\n"):
            row += line if self.name != "csv" else line + b"\n"
            if self.name == "csv" and row.count(b'"') % 2:
                continue
            if content := _content(row, offset):
                yield offset, content
            offset += len(row)
            row = b""
        if content := _content(row, offset):
            yield offset, content  # with an unclosed quote

    def value(self, line: bytes, header: Sequence[str]) -> Any:
        """The value of a line. In: `header`: the columns of CSV. Raises ValueError."""
        match self.name:
            case "text":
                return _text(line)
            case "ndjson":
                return exact_json(line)
            case _:
                values = self._columns(line)
                if len(values) != len(header):
                    many = "1 value" if len(values) == 1 else f"{len(values)} values"
                    raise ValueError(f"{many} for {len(header)} columns")
                return dict(zip(header, values, strict=True))

    def header(self, line: bytes, path: str, key_field: str | None, hint: str) -> list[str]:
        """The columns that the first line of CSV names. Raises `ConnectorFailed`, also if they would lose the key or
        values."""
        try:
            names = self._columns(line.removeprefix(codecs.BOM_UTF8))
        except ValueError as error:
            raise ConnectorFailed(f"the first line of {path} has no columns: {error}", hint=hint) from None
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        if twice is not None:
            raise ConnectorFailed(f'the first line of {path} names the column "{twice}" twice', hint=hint)
        if key_field is not None and key_field not in names:
            raise ConnectorFailed(
                f'the first line of {path} has no column "{key_field}", which is key.field; its columns are: '
                + ", ".join([*names[:_NAMES_SHOWN], *["…"] * (len(names) > _NAMES_SHOWN)]),
                hint="ALTER CONNECTOR … WITH ('key.field'='…') names another; csv.delimiter is what separates columns.",
            )
        return names

    def _columns(self, line: bytes) -> list[str]:
        text = _text(line)
        try:
            return next(csv.reader(text.splitlines(keepends=True), delimiter=self.csv_delimiter, strict=True))
        except csv.Error as error:
            raise ValueError(str(error)) from None


def _content(row: bytes, offset: int) -> bytes:
    """The row without its line break and, at the start of a file, without a byte order mark; empty if it is blank."""
    content = row.removeprefix(codecs.BOM_UTF8) if offset == 0 else row
    return content.rstrip(b"\r\n") if content.strip() else b""


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not in UTF-8: byte {line[error.start]:#04x} at position {error.start}") from None


def checked_delimiter(delimiter: str) -> None:
    """Raises ValueError."""
    if len(delimiter) != 1:
        raise ValueError("csv.delimiter must be one character")
