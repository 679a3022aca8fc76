"""PEP 249 (https://peps.python.org/pep-0249/): for pandas, JupySQL, SQLAlchemy and other users of that interface.

    connection = millstream.dbapi.connect("http://127.0.0.1:8088")
    cursor = connection.cursor()
    cursor.execute("SELECT * FROM totals WHERE user = ?;", ["ada"])
    cursor.fetchall()

There are no transactions: every statement takes effect at once; `commit` and `rollback` do nothing.
"""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from millstream.errors import MillstreamError, StatementError

from . import connection as connections
from .parameters import Parameters, bind
from .relation import rows_of

apilevel: Final = "2.0"
threadsafety: Final = 1  # threads may share the module, not connections
paramstyle: Final = "qmark"

# An INSERT whose values are all parameters.
_INSERT = re.compile(
    r"(?P<head>\s*INSERT\s+INTO\b.*\bVALUES\s*)(?P<row>\(\s*\?(?:\s*,\s*\?)*\s*\))\s*;?\s*", re.I | re.S
)
_PART_MAX = 100_000  # characters and tokens; a request may have a million characters
_ROWS_MAX = 1_000

Date = datetime.date
Time = datetime.time
Timestamp = datetime.datetime
Binary = bytes
DateFromTicks = datetime.date.fromtimestamp
TimestampFromTicks = datetime.datetime.fromtimestamp


def TimeFromTicks(ticks: float) -> datetime.time:
    return datetime.datetime.fromtimestamp(ticks).time()


class _TypeGroup(frozenset[str]):
    """Equal to each SQL type of the group, as PEP 249 requires."""

    def __eq__(self, other: object) -> bool:
        return str(other).partition("(")[0] in self if isinstance(other, str) else super().__eq__(other)

    def __hash__(self) -> int:
        return super().__hash__()


STRING = _TypeGroup(["STRING"])
BINARY = _TypeGroup(["BYTES"])
NUMBER = _TypeGroup(["INTEGER", "BIGINT", "DOUBLE", "DECIMAL", "BOOLEAN"])
DATETIME = _TypeGroup(["DATE", "TIME", "TIMESTAMP"])
ROWID = _TypeGroup()


class Warning(Exception):
    """Never raised; PEP 249 requires the name."""


class Error(Exception):
    """Base of all errors here; `__cause__` is Millstream's error."""


class InterfaceError(Error):
    """The module was used incorrectly: a closed cursor, or rows without a query."""


class DatabaseError(Error):
    """The engine refused a statement, or failed."""


class DataError(DatabaseError):
    """Never raised: a row that cannot be computed gives NULL or goes to the processing log."""


class OperationalError(DatabaseError):
    """The server does not answer, or the connection broke."""


class IntegrityError(DatabaseError):
    """Never raised: there are no constraints between tables."""


class InternalError(DatabaseError):
    """Never raised."""


class ProgrammingError(DatabaseError):
    """The statement is invalid."""


class NotSupportedError(DatabaseError):
    """Millstream does not support this."""


def connect(target: str | Path | None = None, properties: Mapping[str, Any] | None = None) -> Connection:
    """Connects to a server by URL, to an engine in a folder, or to a temporary one, like `millstream.connect`."""
    with _translated():
        return Connection(connections.connect(target, properties))


class Connection:
    """A context manager; `close` also ends its own engine. `millstream` is the underlying connection."""

    def __init__(self, beneath: connections.Connection) -> None:
        self.millstream = beneath
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def cursor(self) -> Cursor:
        if self._closed:
            raise InterfaceError("the connection is closed")
        return Cursor(self)

    def commit(self) -> None:
        """Does nothing: statements have already taken effect."""

    def rollback(self) -> None:
        """Does nothing: changes cannot be undone."""

    def close(self) -> None:
        self._closed = True
        self.millstream.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Cursor:
    """Runs statements, and returns the rows of the last one as they arrive.

    `description`: (name, SQL type, None, …) per column; None after a statement without rows. `rowcount`: the rows that
    `executemany` inserted, else -1.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.arraysize = 1
        self.rowcount = -1
        self.description: list[tuple[str, str, None, None, None, None, None]] | None = None
        self._rows: Iterator[tuple[Any, ...]] | None = None
        self._end: contextlib.ExitStack = contextlib.ExitStack()
        self._closed = False

    def execute(self, operation: str, parameters: Parameters | None = None) -> Cursor:
        """Runs statements; the rows are those of the last. Raises `ProgrammingError`, `OperationalError`."""
        self._reset()
        with _translated():
            result = self.connection.millstream.sql(operation, parameters)
            if not isinstance(result, connections.Answer):
                tables = result.live()
                self._end.callback(tables.close)
                self.description = [_described(field.name, type_) for field, type_ in _typed(tables)]
                width = len(self.description)
                self._rows = (row for table in tables for row in rows_of(table.select(range(width))))
            elif result.rows:
                table = result.arrow()
                self.description = [_described(name, "STRING") for name in table.column_names]
                self._rows = iter(rows_of(table))
        return self

    def executemany(self, operation: str, parameters: Sequence[Parameters]) -> Cursor:
        """Runs the statement for each set of values; an INSERT of values combines many rows in one statement."""
        insert = _INSERT.fullmatch(operation)
        if insert is None:
            for values in parameters:
                self.execute(operation, values)
            return self
        with _translated():
            for rows in _in_parts(bind(insert["row"], values) for values in parameters):
                self.execute(f"{insert['head']}{', '.join(rows)};")
        self.rowcount = len(parameters)
        return self

    def fetchone(self) -> tuple[Any, ...] | None:
        with _translated():
            return next(self._open_rows(), None)

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """The rows that are available, at most `size`; a live query waits for them."""
        rows = self._open_rows()
        with _translated():
            return [row for _, row in zip(range(self.arraysize if size is None else size), rows, strict=False)]

    def fetchall(self) -> list[tuple[Any, ...]]:
        with _translated():
            return list(self._open_rows())

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        with _translated():
            yield from self._open_rows()

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Has no effect."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Has no effect."""

    def close(self) -> None:
        """Ends a query whose rows are not all fetched."""
        self._end.close()
        self._closed = True

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open_rows(self) -> Iterator[tuple[Any, ...]]:
        if self._closed:
            raise InterfaceError("the cursor is closed")
        if self._rows is None:
            raise InterfaceError("no statement with rows was executed")
        return self._rows

    def _reset(self) -> None:
        if self._closed:
            raise InterfaceError("the cursor is closed")
        if self.connection.closed:
            raise InterfaceError("the connection is closed")
        self._end.close()
        self._end = contextlib.ExitStack()
        self._rows, self.description, self.rowcount = None, None, -1


def _in_parts(rows: Iterable[str]) -> Iterator[list[str]]:
    """Rows of INSERT, in groups that fit into one request."""
    part: list[str] = []
    size = 0
    for row in rows:
        if part and (size + len(row) > _PART_MAX or len(part) == _ROWS_MAX):
            yield part
            part, size = [], 0
        part.append(row)
        size += len(row)
    if part:
        yield part


def _typed(tables: Any) -> Iterator[tuple[pa.Field, str]]:
    """The query's own columns, without the tombstone column."""
    return zip(tables.schema, tables.sql_types, strict=False)


def _described(name: str, type_: str) -> tuple[str, str, None, None, None, None, None]:
    return (name, type_, None, None, None, None, None)


@contextlib.contextmanager
def _translated() -> Generator[None]:
    try:
        yield
    except StatementError as error:
        raise ProgrammingError(str(error)) from error
    except MillstreamError as error:
        kind = ProgrammingError if 400_00 <= getattr(error, "error_code", 0) < 500_00 else OperationalError
        raise kind(str(error)) from error
