"""Decodes lines of files: text, NDJSON or CSV. A row of CSV may have line breaks in quoted values."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .json_pointers import exact_json

LINE_FORMATS: Final = ("text", "ndjson", "csv")


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
        """Lines with their offsets, without empty lines and line breaks. In: `offset`: the offset of `data`."""
        row = b""
        for line in data.splitlines(keepends=True) if self.name != "csv" else data.split(b"\n"):
            row += line if self.name != "csv" else line + b"\n"
            if self.name == "csv" and row.count(b'"') % 2:
                continue
            if row.strip():
                yield offset, row.rstrip(b"\r\n")
            offset += len(row)
            row = b""
        if row.strip():
            yield offset, row.rstrip(b"\r\n")  # with an unclosed quote

    def value(self, line: bytes, header: Sequence[str]) -> Any:
        """The value of a line. In: `header`: the columns of CSV. Raises ValueError."""
        match self.name:
            case "text":
                return line.decode()
            case "ndjson":
                return exact_json(line)
            case _:
                return dict(zip(header, self.columns(line), strict=True))

    def columns(self, line: bytes) -> list[str]:
        """The columns of a row of CSV. Raises ValueError."""
        text = line.decode("utf-8-sig")
        try:
            return next(csv.reader(text.splitlines(keepends=True), delimiter=self.csv_delimiter, strict=True))
        except csv.Error as error:
            raise ValueError(str(error)) from None


def checked_delimiter(delimiter: str) -> None:
    """Raises ValueError."""
    if len(delimiter) != 1:
        raise ValueError("csv.delimiter must be one character")
