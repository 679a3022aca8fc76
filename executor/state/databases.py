"""Databases of queries: many of them in one DuckDB instance.

Opening an instance costs 16 to 25 ms and 4 to 6 MB; attaching one more database to an open instance costs 1 ms and
0.1 MB. A query gets its own connection (a cursor) that sees only its own database, in memory or in a file:

| separate: per connection, or per database                        | shared: per instance                              |
| ---------------------------------------------------------------- | ------------------------------------------------- |
| tables, transactions, write-ahead logs, checkpoints              | settings (locked), threads of DuckDB              |
| prepared statements, registered Arrow tables, temporary tables   | the memory limit, and where large operators spill |
| interruption, an open result, a failed transaction               | a fatal error of DuckDB's                         |

Therefore only queries with the same settings share an instance, and at most `TENANTS_MAX` of them. A commit that the
disk refuses fails only for its own database. After a fatal error, and after a query ran out of memory, each affected
query recovers from the log as after any other failure. A broken instance gets no new databases.

Python functions belong to the connection that registered them: if another connection uses them after that one is
closed, the process crashes. And each notes failures for its own query. So they are `name_apart`, and removed first.

Instances without files stay open for a while when they are unused, but give their share of the memory back:

| instances         | used by                                                        | databases at a time |
| ----------------- | -------------------------------------------------------------- | ------------------- |
| `for_expressions` | SQL without tables                                             | none                |
| `of_this_process` | push queries, pull queries' copies of tables, Sandboxes, Spark | `READERS_MAX`       |
| `one_at_a_time`   | pull queries with state: the memory limit of each is its own   | one                 |

With an instance of its own, a push query took 26 ms of CPU to its first rows, in a shared one 6; a small pull query
with GROUP BY 45 ms, and 20 in one that is open; a Sandbox, which opened three, 80 ms.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import duckdb
import structlog

from ...planner.specs import SqlExpression
from ...sql.functions.catalog import forget_udfs, name_apart, register_udfs
from ...sql.functions.udf import failures_of
from .connection import MEMORY, EngineSettings, lock, open_connection, spill_directory
from .laid_aside import LaidAside
from .memory_shares import MemoryShares, set_room

log = structlog.get_logger("millstream.queries")

TENANTS_MAX: Final = 100
"""Databases in one instance: a fatal error affects at most this many queries, which recover."""
READERS_MAX: Final = 16
"""The same, where a client sees the error: of a push query, or of a pull query that reads such a table."""
USES_MAX: Final = 1_000
"""Databases that an instance without files gets in its life. DuckDB keeps 1.2 KB about the memory of each query that
groups and sorts, and forgets some of it only when that has become 20 MB, after 20,000 queries."""


@dataclass(frozen=True, slots=True)
class Database:
    """An open database and its connection. `close` closes both. `connect` returns a further connection to it for
    another thread; the caller closes it before the database. `shared`: the instance has other databases, too, and its
    settings are already locked. `clear_laid_aside`: see `laid_aside.py`; of a database in a file it does nothing."""

    connection: duckdb.DuckDBPyConnection
    close: Callable[[], None]
    connect: Callable[[], duckdb.DuckDBPyConnection]
    shared: bool = False
    clear_laid_aside: Callable[[], None] = lambda: None

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def closed_on_error(self) -> Generator[None]:
        """Closes the database if the set-up of its user fails. Otherwise nothing would close it, and in a shared
        instance it would stay."""
        try:
            yield
        except BaseException:
            self.close()
            raise


OpenDatabase = Callable[[str, EngineSettings], Database]
"""In: a path, or `MEMORY`; the settings."""


def alone(path: str, settings: EngineSettings) -> Database:
    """Opens the database in its own instance. The caller locks the settings."""
    connection = open_connection(path, settings)
    return Database(connection, connection.close, connection.cursor)


_Sharing = tuple[str | None, int | None, str | None, MemoryShares | None]


def _sharing(settings: EngineSettings) -> _Sharing:
    """The settings that queries must have in common to share an instance."""
    return settings.memory_limit, settings.threads, settings.temp_directory, settings.shares


class SharedDatabases:
    """The instances that the queries of one executor share. In: `directory`: of the files; None: all databases are in
    memory. `idle_max`: the maximal number of unused instances that stay open: those that became unused last.
    `tenants_max`: of the databases in one instance."""

    def __init__(self, directory: Path | None, *, idle_max: int = 0, tenants_max: int = TENANTS_MAX) -> None:
        self._directory = None if directory is None else directory.absolute()
        self._idle_max = idle_max
        self._tenants_max = tenants_max
        self._idle: list[tuple[_Instance, EngineSettings]] = []  # in the order in which they became unused
        spill_directory()  # now, because a query may open the first instance while the process ends
        self._guard = threading.Lock()  # protects the instances and their lists of databases
        self._holder: int | None = None  # the thread that holds the guard
        self._left: deque[Callable[[], None]] = deque()  # what that thread closed meanwhile
        self._instances: dict[_Sharing, list[_Instance]] = {}

    @contextlib.contextmanager
    def _held(self) -> Generator[None]:
        """Holds the guard."""
        with self._guard:
            self._holder = threading.get_ident()
            try:
                self._close_left()
                yield
            finally:
                self._close_left()
                self._holder = None

    def _close_left(self) -> None:
        while self._left:
            self._left.popleft()()

    def open(self, path: str, settings: EngineSettings) -> Database:
        """Raises `duckdb.Error`, like `alone`."""
        with self._held():
            instance = self._instance(settings)
            try:
                instance.wake()
                name, connection = instance.attach(path)
            except BaseException:
                self._leave(instance, settings)
                raise
        share = 0 if settings.shares is None else settings.shares.take()
        if share:
            set_room(connection, share)
        failures_of(connection).bounds = settings.bounds
        name_apart(connection, f"@{name}")
        close = functools.partial(self._close, instance, settings, name, connection, share)
        return Database(
            connection,
            close,
            functools.partial(instance.connect, name),
            shared=True,
            clear_laid_aside=functools.partial(self._clear_laid_aside, instance),
        )

    def _clear_laid_aside(self, instance: _Instance) -> None:
        with self._held():
            instance.clear_laid_aside()

    def _close(
        self,
        instance: _Instance,
        settings: EngineSettings,
        name: str,
        connection: duckdb.DuckDBPyConnection,
        share: int,
    ) -> None:
        with contextlib.suppress(duckdb.Error):  # there is no transaction
            connection.execute("ROLLBACK")
        with contextlib.suppress(duckdb.Error):  # the instance is broken, or the connection closed
            forget_udfs(connection)
        connection.close()
        detach = functools.partial(self._detach, instance, settings, name, share)
        if self._holder == threading.get_ident():  # a garbage collection closes a query in the middle of `open`
            self._left.append(detach)
            return
        with self._held():
            detach()

    def _detach(self, instance: _Instance, settings: EngineSettings, name: str, share: int) -> None:
        if name in instance.tenants:
            instance.detach(name)
            if settings.shares is not None:
                settings.shares.give_back(share)
            self._leave(instance, settings)

    def _instance(self, settings: EngineSettings) -> _Instance:
        """An instance that can take one more database. The caller holds the guard."""
        mine = self._instances.setdefault(_sharing(settings), [])
        for each in mine:
            if len(each.tenants) < self._tenants_max and not each.is_used_up and each.is_usable():
                self._idle = [idle for idle in self._idle if idle[0] is not each]
                return each
        mine.append(_Instance(self._directory, settings, rests=self._directory is None))
        return mine[-1]

    def _leave(self, instance: _Instance, settings: EngineSettings) -> None:
        """Closes the instance after its last database, unless it may stay open. The caller holds the guard."""
        if instance.tenants:
            return
        instance.rest()
        if instance.is_used_up:
            self._end(instance, settings)
            return
        self._idle.append((instance, settings))
        while len(self._idle) > self._idle_max:
            self._end(*self._idle.pop(0))

    def _end(self, instance: _Instance, settings: EngineSettings) -> None:
        if instance.process == os.getpid():  # closing one from before a fork would wait for its threads forever
            self._instances[_sharing(settings)].remove(instance)
            instance.close()


class _Instance:
    """A DuckDB instance. Not thread-safe.

    In: `rests`: whether it may stay open without databases; its memory limit can be changed then."""

    _numbers = itertools.count()

    def __init__(self, directory: Path | None, settings: EngineSettings, *, rests: bool = False) -> None:
        self._shares = settings.shares if rests and not settings.memory_limit else None
        self._share = 0
        if self._shares is not None:
            settings = replace(settings, shares=None)
        self._owner = open_connection(MEMORY, settings, directories=() if directory is None else (str(directory),))
        self._laid_aside = LaidAside(self._owner) if rests else None
        lock(self._owner)
        self.process = os.getpid()
        self.tenants: set[str] = set()
        self._rests = rests
        self._uses = 0
        _open.add(self._owner)

    def wake(self) -> None:
        """Takes a share of the memory, unless it has one."""
        if self._shares is not None and not self._share:
            self._share = self._shares.take()
            self._owner.execute(f"SET memory_limit = '{self._share}B'")

    def rest(self) -> None:
        """Gives its share back, because it has no databases."""
        if self._shares is not None:
            self._shares.give_back(self._share)
            self._share = 0

    def clear_laid_aside(self) -> None:
        if self._laid_aside is not None:
            self._laid_aside.clear()

    @property
    def is_used_up(self) -> bool:
        """Whether it gets no more databases."""
        return self._rests and self._uses >= USES_MAX

    def is_usable(self) -> bool:
        """False after a fatal error, and in a process that was forked since it was opened."""
        if self.process != os.getpid():
            return False
        try:
            return self._owner.execute("SELECT 1").fetchall() == [(1,)]
        except duckdb.Error:
            return False

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection for SQL that needs no tables."""
        return self._owner.cursor()

    def attach(self, path: str) -> tuple[str, duckdb.DuckDBPyConnection]:
        """Out: the name of the database, and a connection whose current database it is."""
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
        self._uses += 1
        return name, connection

    def connect(self, name: str) -> duckdb.DuckDBPyConnection:
        """A connection whose current database is this one. Thread-safe."""
        connection = self._owner.cursor()
        try:
            connection.execute(f"USE {name}")
        except BaseException:
            connection.close()
            raise
        return connection

    def detach(self, name: str) -> None:
        """Detaches the database, even if its last checkpoint fails: its write-ahead log has all data."""
        self.tenants.discard(name)
        try:
            self._owner.execute(f"DETACH {name}")
        except duckdb.Error as error:
            log.warning("state file not settled", problem=str(error))

    def close(self) -> None:
        self._owner.close()


_open: weakref.WeakSet[duckdb.DuckDBPyConnection] = weakref.WeakSet()  # the connections that keep instances open


def _keep_what_was_open() -> None:
    """Keeps all open instances forever in a forked process. Closing an instance joins its threads, which this process
    does not have: it would hang at its end, or crash."""
    for each in _open:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


os.register_at_fork(after_in_child=_keep_what_was_open)

_IDLE_MAX: Final = 2


@functools.cache
def of_this_process() -> SharedDatabases:
    """Databases in memory: of push queries, of the rows that pull queries read, of Sandboxes and of Spark's batches."""
    return SharedDatabases(None, idle_max=_IDLE_MAX, tenants_max=READERS_MAX)


@functools.cache
def _one_at_a_time() -> SharedDatabases:
    return SharedDatabases(None, idle_max=_IDLE_MAX, tenants_max=1)


def one_at_a_time(path: str, settings: EngineSettings) -> Database:
    """Opens a database in memory in an instance that has no other one meanwhile: its memory limit is its own."""
    return _one_at_a_time().open(path, settings)


_expressions_guard = threading.Lock()
_expressions: list[_Instance] = []  # the last one is in use; one from before a fork cannot be closed


def for_expressions() -> duckdb.DuckDBPyConnection:
    """A connection, with locked settings, for SQL that needs neither tables nor Python functions: constants, and times
    of records. All these connections are in one instance."""
    with _expressions_guard:
        if not _expressions or not _expressions[-1].is_usable():
            _expressions.append(_Instance(None, EngineSettings()))
        return _expressions[-1].cursor()


BROKEN: Final = (duckdb.FatalException, duckdb.InternalException)
"""After one of these errors, all connections of the instance fail."""


class ExpressionConnection:
    """A long-lived connection for computing one expression. It is opened at first use, and again after its instance
    broke. Not thread-safe."""

    def __init__(self, expression: SqlExpression) -> None:
        self._expression = expression
        self._connection: duckdb.DuckDBPyConnection | None = None

    @contextlib.contextmanager
    def in_use(self) -> Generator[duckdb.DuckDBPyConnection]:
        """The connection. It may be a new one, which does not have the statements that were prepared before."""
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
    """A connection with locked settings in its own instance, with these Python functions registered."""
    connection = open_connection()
    register_udfs(connection, names)
    lock(connection)
    return connection
