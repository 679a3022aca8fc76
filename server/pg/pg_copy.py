"""COPY … TO STDOUT: rows as lines of text, as CSV, or in PostgreSQL's binary format. Also parses COPY … FROM STDIN,
whose rows `pg_copy_in.py` reads. The rest of COPY is not supported: the server writes and reads no files, and runs no
programs."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from . import backend
from .pg_rows import PgColumn, RowPiece, cells
from .pg_statements import PgKind, PgStatement, kind_of, pg_statements
from .pg_tokens import PgToken
from .sqlstates import INSUFFICIENT_PRIVILEGE, INVALID_VALUE, NOT_SUPPORTED, SYNTAX, PgRefused

_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
_TRAILER: Final = struct.pack("!h", -1)
_ESCAPES: Final = {
    ord("\\"): "\\\\", ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t", ord("\b"): "\\b", ord("\f"): "\\f",
    ord("\v"): "\\v",
}  # fmt: skip
_CSV_ONLY: Final = frozenset({"quote", "escape", "force_quote"})
_TEXT_ONLY: Final = _CSV_ONLY | {"delimiter", "null", "header"}
_NO_DELIMITERS: Final = "\\.abcdefghijklmnopqrstuvwxyz0123456789"  # in format text, which has \N, \. and \x41
_TRUE: Final = ("true", "on", "1", "")
_FALSE: Final = ("false", "off", "0")


@dataclass(frozen=True, slots=True)
class CopyFormat:
    """`null`: the text for NULL."""

    format: Literal["text", "csv", "binary"] = "text"
    delimiter: str = "\t"
    null: str = "\\N"
    header: bool = False
    quote: str = '"'
    force_quote: bool = False

    @property
    def code(self) -> int:
        return 1 if self.format == "binary" else 0

    def begin(self, columns: Sequence[PgColumn]) -> bytes:
        if self.format == "binary" or not self.header:
            return b""
        names = [column.name.encode() for column in columns]
        return backend.copy_data(self._line(names))

    def rows(self, piece: RowPiece, columns: Sequence[PgColumn], *, first: bool) -> bytes:
        """In: `first`: these are the first rows. The signature of the binary format is sent together with the first
        row, because clients expect that."""
        by_column = cells(piece, columns, [self.code] * len(columns))
        lines = list(self._lines(zip(*by_column, strict=True)))
        if first and self.format == "binary":
            lines[0] = _SIGNATURE + lines[0]
        return b"".join(map(backend.copy_data, lines))

    def end(self, count: int) -> bytes:
        if self.format != "binary":
            return b""
        return backend.copy_data(_TRAILER if count else _SIGNATURE + _TRAILER)

    def _lines(self, rows: Iterator[tuple[bytes | None, ...]]) -> Iterator[bytes]:
        return map(self._binary if self.format == "binary" else self._line, rows)

    def _binary(self, row: Sequence[bytes | None]) -> bytes:
        parts = (b"\xff\xff\xff\xff" if value is None else struct.pack("!i", len(value)) + value for value in row)
        return struct.pack("!h", len(row)) + b"".join(parts)

    def _line(self, row: Sequence[bytes | None]) -> bytes:
        field = self._csv if self.format == "csv" else self._text
        return (self.delimiter.join(self.null if v is None else field(v.decode()) for v in row) + "\n").encode()

    def _text(self, value: str) -> str:
        escaped = value.translate(_ESCAPES)
        return escaped if self.delimiter == "\t" else escaped.replace(self.delimiter, "\\" + self.delimiter)

    def _csv(self, value: str) -> str:
        marks = (self.delimiter, self.quote, "\n", "\r")
        if not self.force_quote and value not in (self.null, "\\.") and not any(mark in value for mark in marks):
            return value
        return self.quote + value.replace(self.quote, self.quote * 2) + self.quote


@dataclass(frozen=True, slots=True)
class CopyAsked:
    query: PgStatement
    format: CopyFormat


@dataclass(frozen=True, slots=True)
class CopyInAsked:
    """`target` and `columns` as the client writes them; without columns, all are copied."""

    target: PgToken
    columns: tuple[PgToken, ...]
    format: CopyFormat


def copy_asked(statement: PgStatement) -> CopyAsked | CopyInAsked:
    """Raises `PgRefused`."""
    tokens = statement.tokens
    to = _at_depth_0(tokens, ("TO", "FROM"))
    if to is None or to + 1 >= len(tokens):
        raise PgRefused(SYNTAX, "COPY has no target", hint="Write COPY (SELECT …) TO STDOUT.")
    if tokens[to + 1].upper == "PROGRAM":
        raise PgRefused(INSUFFICIENT_PRIVILEGE, "this server runs no programs for its clients")
    if tokens[to].upper == "FROM":
        return _copy_in(tokens, to)
    if tokens[to + 1].upper != "STDOUT":
        raise PgRefused(
            INSUFFICIENT_PRIVILEGE, "this server writes no files for its clients", hint="Write TO STDOUT, or \\copy."
        )
    return CopyAsked(_query(statement, to), _format(tokens[to + 2 :]))


def _copy_in(tokens: Sequence[PgToken], at: int) -> CopyInAsked:
    """In: `at`: position of FROM."""
    if tokens[at + 1].upper != "STDIN":
        raise PgRefused(
            INSUFFICIENT_PRIVILEGE, "this server reads no files for its clients", hint="Write FROM STDIN, or \\copy."
        )
    opened = next((place for place in range(1, at) if tokens[place].text == "("), at)
    inside = [token for token in tokens[opened + 1 : at] if token.text not in (",", ")")]
    target = tokens[opened - 1]
    if opened == 1 or target.named is None or any(token.named is None for token in inside):
        raise PgRefused(SYNTAX, "COPY … FROM takes the name of a stream or table, and names of columns in parentheses")
    return CopyInAsked(target, tuple(inside), _format(tokens[at + 2 :]))


def _query(statement: PgStatement, to: int) -> PgStatement:
    tokens = statement.tokens
    if tokens[1].text == "(":
        inner = tokens[2 : to - 1]
        if kind_of(inner) is not PgKind.ROWS:
            raise PgRefused(SYNTAX, "COPY takes a query, or the name of a stream or table")
        return PgStatement(statement.text, inner, PgKind.ROWS)
    text = statement.text
    opened = next((at for at in range(1, to) if tokens[at].text == "("), None)
    name = text[tokens[1].start : tokens[(opened or to) - 1].end]
    columns = "*" if opened is None else text[tokens[opened].end : tokens[to - 1].start]
    return pg_statements(f"SELECT {columns} FROM {name}")[0]


def _at_depth_0(tokens: Sequence[PgToken], wanted: Sequence[str]) -> int | None:
    depth = 0
    for at, token in enumerate(tokens):
        if token.kind == "sign":
            depth += (token.text == "(") - (token.text == ")")
        elif depth == 0 and token.upper in wanted:
            return at
    return None


def _format(tokens: Sequence[PgToken]) -> CopyFormat:
    given = _options([token for token in tokens if token.upper not in ("WITH", "AS")])
    format = given.pop("format", "text").lower()
    if format not in ("text", "csv", "binary"):
        raise PgRefused(INVALID_VALUE, f'COPY format "{format}" not recognized')
    wrong = _TEXT_ONLY & given.keys() if format == "binary" else _CSV_ONLY & given.keys() if format == "text" else ()
    for name in wrong:
        raise PgRefused(INVALID_VALUE, f"COPY {name.upper()} cannot be used with FORMAT {format}")
    delimiter = given.pop("delimiter", "," if format == "csv" else "\t")
    null = given.pop("null", "" if format == "csv" else "\\N")
    quote = given.pop("quote", '"')
    header = given.pop("header", "false").lower()
    encoding = given.pop("encoding", "utf8")
    force = "force_quote" in given and given.pop("force_quote") == "*"
    if encoding.lower().replace("-", "").replace("_", "") not in ("utf8", "unicode"):
        raise PgRefused(NOT_SUPPORTED, f'COPY encoding "{encoding}" is not supported', hint="Rows are UTF8.")
    if given.pop("escape", quote) != quote:
        raise PgRefused(NOT_SUPPORTED, "COPY ESCAPE is always the same as QUOTE")
    if given or header not in (*_TRUE, *_FALSE):
        raise PgRefused(INVALID_VALUE, "the options of COPY are not understood", hint="FORMAT, HEADER, DELIMITER, NULL")
    _check_signs(format, delimiter, quote, null)
    return CopyFormat(format, delimiter, null, header in _TRUE, quote, force)


def _check_signs(format: str, delimiter: str, quote: str, null: str) -> None:
    """Rejects characters that would make rows ambiguous. Raises `PgRefused`."""
    for name, sign in (("DELIMITER", delimiter), ("QUOTE", quote)):
        if len(sign) != 1 or not sign.isascii() or sign in "\r\n\0":
            raise PgRefused(INVALID_VALUE, f"COPY {name} must be one character of ASCII that ends no line")
    if delimiter in _NO_DELIMITERS and format == "text":
        raise PgRefused(INVALID_VALUE, f'COPY delimiter cannot be "{delimiter}"')
    if delimiter == quote and format == "csv":
        raise PgRefused(INVALID_VALUE, "COPY delimiter and quote must be different")
    if delimiter in null or any(sign in null for sign in "\r\n") or (format == "csv" and quote in null):
        raise PgRefused(INVALID_VALUE, "COPY NULL must not contain the delimiter, a quote of CSV, or what ends a line")


def _options(tokens: Sequence[PgToken]) -> dict[str, str]:
    """Parses `(FORMAT csv, HEADER)`, or the older `CSV HEADER DELIMITER ','`."""
    inner = [token for token in tokens if token.text not in ("(", ")")]
    found: dict[str, str] = {}
    at = 0
    while at < len(inner):
        name = inner[at].text.lower()
        at += 1
        if name == ",":
            continue
        if name in ("csv", "binary", "text"):
            found["format"] = name
            continue
        value = ""
        bare = name == "header" and (at >= len(inner) or inner[at].upper not in ("TRUE", "FALSE", "ON", "OFF"))
        if at < len(inner) and inner[at].text != "," and not bare:
            value = inner[at].value if inner[at].kind == "string" else inner[at].text
            at += 1
        found[name] = value
    return found
