"""The rows of COPY … FROM STDIN: lines of text, CSV or PostgreSQL's binary format, in chunks that may end anywhere."""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import pyarrow as pa

from ...planner.schema import Column
from ...planner.source_info import SourceInfo
from ...sql.types import SqlType
from .dialect.known_names import shown_name
from .pg_copy import CopyFormat, CopyInAsked
from .pg_json_values import json_reader
from .pg_parameters import NO_VALUE, decoded_value
from .pg_tokens import PgToken
from .pg_types import JSON_OID, oid_of
from .sqlstates import BAD_COPY, DUPLICATE_COLUMN, INVALID_VALUE, UNDEFINED_COLUMN, PgRefused

BATCH_ROWS: Final = 10_000
"""Rows that are appended together, all or none; fewer if they are large."""
_BATCH_BYTES: Final = 8 << 20
_LINE_BYTES_MAX: Final = 1 << 24
_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0"
_ESCAPE: Final = re.compile(rb"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(?s:(.)))")
_CONTROLS: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_NO_ARRAY: Final = (pa.ArrowException, OverflowError, TypeError, ValueError)
"""The exceptions of Arrow for values of the wrong type. Some of them are Python's."""
Cells = list[bytes | None]
T = TypeVar("T")


@dataclass(slots=True)
class CopyIn:
    """The parser of one COPY. State: bytes of an incomplete row, and rows that were not taken yet."""

    source: SourceInfo
    columns: Sequence[Column]
    format: CopyFormat
    count: int = 0
    held_bytes: int = 0  # of the values in `_rows`
    _bytes: bytearray = field(default_factory=bytearray)
    _rows: list[Cells] = field(default_factory=list[Cells])
    _looked: int = 0  # there is no end of a line before this position
    _counted: int = 0  # quotes before this position are counted
    _open: bool = False  # whether a quote is open
    _begun: bool = False
    _ended: bool = False

    def feed(self, data: bytes) -> None:
        """Parses a chunk. Raises `PgRefused` for an invalid row."""
        if self._ended:
            return  # after the end marker, which older clients send more data after
        self._bytes += data
        rows = self._binary() if self.format.format == "binary" else self._text()
        for row in rows:
            self.count += 1
            if len(row) != len(self.columns):
                raise PgRefused(
                    BAD_COPY, f"row {self.count} has {len(row)} values; {len(self.columns)} columns are copied"
                )
            self._rows.append(row)
            self.held_bytes += sum(len(cell) for cell in row if cell is not None)
        if len(self._bytes) > _LINE_BYTES_MAX:
            raise PgRefused(BAD_COPY, f"row {self.count + 1} has more than {_LINE_BYTES_MAX} bytes")

    def end(self) -> None:
        """Parses the last line, which may lack its line end. Raises `PgRefused`."""
        if self.format.format != "binary" and self._bytes:
            self.feed(b"\n")
        if self._bytes and not self._ended:
            raise PgRefused(BAD_COPY, f"row {self.count + 1} is cut off")

    def taken(self, least: int) -> pa.Table | None:
        """The rows so far, once there are at least `least` rows or they are large. Raises `PgRefused` for a value that
        does not fit its column."""
        if len(self._rows) < max(1, least) and self.held_bytes < _BATCH_BYTES:
            return None
        rows, self._rows, self.held_bytes = self._rows, [], 0
        first = self.count - len(rows) + 1
        arrays = [self._array(column, [row[at] for row in rows], first) for at, column in enumerate(self.columns)]
        return pa.table(arrays, names=[column.name for column in self.columns])

    def _array(self, column: Column, cells: Cells, first: int) -> pa.Array:
        """In: `first`: the number of the first row."""
        read = _reader(column, self.format.code)
        values: list[Any] = []
        try:
            for cell in cells:
                values.append(None if cell is None else read(cell))
        except NO_VALUE as error:
            message = f"row {first + len(values)}: column {shown_name(column.name)} is {column.type}: {error}"
            raise PgRefused("22P02", message) from None
        try:
            return pa.array(values, column.type.arrow)
        except _NO_ARRAY as error:
            told = f"column {shown_name(column.name)} is {column.type}"
            at = next((at for at, value in enumerate(values) if not _fits(value, column.type)), None)
            if at is None:  # each fits, but not all together
                raise PgRefused(INVALID_VALUE, f"rows from {first} on: {told}: {error}") from None
            shown = values[at] if self.format.format == "binary" else (cells[at] or b"").decode()
            raise PgRefused(INVALID_VALUE, f"row {first + at}: {told}: {shown} does not fit") from None

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
        """Complete lines. In CSV, a line continues while a quote is open; in text, after a backslash."""
        quote = self.format.quote.encode() if self.format.format == "csv" else None
        begin = 0
        try:
            while (at := self._bytes.find(b"\n", self._looked)) >= 0:
                self._looked = at + 1
                if quote is not None:
                    self._open ^= bool(self._bytes.count(quote, self._counted, at) % 2)
                    self._counted = at
                if self._open or (quote is None and self._escaped(begin, at)):
                    continue
                line = bytes(self._bytes[begin:at])
                if line.endswith(b"\r") and (quote is not None or not self._escaped(begin, at - 1)):
                    line = line[:-1]
                begin = at + 1
                yield line.decode()
            self._looked = len(self._bytes)
        except UnicodeDecodeError as error:
            raise PgRefused(BAD_COPY, f"row {self.count + 1} is not UTF-8: {error.reason}") from None
        finally:
            del self._bytes[:begin]
            self._looked, self._counted = max(0, self._looked - begin), max(0, self._counted - begin)

    def _escaped(self, begin: int, at: int) -> bool:
        """Whether an unescaped backslash precedes `at`."""
        first = at
        while first > begin and self._bytes[first - 1] == ord("\\"):
            first -= 1
        return bool((at - first) % 2)

    def _cells(self, line: str) -> Cells:
        if self.format.format == "csv":
            return self._csv_cells(line)
        parts = self._parted(line)
        return [None if part == self.format.null else _unescaped(part) for part in parts]

    def _parted(self, line: str) -> list[str]:
        """Splits at delimiters that no backslash precedes."""
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
        """As in PostgreSQL, quotes may be inside a cell: a"b,c"d is one cell. Only an unquoted cell can be NULL."""
        quote, delimiter, null = self.format.quote, self.format.delimiter, self.format.null
        if quote not in line:
            return [None if cell == null else cell.encode() for cell in line.split(delimiter)]
        cell, quoted = _csv_patterns(quote, delimiter)
        cells: Cells = []
        end = -1
        while end < len(line):
            found = cell.match(line, end + 1)
            assert found is not None  # matches even if a quote is open; `_lines` yields no such line
            text, end = found[0], found.end()
            if quote in text:
                cells.append(quoted.sub(lambda part: part[1].replace(quote * 2, quote), text).encode())
            else:
                cells.append(None if text == null else text.encode())
        return cells

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
            pass  # the rest has not arrived yet
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
        """Raises `struct.error` if the row is incomplete."""
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


def _fits(value: Any, type_: SqlType) -> bool:
    try:
        pa.array([value], type_.arrow)
    except _NO_ARRAY:
        return False
    return True


def copy_into(asked: CopyInAsked, sources: Mapping[str, SourceInfo]) -> CopyIn:
    """In: `sources` that the user sees. Raises `PgRefused` for an unknown name."""
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
    twice = next((column.name for column in columns if columns.count(column) > 1), None)
    if twice is not None:
        raise PgRefused(DUPLICATE_COLUMN, f'column "{shown_name(twice)}" specified more than once')
    return CopyIn(source, columns or list(writable.values()), asked.format)


def _named(token: PgToken, known: Mapping[str, T], refused: PgRefused) -> T:
    """The value for a name, as everywhere in this package: by exact name, else by displayed name, else in any case."""
    name = token.named or ""
    for same in (name.__eq__, lambda each: shown_name(each) == name, lambda each: each.upper() == name.upper()):
        found = [value for each, value in known.items() if same(each)]
        if len(found) == 1:
            return found[0]
    raise refused


def _reader(column: Column, code: int) -> Callable[[bytes], Any]:
    """Parses a value of the column; raises the errors in `NO_VALUE`."""
    oid = oid_of(column.type)
    return json_reader(column.type) if oid == JSON_OID else lambda content: decoded_value(content, code, oid)


def _unescaped(text: str) -> bytes:
    """Replaces escapes. Numeric escapes are bytes: several may form one character."""
    content = text.encode()
    return _ESCAPE.sub(_escape, content) if "\\" in text else content


def _escape(found: re.Match[bytes]) -> bytes:
    if found[3] is not None:
        return _CONTROLS.get(found[3], found[3])
    return bytes([int(found[1], 16) if found[1] else int(found[2], 8) & 0xFF])


@functools.lru_cache(maxsize=16)
def _csv_patterns(quote: str, delimiter: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """The pattern of a cell, and that of a quoted part of a cell."""
    q, d = re.escape(quote), re.escape(delimiter)
    part = rf"{q}((?:[^{q}]++|{q}{q})*+){q}"
    return re.compile(rf"(?:[^{q}{d}]++|{part})*+"), re.compile(part)
