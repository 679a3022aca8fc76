"""The DuckDB file with a query's state: a cache of its changelog that says how much of it has been applied.

Nothing here is needed to be right: a file that is missing, broken, in use by a zombie, of another plan, or ahead of
the log is left alone or set aside, and the changelog is replayed into a new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import structlog

from ...planner.physical import PhysicalPlan
from ..operators.statement import quoted
from .connection import MEMORY, EngineSettings, SideConnections, lock
from .databases import Database, OpenDatabase, alone
from .laid_aside import LaidAside
from .state_table import TableSettlement

log = structlog.get_logger()

_APPLIED = "_millstream_applied"
_FORMAT = 3  # of the stores' tables: each row has a number of its own; sessions number values that came in turns
_DEAD_ROWS_MAX = 10_000  # beyond as many as live; a checkpoint costs 4 ms at least
_LAG_S_MAX = 12 * 60 * 60  # well below what the changelog keeps deletions for: delete.retention.ms
_CORRUPT = ("Corrupt database file", "IO Error: Corrupt")  # a plain `duckdb.Error`: no class of its own tells it
_in_use: set[Path] = set()
_in_use_guard = threading.Lock()


class _Bookkeeping:
    """How a connection to the file writes down what of the changelog is in it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection
        connection.execute(f"PREPARE _millstream_begin AS INSERT INTO {_APPLIED} VALUES ($1, $2)")
        connection.execute(
            f"PREPARE _millstream_move AS UPDATE {_APPLIED} SET applied_offset = $2 WHERE partition = $1"
        )

    def write(self, before: Mapping[int, int], applied: Mapping[int, int]) -> None:
        """In: `before`: the partitions that it knows already."""
        for partition, offset in applied.items():
            statement = "_millstream_move" if partition in before else "_millstream_begin"
            self.connection.execute(f"EXECUTE {statement}({int(partition)}, {int(offset)})").fetchall()


class StateFile:
    """An open state database. `applied`: changelog partition → the offset up to which it is contained. `side`: for
    statements without state.

    Operators compute on `connection`. `write` has a connection of its own: another thread may call it meanwhile.
    """

    def __init__(self, database: Database, path: Path | None, applied: Mapping[int, int]) -> None:
        self._database = database
        self.connection = connection = database.connection
        self.side = SideConnections(connection)
        self.path = path
        self.applied = dict(applied)
        self._written = 0  # rows since the last checkpoint: no more than these can be dead
        self._live: int | None = None  # rows after it, once known
        # In a shared instance it is bounded by that of all queries, and a limit of 0 bytes would fail what they do.
        self._laid_aside = None if database.shared else LaidAside(connection)
        self._own = _Bookkeeping(connection)
        self._writer: _Bookkeeping | None = None
        self._table_names: list[str] | None = None

    def commit(self, applied: Mapping[int, int], rows: int) -> None:
        """Ends the transaction under way on `connection`. From now on it contains the changelog up to these offsets.
        In: `rows`: how many rows of the changelog it has got since the last commit."""
        self._finish(self._own, applied, rows)
        self.clear_laid_aside()

    def write(self, settlements: Sequence[TableSettlement], applied: Mapping[int, int], rows: int) -> None:
        """As `commit`, in a transaction of its own: what the tables have yet to get. Raises `duckdb.Error`; then the
        file is to be closed, and is as it was."""
        if self._writer is None:
            self._writer = _Bookkeeping(self._database.connect())
        writer = self._writer.connection
        writer.execute("BEGIN")
        for settlement in settlements:
            settlement.apply(writer)
        self._finish(self._writer, applied, rows)

    def clear_laid_aside(self) -> None:
        """To be called after a transaction, while nobody uses another connection to the file."""
        if self._laid_aside is not None:
            self._laid_aside.clear()

    def _finish(self, own: _Bookkeeping, applied: Mapping[int, int], rows: int) -> None:
        own.write(self.applied, applied)
        self.applied.update(applied)
        own.connection.execute("COMMIT")
        self._compact(own.connection, rows)

    def _compact(self, connection: duckdb.DuckDBPyConnection, rows: int) -> None:
        """Gives back the room of replaced and deleted rows, where it is worth it.

        DuckDB does so at a checkpoint. On its own it makes one once the write-ahead log has 16 MB, and none in memory:
        the state of 500 groups held 10 MB after some hours, and a hundred such queries a gigabyte.
        """
        self._written += rows
        if self._written <= _DEAD_ROWS_MAX:
            return
        if self._live is None:
            self._live = self._rows(connection)
        if self._written <= self._live + _DEAD_ROWS_MAX:
            return
        try:
            connection.execute("CHECKPOINT")  # of this database; no transaction that reads its tables is open now
        except duckdb.TransactionException:
            return  # who lists the tables of all databases of the instance is in this one, too: with the next commit
        self._written, self._live = 0, self._rows(connection)

    def _rows(self, connection: duckdb.DuckDBPyConnection) -> int:
        """Counted: what DuckDB estimates has dead rows in it, and the more there are the longer they would stay."""
        counts = " UNION ALL ".join(f"SELECT count(*) AS rows FROM {quoted(name)}" for name in self._tables(connection))
        ((rows,),) = connection.execute(f"SELECT sum(rows) FROM ({counts})").fetchall()
        return int(rows)

    def _tables(self, connection: duckdb.DuckDBPyConnection) -> list[str]:
        """Asked for once, when all are there: DuckDB looks through the databases of all queries in the instance, and
        keeps their checkpoints off meanwhile."""
        if self._table_names is None:
            names = "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database()"
            self._table_names = [name for (name,) in connection.execute(names).fetchall()]
        return self._table_names

    def lock(self) -> None:
        """From here on no statement can change a setting."""
        if not self._database.shared:
            lock(self.connection)

    def close(self, cause: BaseException | None = None) -> None:
        """In: `cause`: why it is closed. Where that is damage to the file, the next start replays the changelog."""
        self.side.close()
        if self._writer is not None:
            self._writer.connection.close()  # what it has not committed is rolled back
        try:
            self._database.close()
        finally:
            if self.path is not None:
                with _in_use_guard:
                    _in_use.discard(self.path)
        if self.path is None:
            return
        if cause is not None and _is_damage(cause):
            log.warning("state file set aside", path=str(self.path), problem=str(cause))
            _set_aside(self.path)


def open_state(
    directory: Path | None,
    plan: PhysicalPlan,
    epoch: int,
    ends: Mapping[int, int],
    settings: EngineSettings,
    *,
    identity: str = "",
    open_database: OpenDatabase = alone,
) -> StateFile:
    """Opens the query's newest usable file, or a new one.

    In: `directory`: None keeps the state in memory. `epoch`: of the query's producer; a new file is named by it, so
    that it never meets the file of a zombie. `ends`: the end of each changelog partition. `identity`: what else the
    file must be of, where the folder alone does not say it.
    """
    if directory is None:
        return _create(None, _print(plan, identity), settings, open_database)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    newest = max(directory.glob("state-*.duckdb"), default=None)
    if newest is not None:
        found = _reopen(newest, _print(plan, identity), ends, settings, open_database)
        if found is not None:
            return found
    return _create(_new_file(directory, epoch), _print(plan, identity), settings, open_database)


def _reopen(
    path: Path, fingerprint: str, ends: Mapping[int, int], settings: EngineSettings, open_database: OpenDatabase
) -> StateFile | None:
    """None where the file must not be used. A file that nobody else uses is set aside then."""
    with _in_use_guard:
        if path in _in_use:
            return None
        _in_use.add(path)
    database: Database | None = None
    try:
        database = open_database(str(path), settings)
        applied = _read_bookkeeping(database.connection, fingerprint)
        if _is_outdated(path, applied, ends):
            _let_go(database, path)
            log.info("state file too old for its changelog", path=str(path))
            _set_aside(path)
            return None
        ahead = {partition: at for partition, at in applied.items() if at > ends.get(partition, 0)}
        if not ahead:
            return StateFile(database, path, applied)
        problem = f"it is ahead of the changelog: {ahead}"
    except duckdb.Error as error:
        problem = str(error)
    except BaseException:
        _let_go(database, path)
        raise
    _let_go(database, path)
    if "Could not set lock" not in problem:
        log.warning("state file set aside", path=str(path), problem=problem)
        _set_aside(path)
    return None


def _is_damage(error: BaseException) -> bool:
    """Blocks are read when they are needed, so damage may be found long after the file was opened."""
    return isinstance(error, duckdb.Error) and str(error).startswith(_CORRUPT)


def _is_outdated(path: Path, applied: Mapping[int, int], ends: Mapping[int, int]) -> bool:
    """True where compaction may have removed deletions from the changelog that the file has not seen: they are kept for
    a day after they were written at least, and the file has seen everything up to its last commit."""
    if all(applied.get(partition, 0) >= end for partition, end in ends.items()):
        return False
    files = [file for file in (path, path.with_name(path.name + ".wal")) if file.exists()]
    return time.time() - max(file.stat().st_mtime for file in files) > _LAG_S_MAX


def _let_go(database: Database | None, path: Path | None) -> None:
    try:
        if database is not None:
            database.close()
    finally:
        if path is not None:
            with _in_use_guard:
                _in_use.discard(path)


def _set_aside(path: Path) -> None:
    """Kept for whoever wants to know what happened; the last one is enough."""
    for old in path.parent.glob("state-*.aside"):
        old.unlink(missing_ok=True)
    for file in (path, path.with_name(path.name + ".wal")):
        with contextlib.suppress(FileNotFoundError):
            os.replace(file, file.with_name(file.name + ".aside"))


def _new_file(directory: Path, epoch: int) -> Path:
    """Where there is no other one: the next start must not find a zombie's."""
    path = directory / f"state-{epoch:010d}.duckdb"
    for file in directory.glob("state-*.duckdb*"):
        if not file.name.endswith(".aside"):
            file.unlink()
    with _in_use_guard:
        _in_use.add(path)
    return path


def _create(path: Path | None, fingerprint: str, settings: EngineSettings, open_database: OpenDatabase) -> StateFile:
    """A new, empty file; None keeps it in memory."""
    database: Database | None = None
    try:
        database = open_database(MEMORY if path is None else str(path), settings)
        _create_bookkeeping(database.connection, fingerprint)
        return StateFile(database, path, {})
    except BaseException:
        _let_go(database, path)
        raise


def _create_bookkeeping(connection: duckdb.DuckDBPyConnection, fingerprint: str) -> None:
    connection.execute(f"CREATE TABLE {_APPLIED} (partition INTEGER, applied_offset BIGINT)")
    connection.execute(
        "CREATE TABLE _millstream_plan AS SELECT $fingerprint AS fingerprint", {"fingerprint": fingerprint}
    )


def _read_bookkeeping(connection: duckdb.DuckDBPyConnection, fingerprint: str) -> dict[int, int]:
    """Raises `duckdb.Error` for a file of something else."""
    found = connection.execute("SELECT fingerprint FROM _millstream_plan").fetchone()
    if found is None or found[0] != fingerprint:
        raise duckdb.Error("the file belongs to another plan, or another log")
    rows = connection.execute(f"SELECT partition, applied_offset FROM {_APPLIED}").fetchall()
    return {int(partition): int(offset) for partition, offset in rows}


def _print(plan: PhysicalPlan, identity: str) -> str:
    """A fingerprint of what the state's tables depend on, and of whose they are."""
    return hashlib.sha256((repr((_FORMAT, plan.version, plan.root)) + identity).encode()).hexdigest()
