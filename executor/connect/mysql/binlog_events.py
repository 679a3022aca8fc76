"""Decodes events of the binary log of MySQL and MariaDB from bytes. This module opens no connection."""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from ..connector_errors import ConnectorFailed

_HEADER: Final = struct.Struct("<IBIIIH")
QUERY, ROTATE, FORMAT, XID, TABLE_MAP, HEARTBEAT, GTID, ANONYMOUS_GTID, XA_PREPARE = 2, 4, 15, 16, 19, 27, 33, 34, 38
PARTIAL_UPDATE, TRANSACTION_PAYLOAD, TAGGED_GTID = 39, 40, 42
MARIADB_GTID, MARIADB_ENCRYPTION, MARIADB_QUERY = 162, 164, 165
_ROWS: Final[Mapping[int, tuple[Literal["c", "u", "d"], int, bool]]] = {
    23: ("c", 1, False), 24: ("u", 1, False), 25: ("d", 1, False), 30: ("c", 2, False), 31: ("u", 2, False),
    32: ("d", 2, False), 166: ("c", 1, True), 167: ("u", 1, True), 168: ("d", 1, True), 169: ("c", 2, True),
    170: ("u", 2, True), 171: ("d", 2, True),
}  # fmt: skip
"""By type of event: the kind of change, the version, and whether MariaDB has compressed the event."""
_STANDALONE: Final = 1
_CHECKSUM: Final = 4


class EventHeader(NamedTuple):
    """`end`: the position after the event in its file; 0 for an artificial event of the server."""

    seconds: int
    kind: int
    server_id: int
    size: int
    end: int
    flags: int


@dataclass(frozen=True, slots=True)
class TransactionBegin:
    """`ends_itself`: whether a DDL statement follows, without a commit; None if unknown."""

    gtid: str | None
    ends_itself: bool | None


@dataclass(frozen=True, slots=True)
class LoggedStatement:
    database: str
    text: str


@dataclass(frozen=True, slots=True)
class TableMap:
    """`layout`: everything about the table except its number, so that equal layouts are decoded only once."""

    number: int
    layout: bytes


@dataclass(frozen=True, slots=True)
class RowsOfTable:
    """`rows`: images of rows; in pairs for an UPDATE. `columns`: the number of columns."""

    table: int
    op: Literal["c", "u", "d"]
    columns: int
    rows: bytes


class EventReader:
    """State: whether events end with a checksum. Each file sets it."""

    def __init__(self, *, checksums: bool) -> None:
        self._checksums = checksums

    def header(self, data: bytes) -> EventHeader:
        """The header of an event. Raises ValueError if the bytes are not an event."""
        if len(data) < _HEADER.size:
            raise ValueError(f"an event of {len(data)} bytes")
        found = EventHeader(*_HEADER.unpack_from(data))
        if found.size != len(data):
            raise ValueError(f"an event of {len(data)} bytes that says it has {found.size}")
        if found.kind == FORMAT:
            self._checksums = data[-_CHECKSUM - 1] == 1
        if self._checksums and zlib.crc32(data[:-_CHECKSUM]) != int.from_bytes(data[-_CHECKSUM:], "little"):
            raise ValueError("an event whose checksum is wrong")
        return found

    def body(self, data: bytes) -> bytes:
        return data[_HEADER.size : -_CHECKSUM] if self._checksums else data[_HEADER.size :]

    def begin(self, header: EventHeader, data: bytes) -> TransactionBegin:
        body = self.body(data)
        if header.kind == MARIADB_GTID:
            number, domain, flags = struct.unpack_from("<QIB", body)
            return TransactionBegin(f"{domain}-{header.server_id}-{number}", bool(flags & _STANDALONE))
        if header.kind == ANONYMOUS_GTID:
            return TransactionBegin(None, None)
        (number,) = struct.unpack_from("<q", body, 17)
        return TransactionBegin(f"{uuid.UUID(bytes=body[1:17])}:{number}", None)

    def statement(self, header: EventHeader, data: bytes) -> LoggedStatement:
        body = self.body(data)
        length, status = body[8], struct.unpack_from("<H", body, 11)[0]
        at = 13 + status
        database, text = body[at : at + length], body[at + length + 1 :]
        if header.kind == MARIADB_QUERY:
            text = _uncompressed(text)
        return LoggedStatement(database.decode(), text.decode(errors="replace"))

    def table_map(self, data: bytes) -> TableMap:
        body = self.body(data)
        return TableMap(int.from_bytes(body[:6], "little"), body[8:])

    def rows(self, header: EventHeader, data: bytes) -> RowsOfTable:
        """The rows of an event. Raises `ConnectorFailed` if not all columns are present."""
        op, version, compressed = _ROWS[header.kind]
        body, at = self.body(data), 8
        if version == 2:
            at += struct.unpack_from("<H", body, at)[0]
        columns, at = length_coded(body, at)
        size = (columns + 7) // 8
        full = (1 << columns) - 1
        for _ in range(2 if op == "u" else 1):
            if int.from_bytes(body[at : at + size], "little") & full != full:
                raise ConnectorFailed(
                    "the binary log has rows without all their columns, because binlog_row_image was not FULL",
                    hint="SET GLOBAL binlog_row_image = 'FULL', end the sessions that began before, then RESNAPSHOT"
                    " CONNECTOR.",
                )
            at += size
        rows = body[at:]
        return RowsOfTable(int.from_bytes(body[:6], "little"), op, columns, _uncompressed(rows) if compressed else rows)

    def rotation(self, data: bytes) -> tuple[str, int]:
        """The next file, and the position in it."""
        body = self.body(data)
        return body[8:].decode(), int.from_bytes(body[:8], "little")


def has_rows(kind: int) -> bool:
    return kind in _ROWS


def length_coded(data: bytes, at: int) -> tuple[int, int]:
    """An integer of one to nine bytes, and the place after it."""
    first = data[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def _uncompressed(data: bytes) -> bytes:
    """Decompresses data of MariaDB's log_bin_compress: the size of the length, the uncompressed length, then zlib
    data."""
    size = data[0] & 7
    expected = int.from_bytes(data[1 : 1 + size], "big")
    found = zlib.decompressobj().decompress(data[1 + size :], expected)
    if len(found) != expected:
        raise ValueError("a compressed event has another length than it says")
    return found
