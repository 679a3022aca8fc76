"""Converts rows of MySQL and MariaDB to the records that Debezium documents."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from ..cdc.cdc_records import ENVELOPE_VERSION, change_record, topic_of
from ..connector import ConnectRecord
from ..connector_errors import ConnectorFailed
from .binlog_tables import LoggedTable
from .gtids import Flavor
from .mysql_values import BinaryReader, MySqlColumn, MySqlModes, TextReader, binary_reader, text_reader

_NEVER: Final = ("2038-01-19T03:14:07.999999Z", "2106-02-07T06:28:15.999999Z")
"""When a row that has not ended ends, in a table with system versioning: the last TIMESTAMP, with 32 bits and a sign or
without."""


@dataclass(frozen=True, slots=True)
class MySqlEnvelopeSettings:
    """`hidden`: patterns for `database.table.column`."""

    prefix: str
    flavor: Flavor
    tombstones: bool
    hidden: tuple[str, ...]
    modes: MySqlModes


@dataclass(frozen=True, slots=True)
class BinlogOrigin:
    """The origin of a change. `row`: its place in the event that begins at `pos`; `order`: its place in the
    transaction, from 1; None for a row of a snapshot. `incremental`: whether the snapshot was taken while the stream
    continued."""

    seconds: int
    file: str
    pos: int
    server_id: int = 0
    gtid: str | None = None
    row: int = 0
    order: int | None = None
    incremental: bool = False


class MySqlTableEnvelope:
    """Converts rows of one table to records. Raises `ConnectorFailed` for a column that cannot be read."""

    def __init__(self, table: LoggedTable, settings: MySqlEnvelopeSettings, *, logged: bool) -> None:
        """In: `logged`: whether rows come from the binary log, not from queries."""
        self.table = table
        self._settings = settings
        self.topic = topic_of(settings.prefix, table.database, table.name)
        prefix = f"{table.database}.{table.name}"
        self._hidden = frozenset(
            column.name
            for column in table.columns
            if any(re.fullmatch(pattern, f"{prefix}.{column.name}") for pattern in settings.hidden)
            or column.name in (table.period or ())
        )
        self._names = tuple(column.name for column in table.columns)
        self.asked = tuple(c for c in table.columns if c.name not in self._hidden or c.name in table.key)
        """The columns that a query has to return, in this order."""
        self._null_bytes = (len(table.columns) + 7) // 8
        self._binary: tuple[BinaryReader, ...] = ()
        self._texts: tuple[TextReader, ...] = ()
        try:
            if logged:
                self._binary = tuple(self._logged_reader(column) for column in table.columns)
            else:
                self._texts = tuple(text_reader(column, settings.modes) for column in self.asked)
        except ConnectorFailed as error:
            raise ConnectorFailed(f"the table {prefix}: {error.message}", hint=error.hint) from None

    def _logged_reader(self, column: MySqlColumn) -> BinaryReader:
        """The reader of a column. A hidden column is read only to skip it."""
        if column.name in self._hidden and column.kind == "text":
            column = MySqlColumn(column.name, "binary", length_bytes=column.length_bytes)
        return binary_reader(column, self._settings.modes)

    def queried_row(self, values: Sequence[Any], origin: BinlogOrigin) -> ConnectRecord:
        """The record for a row of a query. In: `values`: those of the columns in `asked`."""
        row = {
            column.name: None if value is None else read(value)
            for column, read, value in zip(self.asked, self._texts, values, strict=True)
        }
        return self._record("r", self._key_of(row), None, row, origin)

    def row_images(self, data: bytes) -> Iterator[dict[str, Any]]:
        """The rows of a row event. Raises ValueError, IndexError or struct.error for broken bytes."""
        at, size, names, readers = 0, self._null_bytes, self._names, self._binary
        while at < len(data):
            nulls = int.from_bytes(data[at : at + size], "little")
            at += size
            row: dict[str, Any] = {}
            for name, read in zip(names, readers, strict=True):
                if nulls & 1:
                    row[name] = None
                else:
                    row[name], at = read(data, at)
                nulls >>= 1
            yield row

    def change(
        self, op: Literal["c", "u", "d"], before: dict[str, Any] | None, after: dict[str, Any] | None,
        origin: BinlogOrigin,
    ) -> Iterator[ConnectRecord]:  # fmt: skip
        """The records for a change. An UPDATE of the key becomes a delete of the old key and a row with the new key. A
        change of rows of the past, in a table with system versioning, has none."""
        if self.table.period is not None:
            before, after = (self._current(row, self.table.period[1]) for row in (before, after))
            op = "c" if before is None else "u"
        if after is None:
            if before is None:
                return
            yield from self._deleted(before, origin)
            return
        key = self._key_of(after)
        if before is not None and key != self._key_of(before):
            yield from self._deleted(before, origin)
            op, before = "c", None
        yield self._record(op, key, before, after, origin)

    def _current(self, row: dict[str, Any] | None, end: str) -> dict[str, Any] | None:
        """The row, unless it is one of the past."""
        return row if row is not None and row.get(end) in _NEVER else None

    def _deleted(self, old: dict[str, Any], origin: BinlogOrigin) -> Iterator[ConnectRecord]:
        key = self._key_of(old)
        record = self._record("d", key, old, None, origin)
        yield record
        if self._settings.tombstones and key is not None:
            yield ConnectRecord(self.topic, key, None, record.timestamp_ms)

    def _key_of(self, row: dict[str, Any]) -> dict[str, Any] | None:
        return {name: row[name] for name in self.table.key} if self.table.key else None

    def _shown(self, row: dict[str, Any] | None) -> dict[str, Any] | None:
        if row is None or not self._hidden:
            return row
        return {name: value for name, value in row.items() if name not in self._hidden}

    def _record(
        self, op: str, key: Any, before: dict[str, Any] | None, after: dict[str, Any] | None, origin: BinlogOrigin
    ) -> ConnectRecord:
        snapshot = origin.order is None
        source = {
            "version": ENVELOPE_VERSION,
            "connector": self._settings.flavor,
            "name": self._settings.prefix,
            "ts_ms": origin.seconds * 1000,
            "snapshot": "incremental" if origin.incremental else "true" if snapshot else "false",
            "db": self.table.database,
            "sequence": None,
            "table": self.table.name,
            "server_id": origin.server_id,
            "gtid": origin.gtid,
            "file": origin.file,
            "pos": origin.pos,
            "row": origin.row,
            "thread": None,
            "query": None,
        }
        transaction = None
        if not snapshot:
            number = origin.gtid or f"file={origin.file},pos={origin.pos}"
            transaction = {"id": number, "total_order": origin.order}
        return change_record(self.topic, key, op, self._shown(before), self._shown(after), source, transaction)
