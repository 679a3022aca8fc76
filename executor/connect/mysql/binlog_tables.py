"""Decodes the columns of a table, which the binary log describes before its rows, with binlog_row_metadata = FULL.

They are the columns at the time of the change, even if the table has changed since.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from ..connector_errors import ConnectorFailed
from .binlog_events import length_coded
from .gtids import Flavor
from .mysql_values import MySqlColumn, decoder_of

_INT_SIZES: Final = {1: 1, 2: 2, 9: 3, 3: 4, 8: 8}
_NUMERIC: Final = (*_INT_SIZES, 4, 5, 13, 246)
_STRING, _VARCHAR, _VAR_STRING, _BLOB, _GEOMETRY, _ENUM, _SET, _JSON = 254, 15, 253, 252, 255, 247, 248, 245
_META_BYTES: Final = {
    4: 1, 5: 1, _VARCHAR: 2, 16: 2, 17: 1, 18: 1, 19: 1, 140: 1, 141: 2, 242: 1, _JSON: 1, 246: 2, _BLOB: 1,
    _VAR_STRING: 2, _STRING: 2, _GEOMETRY: 1, _ENUM: 2, _SET: 2,
}  # fmt: skip
_TIMES: Final = {10: "date", 17: "timestamp", 18: "datetime", 19: "time"}
_BINARY_COLLATION: Final = 63
_POINT: Final = 1


@dataclass(frozen=True, slots=True)
class LoggedTable:
    """`key`: the names of the primary key's columns. `period`: of a table with system versioning, the columns in which
    MariaDB keeps when a row began and ended; they are part of no record."""

    database: str
    name: str
    columns: tuple[MySqlColumn, ...]
    key: tuple[str, ...]
    period: tuple[str, str] | None = None


@dataclass(slots=True)
class _Metadata:
    """The metadata after the types. `default_…`: the default collation of columns, and exceptions by column number."""

    names: list[str] = field(default_factory=list)
    unsigned: bytes = b""
    default_text: tuple[int, dict[int, int]] | None = None
    texts: list[int] = field(default_factory=list)
    default_items: tuple[int, dict[int, int]] | None = None
    items: list[int] = field(default_factory=list)
    sets: list[list[bytes]] = field(default_factory=list)
    enums: list[list[bytes]] = field(default_factory=list)
    geometries: list[int] = field(default_factory=list)
    key: list[int] = field(default_factory=list)


def table_name(layout: bytes) -> tuple[str, str, int]:
    """Database, table, and the place where the columns begin."""
    end = 1 + layout[0]
    database = layout[1:end].decode()
    start, end = end + 2, end + 2 + layout[end + 1]
    return database, layout[start:end].decode(), end + 1


def logged_table(layout: bytes, flavor: Flavor, charsets: Mapping[int, str]) -> LoggedTable:
    """The table of a layout. In: `layout`: that of a `TableMap`; `charsets`: names of character sets by collation
    number. Raises `ConnectorFailed`, and ValueError or IndexError for broken bytes."""
    database, name, at = table_name(layout)
    count, at = length_coded(layout, at)
    types = layout[at : at + count]
    size, at = length_coded(layout, at + count)
    meta, rest = layout[at : at + size], at + size
    nullable = int.from_bytes(layout[rest : rest + (count + 7) // 8], "little")
    metadata = _metadata(layout, rest + (count + 7) // 8)
    if len(metadata.names) != count:
        raise ConnectorFailed(
            f"the binary log does not name the columns of {database}.{name}, because binlog_row_metadata was not FULL",
            hint="SET GLOBAL binlog_row_metadata = 'FULL', then RESNAPSHOT CONNECTOR.",
        )
    reader = _ColumnsReader(flavor, metadata, charsets)
    columns = tuple(
        reader.column(index, kind, data, nullable=bool(nullable >> index & 1))
        for index, (kind, data) in enumerate(_typed(types, meta))
    )
    return LoggedTable(database, name, columns, tuple(metadata.names[index] for index in sorted(metadata.key)))


def _typed(types: bytes, meta: bytes) -> Iterator[tuple[int, bytes]]:
    """The types with their metadata. ENUM and SET, which are encoded as a string type, get their real type."""
    at = 0
    for kind in types:
        size = _META_BYTES.get(kind, 0)
        data, at = meta[at : at + size], at + size
        if kind == _STRING and data[0] in (_ENUM, _SET):
            kind = data[0]
        yield kind, data


def _metadata(layout: bytes, at: int) -> _Metadata:
    found = _Metadata()
    while at < len(layout):
        kind = layout[at]
        size, at = length_coded(layout, at + 1)
        data, at = layout[at : at + size], at + size
        match kind:
            case 1:
                found.unsigned = data
            case 2:
                found.default_text = _default(data)
            case 3:
                found.texts = _numbers(data)
            case 4:
                found.names = [text.decode() for text in _texts(data, 0, None)[0]]
            case 5:
                found.sets = _lists(data)
            case 6:
                found.enums = _lists(data)
            case 7:
                found.geometries = _numbers(data)
            case 8:
                found.key = _numbers(data)
            case 9:
                found.key = _numbers(data)[::2]
            case 10:
                found.default_items = _default(data)
            case 11:
                found.items = _numbers(data)
            case _:
                pass
    return found


def _numbers(data: bytes) -> list[int]:
    found, at = list[int](), 0
    while at < len(data):
        number, at = length_coded(data, at)
        found.append(number)
    return found


def _default(data: bytes) -> tuple[int, dict[int, int]]:
    first, *others = _numbers(data)
    return first, dict(zip(others[::2], others[1::2], strict=True))


def _texts(data: bytes, at: int, count: int | None) -> tuple[list[bytes], int]:
    found = list[bytes]()
    while at < len(data) and (count is None or len(found) < count):
        size, at = length_coded(data, at)
        found.append(data[at : at + size])
        at += size
    return found, at


def _lists(data: bytes) -> list[list[bytes]]:
    found, at = list[list[bytes]](), 0
    while at < len(data):
        count, at = length_coded(data, at)
        texts, at = _texts(data, at, count)
        found.append(texts)
    return found


class _ColumnsReader:
    """State: the number of columns of each sort so far, because the metadata lists columns by sort, in order."""

    def __init__(self, flavor: Flavor, metadata: _Metadata, charsets: Mapping[int, str]) -> None:
        self._flavor = flavor
        self._metadata = metadata
        self._charsets = charsets
        self._numeric = self._text = self._item = self._set = self._enum = self._geometry = 0

    def column(self, index: int, kind: int, meta: bytes, *, nullable: bool) -> MySqlColumn:
        name = self._metadata.names[index]
        unsigned = False
        if kind in _NUMERIC:
            turn, self._numeric = self._numeric, self._numeric + 1
            unsigned = (
                bool(self._metadata.unsigned[turn // 8] >> 7 - turn % 8 & 1) if self._metadata.unsigned else False
            )
        if kind in _INT_SIZES:
            return MySqlColumn(name, "int", _INT_SIZES[kind], unsigned=unsigned, nullable=nullable)
        match kind:
            case 13:
                return MySqlColumn(name, "year", 1, nullable=nullable)
            case 4 | 5:
                return MySqlColumn(name, "float" if kind == 4 else "double", nullable=nullable)
            case 246:
                return MySqlColumn(name, "decimal", meta[0], meta[1], unsigned, nullable)
            case 16:
                return MySqlColumn(name, "bit", meta[1] * 8 + meta[0], nullable=nullable)
            case 10 | 17 | 18 | 19:
                return MySqlColumn(name, _TIMES[kind], meta[0] if meta else 0, nullable=nullable)
            case 247 | 248:
                return self._of_items(name, kind, meta, nullable=nullable)
            case 245:
                return MySqlColumn(name, "json", nullable=nullable, length_bytes=meta[0])
            case 255:
                return self._of_geometry(name, meta, nullable=nullable)
            case 15 | 252 | 253 | 254:
                return self._of_text(name, kind, meta, nullable=nullable)
            case _:
                return MySqlColumn(name, f"type {kind} of the binary log", nullable=nullable)

    def _of_items(self, name: str, kind: int, meta: bytes, *, nullable: bool) -> MySqlColumn:
        charset = self._charset(self._collation(self._metadata.default_items, self._metadata.items, self._item))
        self._item += 1
        decoded = decoder_of(MySqlColumn(name, "text", charset=charset))
        if kind == _ENUM:
            found, self._enum = self._metadata.enums[self._enum], self._enum + 1
        else:
            found, self._set = self._metadata.sets[self._set], self._set + 1
        items = tuple(decoded(item) for item in found)
        return MySqlColumn(name, "enum" if kind == _ENUM else "set", meta[1], nullable=nullable, items=items)

    def _of_geometry(self, name: str, meta: bytes, *, nullable: bool) -> MySqlColumn:
        if self._flavor == "mariadb":
            self._text += 1  # in MariaDB it has a collation
        geometries, turn = self._metadata.geometries, self._geometry
        self._geometry += 1
        point = turn < len(geometries) and geometries[turn] == _POINT
        return MySqlColumn(name, "point" if point else "geometry", nullable=nullable, length_bytes=meta[0])

    def _of_text(self, name: str, kind: int, meta: bytes, *, nullable: bool) -> MySqlColumn:
        collation = self._collation(self._metadata.default_text, self._metadata.texts, self._text)
        self._text += 1
        if kind == _BLOB:
            size, length_bytes = 0, meta[0]
        elif kind == _VARCHAR:
            size = 0
            length_bytes = 1 if int.from_bytes(meta, "little") < 256 else 2
        else:  # for a length above 255, two of its bits are in the type, inverted
            length = meta[1] | (meta[0] & 0x30 ^ 0x30) << 4
            size, length_bytes = length, 1 if length < 256 else 2
        if collation == _BINARY_COLLATION:
            return MySqlColumn(name, "binary", size, nullable=nullable, length_bytes=length_bytes)
        return MySqlColumn(name, "text", nullable=nullable, charset=self._charset(collation), length_bytes=length_bytes)

    def _collation(self, default: tuple[int, dict[int, int]] | None, each: list[int], turn: int) -> int:
        if default is not None:
            return default[1].get(turn, default[0])
        return each[turn]

    def _charset(self, collation: int) -> str:
        return self._charsets.get(collation, f"of the collation {collation}")
