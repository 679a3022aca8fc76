"""Decodes the messages of pgoutput, protocol version 1, without I/O.

A transaction arrives complete, after its commit: Begin, changes, Commit. A Relation message precedes the first change
of a table in a session, and follows each change of its columns. Values are texts, as PostgreSQL's output functions
write them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from ..connector_errors import ConnectorFailed


class Unchanged:
    """A TOAST value that an UPDATE did not change; the server does not send it."""


UNCHANGED: Final = Unchanged()
TupleValue = str | None | Unchanged
TupleValues = tuple[TupleValue, ...]


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """`is_key`: whether it is part of the replica identity. `modifier`: the modifier of the type; -1 if it has none."""

    name: str
    type_oid: int
    modifier: int
    is_key: bool


@dataclass(frozen=True, slots=True)
class TableRelation:
    """`identity`: d, the primary key; i, an index; f, all columns; n, nothing."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class BeginMessage:
    """`commit_lsn`: where the commit record begins. Times are microseconds since 1970."""

    commit_lsn: int
    commit_us: int
    xid: int


@dataclass(frozen=True, slots=True)
class CommitMessage:
    """`end_lsn`: the place after the commit record."""

    commit_lsn: int
    end_lsn: int


@dataclass(frozen=True, slots=True)
class RowChange:
    """`old`: None if the server does not send it; with `old_is_key` it has only the values of the key's columns."""

    kind: Literal["c", "u", "d"]
    relation_oid: int
    new: TupleValues | None
    old: TupleValues | None = None
    old_is_key: bool = False


@dataclass(frozen=True, slots=True)
class TruncateMessage:
    relation_oids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """A message of pg_logical_emit_message."""

    lsn: int
    prefix: str


PgOutputMessage = TableRelation | BeginMessage | CommitMessage | RowChange | TruncateMessage | LogicalMessage

_EPOCH_US: Final = 946_684_800_000_000  # 2000-01-01, from which PostgreSQL counts


class _Reader:
    """Reads big-endian fields, one after the other. Raises `IndexError` or `struct.error` if bytes are missing."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 1  # after the type of the message

    def _number(self, form: str, size: int) -> int:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += size
        return value

    def int8(self) -> int:
        return self._number(">B", 1)

    def int16(self) -> int:
        return self._number(">H", 2)

    def int32(self) -> int:
        return self._number(">I", 4)

    def signed32(self) -> int:
        return self._number(">i", 4)

    def int64(self) -> int:
        return self._number(">Q", 8)

    def letter(self) -> str:
        return chr(self.int8())

    def text(self) -> str:
        end = self._data.index(b"\0", self._at)
        found = self._data[self._at : end].decode()
        self._at = end + 1
        return found

    def counted(self) -> str:
        count = self.int32()
        end = self._at + count
        if end > len(self._data):
            raise IndexError("a value that ends behind its message")
        found = self._data[self._at : end].decode()
        self._at = end
        return found

    def values(self) -> TupleValues:
        return tuple(self._value() for _ in range(self.int16()))

    def _value(self) -> TupleValue:
        kind = self.letter()
        if kind == "t":
            return self.counted()
        if kind not in "nu":
            raise ValueError(f"a value of the unknown kind {kind!r}")
        return None if kind == "n" else UNCHANGED


def decode_message(data: bytes) -> PgOutputMessage | None:
    """The message; None for messages that are not about rows (origins, types). Raises `ConnectorFailed` for other
    bytes."""
    try:
        kind = chr(data[0])
        if kind in "OY":
            return None
        return _DECODERS[kind](_Reader(data))
    except (KeyError, IndexError, ValueError, struct.error) as error:
        raise ConnectorFailed(
            f"the replication stream has a message that is not of pgoutput's version 1: {error}",
            hint="Check what stands between this server and PostgreSQL, then RESTART the connector.",
        ) from None


def _begin(reader: _Reader) -> BeginMessage:
    return BeginMessage(reader.int64(), reader.int64() + _EPOCH_US, reader.int32())


def _commit(reader: _Reader) -> CommitMessage:
    reader.int8()  # flags
    return CommitMessage(reader.int64(), reader.int64())


def _relation(reader: _Reader) -> TableRelation:
    oid, schema, name, identity = reader.int32(), reader.text(), reader.text(), reader.letter()
    columns: list[RelationColumn] = []
    for _ in range(reader.int16()):
        is_key = bool(reader.int8() & 1)
        columns.append(RelationColumn(reader.text(), reader.int32(), reader.signed32(), is_key))
    return TableRelation(oid, schema or "pg_catalog", name, identity, tuple(columns))


def _insert(reader: _Reader) -> RowChange:
    oid = reader.int32()
    _expect(reader.letter(), "N")
    return RowChange("c", oid, reader.values())


def _update(reader: _Reader) -> RowChange:
    oid, part = reader.int32(), reader.letter()
    old = None
    before = part
    if part in "KO":
        old = reader.values()
        part = reader.letter()
    _expect(part, "N")
    return RowChange("u", oid, reader.values(), old, before == "K")


def _delete(reader: _Reader) -> RowChange:
    oid, part = reader.int32(), reader.letter()
    _expect(part, "KO")
    return RowChange("d", oid, None, reader.values(), part == "K")


def _expect(letter: str, letters: str) -> None:
    if letter not in letters:
        raise ValueError(f"a part of the unknown kind {letter!r}")


def _truncate(reader: _Reader) -> TruncateMessage:
    count = reader.int32()
    reader.int8()  # CASCADE, RESTART IDENTITY
    return TruncateMessage(tuple(reader.int32() for _ in range(count)))


def _message(reader: _Reader) -> LogicalMessage:
    reader.int8()  # whether it is transactional
    return LogicalMessage(reader.int64(), reader.text())


_DECODERS: Final[Mapping[str, Callable[[_Reader], PgOutputMessage]]] = {
    "B": _begin,
    "C": _commit,
    "R": _relation,
    "I": _insert,
    "U": _update,
    "D": _delete,
    "T": _truncate,
    "M": _message,
}
