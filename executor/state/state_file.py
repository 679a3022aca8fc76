"""The DuckDB file with a query's state: a cache of its changelog that records how much of it has been applied.

Results do not depend on the file. If it is missing, broken, in use by a zombie, of another plan, or ahead of the log,
it is left alone or set aside, and the changelog is replayed into a new file.
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
from ...sql.identifiers import quoted_for_duckdb
from .connection import MEMORY, EngineSettings, SideConnections, lock
from .databases import Database, OpenDatabase, alone
from .laid_aside import LaidAside
from .state_table import TableSettlement

log = structlog.get_logger("millstream.queries")

_APPLIED = "_millstream_applied"
_FORMAT = 3  # of the stores' tables: each row has its own number; sessions number values in order of arrival
_DEAD_ROWS_MAX = 10_000  # dead rows, in addition to as many as are live; a checkpoint costs at least 4 ms
_LAG_S_MAX = 12 * 60 * 60  # well below the time for which the changelog keeps deletions: delete.retention.ms
_CORRUPT = ("Corrupt database file", "IO Error: Corrupt")  # DuckDB has no error class for this, so the text decides
_in_use: set[Path] = set()
_in_use_guard = threading.Lock()


class _Bookkeeping:
    """Records, through one connection to the file, how much of the changelog the file contains."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection
        connection.execute(f"PREPARE _millstream_begin AS INSERT INTO {_APPLIED} VALUES ($1, $2)")
        connection.execute(
            f"PREPARE _millstream_move AS UPDATE {_APPLIED} SET applied_offset = $2 WHERE partition = $1"
        )

    def write(self, before: Mapping[int, int], applied: Mapping[int, int]) -> None:
        """In: `before`: the partitions that are already recorded; `applied`: the new offsets."""
        for partition, offset in applied.items():
            statement = "_millstream_move" if partition in before else "_millstream_begin"
            self.connection.execute(f"EXECUTE {statement}({int(partition)}, {int(offset)})").fetchall()


class StateFile:
    """An open state database. `applied`: changelog partition → the offset up to which the file contains it. `side`:
    connections for statements without state.

    Operators compute on `connection`. `write` uses its own connection, so another thread may call it at the same time.
    """

    def __init__(self, database: Database, path: Path | None, applied: Mapping[int, int]) -> None:
        self._database = database
        self.connection = connection = database.connection
        self.side = SideConnections(connection)
        self.path = path
        self.applied = dict(applied)
        self._written = 0  # rows since the last checkpoint: at most this many can be dead
        self._live: int | None = None  # rows after the last checkpoint, once known
        # Not in a shared instance: there the memory limit is that of all queries, and setting it to 0 bytes would make
        # their statements fail.
        self._laid_aside = None if database.shared else LaidAside(connection)
        self._own = _Bookkeeping(connection)
        self._writer: _Bookkeeping | None = None
        self._table_names: list[str] | None = None

    def commit(self, applied: Mapping[int, int], rows: int) -> None:
        """Commits the open transaction of `connection`. After that, the file contains the changelog up to the offsets
        `applied`. In: `rows`: how many rows of the changelog were applied since the last commit."""
        self._finish(self._own, applied, rows)
        self.clear_laid_aside()

    def write(self, settlements: Sequence[TableSettlement], applied: Mapping[int, int], rows: int) -> None:
        """Like `commit`, but in its own transaction, which applies these settlements first. Raises `duckdb.Error`; then
        the file is unchanged, and must be closed."""
        if self._writer is None:
            self._writer = _Bookkeeping(self._database.connect())
        writer = self._writer.connection
        writer.execute("BEGIN")
        for settlement in settlements:
            settlement.apply(writer)
        self._finish(self._writer, applied, rows)

    def clear_laid_aside(self) -> None:
        """Call it after a transaction, while no other connection to the file is in use."""
        if self._laid_aside is not None:
            self._laid_aside.clear()

    def _finish(self, own: _Bookkeeping, applied: Mapping[int, int], rows: int) -> None:
        own.write(self.applied, applied)
        self.applied.update(applied)
        own.connection.execute("COMMIT")
        self._compact(own.connection, rows)

    def _compact(self, connection: duckdb.DuckDBPyConnection, rows: int) -> None:
        """Frees the space of replaced and deleted rows, if it is worth it.

        DuckDB does so at a checkpoint. By itself it makes one when the write-ahead log has 16 MB, and never in memory:
        after some hours, the state of 500 groups took 10 MB, and that of a hundred such queries a gigabyte.
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
            return  # a statement that lists the tables of all databases reads this one, too: try at the next commit
        self._written, self._live = 0, self._rows(connection)

    def _rows(self, connection: duckdb.DuckDBPyConnection) -> int:
        """The number of live rows. They are counted: DuckDB's estimate includes dead rows, so the more dead rows there
        are, the longer they would stay."""
        counts = " UNION ALL ".join(
            f"SELECT count(*) AS rows FROM {quoted_for_duckdb(name)}" for name in self._tables(connection)
        )
        ((rows,),) = connection.execute(f"SELECT sum(rows) FROM ({counts})").fetchall()
        return int(rows)

    def _tables(self, connection: duckdb.DuckDBPyConnection) -> list[str]:
        """The names of the tables. It asks DuckDB only once, when all tables exist: DuckDB searches the databases of
        all queries in the instance, and blocks their checkpoints during that time."""
        if self._table_names is None:
            names = "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database()"
            self._table_names = [name for (name,) in connection.execute(names).fetchall()]
        return self._table_names

    def lock(self) -> None:
        """After this, no statement can change a setting."""
        if not self._database.shared:
            lock(self.connection)

    def close(self, cause: BaseException | None = None) -> None:
        """In: `cause`: why the file is closed. If the file is damaged, the next start replays the changelog."""
        self.side.close()
        if self._writer is not None:
            self._writer.connection.close()  # this rolls back uncommitted changes
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

    In: `directory`: None keeps the state in memory. `epoch`: of the query's producer; it is a part of a new file's
    name, so that a new file never collides with that of a zombie. `ends`: the end of each changelog partition.
    `identity`: what else must match the file, if the folder alone does not identify it.
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
    """None if the file must not be used. If no other process uses it, it is set aside."""
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
    """Whether the file is damaged. Blocks are read on demand, so this may be found long after the file was opened."""
    return isinstance(error, duckdb.Error) and str(error).startswith(_CORRUPT)


def _is_outdated(path: Path, applied: Mapping[int, int], ends: Mapping[int, int]) -> bool:
    """Whether compaction may have removed deletions from the changelog that the file has not seen. Deletions are kept
    for at least a day after they were written, and the file has seen everything up to its last commit."""
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
    """Renames the file, so that people can find out what happened. Only the last such file is kept."""
    for old in path.parent.glob("state-*.aside"):
        old.unlink(missing_ok=True)
    for file in (path, path.with_name(path.name + ".wal")):
        with contextlib.suppress(FileNotFoundError):
            os.replace(file, file.with_name(file.name + ".aside"))


def _new_file(directory: Path, epoch: int) -> Path:
    """The path of a new file. Removes all others: the next start must not find the file of a zombie."""
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
    """The applied offsets. Raises `duckdb.Error` if the file belongs to another plan or log."""
    found = connection.execute("SELECT fingerprint FROM _millstream_plan").fetchone()
    if found is None or found[0] != fingerprint:
        raise duckdb.Error("the file belongs to another plan, or another log")
    rows = connection.execute(f"SELECT partition, applied_offset FROM {_APPLIED}").fetchall()
    return {int(partition): int(offset) for partition, offset in rows}


def _print(plan: PhysicalPlan, identity: str) -> str:
    """A fingerprint of what the state's tables depend on, and of what they belong to."""
    return hashlib.sha256((repr((_FORMAT, plan.version, plan.root)) + identity).encode()).hexdigest()
