"""Reads the rows of tables chunk by chunk while writes continue and the stream has the tables' changes, as in DBLog.

A chunk is read in the order of the primary key, in its own snapshot. After that a message is written to the WAL, which
the stream returns: it is the end of the chunk's window. There the rows of the chunk are returned, without rows that
were changed in the window by transactions that the snapshot did not see: for these the stream has newer rows. Changes
after the window are newer anyway. So in the end each row is right, and the position (the last key of the table) is
committed with the rows.

Changes that the stream returned before the chunk must be in the chunk's snapshot. A transaction is in the stream when
its commit is in the WAL, and becomes visible a little later. So a chunk is read again if its snapshot does not see all
transactions of the stream so far. The transactions before the start of this task are unknown, so the first chunk waits
until all transactions that run at that time have ended. That also covers transactions that began before the table was
published, whose changes the stream does not have.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import sql

from ..cdc.chunked_tables import ChunkedTables, ChunkWindow
from ..connector import ConnectRecord
from ..converters import json_text
from .debezium_envelope import ChangeOrigin, EnvelopeSettings, TableEnvelope
from .pg_connections import explained, quoted
from .pg_tables import CapturedTable, captured_tables

_PREFIX: Final = "millstream-window-"


@dataclass(frozen=True, slots=True)
class VisibleTransactions:
    """A snapshot of PostgreSQL. Transaction numbers have 64 bits; the stream has the lower 32 bits."""

    xmin: int
    xmax: int
    running: frozenset[int]

    @staticmethod
    def parse(text: str) -> VisibleTransactions:
        """Parses the text of pg_current_snapshot(): `xmin:xmax:running,…`."""
        xmin, xmax, running = text.split(":")
        return VisibleTransactions(int(xmin), int(xmax), frozenset(map(int, filter(None, running.split(",")))))

    def sees(self, xid: int) -> bool:
        """Whether the snapshot sees a (committed) transaction of the stream."""
        number = self.xmax - ((self.xmax - xid + (1 << 31)) % (1 << 32)) + (1 << 31)
        return number < self.xmin or (number < self.xmax and number not in self.running)


@dataclass(slots=True)
class _Window(ChunkWindow):
    """`prefix`: the prefix of the message that ends the window. `seen`: the transactions that its snapshot sees."""

    prefix: str
    seen: VisibleTransactions


class Backfill(ChunkedTables[_Window]):
    """State, in addition to the tables: the transactions that the next chunk has to see, and the keys that the records
    of tables have."""

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        publication: str,
        envelope: EnvelopeSettings,
        chunk_rows: int,
        pending: Iterable[Mapping[str, Any]],
        tables: Sequence[str],
        keys: Mapping[str, Sequence[str]],
    ) -> None:
        super().__init__(pending, tables)
        self._keys = {name: sorted(key) for name, key in keys.items()}
        self._connection = connection
        self._publication = publication
        self._envelope = envelope
        self._chunk_rows = chunk_rows
        self._given: set[int] = set()  # transactions that the stream has returned but a snapshot may not see yet
        self._barrier: int | None = None

    @property
    def position(self) -> dict[str, Any]:
        return {**super().position, "keys": self._keys}

    # Events of the stream

    def has_new_key(self, table: str, key: Sequence[str]) -> bool:
        """Whether records of before have another key. Notes the key; a table that has none keeps the one before."""
        before = self._keys.get(table)
        if key:
            self._keys[table] = sorted(key)
        return bool(key) and before is not None and before != sorted(key)

    def read_again(self, table: str, xid: int) -> None:
        """The table is read from the beginning, once a snapshot sees this transaction."""
        first, others = (self._pending[:1], self._pending[1:]) if self._window is not None else ([], self._pending)
        if first and self._window is not None and first[0]["table"] == table:
            self._window.rows.clear()
            self._window.last = None
            first = [{**first[0], "after": None}]
        others = [entry for entry in others if entry["table"] != table]
        self._pending = [*first, *others, {"table": table, "after": None}]
        self._given.add(xid)

    def transaction(self, xid: int) -> None:
        """The stream begins to return the changes of this transaction."""
        if self._pending:
            self._given.add(xid)

    def changed(self, records: Iterable[ConnectRecord], xid: int) -> None:
        window = self._window
        if window is not None and not window.seen.sees(xid):
            window.leave_out(records)

    def emptied(self, topics: Iterable[str], xid: int) -> None:
        window = self._window
        if window is not None and window.topic in topics and not window.seen.sees(xid):
            window.rows.clear()

    def ends(self, prefix: str) -> bool:
        """Whether a message of the WAL is the end of the open window."""
        return self._window is not None and self._window.prefix == prefix

    # Reading chunks

    def step(self) -> None:
        """Reads the next chunk, if there is one and it can be read now."""
        if not self._is_due():
            return
        name, after = self._pending[0]["table"], self._pending[0]["after"]
        with explained(f"a chunk of {name}"):
            with self._connection.transaction():
                self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                seen = self._snapshot()
                if seen is None:
                    return
                found = [table for table in captured_tables(self._connection, self._publication) if table.name == name]
                window = self._read(found[0], after, seen) if found and found[0].key else None
            if window is None:
                self._skip()
                return
            self._open(window)
            self._mark_end(window)

    def _mark_end(self, window: _Window) -> None:
        self._connection.execute("SELECT pg_logical_emit_message(true, %s, '')", [window.prefix])

    def _snapshot(self) -> VisibleTransactions | None:
        """The snapshot of the open transaction; None if it does not see all transactions that it has to see."""
        row = self._connection.execute("SELECT pg_current_snapshot()::text").fetchone()
        assert row is not None
        seen = VisibleTransactions.parse(row[0])
        if self._barrier is None:
            self._barrier = seen.xmax
        self._given = {xid for xid in self._given if not seen.sees(xid)}
        return None if self._given or seen.xmin < self._barrier else seen

    def _read(self, table: CapturedTable, after: Sequence[str] | None, seen: VisibleTransactions) -> _Window:
        self._keys.setdefault(table.name, sorted(table.key))
        envelope = TableEnvelope(table.relation, table.key, self._envelope)
        names = [column.name for column in table.relation.columns]
        key = ", ".join(quoted(name) for name in table.key)
        conditions = [] if table.row_filter is None else [f"({table.row_filter})"]
        if after is not None and len(after) == len(table.key):  # if the key has changed, read from the beginning
            values = ", ".join(sql.Literal(value).as_string(self._connection) for value in after)
            conditions.append(f"({key}) > ({values})")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        columns = ", ".join(map(quoted, names))
        rows_of = f"SELECT {columns} FROM {table.sql_name}{where} ORDER BY {key} LIMIT {self._chunk_rows}"
        origin = ChangeOrigin(0, time.time_ns() // 1_000_000, incremental=True)
        rows: dict[str, ConnectRecord] = {}
        last: list[str] | None = None
        count = 0
        with self._connection.cursor() as cursor, cursor.copy(f"COPY ({rows_of}) TO STDOUT".encode()) as copy:
            for row in copy.rows():
                record = envelope.snapshot_row(row, origin)
                rows[json_text(record.key)] = record
                last = [str(row[names.index(name)]) for name in table.key]
                count += 1
        more = last if count == self._chunk_rows else None
        return _Window(envelope.topic, rows, more, f"{_PREFIX}{uuid.uuid4().hex}", seen)
