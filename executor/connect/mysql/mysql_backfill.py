"""Reads the rows of tables chunk by chunk while writes continue and the stream has the changes of the tables.

A chunk is read in the order of the primary key, in a snapshot whose place in the binary log is known. It is returned
when the stream reaches that place. MariaDB reports the exact place: earlier changes of the stream are in the chunk,
later ones are newer. With MySQL two places are known, one before and one after the snapshot: rows that a transaction
between them changes come only from the stream. If the place of a chunk is before the changes that the stream has
already returned, the chunk is read again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..cdc.chunked_tables import ChunkedTables, ChunkWindow
from ..connector import ConnectRecord
from ..connector_errors import ConnectorFailed
from ..converters import json_text
from .gtids import Gtids, gtids_of
from .mysql_connections import BinlogPlace, explained, quoted, rows_of
from .mysql_envelope import BinlogOrigin, MySqlEnvelopeSettings, MySqlTableEnvelope
from .mysql_server import ServerFacts, described_table, selected
from .mysql_snapshot import consistent_snapshot, executed_gtids
from .mysql_values import MySqlColumn

_BY_NUMBER: Final = ("enum", "set", "bit")


@dataclass(slots=True)
class StreamPlace:
    """The place of the stream. `last`: the end of its last transaction; `seen`: the place up to which there was nothing
    more."""

    gtids: Gtids
    last: tuple[int, int]
    seen: tuple[int, int]


@dataclass(slots=True)
class _BinlogWindow(ChunkWindow):
    """`low`, `high`: MySQL's sets of transactions before and after the snapshot; `order`: MariaDB's place."""

    order: tuple[int, int]
    low: Gtids | None = None
    high: Gtids | None = None


class MySqlBackfill(ChunkedTables[_BinlogWindow]):
    """Chunks of tables of MySQL and MariaDB."""

    def __init__(
        self,
        connection: Any,
        facts: ServerFacts,
        envelope: MySqlEnvelopeSettings,
        chunk_rows: int,
        pending: Iterable[Mapping[str, Any]],
        tables: Sequence[str],
    ) -> None:
        super().__init__(pending, tables)
        self._connection = connection
        self._facts = facts
        self._envelope = envelope
        self._chunk_rows = chunk_rows

    def knows(self, table: str) -> None:
        """Adds a table whose changes the stream has had since the table was created."""
        if table not in self.tables:
            self.tables.append(table)
            self.moved = True

    def reads_again(self, table: str) -> None:
        self.knows(table)
        if self._pending and self._pending[0]["table"] == table:
            self._window = None
        self._pending = [entry for entry in self._pending if entry["table"] != table]
        self._pending.append({"table": table, "after": None})
        self.moved = True

    # Events of the stream

    def changed(self, records: Iterable[ConnectRecord], gtid: str | None) -> None:
        window = self._window
        if window is not None and window.low is not None and (gtid is None or not window.low.holds(gtid)):
            window.leave_out(records)

    def emptied(self, topics: Iterable[str], gtid: str | None) -> None:
        window = self._window
        if window is not None and window.topic in topics and window.low is not None:
            if gtid is None or not window.low.holds(gtid):
                window.rows.clear()

    def ends(self, place: StreamPlace) -> bool:
        """Whether the stream has reached the end of the open window."""
        window = self._window
        if window is None:
            return False
        return place.seen >= window.order if window.high is None else place.gtids.covers(window.high)

    # Reading chunks

    def step(self, place: StreamPlace) -> None:
        """Reads the next chunk, if there is one and it can be read now."""
        if not self._is_due():
            return
        if not self._facts.has_gtids:
            raise ConnectorFailed(
                "tables cannot be read while the stream goes on, because this server has no transaction ids",
                hint="Set gtid_mode = ON, or RESNAPSHOT CONNECTOR, which reads all tables.",
            )
        name, after = self._pending[0]["table"], self._pending[0]["after"]
        is_mysql = self._facts.flavor == "mysql"
        with consistent_snapshot(self._connection, self._facts, locks=False, needs_gtids=is_mysql) as low:
            if not self._sees(low, place):
                return
            window = self._read(name, after, low)
        if window is None:
            self._skip()
            return
        if is_mysql:
            window.low = gtids_of("mysql", low.gtids)
            window.high = gtids_of("mysql", executed_gtids(self._connection))
        self._open(window)

    def _sees(self, low: BinlogPlace, place: StreamPlace) -> bool:
        """Whether the snapshot contains everything that the stream has returned."""
        if self._facts.flavor == "mysql":
            return gtids_of("mysql", low.gtids).covers(place.gtids)
        return low.order >= place.last

    def _read(self, name: str, after: Sequence[Any] | None, low: BinlogPlace) -> _BinlogWindow | None:
        database, _, table_name = name.partition(".")
        table = described_table(self._connection, database, table_name)
        if table is None or not table.key:
            return None
        envelope = MySqlTableEnvelope(table, self._envelope, logged=False)
        key = [column for column in table.columns if column.name in table.key]
        places = [_sortable(column) for column in key]
        where = ""
        if after is not None and len(after) == len(key):  # if the key has changed, read from the beginning
            where = f" WHERE {self._behind(places, after)}"
        asked = ", ".join([*(selected(column) for column in envelope.asked), *places])
        source = f"{quoted(database)}.{quoted(table_name)}"
        query = f"SELECT {asked} FROM {source}{where} ORDER BY {', '.join(places)} LIMIT {self._chunk_rows}"
        origin = BinlogOrigin(int(time.time()), low.file, low.pos, incremental=True)
        with explained(f"a chunk of {name}"):
            found = rows_of(self._connection, query)
        records = [envelope.queried_row(row[: len(envelope.asked)], origin) for row in found]
        last = [_kept(value) for value in found[-1][len(envelope.asked) :]] if len(found) == self._chunk_rows else None
        rows = {json_text(record.key): record for record in records}
        return _BinlogWindow(envelope.topic, rows, last, low.order)

    def _behind(self, places: Sequence[str], after: Sequence[Any]) -> str:
        """A condition for rows after a key, such as `(a > 1) OR (a = 1 AND b > 2)`. It can use an index."""
        values = [self._literal(value) for value in after]
        either = [
            "(" + " AND ".join([*(f"{places[j]} = {values[j]}" for j in range(i)), f"{place} > {values[i]}"]) + ")"
            for i, place in enumerate(places)
        ]
        return f"{places[0]} >= {values[0]} AND ({' OR '.join(either)})"

    def _literal(self, value: Any) -> str:
        if isinstance(value, Mapping):
            return f"X'{value['hex']}'"
        return value if isinstance(value, str) and value.isdecimal() else self._connection.escape(value)


def _sortable(column: MySqlColumn) -> str:
    """An expression whose order and comparison agree: an ENUM column is ordered by number but compared as text."""
    if column.kind in _BY_NUMBER:
        return f"({quoted(column.name)} + 0)"
    return selected(column)


def _kept(value: Any) -> Any:
    """A key value in the form for the position."""
    return {"hex": value.hex()} if isinstance(value, bytes) else value
