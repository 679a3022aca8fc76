"""Databases of queries: many of them inside one DuckDB instance.

To open an instance costs 16 to 25 ms and 4 to 6 MB; to attach one more database to one that is open, 1 ms and 0.1 MB.
A query gets a connection of its own (a cursor) whose only database is its own, in memory or in a file. What is apart
and what is shared:

| apart: per connection, or per database                           | shared: per instance                              |
| ---------------------------------------------------------------- | ------------------------------------------------- |
| tables, transactions, write-ahead logs, checkpoints              | settings (locked), threads of DuckDB              |
| prepared statements, registered Arrow tables, temporary tables   | the memory limit, and where large operators spill |
| interruption, an open result, a failed transaction               | a fatal error of DuckDB's                         |

Therefore only queries with the same settings share one, and at most `TENANTS_MAX` of them. A commit that the disk
refuses fails for its own database alone. After a fatal error, and after a query ran out of memory, each query that is
hit recovers from the log as after any other failure; an instance that is broken gets no new databases.

Functions in Python belong to the connection that registers them: one that uses them after that is closed crashes the
process. A plan that calls any has an instance of its own.

What needs no tables (`for_expressions`), and what comes and goes in Sandboxes and in Spark's tasks (`of_this_process`),
share instances that stay open when nobody uses them: a Sandbox opens and closes in milliseconds, and to open three
instances for it took 80 ms of CPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb
import structlog

from ...planner.specs import SqlExpression
from ...sql.functions.catalog import register_udfs
from ...sql.functions.udf import failures_of
from .connection import MEMORY, EngineSettings, lock, open_connection, spill_directory
from .memory_shares import MemoryShares, set_room

log = structlog.get_logger()

TENANTS_MAX: Final = 100
"""Databases in one instance: a fatal error hits no more queries than these."""


@dataclass(frozen=True, slots=True)
class Database:
    """An open database and its connection. `close` ends both. `connect` gives a further connection to it, for another
    thread, which its user closes first. `shared`: others are in the same instance, whose settings are locked
    already."""

    connection: duckdb.DuckDBPyConnection
    close: Callable[[], None]
    connect: Callable[[], duckdb.DuckDBPyConnection]
    shared: bool = False

    @contextlib.contextmanager
    def closed_on_error(self) -> Generator[None]:
        """While its user begins: who fails leaves nobody that could close it, and in a shared instance it stays."""
        try:
            yield
        except BaseException:
            self.close()
            raise


OpenDatabase = Callable[[str, EngineSettings], Database]
"""In: a path, or MEMORY."""


def alone(path: str, settings: EngineSettings) -> Database:
    """In an instance of its own, whose settings the caller locks."""
    connection = open_connection(path, settings)
    return Database(connection, connection.close, connection.cursor)


_Sharing = tuple[str | None, int | None, str | None, MemoryShares | None]


def _sharing(settings: EngineSettings) -> _Sharing:
    """What queries have in common that may share an instance."""
    return settings.memory_limit, settings.threads, settings.temp_directory, settings.shares


class SharedDatabases:
    """The instances of one executor that queries share. In: `directory`: the files are in it; None: all in memory.
    `idle_max`: so many instances that nobody uses stay open, those that were left last."""

    def __init__(self, directory: Path | None, *, idle_max: int = 0) -> None:
        self._directory = None if directory is None else directory.absolute()
        self._idle_max = idle_max
        self._idle: list[tuple[_Instance, EngineSettings]] = []  # the one that was left first comes first
        spill_directory()  # a query may open the first instance while the process ends
        self._guard = threading.Lock()  # of what is attached, and while it changes
        self._instances: dict[_Sharing, list[_Instance]] = {}

    def open(self, path: str, settings: EngineSettings) -> Database:
        """Raises `duckdb.Error` as opening it alone does."""
        with self._guard:
            instance = self._instance(settings)
            try:
                name, connection = instance.attach(path)
            except BaseException:
                self._leave(instance, settings)
                raise
        share = None if settings.shares is None else settings.shares.take()
        if share is not None and settings.shares is not None:
            settings.shares.belongs_to(connection, share)
            set_room(connection, share)
        failures_of(connection).bounds = settings.bounds
        close = functools.partial(self._close, instance, settings, name, connection)
        return Database(connection, close, functools.partial(instance.connect, name), shared=True)

    def _close(
        self, instance: _Instance, settings: EngineSettings, name: str, connection: duckdb.DuckDBPyConnection
    ) -> None:
        connection.close()  # what it has not committed is rolled back
        with self._guard:
            if name in instance.tenants:
                instance.detach(name)
                self._leave(instance, settings)

    def _instance(self, settings: EngineSettings) -> _Instance:
        """One with a free place. With the guard."""
        mine = self._instances.setdefault(_sharing(settings), [])
        for each in mine:
            if len(each.tenants) < TENANTS_MAX and each.is_usable():
                self._idle = [idle for idle in self._idle if idle[0] is not each]
                return each
        mine.append(_Instance(self._directory, settings))
        return mine[-1]

    def _leave(self, instance: _Instance, settings: EngineSettings) -> None:
        """The last tenant closes the door, unless it may stay open. With the guard."""
        if instance.tenants:
            return
        self._idle.append((instance, settings))
        while len(self._idle) > self._idle_max:
            closed, its_settings = self._idle.pop(0)
            if closed.process == os.getpid():  # one of before a fork would wait for threads that are not here
                self._instances[_sharing(its_settings)].remove(closed)
                closed.close()


class _Instance:
    """A DuckDB instance. Not for several threads at once."""

    _numbers = itertools.count()

    def __init__(self, directory: Path | None, settings: EngineSettings) -> None:
        directories = () if directory is None else (str(directory),)
        self._owner = open_connection(MEMORY, settings, directories=directories)
        lock(self._owner)
        self.process = os.getpid()
        self.tenants: set[str] = set()
        _open.add(self._owner)

    def is_usable(self) -> bool:
        """Not after a fatal error, and not in a process that was forked meanwhile."""
        if self.process != os.getpid():
            return False
        try:
            return self._owner.execute("SELECT 1").fetchall() == [(1,)]
        except duckdb.Error:
            return False

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection for what needs no tables."""
        return self._owner.cursor()

    def attach(self, path: str) -> tuple[str, duckdb.DuckDBPyConnection]:
        """The name of the database, and a connection that sees it as its own."""
        name = f"_database_{next(self._numbers)}"
        absolute = path if path == MEMORY else str(Path(path).absolute())
        literal = "'" + absolute.replace("'", "''") + "'"
        self._owner.execute(f"ATTACH {literal} AS {name}")
        try:
            connection = self.connect(name)
        except BaseException:
            self._owner.execute(f"DETACH {name}")
            raise
        self.tenants.add(name)
        return name, connection

    def connect(self, name: str) -> duckdb.DuckDBPyConnection:
        """A connection that sees this database as its own. Any thread may call it."""
        connection = self._owner.cursor()
        try:
            connection.execute(f"USE {name}")
        except BaseException:
            connection.close()
            raise
        return connection

    def detach(self, name: str) -> None:
        """The database is gone then, also where its last checkpoint failed: its write-ahead log has everything."""
        self.tenants.discard(name)
        try:
            self._owner.execute(f"DETACH {name}")
        except duckdb.Error as error:
            log.warning("state file not settled", problem=str(error))

    def close(self) -> None:
        self._owner.close()


_open: weakref.WeakSet[duckdb.DuckDBPyConnection] = weakref.WeakSet()  # what keeps instances open


def _keep_what_was_open() -> None:
    """In a forked process, for good: to end an instance joins its threads, which are not here. The process would hang
    at its end, or crash."""
    for each in _open:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


os.register_at_fork(after_in_child=_keep_what_was_open)

_IDLE_MAX: Final = 2


@functools.cache
def of_this_process() -> SharedDatabases:
    """Databases in memory for queries that come and go: those of Sandboxes, and the batches of Spark's tasks."""
    return SharedDatabases(None, idle_max=_IDLE_MAX)


_expressions_guard = threading.Lock()
_expressions: list[_Instance] = []  # the last one is used: one of before a fork cannot be closed


def for_expressions() -> duckdb.DuckDBPyConnection:
    """A connection, with locked settings, for SQL that needs no tables and no functions in Python: constants, and times
    of records. All of them are in one instance."""
    with _expressions_guard:
        if not _expressions or not _expressions[-1].is_usable():
            _expressions.append(_Instance(None, EngineSettings()))
        return _expressions[-1].cursor()


BROKEN: Final = (duckdb.FatalException, duckdb.InternalException)
"""After these errors DuckDB answers nothing else, for all connections of the instance."""


class ExpressionConnection:
    """The connection of who computes an expression for as long as it lives. It is opened when it is used first, and
    again after its instance broke. Not for several threads at once."""

    def __init__(self, expression: SqlExpression) -> None:
        self._expression = expression
        self._connection: duckdb.DuckDBPyConnection | None = None

    @contextlib.contextmanager
    def in_use(self) -> Generator[duckdb.DuckDBPyConnection]:
        """What was prepared in another connection is not in this one."""
        if self._connection is None:
            self._connection = connection_for(self._expression)
        try:
            yield self._connection
        except BROKEN:
            self._connection.close()
            self._connection = None
            raise


def connection_for(expression: SqlExpression) -> duckdb.DuckDBPyConnection:
    """A connection, with locked settings, that knows the functions of the expression."""
    return for_functions(expression.udfs) if expression.udfs else for_expressions()


def for_functions(names: Iterable[str]) -> duckdb.DuckDBPyConnection:
    """A connection with locked settings, alone in its instance. These functions in Python are registered."""
    connection = open_connection()
    register_udfs(connection, names)
    lock(connection)
    return connection
