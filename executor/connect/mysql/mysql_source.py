"""The sources `mysql` and `mariadb`: read the rows of tables, then their changes, in Debezium's format.

    None → {"phase": "stream", "gtids": …, "file": …, "pos": …, "tables": […], "backfill": […]}

The snapshot is one transaction of the log, and its place in the binary log is known. So a snapshot that fails leaves
nothing and is taken again. The stream begins at that place: without a gap, and without duplicates.

In the stream each transaction of the server is in one transaction of the log, and the position is after its end. The
server finds the place by the ids of the transactions, which also works with another server after a failover. Without
ids, it finds the place by file and position.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator
from typing import Any, Final

import structlog

from millstream.errors import MillstreamError, did_you_mean

from ..cdc.cdc_records import topic_of
from ..connector import Chunk, Position, SourceConnector, SourceTable, TaskInfo, TopicEnds
from ..connector_errors import ConnectorFailed, UnknownSourceTable
from .binlog_changes import BinlogChanges, begun_place
from .mysql_backfill import MySqlBackfill
from .mysql_connections import BinlogStream, connect, explained, file_number, rows_of
from .mysql_envelope import MySqlEnvelopeSettings, MySqlTableEnvelope
from .mysql_schema import table_schema
from .mysql_server import ServerFacts, all_tables, captured_tables, described_table, is_captured, server_facts
from .mysql_settings import MySqlSettings
from .mysql_snapshot import consistent_snapshot, snapshot_rows
from .mysql_values import MySqlModes

_LAG_S: Final = 5.0
_log = structlog.get_logger("millstream.connect")


class MySqlSource(SourceConnector):
    """Tables of MySQL or MariaDB: a snapshot, then all changes.

    State: a connection for queries; the current snapshot or stream.
    """

    settings = MySqlSettings

    def __init__(self, settings: MySqlSettings, task: TaskInfo) -> None:
        self._settings = settings
        self._server_id = settings.server_id(task.connector)
        self._connection: Any = None
        self._facts: ServerFacts | None = None
        self._snapshot: Generator[Chunk] | None = None
        self._changes: BinlogChanges | None = None
        self._lag: int | None = None
        self._next_lag = 0.0

    def read(self, position: Position | None, timeout_s: float) -> Chunk | None:
        if position is None or position["phase"] == "snapshot":
            if self._snapshot is None:
                self._snapshot = self._take_snapshot(again=position is not None and bool(position.get("again")))
            return next(self._snapshot)
        if self._changes is None:
            self._end_snapshot()
            self._changes = self._follow(position)
        return self._changes.read(timeout_s)

    def lag(self) -> int | None:
        """The lag in bytes of the binary log."""
        if self._changes is not None and time.monotonic() >= self._next_lag:
            self._next_lag = time.monotonic() + _LAG_S
            with contextlib.suppress(MillstreamError):
                self._lag = self._bytes_behind(*self._changes.place)
        return self._lag

    def close(self) -> None:
        self._end_snapshot()
        if self._changes is not None:
            self._changes.stream.close()
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection._force_close()

    @classmethod
    def table(cls, settings: MySqlSettings, task: TaskInfo, name: str) -> SourceTable:
        """The schema of a table. In: `name`: `database.table`."""
        del task
        connection = connect(settings)
        with contextlib.closing(connection):
            return table_schema(connection, settings, name)

    @classmethod
    def resnapshot(
        cls, settings: MySqlSettings, position: Position | None, table: str | None, ends: TopicEnds
    ) -> Position | None:
        """Reads all tables again in one transaction; or one table in chunks, while the stream continues."""
        if position is None or position["phase"] == "snapshot":
            return position  # it is about to read everything
        if table is None:
            return {"phase": "snapshot", "again": True, "tables": position["tables"]}
        if table not in position["tables"]:
            hint = did_you_mean(table, position["tables"]) or "Add it to table.include.list with ALTER CONNECTOR."
            raise UnknownSourceTable(f"the connector does not read the table {table}", hint=hint)
        others = [entry for entry in position.get("backfill", ()) if entry["table"] != table]
        since = ends(topic_of(settings.topic_prefix, *table.split(".", 1)))
        return {**position, "backfill": [*others, {"table": table, "after": None, "since": since}]}

    def _connected(self) -> Any:
        if self._connection is None:
            self._connection = connect(self._settings)
        return self._connection

    def _known(self) -> ServerFacts:
        if self._facts is None:
            self._facts = server_facts(self._connected())
        return self._facts

    def _envelope(self) -> MySqlEnvelopeSettings:
        settings = self._settings
        modes = MySqlModes(
            settings.decimal_handling_mode, settings.time_precision_mode, settings.bigint_unsigned_handling_mode
        )
        return MySqlEnvelopeSettings(
            settings.topic_prefix,
            self._known().flavor,
            settings.tombstones_on_delete,
            settings.column_exclude_list,
            modes,
        )

    # The snapshot

    def _take_snapshot(self, *, again: bool) -> Generator[Chunk]:
        """Reads all rows in one transaction of the log. In: `again`: whether the topics have rows, which may be wrong;
        these are deleted first, in the same transaction."""
        settings, facts, connection = self._settings, self._known(), self._connected()
        envelope = self._envelope()
        on_the_way = {"phase": "snapshot", "again": again}
        rows = 0
        with consistent_snapshot(connection, facts, locks=settings.snapshot_locking_mode == "minimal") as place:
            tables = captured_tables(connection, settings)
            if again:
                topics = tuple(topic_of(settings.topic_prefix, *names) for names in tables)
                yield Chunk([], on_the_way, complete=False, empties=topics)
            if again or settings.snapshot_mode == "initial":
                for database, name in tables:
                    table = described_table(connection, database, name)
                    if table is None:
                        continue
                    of_table = MySqlTableEnvelope(table, envelope, logged=False)
                    for records in snapshot_rows(connection, of_table, place, settings.max_batch_size):
                        rows += len(records)
                        yield Chunk(records, on_the_way, complete=False)
        names = [f"{database}.{name}" for database, name in tables]
        _log.info("snapshot taken", rows=rows, file=place.file, pos=place.pos, gtids=place.gtids)
        yield Chunk([], {
            "phase": "stream", "flavor": facts.flavor, "server_id": facts.server_id, "file": place.file,
            "pos": place.pos, "gtids": place.gtids, "tables": names,
        })  # fmt: skip

    def _end_snapshot(self) -> None:
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            snapshot.close()

    # The stream

    def _follow(self, position: Position) -> BinlogChanges:
        facts, envelope, settings = self._known(), self._envelope(), self._settings
        if facts.flavor != position["flavor"]:
            raise ConnectorFailed(
                f"the connector has read {position['flavor']}, and this server is {facts.flavor}",
                hint="RESNAPSHOT CONNECTOR reads all tables of the new server.",
            )
        backfill = self._backfill(position, envelope)
        stream = BinlogStream(settings, facts.flavor, self._server_id, begun_place(position))
        return BinlogChanges(stream, self._connected(), facts, envelope, settings, position, backfill)

    def _backfill(self, position: Position, envelope: MySqlEnvelopeSettings) -> MySqlBackfill:
        """Tables that were added to the settings are read while the stream continues."""
        settings, connection = self._settings, self._connected()
        known, pending = list(position["tables"]), list(position.get("backfill", ()))
        for database, table in all_tables(connection):
            name = f"{database}.{table}"
            if is_captured(settings, database, table) and name not in known:
                known.append(name)
                if settings.snapshot_mode == "initial":
                    pending.append({"table": name, "after": None})
        return MySqlBackfill(
            connection, self._known(), envelope, settings.incremental_snapshot_chunk_size, pending, known
        )

    def _bytes_behind(self, file: str, pos: int) -> int:
        with explained("the list of binary logs"):
            logs = rows_of(self._connected(), "SHOW BINARY LOGS")
        behind = sum(int(row[1]) for row in logs if file_number(row[0]) >= file_number(file))
        return max(0, behind - pos)
