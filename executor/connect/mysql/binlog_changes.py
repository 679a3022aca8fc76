"""The changes of the captured tables in the binary log, as chunks of complete transactions, or of parts of one."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog

from ..cdc.cdc_records import topic_of
from ..connector import Chunk, ConnectRecord, Position
from ..connector_errors import ConnectorFailed, SystemFault
from .binlog_events import (
    ANONYMOUS_GTID,
    FORMAT,
    GTID,
    MARIADB_GTID,
    MARIADB_QUERY,
    PARTIAL_UPDATE,
    QUERY,
    ROTATE,
    TABLE_MAP,
    TAGGED_GTID,
    TRANSACTION_PAYLOAD,
    XA_PREPARE,
    XID,
    EventHeader,
    EventReader,
    LoggedStatement,
    RowsOfTable,
    has_rows,
)
from .binlog_tables import LoggedTable, logged_table, table_name
from .gtids import gtids_of
from .mysql_backfill import MySqlBackfill, StreamPlace
from .mysql_connections import SPOILT, BinlogPlace, BinlogStream, file_number
from .mysql_ddl import TableEffect, effects_of
from .mysql_envelope import BinlogOrigin, MySqlEnvelopeSettings, MySqlTableEnvelope
from .mysql_server import ServerFacts, described_table, is_captured, table_kind
from .mysql_settings import MySqlSettings
from .mysql_values import MySqlColumn

_REFUSED: Final = {
    PARTIAL_UPDATE: "parts of JSON values only: SET GLOBAL binlog_row_value_options = ''",
    TRANSACTION_PAYLOAD: "compressed transactions: SET GLOBAL binlog_transaction_compression = OFF",
    TAGGED_GTID: "transaction ids with tags, which cannot be read: do not set a tag in gtid_next",
}
_LAYOUTS_MAX: Final = 2000
_AS_BYTES: Final = {"uuid": 16, "inet6": 16, "inet4": 4}
_log = structlog.get_logger("millstream.connect")


@dataclass(frozen=True, slots=True)
class _Effects:
    """The effects of a statement that was read but not returned yet. `end`: the end of its transaction, if it ends with
    the statement."""

    effects: list[TableEffect]
    end: int | None


class BinlogChanges:
    """The stream of changes. State: the tables as the log has described them, the open transaction, and the place up to
    which everything was returned.

    In: `connection`: for queries about tables; `position`: where the stream begins.
    """

    def __init__(
        self, stream: BinlogStream, connection: Any, facts: ServerFacts, envelope: MySqlEnvelopeSettings,
        settings: MySqlSettings, position: Position, backfill: MySqlBackfill,
    ) -> None:  # fmt: skip
        self.stream = stream
        self._connection = connection
        self._facts = facts
        self._envelope = envelope
        self._settings = settings
        self._backfill = backfill
        self._reader = EventReader(checksums=stream.checksums)
        self._tables: dict[int, MySqlTableEnvelope | None] = {}
        self._layouts: dict[bytes, MySqlTableEnvelope | None] = {}
        place = begun_place(position)
        self._file, self._pos = place.file, place.pos
        self._file_now = place.file  # the file of the current events; it may be after the position's file
        order = place.order if position["server_id"] == facts.server_id else (0, 0)
        self._place = StreamPlace(gtids_of(facts.flavor, place.gtids), order, order)
        self._prepared: list[str] = list(position.get("xa", ()))  # XA transactions whose rows were returned
        self._is_open = False
        self._gtid: str | None = None
        self._ends_itself: bool | None = None
        self._skips = False
        self._order = 0
        self._parted = False  # whether a part of the open transaction was returned
        self._records: list[ConnectRecord] = []
        self._open_at = 0  # the records from this index on belong to the open transaction
        self._queued: _Effects | None = None
        self._moved = False
        self._heartbeat_s = (settings.heartbeat_interval_ms or 10_000) / 1000
        self._next_heartbeat = time.monotonic() + self._heartbeat_s

    def read(self, timeout_s: float) -> Chunk | None:
        """The available complete transactions, or a part of a large one."""
        if self._queued is not None:
            return self._give_effects(self._queued)
        if not self._is_open:
            self._backfill.step(self._place)
        deadline = time.monotonic() + timeout_s
        while True:
            if not self._is_open and self._backfill.ends(self._place):
                self._records += self._backfill.close_window()
            waits = self._is_open or not self._records
            data = self.stream.read(max(0.0, deadline - time.monotonic()) if waits else 0.0)
            if data is not None:
                self._take(data)
            if self._queued is not None:
                return self._chunk() if self._records else self._give_effects(self._queued)
            full = len(self._records) >= self._settings.max_batch_size
            over = data is None and (not self._is_open or time.monotonic() >= deadline)
            ended = not self._is_open and (self._parted or self._backfill.moved)
            if full or ended or (over and self._records):
                return self._chunk()
            if data is None and time.monotonic() >= deadline:
                return self._heartbeat()

    @property
    def place(self) -> tuple[str, int]:
        return self._file, self._pos

    def _chunk(self, empties: tuple[str, ...] = ()) -> Chunk:
        """The records so far. The chunk is complete if no transaction is open, or if its first change is a queued
        statement."""
        records, self._records, self._open_at = self._records, [], 0
        complete = not self._is_open or (self._queued is not None and self._order == 0)
        self._parted = not complete
        if complete:
            self._backfill.moved = self._moved = False
        return Chunk(records, self._position(), complete, empties, sweeps=self._backfill.take_sweeps())

    def _position(self) -> Position:
        return {
            "phase": "stream", "flavor": self._facts.flavor, "server_id": self._facts.server_id, "file": self._file,
            "pos": self._pos, "gtids": str(self._place.gtids), **self._backfill.position,
            **({"xa": self._prepared} if self._prepared else {}),
        }  # fmt: skip

    def _heartbeat(self) -> Chunk | None:
        """A chunk without records, which moves the position past changes that are not for us. None if it is not due."""
        if self._is_open or not self._moved or time.monotonic() < self._next_heartbeat:
            return None
        self._next_heartbeat = time.monotonic() + self._heartbeat_s
        return self._chunk()

    # Events

    def _take(self, data: bytes) -> None:
        try:
            header = self._reader.header(data)
            self._event(header, data)
        except (ValueError, IndexError, KeyError, struct.error) as error:
            raise SystemFault(f"the binary log behind {self._file}:{self._pos} cannot be read: {error}") from None
        if header.end and header.kind != ROTATE:
            self._place.seen = (file_number(self._file_now), header.end)

    def _event(self, header: EventHeader, data: bytes) -> None:
        match header.kind:
            case kind if has_rows(kind):
                self._changed(header, self._reader.rows(header, data))
            case kind if kind == TABLE_MAP:
                found = self._reader.table_map(data)
                self._tables[found.number] = self._table(found.layout)
            case kind if kind == XID:
                self._end(header.end)
            case kind if kind in (MARIADB_GTID, GTID, ANONYMOUS_GTID):
                self._begin(header, data)
            case kind if kind in (QUERY, MARIADB_QUERY):
                self._statement(header, self._reader.statement(header, data))
            case kind if kind == ROTATE:
                self._broken_off()
                self._file_now, pos = self._reader.rotation(data)
                self._tables.clear()
                self._place.seen = (file_number(self._file_now), pos)
            case kind if kind == FORMAT:
                self._broken_off()
                self._tables.clear()
            case kind if kind == XA_PREPARE:
                self._prepare(self._reader.body(data))
                self._end(header.end)
            case kind if kind in _REFUSED:
                raise ConnectorFailed(f"the binary log has {_REFUSED[kind]}", hint="Then RESNAPSHOT CONNECTOR.")
            case _:
                pass

    def _begin(self, header: EventHeader, data: bytes) -> None:
        begun = self._reader.begin(header, data)
        self._gtid, self._ends_itself = begun.gtid, begun.ends_itself
        self._is_open, self._order, self._open_at = True, 0, len(self._records)
        self._skips = begun.gtid is not None and self._place.gtids.holds(begun.gtid)

    def _end(self, end: int) -> None:
        if self._gtid is not None and not self._skips:
            self._place.gtids.add(self._gtid)
        self._file, self._pos = self._file_now, end
        self._place.last = self._place.seen = (file_number(self._file), end)
        self._is_open, self._gtid, self._moved, self._skips = False, None, True, False

    def _broken_off(self) -> None:
        """Drops the open transaction, because the server crashed while it wrote it, and has rolled it back."""
        if not self._is_open:
            return
        if self._parted:
            raise ConnectorFailed(
                f"the server broke off a large transaction behind {self._file}:{self._pos} and has undone it",
                hint=SPOILT,
            )
        del self._records[self._open_at :]
        self._is_open, self._gtid, self._skips = False, None, False

    def _table(self, layout: bytes) -> MySqlTableEnvelope | None:
        """The table; None if it is not captured."""
        if layout in self._layouts:
            return self._layouts[layout]
        database, name, _ = table_name(layout)
        found = None
        if is_captured(self._settings, database, name):
            table = self._as_now(logged_table(layout, self._facts.flavor, self._facts.charsets))
            found = None if table is None else MySqlTableEnvelope(table, self._envelope, logged=True)
        if len(self._layouts) >= _LAYOUTS_MAX:
            self._layouts.clear()
        self._layouts[layout] = found
        return found

    def _as_now(self, table: LoggedTable) -> LoggedTable | None:
        """The table with what the log does not say of MariaDB's tables; None for a sequence, which is no table."""
        if self._facts.flavor != "mariadb":
            return table
        kind, period = table_kind(self._connection, table.database, table.name)
        if period is not None:
            table = replace(table, key=tuple(name for name in table.key if name not in period), period=period)
        return None if kind == "SEQUENCE" else self._with_types(table)

    def _with_types(self, table: LoggedTable) -> LoggedTable:
        """The table with the current types of some columns: for some types of MariaDB, the log only says "bytes"."""
        if not any(_may_be_more(column) for column in table.columns):
            return table
        now = described_table(self._connection, table.database, table.name)
        types = {} if now is None else {column.name: column.kind for column in now.columns}
        columns = (
            replace(column, kind=types[column.name])
            if _may_be_more(column) and types.get(column.name) in _AS_BYTES
            else column
            for column in table.columns
        )
        return replace(table, columns=tuple(columns))

    def _changed(self, header: EventHeader, rows: RowsOfTable) -> None:
        if rows.table not in self._tables:
            raise ConnectorFailed("the binary log has rows without their table", hint=SPOILT)
        table = self._tables[rows.table]
        if table is None or self._skips:
            return
        start = header.end - header.size
        try:
            images = list(table.row_images(rows.rows))
        except (ValueError, IndexError, struct.error) as error:
            where = f"{table.table.database}.{table.table.name} at {self._file_now}:{start}"
            raise ConnectorFailed(
                f"a row of {where} cannot be read: {error}", hint="Name it in table.exclude.list."
            ) from None
        pairs = zip(images[::2], images[1::2], strict=True) if rows.op == "u" else ((image, None) for image in images)
        found: list[ConnectRecord] = []
        for row, (first, second) in enumerate(pairs):
            self._order += 1
            origin = BinlogOrigin(
                header.seconds, self._file_now, start, header.server_id, self._gtid, row, self._order
            )  # fmt: skip
            before = first if rows.op != "c" else None
            after = first if rows.op == "c" else second
            found += table.change(rows.op, before, after, origin)
        self._backfill.changed(found, self._gtid)
        self._records += found

    # Statements

    def _statement(self, header: EventHeader, statement: LoggedStatement) -> None:
        first, _, rest = statement.text.lstrip().partition(" ")
        match first.upper().rstrip(";"):
            case "BEGIN":
                self._ends_itself = False
                if not self._is_open:  # MySQL 5.6 and older, without ids
                    self._is_open, self._order, self._open_at = True, 0, len(self._records)
                return
            case "COMMIT" | "ROLLBACK" if not rest.upper().startswith("TO"):
                if self._is_open:
                    self._end(header.end)
                return
            case "SAVEPOINT" | "ROLLBACK":
                return
            case "XA":
                self._xa(header, rest)
                return
            case _:
                pass
        ends = self._ends_itself is not False
        found = [] if self._skips else self._effects(statement)
        if found:
            self._queued = _Effects(found, header.end if ends else None)
        elif ends:
            self._end(header.end)

    def _effects(self, statement: LoggedStatement) -> list[TableEffect]:
        """The effects on captured tables."""
        found: list[TableEffect] = []
        for effect in effects_of(statement.database, statement.text):
            if effect.effect == "rows":
                self._refuse_statement(statement)
            elif effect.effect == "database dropped":
                of_it = [
                    name.partition(".")[2]
                    for name in self._backfill.tables
                    if name.partition(".")[0] == effect.database
                ]
                found += [TableEffect("emptied", effect.database, table) for table in of_it]
            elif is_captured(self._settings, effect.database, effect.table):
                found.append(effect)
        return found

    def _refuse_statement(self, statement: LoggedStatement) -> None:
        text = statement.text.lower()
        named = [name for name in self._backfill.tables if name.partition(".")[2].lower() in text]
        if named:
            raise ConnectorFailed(
                f"the binary log has a statement in the place of rows, maybe about {named[0]}: {statement.text[:100]}",
                hint=f"A session has changed binlog_format. {SPOILT}",
            )

    def _give_effects(self, queued: _Effects) -> Chunk:
        empties: list[str] = []
        for effect in queued.effects:
            name = f"{effect.database}.{effect.table}"
            if effect.effect == "created":
                self._backfill.knows(name)
            elif self._settings.truncate_handling_mode == "skip":
                _log.warning("DDL that takes rows away is skipped, the topic keeps them", table=name)
            else:
                topic = topic_of(self._settings.topic_prefix, effect.database, effect.table)
                if topic not in empties:
                    empties.append(topic)
                if effect.effect == "replaced":
                    self._backfill.reads_again(name)
        self._backfill.emptied(empties, self._gtid)
        self._queued = None
        if queued.end is not None:
            self._end(queued.end)
        return self._chunk(tuple(empties))

    # XA: the rows of a prepared transaction are in the log before it is decided whether it commits

    def _prepare(self, body: bytes) -> None:
        size = struct.unpack_from("<I", body, 5)[0]
        if self._order and not body[0]:
            self._prepared.append(body[13 : 13 + size].hex())

    def _xa(self, header: EventHeader, rest: str) -> None:
        word, _, name = rest.partition(" ")
        if word.upper() not in ("COMMIT", "ROLLBACK"):
            return
        number = name.partition(",")[0].strip().removeprefix("X'").rstrip("'").lower()
        if number in self._prepared:
            self._prepared.remove(number)
            if word.upper() == "ROLLBACK":
                raise ConnectorFailed(
                    "a prepared XA transaction was undone, and its rows are in the topics", hint=SPOILT
                )
        self._end(header.end)


def _may_be_more(column: MySqlColumn) -> bool:
    return column.kind == "binary" and column.size in _AS_BYTES.values()


def begun_place(position: Mapping[str, Any]) -> BinlogPlace:
    """The place of a position of the stream."""
    return BinlogPlace(position["file"], position["pos"], position["gtids"])
