"""Takes snapshots whose place in the binary log is known.

MariaDB reports the place of a consistent snapshot, and writes do not wait. MySQL does not report it. There are two
ways: writes wait for a moment (FLUSH TABLES WITH READ LOCK, if the user has the right RELOAD); or the set of executed
transactions is read before the snapshot begins. A transaction is in that set only after it is visible, so the snapshot
misses none of them. A transaction that commits in between is in the snapshot and also in the stream, with the same
rows.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterator
from typing import Any, Final

import pymysql
import pymysql.cursors

from ..connector import ConnectRecord
from ..connector_errors import ConnectorFailed
from .mysql_connections import BinlogPlace, explained, quoted, rows_of
from .mysql_envelope import BinlogOrigin, MySqlTableEnvelope
from .mysql_server import ServerFacts, selected

_LOCK_S: Final = 10
_NO_RIGHT, _NO_LOCK, _NO_SYNTAX = 1227, 1205, 1064
_BEGIN: Final = "START TRANSACTION WITH CONSISTENT SNAPSHOT"


@contextlib.contextmanager
def consistent_snapshot(
    connection: Any, facts: ServerFacts, *, locks: bool, needs_gtids: bool = True
) -> Generator[BinlogPlace]:
    """In the block, the connection sees one state of all tables with transactional engines; the place is at or before
    that state. In: `needs_gtids`: whether to get the transaction ids, for which MariaDB has to search the file."""
    with explained("a consistent snapshot"):
        rows_of(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        if facts.flavor == "mariadb":
            place = _mariadb(connection, needs_gtids=needs_gtids)
        else:
            place = (_locked(connection) if locks else None) or _unlocked(connection, facts)
    try:
        yield place
    finally:
        with contextlib.suppress(Exception):
            connection.rollback()


def _mariadb(connection: Any, *, needs_gtids: bool) -> BinlogPlace:
    rows_of(connection, _BEGIN)
    found = dict(rows_of(connection, "SHOW STATUS LIKE 'binlog_snapshot_%'"))
    file, pos = found.get("Binlog_snapshot_file") or "", int(found.get("Binlog_snapshot_position") or 0)
    if not file:
        raise ConnectorFailed("the server does not say where a snapshot is in its binary log", hint="Is log_bin on?")
    gtids = ""
    if needs_gtids:
        ((gtids,),) = rows_of(connection, "SELECT BINLOG_GTID_POS(%s, %s)", [file, pos])
        if gtids is None:
            raise ConnectorFailed(f"the server has no transaction ids for {file}:{pos}", hint="Try again.")
    return BinlogPlace(file, pos, gtids)


def _locked(connection: Any) -> BinlogPlace | None:
    """Takes the snapshot with a lock. None if the user has no right to lock, or another session blocks the lock."""
    rows_of(connection, f"SET SESSION lock_wait_timeout = {_LOCK_S}")
    try:
        rows_of(connection, "FLUSH TABLES WITH READ LOCK")
    except pymysql.err.MySQLError as error:
        if error.args and error.args[0] in (_NO_RIGHT, _NO_LOCK):
            return None
        raise
    try:
        place = _status(connection)
        rows_of(connection, _BEGIN)
        return place
    finally:
        rows_of(connection, "UNLOCK TABLES")


def _unlocked(connection: Any, facts: ServerFacts) -> BinlogPlace:
    if not facts.has_gtids:
        raise ConnectorFailed(
            "without transaction ids a snapshot needs a lock for a moment, and there is none",
            hint="GRANT RELOAD to the user and leave snapshot.locking.mode out, or set gtid_mode = ON.",
        )
    place = _status(connection)
    ((gtids,),) = rows_of(connection, "SELECT @@global.gtid_executed")
    rows_of(connection, _BEGIN)
    return BinlogPlace(place.file, place.pos, gtids.replace("\n", ""))


def _status(connection: Any) -> BinlogPlace:
    rows: list[tuple[Any, ...]]
    try:
        rows = rows_of(connection, "SHOW BINARY LOG STATUS")
    except pymysql.err.MySQLError as error:
        if error.args[0] != _NO_SYNTAX:
            raise
        rows = rows_of(connection, "SHOW MASTER STATUS")
    if not rows:
        raise ConnectorFailed("the server has no binary log", hint="Start it with log_bin.")
    file, pos, *others = rows[0]
    gtids = others[2] if len(others) > 2 else ""
    return BinlogPlace(file, int(pos), (gtids or "").replace("\n", ""))


def executed_gtids(connection: Any) -> str:
    """The executed transactions of MySQL; all of them are visible."""
    with explained("the executed transactions"):
        ((gtids,),) = rows_of(connection, "SELECT @@global.gtid_executed")
    return gtids.replace("\n", "")


def snapshot_rows(
    connection: Any, envelope: MySqlTableEnvelope, place: BinlogPlace, batch: int
) -> Iterator[list[ConnectRecord]]:
    """All rows of a table that the connection sees."""
    table = envelope.table
    origin = BinlogOrigin(int(time.time()), place.file, place.pos)
    columns = ", ".join(selected(column) for column in envelope.asked)
    with explained(f"the rows of {table.database}.{table.name}"):
        with connection.cursor(pymysql.cursors.SSCursor) as cursor:
            try:
                cursor.execute(f"SELECT {columns} FROM {quoted(table.database)}.{quoted(table.name)}")
                while rows := cursor.fetchmany(batch):
                    yield [envelope.queried_row(row, origin) for row in rows]
            except BaseException:
                connection._force_close()  # otherwise closing the cursor would read all remaining rows
                if cursor._result is not None:
                    cursor._result.unbuffered_active = False
                raise
