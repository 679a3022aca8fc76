"""The source `postgres`: the rows of tables, then their changes, as Debezium's connector gives them.

    None → {"phase": "snapshot"} → {"phase": "stream", "lsn": …}

The first position only announces a slot, so that one that is found later is ours. The slot exports a snapshot; its rows
and the position behind them are one transaction of the log, so a snapshot that breaks leaves nothing and is taken anew,
with a new slot. The stream begins where the snapshot ends: no gap, and nothing twice.

In the stream each transaction of PostgreSQL is in one transaction of the log, and the position is the end of its commit
record. Only what is committed in the log is confirmed: a slot that is further than the position was changed by others.
While nothing comes, signs of life (and messages that this source emits) move the position, so writes to other tables
hold no WAL.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import psycopg
import structlog

from millstream.errors import MillstreamError

from ..connector import Chunk, ConnectRecord, Position, SourceConnector, TaskInfo
from ..connector_errors import ConnectorFailed, SystemUnavailable
from ..connector_settings import setting
from .debezium_envelope import ChangeOrigin, EnvelopeSettings, TableEnvelope
from .pg_connections import ReplicationStream, WalData, connect, explained, lsn_of, lsn_text
from .pg_tables import (
    CapturedTable,
    captured_tables,
    check_server,
    check_slot,
    drop_slot,
    ensure_publication,
    primary_key,
    slot_exists,
)
from .pg_values import ValueModes
from .pgoutput import (
    BeginMessage,
    CommitMessage,
    LogicalMessage,
    RowChange,
    TableRelation,
    TruncateMessage,
    decode_message,
)

_PREFIX: Final = "millstream-heartbeat"
_HANG_UP_S: Final = 5.0
_SSL_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_log = structlog.get_logger("millstream.connect")


@dataclass(frozen=True)
class PostgresSettings:
    database_hostname: str = setting("Host of PostgreSQL, or the folder of its socket.")
    database_user: str = setting("User, with the attribute REPLICATION.")
    database_dbname: str = setting("Database.")
    topic_prefix: str = setting("Topics are called prefix.schema.table.")
    database_password: str | None = setting("Password of the user.", default=None, secret=True)
    database_port: int = setting("Port of PostgreSQL.", default=5432)
    database_sslmode: str = setting("As libpq's sslmode.", default="prefer", choices=_SSL_MODES)
    database_sslrootcert: str | None = setting("File with the certificates that are trusted.", default=None)
    table_include_list: tuple[str, ...] = setting("Patterns for schema.table; all tables without it.", default=())
    table_exclude_list: tuple[str, ...] = setting("Patterns for schema.table.", default=())
    slot_name: str | None = setting("Replication slot; by default millstream_ and the connector's name.", default=None)
    publication_name: str | None = setting("Publication; by default as the slot.", default=None)
    publication_autocreate_mode: str = setting(
        "Whether the publication is created.", default="filtered", choices=("filtered", "disabled")
    )
    snapshot_mode: str = setting(
        "Whether the existing rows come first.", default="initial", choices=("initial", "never", "no_data")
    )
    decimal_handling_mode: str = setting(
        "NUMERIC as an exact JSON number, a string, a double, or Debezium's base64.",
        default="number",
        choices=("number", "string", "double", "precise"),
    )
    time_precision_mode: str = setting(
        "Times in microseconds (adaptive), milliseconds (connect), or ISO 8601.",
        default="adaptive",
        choices=("adaptive", "connect", "isostring"),
    )
    tombstones_on_delete: bool = setting("A tombstone follows each delete.", default=True)
    unavailable_value_placeholder: str = setting(
        "What stands for a TOAST value that was left alone.", default="__debezium_unavailable_value"
    )
    heartbeat_interval_ms: int = setting(
        "How often the position moves while nothing comes; 0 emits no messages.", default=10_000
    )
    max_batch_size: int = setting("Rows of a chunk.", default=2048)

    def __post_init__(self) -> None:
        for pattern in (*self.table_include_list, *self.table_exclude_list):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f'"{pattern}" is no regular expression: {error}') from None
        if self.max_batch_size < 1 or self.heartbeat_interval_ms < 0:
            raise ValueError("max.batch.size must be positive, heartbeat.interval.ms not negative")

    @property
    def parameters(self) -> dict[str, str]:
        """For libpq."""
        given = {
            "host": self.database_hostname, "port": str(self.database_port), "user": self.database_user,
            "password": self.database_password, "dbname": self.database_dbname, "sslmode": self.database_sslmode,
            "sslrootcert": self.database_sslrootcert,
        }  # fmt: skip
        return {name: value for name, value in given.items() if value is not None}

    def slot(self, connector: str) -> str:
        return self.slot_name or "millstream_" + re.sub(r"[^a-z0-9_]", "_", connector.lower())[:50]

    def publication(self, connector: str) -> str:
        return self.publication_name or self.slot(connector)


class PostgresSource(SourceConnector):
    """Tables of PostgreSQL: a snapshot, then all changes.

    State: connections; the snapshot or the stream that is under way, and the position that it stands at.
    """

    settings = PostgresSettings

    def __init__(self, settings: PostgresSettings, task: TaskInfo) -> None:
        self._settings = settings
        self._slot = settings.slot(task.connector)
        self._publication = settings.publication(task.connector)
        self._envelope = EnvelopeSettings(
            settings.topic_prefix,
            settings.database_dbname,
            settings.tombstones_on_delete,
            settings.unavailable_value_placeholder,
            ValueModes(settings.decimal_handling_mode, settings.time_precision_mode),
        )
        self._connection: psycopg.Connection[Any] | None = None
        self._snapshot: Iterator[Chunk] | None = None
        self._changes: _Changes | None = None

    def read(self, position: Position | None, timeout_s: float) -> Chunk | None:
        if position is None:
            return self._prepare()
        if position["phase"] == "snapshot":
            if self._snapshot is None:
                self._snapshot = self._take_snapshot()
            return next(self._snapshot)
        if self._changes is None:
            self._snapshot = None
            self._changes = self._follow(lsn_of(position["lsn"]))
        return self._changes.read(timeout_s)

    def acknowledge(self, position: Position) -> None:
        if self._changes is not None and position["phase"] == "stream":
            self._changes.stream.confirm(lsn_of(position["lsn"]))

    def lag(self) -> int | None:
        """Bytes of WAL."""
        return None if self._changes is None else self._changes.lag()

    def close(self) -> None:
        snapshot, self._snapshot = self._snapshot, None
        with contextlib.suppress(Exception):
            if snapshot is not None:
                snapshot.close()  # pyright: ignore[reportAttributeAccessIssue]
        if self._changes is not None:
            self._changes.stream.close()
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.close()

    @classmethod
    def forget(cls, settings: PostgresSettings, task: TaskInfo) -> None:
        """The slot, which would hold WAL for ever, and the publication, if we have made it."""
        with connect(settings.parameters) as connection:
            _drop_in_time(connection, settings.slot(task.connector))
            if settings.publication_name is None:
                with explained("the end of the publication"):
                    name = settings.publication(task.connector)
                    connection.execute(f'DROP PUBLICATION IF EXISTS "{name}"'.encode())

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            self._connection = connect(self._settings.parameters)
        return self._connection

    # The snapshot

    def _prepare(self) -> Chunk:
        connection, settings = self._connected(), self._settings
        check_server(connection)
        if slot_exists(connection, self._slot):
            raise ConnectorFailed(
                f"the replication slot {self._slot} exists, and this connector has not made it",
                hint=f"Choose another slot.name, or SELECT pg_drop_replication_slot('{self._slot}').",
            )
        ensure_publication(
            connection, self._publication, settings.table_include_list, settings.table_exclude_list,
            create=settings.publication_autocreate_mode == "filtered",
        )  # fmt: skip
        return Chunk([], {"phase": "snapshot"})

    def _take_snapshot(self) -> Iterator[Chunk]:
        """All rows in one transaction of the log; the slot is ours, whether it is there already or not."""
        drop_slot(self._connected(), self._slot)
        replication = ReplicationStream(self._settings.parameters)
        try:
            slot = replication.create_slot(self._slot)
            at = {"phase": "stream", "lsn": lsn_text(slot.consistent_lsn)}
            rows = 0
            if self._settings.snapshot_mode == "initial":
                for records in self._rows(slot.snapshot, slot.consistent_lsn):
                    rows += len(records)
                    yield Chunk(records, {"phase": "snapshot"}, complete=False)
            _log.info("snapshot taken", slot=self._slot, rows=rows, lsn=at["lsn"])
        finally:
            replication.close()
        yield Chunk([], at)

    def _rows(self, snapshot: str, lsn: int) -> Iterator[list[ConnectRecord]]:
        origin = ChangeOrigin(lsn, time.time_ns() // 1_000_000)
        with connect(self._settings.parameters) as connection:
            with explained("the snapshot"):
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                connection.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'".encode())
            for table in captured_tables(connection, self._publication):
                yield from self._rows_of(connection, table, origin)

    def _rows_of(
        self, connection: psycopg.Connection[Any], table: CapturedTable, origin: ChangeOrigin
    ) -> Iterator[list[ConnectRecord]]:
        envelope = TableEnvelope(table.relation, table.key, self._envelope)
        columns = ", ".join('"' + column.name.replace('"', '""') + '"' for column in table.relation.columns)
        where = "" if table.row_filter is None else f" WHERE {table.row_filter}"
        query = f"COPY (SELECT {columns} FROM {table.sql_name}{where}) TO STDOUT"
        records: list[ConnectRecord] = []
        with explained(f"the rows of {table.sql_name}"), connection.cursor() as cursor:
            with cursor.copy(query.encode()) as copy:
                for row in copy.rows():
                    records.append(envelope.snapshot_row(row, origin))
                    if len(records) >= self._settings.max_batch_size:
                        yield records
                        records = []
        if records:
            yield records

    # The stream

    def _follow(self, lsn: int) -> _Changes:
        connection = self._connected()
        check_slot(connection, self._slot, lsn)
        stream = ReplicationStream(self._settings.parameters)
        try:
            stream.start(self._slot, self._publication, lsn)
        except MillstreamError:
            stream.close()
            raise
        return _Changes(stream, connection, self._envelope, self._settings, lsn)


def _drop_in_time(connection: psycopg.Connection[Any], slot: str) -> None:
    """The server takes a moment to notice that the task has hung up."""
    deadline = time.monotonic() + _HANG_UP_S
    while True:
        try:
            drop_slot(connection, slot)
            return
        except SystemUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


class _Changes:
    """The stream of changes. State: the tables as the stream has described them, the open transaction, and up to where
    everything was given out."""

    def __init__(
        self, stream: ReplicationStream, connection: psycopg.Connection[Any], envelope: EnvelopeSettings,
        settings: PostgresSettings, lsn: int,
    ) -> None:  # fmt: skip
        self.stream = stream
        self._connection = connection
        self._envelope = envelope
        self._settings = settings
        self._tables: dict[int, TableEnvelope] = {}
        self._begin: BeginMessage | None = None
        self._skips = False  # a transaction that was read before
        self._order = 0
        self._lsn = lsn  # up to here everything was given out
        self._seen_lsn = lsn  # and up to here there was nothing more
        self._heartbeat_s = (settings.heartbeat_interval_ms or 10_000) / 1000
        self._next_heartbeat = time.monotonic() + self._heartbeat_s

    def read(self, timeout_s: float) -> Chunk | None:
        """Whole transactions as far as they are there, or a part of a large one."""
        records: list[ConnectRecord] = []
        deadline = time.monotonic() + timeout_s
        while True:
            waits = self._begin is not None or not records
            data = self.stream.read(max(0.0, deadline - time.monotonic()) if waits else 0.0)
            if data is not None:
                records += self._taken(data)
            full = len(records) >= self._settings.max_batch_size
            over = data is None and (self._begin is None or time.monotonic() >= deadline)
            if full or (over and records):
                return Chunk(records, self._position(self._lsn), complete=self._begin is None)
            if data is None and time.monotonic() >= deadline:
                return self._heartbeat()

    def lag(self) -> int:
        return max(0, self.stream.server_lsn - self.stream.confirmed_lsn)

    def _position(self, lsn: int) -> Position:
        return {"phase": "stream", "lsn": lsn_text(lsn)}

    def _heartbeat(self) -> Chunk | None:
        """Now and then the position moves over what was not for us."""
        if self._begin is not None or time.monotonic() < self._next_heartbeat:
            return None
        self._next_heartbeat = time.monotonic() + self._heartbeat_s
        if self._settings.heartbeat_interval_ms:
            self._emit()
        if self._seen_lsn <= self._lsn:
            return None
        self._lsn = self._seen_lsn
        return Chunk([], self._position(self._lsn))

    def _emit(self) -> None:
        """A message in the WAL, which the stream gives back: without one, an idle database sends nothing."""
        try:
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
                self._tables[relation.oid] = TableEnvelope(
                    relation, primary_key(self._connection, relation), self._envelope
                )
            case BeginMessage() as begin:
                self._begin, self._order = begin, 0
                self._skips = begin.commit_lsn < self._lsn
            case CommitMessage() as commit:
                self._begin = None
                self._lsn = max(self._lsn, commit.end_lsn)
                self._seen_lsn = max(self._seen_lsn, commit.end_lsn)
            case RowChange() as change if not self._skips:
                return self._changed(change, data.lsn)
            case TruncateMessage() as truncated:
                self._warn_of(truncated)
            case LogicalMessage() if self._begin is None:
                self._seen_lsn = max(self._seen_lsn, data.lsn)
            case _:
                pass
        return []

    def _changed(self, change: RowChange, lsn: int) -> list[ConnectRecord]:
        begin, table = self._begin, self._tables.get(change.relation_oid)
        if begin is None or table is None:
            raise ConnectorFailed("the replication stream has a change without its transaction or its table")
        self._order += 1
        origin = ChangeOrigin(lsn, begin.commit_us // 1000, begin.xid, begin.commit_lsn, self._order)
        try:
            return list(table.change(change, origin))
        except (ValueError, IndexError) as error:
            where = f"{table.relation.schema}.{table.relation.name} at {lsn_text(lsn)}"
            raise ConnectorFailed(f"a row of {where} cannot be read: {error}") from None

    def _warn_of(self, truncated: TruncateMessage) -> None:
        """As Debezium, which skips it: a topic has no record for it."""
        tables = [self._tables[oid].relation.name for oid in truncated.relation_oids if oid in self._tables]
        _log.warning("TRUNCATE is not captured, the topics keep the rows", tables=tables)
