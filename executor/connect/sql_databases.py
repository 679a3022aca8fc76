"""Databases that SQLAlchemy knows, for the source and the sink `sql`: addresses, engines, and errors as ours."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Generator
from typing import Any, Final, Protocol, runtime_checkable

import sqlalchemy as sa
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    NoSuchModuleError,
    NotSupportedError,
    ProgrammingError,
    SQLAlchemyError,
    StatementError,
)

from .connector_errors import ConnectorFailed, InvalidConnector, is_full, one_line, unavailable
from .postgres.postgres_refusals import refuses_to_connect

URL: Final = "connection.url"
ROW_ERRORS: Final = (StatementError, ValueError, ArithmeticError, TypeError)
"""What a row may raise when it is written: of the database, or of the driver, which cannot express a value."""
_OF_VALUES: Final = ("22", "23")
_OTHER_TYPES: Final = ("42804", "42846")  # of PostgreSQL, as where a column of numbers gets a BOOLEAN
_FOR_PEOPLE: Final = ("0A", "22", "23", "28", "3D", "42")
_MYSQL_VALUES: Final = (1265, 1364, 1366, 3819, 4025)
"""Of values, though the state says HY000: truncated, a column without a default, a wrong value, two kinds of CHECK."""
_HINT: Final = "Change the table, the rights or the settings, then RESTART CONNECTOR."


@runtime_checkable
class _HasState(Protocol):
    """An error of psycopg or PyMySQL."""

    sqlstate: str | None


def database_url(text: str, password: str | None = None, user: str | None = None) -> sa.URL:
    """Connects to nothing. Raises `InvalidConnector`, which does not repeat the text: a password may be in it."""
    try:
        found = sa.make_url(text)
        with contextlib.suppress(NoSuchModuleError, ImportError):  # which is said when the task starts
            found.get_dialect()().create_connect_args(found)
    except (ArgumentError, ValueError):
        sqlite = text.startswith("sqlite:")
        raise InvalidConnector(
            f"{URL} is no URL of {'a SQLite database' if sqlite else 'SQLAlchemy'}: it looks like "
            f"{'sqlite:////absolute/path.db' if sqlite else 'postgresql+psycopg://user@host/database'}",
            setting=URL,
        ) from None
    return found.set(username=user or found.username, password=password or found.password)


def database_engine(url: sa.URL, **options: Any) -> sa.Engine:
    """Connects to nothing yet. Raises `ConnectorFailed` where the driver is missing."""
    try:
        return sa.create_engine(url, **options)
    except (NoSuchModuleError, ImportError) as error:
        raise ConnectorFailed(
            f"the driver of {url.drivername} is not installed: {error}",
            hint="pip install it, as in psycopg[binary] for postgresql+psycopg.",
        ) from None


def create_table(engine: sa.Engine, table: sa.Table) -> None:
    """If it is not there, in a transaction of its own; another task may create it at the same time. Raises
    `SQLAlchemyError`."""
    if sa.inspect(engine).has_table(table.name, table.schema):
        return
    try:
        with engine.begin() as connection:
            table.create(connection, checkfirst=False)
    except DBAPIError:
        if not sa.inspect(engine).has_table(table.name, table.schema):
            raise


def row_problem(error: Exception) -> str | None:
    """What is wrong with a value of the row that was written, a clause; None where the error is not of the row. In: one
    of `ROW_ERRORS`, from a statement that writes rows."""
    if isinstance(error, UnicodeError):  # its text would repeat all of the value
        return "a text is not Unicode"
    if not isinstance(error, StatementError):
        return one_line(error)
    refused = f"the database refused: {one_line(error.orig)}"
    if isinstance(error, DataError | IntegrityError):
        return refused
    if not isinstance(error, DBAPIError):
        return f"a value does not fit its column: {one_line(error.orig)}"
    state = _state_of(error.orig)
    if isinstance(error, ProgrammingError | InterfaceError):  # without a state: of the driver, before anything is sent
        of_value = isinstance(error.orig, sqlite3.Error | _HasState) and state in ("", *_OTHER_TYPES)
        return refused if of_value else None
    return refused if state.startswith(_OF_VALUES) or _code_of(error.orig) in _MYSQL_VALUES else None


@contextlib.contextmanager
def database_errors() -> Generator[None]:
    """Errors of a database as ours. SQLAlchemy's texts have the parameters in them, which are users' data: only the
    driver's own text is kept."""
    try:
        yield
    except (DataError, IntegrityError, NotSupportedError, ProgrammingError) as error:
        raise ConnectorFailed(f"the database refused: {one_line(error.orig)}", hint=_HINT) from None
    except DBAPIError as error:
        if _says_no(error.orig):
            raise ConnectorFailed(f"the database refused: {one_line(error.orig)}", hint=_HINT) from None
        # No connection, a deadlock, a full disk.
        text = one_line(error.orig)
        raise unavailable(f"the database {'has no room' if is_full(text) else 'does not answer'}: {text}") from None
    except StatementError as error:
        raise ConnectorFailed(f"the database cannot be used so: {one_line(error.orig)}") from None
    except SQLAlchemyError as error:
        raise ConnectorFailed(f"the database cannot be used so: {one_line(error)}") from None


def _state_of(error: BaseException | None) -> str:
    """The SQLSTATE; empty where the driver tells none."""
    return (isinstance(error, _HasState) and error.sqlstate) or ""


def _code_of(error: BaseException | None) -> int | None:
    """MySQL's number."""
    return error.args[0] if error is not None and error.args and isinstance(error.args[0], int) else None


def _says_no(error: BaseException | None) -> bool:
    """Where a driver calls an error operational, and it is of the statement, the rights or the table: somebody has to
    change something."""
    if not isinstance(error, sqlite3.OperationalError):
        state = _state_of(error)
        return state.startswith(_FOR_PEOPLE) or (not state and refuses_to_connect(str(error)))
        return False
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    if code == sqlite3.SQLITE_CANTOPEN:
        return _opens_files()
    return code in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CANTOPEN_ISDIR)


def _opens_files() -> bool:
    """Whether this process has a file handle left."""
    try:
        with open(os.devnull, "rb"):
            return True
    except OSError:
        return False
