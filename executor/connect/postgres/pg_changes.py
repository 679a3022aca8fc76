"""The stream of changes of the published tables, as chunks of complete transactions, or of parts of large ones."""

from __future__ import annotations

import time
from typing import Any, Final

import psycopg
import structlog

from ..cdc.cdc_records import is_named
from ..connector import Chunk, ConnectRecord, Position
from ..connector_errors import ConnectorFailed, SystemUnavailable
from .debezium_envelope import ChangeOrigin, EnvelopeSettings, TableEnvelope
from .pg_backfill import Backfill
from .pg_connections import ReplicationStream, WalData, lsn_text
from .pg_tables import key_columns
from .pg_types import with_base_types
from .pgoutput import (
    BeginMessage,
    CommitMessage,
    LogicalMessage,
    RowChange,
    TableRelation,
    TruncateMessage,
    decode_message,
)
from .postgres_settings import PostgresSettings
from .server_history import ServerHistory
from .wal_release import STRIDE_BYTES, WalRelease

_PREFIX: Final = "millstream-heartbeat"
_log = structlog.get_logger("millstream.connect")


class PostgresChanges:
    """The stream of changes. State: the tables as the stream has described them, the open transaction, and the place up
    to which everything was returned."""

    def __init__(
        self, stream: ReplicationStream, history: ServerHistory, connection: psycopg.Connection[Any],
        envelope: EnvelopeSettings, settings: PostgresSettings, lsn: int, backfill: Backfill, release: WalRelease,
    ) -> None:  # fmt: skip
        self.stream = stream
        self._history = history
        self._connection = connection
        self._envelope = envelope
        self._settings = settings
        self._backfill = backfill
        self._release = release
        self._window_ends = False  # whether the chunk's window ends with the open transaction
        self._tables: dict[int, TableEnvelope | None] = {}  # None: a published table that the settings do not name
        self._begin: BeginMessage | None = None
        self._skips = False  # whether the open transaction was already read
        self._order = 0
        self._parted = False  # whether a part of the open transaction was returned
        self._empties: tuple[str, ...] = ()  # topics of truncated tables, not returned yet
        self._lsn = lsn  # everything up to here was returned
        self._seen_lsn = lsn  # and up to here there was nothing more to return
        self._heartbeat_s = (settings.heartbeat_interval_ms or 10_000) / 1000
        self._next_heartbeat = self._next_move = time.monotonic() + self._heartbeat_s

    def read(self, timeout_s: float) -> Chunk | None:
        """The available complete transactions, or a part of a large one."""
        if self._empties:
            empties, self._empties = self._empties, ()
            return self._chunk([], empties)
        if self._begin is None:
            self._backfill.step()
            self._emit()
        records: list[ConnectRecord] = []
        deadline = time.monotonic() + timeout_s
        while True:
            waits = self._begin is not None or not records
            data = self.stream.read(max(0.0, deadline - time.monotonic()) if waits else 0.0)
            if data is not None:
                records += self._taken(data)
            if self._empties:
                if not records:
                    return self.read(0)
                return self._chunk(records)
            full = len(records) >= self._settings.max_batch_size
            over = data is None and (self._begin is None or time.monotonic() >= deadline)
            # The end of a transaction, possibly without further records.
            ended = self._begin is None and (self._parted or self._backfill.moved)
            if full or ended or (over and records):
                return self._chunk(records)
            if not records and (time.monotonic() >= deadline or self._has_moved_far()):  # no record for us so far
                return self._heartbeat()

    def _chunk(self, records: list[ConnectRecord], empties: tuple[str, ...] = ()) -> Chunk:
        complete = self._begin is None
        self._parted = not complete
        self._backfill.moved = self._backfill.moved and not complete
        return Chunk(records, self._position(self._lsn), complete, empties, sweeps=self._backfill.take_sweeps())

    @property
    def is_between(self) -> bool:
        """Whether no transaction is open and everything that was read was returned."""
        return self._begin is None and not (self._parted or self._empties or self._backfill.moved)

    @property
    def seen_lsn(self) -> int:
        return self._seen_lsn

    def lag(self) -> int:
        return max(0, self.stream.server_lsn - self.stream.confirmed_lsn)

    def _position(self, lsn: int) -> Position:
        return {"phase": "stream", "lsn": lsn_text(lsn), **self._history.position, **self._backfill.position}

    def _heartbeat(self) -> Chunk | None:
        """A chunk without records, which moves the position past changes that are not for us. None if it is not due."""
        if self._begin is not None:
            return None
        is_time = time.monotonic() >= self._next_move
        if self._seen_lsn <= self._lsn or not (is_time or self._has_moved_far()):
            return None
        self._next_move = time.monotonic() + self._heartbeat_s
        self._lsn = self._seen_lsn
        return self._chunk([])

    def _has_moved_far(self) -> bool:
        """Whether much WAL without changes for us was read. Only between transactions, so that none is cut."""
        return self._begin is None and self._seen_lsn - self._lsn >= STRIDE_BYTES // 2

    def _emit(self) -> None:
        """Writes a message to the WAL, which the stream returns. Without it an idle database sends nothing, and a busy
        database reports no progress beyond the place that the stream has reached."""
        if not self._settings.heartbeat_interval_ms:
            return
        is_time = time.monotonic() >= self._next_heartbeat
        if is_time:
            self._next_heartbeat = time.monotonic() + self._heartbeat_s
        try:
            grown = self._release.is_due()
            if grown:
                self._release.help()
            if grown or is_time:
                self._connection.execute("SELECT pg_logical_emit_message(false, %s, '')", [_PREFIX])
        except psycopg.Error as error:
            if self._connection.closed:
                raise SystemUnavailable(f"PostgreSQL does not answer: {error}") from None
            _log.warning("no heartbeat could be written", error=str(error))

    def _taken(self, data: WalData) -> list[ConnectRecord]:
        if data.payload is None:
            if self._begin is None:
                self._seen_lsn = max(self._seen_lsn, data.end_lsn)
            return []
        match decode_message(data.payload):
            case TableRelation() as relation:
                table = self._tables[relation.oid] = self._table(relation)
                if table is not None and self._begin is not None and not self._skips:
                    self._keyed(table, self._begin.xid)
            case BeginMessage() as begin:
                self._begin, self._order = begin, 0
                self._skips = begin.commit_lsn < self._lsn
                self._backfill.transaction(begin.xid)
            case CommitMessage() as commit:
                self._begin = None
                self._lsn = max(self._lsn, commit.end_lsn)
                self._seen_lsn = max(self._seen_lsn, commit.end_lsn)
                if self._window_ends:
                    self._window_ends = False
                    return self._backfill.close_window()
            case RowChange() as change if not self._skips:
                return self._changed(change, data.lsn)
            case TruncateMessage() as truncated if not self._skips:
                self._truncated(truncated)
            case LogicalMessage() as message if self._backfill.ends(message.prefix):
                self._window_ends = True
            case LogicalMessage() if self._begin is None:
                self._seen_lsn = max(self._seen_lsn, data.lsn)
            case _:
                pass
        return []

    def _table(self, relation: TableRelation) -> TableEnvelope | None:
        settings = self._settings
        name = f"{relation.schema}.{relation.name}"
        if not is_named(name, settings.table_include_list, settings.table_exclude_list):
            return None
        key = key_columns(self._connection, relation)
        return TableEnvelope(with_base_types(self._connection, relation), key, self._envelope)

    def _keyed(self, table: TableEnvelope, xid: int) -> None:
        """Handles another primary key: nothing would delete the records with keys of before. So the topic is emptied,
        and the table read again."""
        name = f"{table.relation.schema}.{table.relation.name}"
        if not self._backfill.has_new_key(name, table.key):
            return
        if self._settings.truncate_handling_mode == "skip":
            _log.warning("the topic of a table keeps rows with another primary key", table=name, key=list(table.key))
            return
        _log.info("a table has another primary key and is read again", table=name, key=list(table.key))
        self._empties = (table.topic,)
        self._backfill.emptied(self._empties, xid)
        self._backfill.read_again(name, xid)

    def _changed(self, change: RowChange, lsn: int) -> list[ConnectRecord]:
        begin = self._begin
        if begin is None or change.relation_oid not in self._tables:
            raise ConnectorFailed("the replication stream has a change without its transaction or its table")
        table = self._tables[change.relation_oid]
        if table is None:
            return []
        self._order += 1
        origin = ChangeOrigin(lsn, begin.commit_us // 1000, begin.xid, begin.commit_lsn, self._order)
        try:
            records = list(table.change(change, origin))
            self._backfill.changed(records, begin.xid)
            return records
        except (ValueError, IndexError) as error:
            where = f"{table.relation.schema}.{table.relation.name} at {lsn_text(lsn)}"
            raise ConnectorFailed(f"a row of {where} cannot be read: {error}") from None

    def _truncated(self, truncated: TruncateMessage) -> None:
        """Handles TRUNCATE. Earlier changes of the transaction are written first."""
        tables = [table for oid in truncated.relation_oids if (table := self._tables.get(oid)) is not None]
        if self._settings.truncate_handling_mode == "skip":
            names = [table.relation.name for table in tables]
            _log.warning("TRUNCATE is skipped, the topics keep the rows", tables=names)
        else:
            self._empties = tuple(table.topic for table in tables)
            if self._begin is not None:
                self._backfill.emptied(self._empties, self._begin.xid)
