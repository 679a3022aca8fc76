"""DELIMITED: the columns of a record as one line of separated values, in the dialect of Apache Commons CSV.

An empty field, quoted or not, is NULL. Only the first line of a record counts, as in ksqlDB.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...planner.formats.delimited import DELIMITED
from ...planner.schema import Column
from ...sql.compiling.loops import read_only
from .codec import Decoder, Encoder
from .coding import Coding, RecordPart, codes
from .compiled import scan
from .compiled.spans import Bytes, Positions
from .reading import Convert, Mismatch, convert_fields, converter
from .text_columns import TextColumn, join_delimited
from .text_decoder import TextDecoder, UnreadableRow
from .text_encoder import TextEncoder

_DELIMITERS = {"TAB": "\t", "SPACE": " "}
_LINE_ENDS = "\r\n"


def delimiter_of(name: str) -> str:
    """The character that a delimiter property names."""
    return _DELIMITERS.get(name.upper(), name)


class Delimited:
    """Reads lines of `columns`; only the `needed` ones are converted."""

    words = True

    def __init__(self, columns: Sequence[Column], needed: Sequence[bool], delimiter: str) -> None:
        self._count = len(columns)
        self._chosen = [number for number, wanted in enumerate(needed) if wanted]
        self._names = [columns[number].name for number in self._chosen]
        self._converters: list[Convert] = [converter(columns[number].type, words=True) for number in self._chosen]
        self._delimiter = delimiter

    def read_row(self, data: bytes) -> list[Any] | None:
        try:
            fields = split_line(data.decode(), self._delimiter)
        except UnicodeDecodeError as error:
            raise UnreadableRow(f"invalid UTF-8 at byte {error.start}") from None
        if len(fields) != self._count:
            raise UnreadableRow(f"{self._count} fields wanted, {len(fields)} came")
        try:
            return convert_fields(self._names, self._converters, [fields[number] or None for number in self._chosen])
        except Mismatch as error:
            raise UnreadableRow(str(error)) from None

    def scan(
        self, data: Bytes, starts: Positions, ends: Positions, status: Bytes, wide: Bytes
    ) -> tuple[Positions, Positions, Bytes]:
        shape = (self._count, len(starts))
        start, end, kind = np.zeros(shape, np.int32), np.zeros(shape, np.int32), np.zeros(shape, np.uint8)
        if self._delimiter.isascii():
            scan.split_delimited(data, starts, ends, ord(self._delimiter), start, end, kind, status, wide)
        else:
            status[status == scan.OK] = scan.REDO
        return read_only(start[self._chosen]), read_only(end[self._chosen]), read_only(kind[self._chosen])


def split_line(text: str, delimiter: str) -> list[str]:
    """The fields of the first line that is not empty; one empty field if there is none.

    Raises: UnreadableRow if a quote is not closed, or if there is text between a closing quote and the delimiter.
    """
    fields: list[str] = []
    text = text.lstrip(_LINE_ENDS)
    i = 0
    while True:
        if text.startswith('"', i):
            field, i = _quoted(text, i + 1)
            while i < len(text) and text[i].isspace() and text[i] != delimiter and text[i] not in _LINE_ENDS:
                i += 1
            if i < len(text) and text[i] != delimiter and text[i] not in _LINE_ENDS:
                raise UnreadableRow(f"text behind the closing quote of field {len(fields) + 1}")
        else:
            first = i
            while i < len(text) and text[i] != delimiter and text[i] not in _LINE_ENDS:
                i += 1
            field = text[first:i]
        fields.append(field)
        if i >= len(text) or text[i] in _LINE_ENDS:
            return fields
        i += 1


def _quoted(text: str, i: int) -> tuple[str, int]:
    pieces: list[str] = []
    while True:
        end = text.find('"', i)
        if end < 0:
            raise UnreadableRow("a quoted field does not end")
        pieces.append(text[i:end])
        if not text.startswith('"', end + 1):
            return "".join(pieces), end + 1
        pieces.append('"')
        i = end + 2


def quote_field(text: str, delimiter: str, *, first: bool) -> str:
    """The field, with quotes if Commons CSV would put them.

    At the start of a line, Commons CSV quotes everything that does not begin with an ASCII letter or digit, for example
    a negative number.
    """
    return '"' + text.replace('"', '""') + '"' if _wants_quotes(text, delimiter, first) else text


def _wants_quotes(text: str, delimiter: str, first: bool) -> bool:
    if not text:
        return first
    head = text[0]
    return (
        (first and not (head.isascii() and head.isalnum()))
        or head <= "#"
        or text[-1] <= " "
        or delimiter in text
        or any(c in text for c in '"\r\n')
    )


class DelimitedLine:
    """Writes separated values. NULL is empty."""

    json = False

    def __init__(self, delimiter: str) -> None:
        self._delimiter = delimiter

    def join(self, columns: Sequence[TextColumn], present: NDArray[np.uint8]) -> TextColumn:
        return join_delimited(self._delimiter, columns, present)

    def join_row(self, texts: list[str | None]) -> str | None:
        fields = (
            "" if text is None else quote_field(text, self._delimiter, first=i == 0) for i, text in enumerate(texts)
        )
        return self._delimiter.join(fields)


@codes(DELIMITED.name)
class DelimitedCoding(Coding):
    def decoder(self, part: RecordPart) -> Decoder:
        wanted = [part.wanted[number] for number in part.numbers]
        return TextDecoder(Delimited(part.held, wanted, delimiter_of(part.spec.delimiter)), part.columns, part.wanted)

    def encoder(self, part: RecordPart) -> Encoder:
        return TextEncoder(DelimitedLine(delimiter_of(part.spec.delimiter)), part.held, part.numbers)
