"""The source `postgres`: reads the rows of tables, then their changes, in Debezium's format.

    None → {"phase": "snapshot"} → {"phase": "stream", "lsn": …, "server": {…}, "tables": […],
        "keys": {…}, "backfill": […]}

The first position only announces a slot, so that a slot that is found later is known to be ours. The slot exports a
snapshot. Its rows and the position after them are one transaction of the log, so a snapshot that fails leaves nothing
and is taken again, with a new slot. The stream begins where the snapshot ends: without a gap, and without duplicates.

In the stream each transaction of PostgreSQL is in one transaction of the log, and the position is the end of its commit
record. The source confirms only what is committed in the log, so if a slot is beyond the position, others have changed
it. While no changes arrive, keepalives (and messages that this source emits) move the position, so that writes to other
tables do not retain WAL.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterator
from typing import Any, ClassVar, Final

import psycopg
import structlog

from millstream.errors import MillstreamError, did_you_mean

from ..cdc.cdc_records import topic_of
from ..connector import Chunk, ConnectRecord, Position, SourceConnector, SourceTable, TaskInfo, TopicEnds
from ..connector_errors import ConnectorFailed, SystemUnavailable, UnknownSourceTable
from ..leaving import Tenure
from .debezium_envelope import ChangeOrigin, EnvelopeSettings, TableEnvelope
from .followed_tables import FollowedTables
from .pg_backfill import Backfill
from .pg_changes import PostgresChanges
from .pg_connections import ReplicationStream, connect, explained, lsn_of, lsn_text
from .pg_schema import table_schema
from .pg_tables import (
    CapturedTable,
    captured_tables,
    check_server,
    check_slot,
    drop_slot,
    end_reader,
    slot_exists,
)
from .pg_values import ValueModes
from .postgres_refusals import is_without_database
from .postgres_settings import PostgresSettings
from .server_history import ServerHistory
from .wal_release import WalRelease

_HANG_UP_S: Final = 5.0
_log = structlog.get_logger("millstream.connect")


class PostgresSource(SourceConnector):
    """Tables of PostgreSQL: a snapshot, then all changes.

    State: connections; the current snapshot or stream, with its position.
    """

    settings = PostgresSettings
    anew: ClassVar[Position | None] = {"phase": "snapshot"}  # the slot is still there, and ours

    def __init__(self, settings: PostgresSettings, task: TaskInfo) -> None:
        self._settings = settings
        self._tenure = task.tenure
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
        self._snapshot: Generator[Chunk] | None = None
        self._changes: PostgresChanges | None = None
        self._followed: FollowedTables | None = None

    def read(self, position: Position | None, timeout_s: float) -> Chunk | None:
        if position is None:
            return self._prepare()
        if position["phase"] == "snapshot":
            if self._snapshot is None:
                self._snapshot = self._take_snapshot(again=bool(position.get("again")))
            return next(self._snapshot)
        if self._changes is not None and (chunk := self._other_tables(self._changes, position)) is not None:
            return chunk
        if self._changes is None:
            self._snapshot = None
            self._changes = self._follow(position)
        return self._changes.read(timeout_s)

    def acknowledge(self, position: Position) -> None:
        if self._changes is not None and position["phase"] == "stream":
            self._changes.stream.confirm(lsn_of(position["lsn"]))

    def lag(self) -> int | None:
        """The lag in bytes of WAL."""
        return None if self._changes is None else self._changes.lag()

    def close(self) -> None:
        snapshot, self._snapshot = self._snapshot, None
        with contextlib.suppress(Exception):
            if snapshot is not None:
                snapshot.close()
        if self._changes is not None:
            self._changes.stream.close()
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.close()

    @classmethod
    def table(cls, settings: PostgresSettings, task: TaskInfo, name: str) -> SourceTable:
        """The schema of a table. In: `name`: `schema.table`, or a table of the schema public."""
        del task
        with connect(settings.parameters) as connection:
            return table_schema(connection, settings, name)

    @classmethod
    def resnapshot(
        cls, settings: PostgresSettings, position: Position | None, table: str | None, ends: TopicEnds
    ) -> Position | None:
        """Reads all tables again in one transaction, with a new slot; or one table in chunks, while the stream
        continues."""
        if position is None or position["phase"] == "snapshot":
            return position  # it is about to read everything
        if table is None:
            return {"phase": "snapshot", "again": True}
        name = table if "." in table else f"public.{table}"
        if name not in position.get("tables", [name]):
            hint = did_you_mean(name, position["tables"]) or "Add it to table.include.list with ALTER CONNECTOR."
            raise UnknownSourceTable(f"the connector does not read the table {name}", hint=hint)
        others = [entry for entry in position.get("backfill", ()) if entry["table"] != name]
        since = ends(topic_of(settings.topic_prefix, *name.split(".", 1)))
        return {**position, "backfill": [*others, {"table": name, "after": None, "since": since}]}

    @classmethod
    def keeps(cls, settings: PostgresSettings, task: TaskInfo) -> str | None:
        at = f"{settings.database_hostname}:{settings.database_port}/{settings.database_dbname}"
        return f"the replication slot {settings.slot(task.connector)} of PostgreSQL at {at}, which holds WAL,"

    @classmethod
    def forget(cls, settings: PostgresSettings, task: TaskInfo) -> None:
        """Drops the slot, which would retain WAL forever, and the publication, if this connector has created it.
        Without a position the slot of this name is not ours. If the database was dropped, its slots were too."""
        try:
            connection = connect(settings.parameters)
        except ConnectorFailed as error:
            if is_without_database(error.message):
                return
            raise
        with connection:
            if task.began:
                _drop_in_time(connection, settings.slot(task.connector), task.tenure)
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
        connection = self._connected()
        check_server(connection)
        if slot_exists(connection, self._slot):
            raise ConnectorFailed(
                f"the replication slot {self._slot} exists, and this connector has not made it",
                hint=f"Choose another slot.name, or SELECT pg_drop_replication_slot('{self._slot}').",
            )
        self._publish()
        return Chunk([], {"phase": "snapshot"})

    def _tables(self) -> FollowedTables:
        if self._followed is None:
            self._followed = FollowedTables(self._connected(), self._publication, self._settings)
        return self._followed

    def _publish(self) -> None:
        self._tenure.check()
        self._tables().publish()

    def _take_snapshot(self, *, again: bool) -> Generator[Chunk]:
        """Reads all rows in one transaction of the log. A slot of this name is ours if it exists. In: `again`: whether
        the topics have rows, which may be wrong; these are deleted first, in the same transaction."""
        connection = self._connected()
        self._tenure.check()
        drop_slot(connection, self._slot)
        self._publish()
        replication = ReplicationStream(self._settings.parameters)
        try:
            self._tenure.check()
            history = ServerHistory.of(replication)
            slot = replication.create_slot(self._slot)
            tables = self._tables().published() or []
            at = {"phase": "stream", "lsn": lsn_text(slot.consistent_lsn), **history.position, "tables": tables}
            rows, keys = 0, dict[str, list[str]]()
            if again:
                topics = tuple(topic_of(self._settings.topic_prefix, *table.split(".", 1)) for table in tables)
                yield Chunk([], {"phase": "snapshot", "again": True}, complete=False, empties=topics)
            if again or self._settings.snapshot_mode == "initial":
                for records in self._rows(slot.snapshot, slot.consistent_lsn, keys):
                    rows += len(records)
                    yield Chunk(records, {"phase": "snapshot", "again": again}, complete=False)
            _log.info("snapshot taken", slot=self._slot, rows=rows, lsn=at["lsn"])
        finally:
            replication.close()
        yield Chunk([], {**at, "keys": keys})

    def _rows(self, snapshot: str, lsn: int, keys: dict[str, list[str]]) -> Iterator[list[ConnectRecord]]:
        """Out: adds the columns of the tables' keys to `keys`."""
        origin = ChangeOrigin(lsn, time.time_ns() // 1_000_000)
        with connect(self._settings.parameters) as connection:
            with explained("the snapshot"):
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                connection.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'".encode())
            for table in captured_tables(connection, self._publication):
                if self._tables().is_named(table.name):
                    keys[table.name] = sorted(table.key)
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

    def _follow(self, position: Position) -> PostgresChanges:
        connection, lsn = self._connected(), lsn_of(position["lsn"])
        check_slot(connection, self._slot, lsn)
        backfill = self._backfill(connection, position)
        stream = ReplicationStream(self._settings.parameters)
        try:
            history = ServerHistory.of(stream)
            history.check(self._slot, lsn, position.get("server"))
            stream.start(self._slot, self._publication, lsn)
        except MillstreamError:
            stream.close()
            raise
        self.may_empty = True
        release = WalRelease(connection, self._slot)
        return PostgresChanges(stream, history, connection, self._envelope, self._settings, lsn, backfill, release)

    def _other_tables(self, changes: PostgresChanges, position: Position) -> Chunk | None:
        """Looks for tables that were created, dropped or renamed, and then begins anew from the position. Out: a chunk
        for tables that are gone."""
        if not changes.is_between or "tables" not in position:
            return None
        followed = self._tables()
        chunk = followed.forgotten(position, changes.seen_lsn)
        if chunk is not None or followed.look(position["tables"]):
            changes.stream.close()
            self._changes = self._followed = None
        return chunk

    def _backfill(self, connection: psycopg.Connection[Any], position: Position) -> Backfill:
        """Publishes tables that were added to the settings; they are read while the stream continues."""
        followed = self._tables()
        before = followed.published()
        if before is None:
            raise ConnectorFailed(
                f"the publication {self._publication} is gone, so changes may be missing",
                hint="RESNAPSHOT CONNECTOR reads all tables anew.",
            )
        settings = self._settings
        known, pending = position.get("tables", before), list(position.get("backfill", ()))
        followed.check_names(known)
        if not followed.notice(known):
            self._publish()
            for table in followed.published() or []:
                if table not in known:
                    known = [*known, table]
                    if settings.snapshot_mode == "initial":
                        pending.append({"table": table, "after": None})
        return Backfill(
            connection, self._publication, self._envelope, settings.incremental_snapshot_chunk_size, pending, known,
            position.get("keys", {}),
        )  # fmt: skip


def _drop_in_time(connection: psycopg.Connection[Any], slot: str, tenure: Tenure) -> None:
    """Drops the slot, and waits until the server has noticed that the task has closed its connection. If the task
    hangs, or the server does not notice because of the network, this ends the connection in the server."""
    deadline = time.monotonic() + _HANG_UP_S
    while True:
        tenure.check()
        try:
            drop_slot(connection, slot)
            return
        except SystemUnavailable:
            if time.monotonic() > deadline:
                end_reader(connection, slot)
                raise
            time.sleep(0.05)
