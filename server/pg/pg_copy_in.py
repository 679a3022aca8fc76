"""The rows of COPY … FROM STDIN: lines of text, CSV or PostgreSQL's binary format, in pieces that end anywhere."""

from __future__ import annotations

import csv
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import orjson
import pyarrow as pa

from ...planner.schema import Column
from ...planner.source_info import SourceInfo
from .pg_copy import CopyFormat, CopyInAsked
from .pg_dialect import shown_name
from .pg_parameters import NO_VALUE, decoded_value
from .pg_tokens import PgToken
from .pg_types import JSON_OID, oid_of
from .sqlstates import BAD_COPY, INVALID_VALUE, UNDEFINED_COLUMN, PgRefused

BATCH_ROWS: Final = 10_000
"""Rows that are appended at a time, all or none."""
_LINE_BYTES_MAX: Final = 1 << 24
_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0"
_UNESCAPED: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
Cells = list[bytes | None]
T = TypeVar("T")


@dataclass(slots=True)
class CopyIn:
    """What one COPY has read. State: the bytes that are no row yet, and the rows that nobody has taken."""

    source: SourceInfo
    columns: Sequence[Column]
    format: CopyFormat
    count: int = 0
    _bytes: bytearray = field(default_factory=bytearray)
    _rows: list[Cells] = field(default_factory=list[Cells])
    _looked: int = 0  # no end of a line is before it
    _counted: int = 0  # before it the quotes are counted
    _open: bool = False  # whether a quote is
    _begun: bool = False
    _ended: bool = False

    def feed(self, data: bytes) -> None:
        """Raises `PgRefused` for what is no row."""
        if self._ended:
            return  # after the mark of the end; older clients send more
        self._bytes += data
        rows = self._binary() if self.format.format == "binary" else self._text()
        for row in rows:
            self.count += 1
            if len(row) != len(self.columns):
                raise PgRefused(
                    BAD_COPY, f"row {self.count} has {len(row)} values; {len(self.columns)} columns are copied"
                )
            self._rows.append(row)
        if len(self._bytes) > _LINE_BYTES_MAX:
            raise PgRefused(BAD_COPY, f"row {self.count + 1} has more than {_LINE_BYTES_MAX} bytes")

    def end(self) -> None:
        """The last line may lack its end. Raises `PgRefused`."""
        if self.format.format != "binary" and self._bytes:
            self.feed(b"\n")
        if self._bytes and not self._ended:
            raise PgRefused(BAD_COPY, f"row {self.count + 1} is cut off")

    def taken(self, least: int) -> pa.Table | None:
        """The rows so far, once there are that many. Raises `PgRefused` for what is no value of its column."""
        if len(self._rows) < max(1, least):
            return None
        rows, self._rows = self._rows, []
        first = self.count - len(rows) + 1
        arrays = [self._array(column, [row[at] for row in rows], first) for at, column in enumerate(self.columns)]
        return pa.table(arrays, names=[column.name for column in self.columns])

    def _array(self, column: Column, cells: Cells, first: int) -> pa.Array:
        """In: `first`: the number of the first row."""
        values = [_value(cell, self.format.code, column, first + number) for number, cell in enumerate(cells)]
        is_json = oid_of(column.type) == JSON_OID and any(value is not None for value in values)
        try:
            return pa.array(values, None if is_json else column.type.arrow)  # the engine finds the fields of JSON
        except pa.ArrowException as error:
            raise PgRefused(
                INVALID_VALUE, f"rows from {first} on: column {shown_name(column.name)} is {column.type}: {error}"
            ) from None

    # Lines

    def _text(self) -> Iterator[Cells]:
        for line in self._lines():
            if not self._begun:
                self._begun = True
                if self.format.header:
                    continue
            if line == "\\.":
                self._ended = True
                return
            yield self._cells(line)

    def _lines(self) -> Iterator[str]:
        """Complete ones; in CSV a line goes on while a quote is open."""
        quote = self.format.quote.encode() if self.format.format == "csv" else None
        begin = 0
        try:
            while (at := self._bytes.find(b"\n", self._looked)) >= 0:
                self._looked = at + 1
                if quote is not None:
                    self._open ^= bool(self._bytes.count(quote, self._counted, at) % 2)
                    self._counted = at
                if self._open:
                    continue
                line = bytes(self._bytes[begin:at])
                begin = at + 1
                yield line.removesuffix(b"\r").decode()
            self._looked = len(self._bytes)
        except UnicodeDecodeError as error:
            raise PgRefused(BAD_COPY, f"row {self.count + 1} is not UTF-8: {error.reason}") from None
        finally:
            del self._bytes[:begin]
            self._looked, self._counted = max(0, self._looked - begin), max(0, self._counted - begin)

    def _cells(self, line: str) -> Cells:
        if self.format.format == "csv":
            return self._csv_cells(line)
        parts = self._parted(line)
        return [None if part == self.format.null else _unescaped(part).encode() for part in parts]

    def _parted(self, line: str) -> list[str]:
        """At delimiters that have no backslash before them."""
        delimiter = self.format.delimiter
        if "\\" + delimiter not in line:
            return line.split(delimiter)
        parts, begin, at = [], 0, 0
        while at < len(line):
            if line[at] == "\\":
                at += 1
            elif line[at] == delimiter:
                parts.append(line[begin:at])
                begin = at + 1
            at += 1
        return [*parts, line[begin:]]

    def _csv_cells(self, line: str) -> Cells:
        """NULL is what has no quotes, so the quoted cells are told apart by a second look."""
        quote, delimiter, null = self.format.quote, self.format.delimiter, self.format.null
        try:
            (cells,) = csv.reader([line], delimiter=delimiter, quotechar=quote, strict=True)
        except (csv.Error, ValueError) as error:
            raise PgRefused(BAD_COPY, f"row {self.count + 1} is no CSV: {error}") from None
        if not cells:
            cells = [""]
        if null not in cells:
            return [cell.encode() for cell in cells]
        quoted = list(_quoted(line, delimiter, quote))
        return [None if cell == null and not q else cell.encode() for cell, q in zip(cells, quoted, strict=True)]

    # The binary format

    def _binary(self) -> Iterator[Cells]:
        at = 0
        try:
            if not self._begun:
                at = self._signature()
            while not self._ended:
                (count,) = struct.unpack_from("!h", self._bytes, at)
                if count == -1:
                    self._ended = True
                    at = len(self._bytes)
                    return
                if count != len(self.columns):
                    raise PgRefused(BAD_COPY, f"row {self.count + 1} has {count} values, not {len(self.columns)}")
                row, at = self._binary_row(count, at + 2)
                yield row
        except struct.error:
            pass  # more has to come
        finally:
            del self._bytes[:at]

    def _signature(self) -> int:
        flags, extension = struct.unpack_from("!ii", self._bytes, len(_SIGNATURE))
        if not self._bytes.startswith(_SIGNATURE) or flags or not 0 <= extension < _LINE_BYTES_MAX:
            raise PgRefused(BAD_COPY, "COPY file signature not recognized")
        size = len(_SIGNATURE) + 8 + extension
        if len(self._bytes) < size:
            raise struct.error
        self._begun = True
        return size

    def _binary_row(self, count: int, at: int) -> tuple[Cells, int]:
        """Raises `struct.error` where it is not all there."""
        row: Cells = []
        for _ in range(count):
            (size,) = struct.unpack_from("!i", self._bytes, at)
            at += 4
            if size < -1 or size > _LINE_BYTES_MAX:
                raise PgRefused(BAD_COPY, f"row {self.count + 1} has a value of {size} bytes")
            if size < 0:
                row.append(None)
                continue
            if at + size > len(self._bytes):
                raise struct.error
            row.append(bytes(self._bytes[at : at + size]))
            at += size
        return row, at


def copy_into(asked: CopyInAsked, sources: Mapping[str, SourceInfo]) -> CopyIn:
    """In: `sources` that the user sees. Raises `PgRefused` for a name that none of them has."""
    source = _named(asked.target, sources, PgRefused("42P01", f'relation "{asked.target.named}" does not exist'))
    writable = {column.name: column for column in source.schema if column.role != "HEADERS"}
    columns = [
        _named(
            token,
            writable,
            PgRefused(UNDEFINED_COLUMN, f'column "{token.named}" of relation "{asked.target.named}" does not exist'),
        )
        for token in asked.columns
    ]
    return CopyIn(source, columns or list(writable.values()), asked.format)


def _named(token: PgToken, known: Mapping[str, T], refused: PgRefused) -> T:
    """As everywhere here: exactly, else as it is shown, else in whatever case."""
    name = token.named or ""
    for same in (name.__eq__, lambda each: shown_name(each) == name, lambda each: each.upper() == name.upper()):
        found = [value for each, value in known.items() if same(each)]
        if len(found) == 1:
            return found[0]
    raise refused


def _value(content: bytes | None, code: int, column: Column, row: int) -> Any:
    if content is None:
        return None
    oid = oid_of(column.type)
    try:
        if oid == JSON_OID:
            return orjson.loads(content)
        return decoded_value(content, code, oid)
    except NO_VALUE as error:
        message = f"row {row}: column {shown_name(column.name)} is {column.type}: {error}"
        raise PgRefused("22P02", message) from None


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    signs = iter(text)
    for sign in signs:
        if sign == "\\":
            sign = next(signs, "\\")
            sign = _UNESCAPED.get(sign, sign)
        out.append(sign)
    return "".join(out)


def _quoted(line: str, delimiter: str, quote: str) -> Iterator[bool]:
    """Whether each cell of a line of CSV begins with a quote."""
    inside, first = False, True
    for sign in line:
        if first:
            yield sign == quote
            first = False
        if sign == quote:
            inside = not inside
        elif sign == delimiter and not inside:
            first = True
    if first:
        yield False
