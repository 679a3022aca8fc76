"""The messages to the client, as bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

TransactionStatus = Literal["I", "T", "E"]
"""Outside a transaction, inside one, inside one that has failed."""

PARSE_COMPLETE: Final = b"1\0\0\0\4"
BIND_COMPLETE: Final = b"2\0\0\0\4"
CLOSE_COMPLETE: Final = b"3\0\0\0\4"
NO_DATA: Final = b"n\0\0\0\4"
EMPTY_QUERY: Final = b"I\0\0\0\4"
PORTAL_SUSPENDED: Final = b"s\0\0\0\4"
COPY_DONE: Final = b"c\0\0\0\4"
AUTHENTICATION_OK: Final = b"R\0\0\0\10\0\0\0\0"
AUTHENTICATION_PASSWORD: Final = b"R\0\0\0\10\0\0\0\3"

_SASL: Final = 10
_SASL_CONTINUE: Final = 11
_SASL_FINAL: Final = 12
_COLUMN: Final = struct.Struct("!IhIhih")
_LENGTH: Final = struct.Struct("!i")
_NULL: Final = b"\xff\xff\xff\xff"


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column in RowDescription. `size`: of a value in bytes, -1 if it varies; `modifier`: the digits of a numeric, -1
    if there is none; `format`: 0 text, 1 binary."""

    name: str
    oid: int
    size: int
    modifier: int = -1
    format: int = 0


def message(letter: bytes, body: bytes = b"") -> bytes:
    return letter + _LENGTH.pack(len(body) + 4) + body


def sasl_request(mechanisms: Iterable[str]) -> bytes:
    names = b"".join(_text(name) for name in mechanisms)
    return message(b"R", _LENGTH.pack(_SASL) + names + b"\0")


def sasl_continue(content: bytes) -> bytes:
    return message(b"R", _LENGTH.pack(_SASL_CONTINUE) + content)


def sasl_final(content: bytes) -> bytes:
    return message(b"R", _LENGTH.pack(_SASL_FINAL) + content)


def negotiate_version(minor: int, unknown: Sequence[str]) -> bytes:
    """In: the newest minor version that this server supports, and the options that it does not know."""
    head = struct.pack("!ii", minor, len(unknown))
    return message(b"v", head + b"".join(_text(name) for name in unknown))


def parameter_status(name: str, value: str) -> bytes:
    return message(b"S", _text(name) + _text(value))


def backend_key(process_id: int, secret: int) -> bytes:
    return message(b"K", struct.pack("!II", process_id, secret))


def ready_for_query(status: TransactionStatus) -> bytes:
    return message(b"Z", status.encode())


def row_description(columns: Sequence[ResultColumn]) -> bytes:
    parts = [struct.pack("!H", len(columns))]
    for column in columns:
        described = _COLUMN.pack(0, 0, column.oid, column.size, column.modifier, column.format)
        parts.append(_text(column.name) + described)
    return message(b"T", b"".join(parts))


def parameter_description(oids: Sequence[int]) -> bytes:
    return message(b"t", struct.pack(f"!H{len(oids)}I", len(oids), *oids))


def data_row(values: Iterable[bytes | None]) -> bytes:
    """In: a value for each column, as bytes of the column's format."""
    cells = [_NULL if value is None else _LENGTH.pack(len(value)) + value for value in values]
    return message(b"D", struct.pack("!H", len(cells)) + b"".join(cells))


def command_complete(tag: str) -> bytes:
    return message(b"C", _text(tag))


def copy_out(column_count: int, format: int) -> bytes:
    return message(b"H", struct.pack(f"!bH{column_count}h", format, column_count, *[format] * column_count))


def copy_in(column_count: int, format: int) -> bytes:
    return message(b"G", struct.pack(f"!bH{column_count}h", format, column_count, *[format] * column_count))


def copy_data(content: bytes) -> bytes:
    return message(b"d", content)


def error_response(fields: Mapping[str, str]) -> bytes:
    """In: texts by the protocol's letters: S and V severity, C SQLSTATE, M message, H hint, P position."""
    return message(b"E", _fields(fields))


def notice_response(fields: Mapping[str, str]) -> bytes:
    return message(b"N", _fields(fields))


def _fields(fields: Mapping[str, str]) -> bytes:
    return b"".join(name.encode() + _text(value) for name, value in fields.items()) + b"\0"


def _text(text: str) -> bytes:
    """A text that ends with NUL. A NUL inside is replaced, because what follows it would be read as the next field."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace") + b"\0"
