"""Databases that SQLAlchemy supports, for the source and the sink `sql`: addresses, engines, converted errors."""

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
"""Errors when a row is written: from the database, or from the driver if it cannot express a value."""
_OF_VALUES: Final = ("22", "23")
_OTHER_TYPES: Final = ("42804", "42846")  # from PostgreSQL, for example if a numeric column gets a BOOLEAN
_FOR_PEOPLE: Final = ("0A", "22", "23", "28", "3D", "42")
_MYSQL_VALUES: Final = (1265, 1364, 1366, 3819, 4025)
"""Errors of values with the general state HY000: truncated, a column without a default, a wrong value, two kinds of
CHECK."""
_HINT: Final = "Change the table, the rights or the settings, then RESTART CONNECTOR."


@runtime_checkable
class _HasState(Protocol):
    """An error of psycopg or PyMySQL."""

    sqlstate: str | None


def database_url(text: str, password: str | None = None, user: str | None = None) -> sa.URL:
    """Parses the URL without connecting. Raises `InvalidConnector`, which does not repeat the text because it may
    contain a password."""
    try:
        found = sa.make_url(text)
        with contextlib.suppress(NoSuchModuleError, ImportError):  # this is reported when the task starts
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
    """Makes an engine without connecting. Raises `ConnectorFailed` if the driver is missing."""
    try:
        return sa.create_engine(url, **options)
    except (NoSuchModuleError, ImportError) as error:
        raise ConnectorFailed(
            f"the driver of {url.drivername} is not installed: {error}",
            hint="pip install it, as in psycopg[binary] for postgresql+psycopg.",
        ) from None


def create_table(engine: sa.Engine, table: sa.Table) -> None:
    """Creates the table if it does not exist, in its own transaction. Another task may create it at the same time.
    Raises `SQLAlchemyError`."""
    if sa.inspect(engine).has_table(table.name, table.schema):
        return
    try:
        with engine.begin() as connection:
            table.create(connection, checkfirst=False)
    except DBAPIError:
        if not sa.inspect(engine).has_table(table.name, table.schema):
            raise


def row_problem(error: Exception) -> str | None:
    """A clause about what is wrong with a value of the written row; None if the row did not cause the error. In: one of
    `ROW_ERRORS`, from a statement that writes rows."""
    if isinstance(error, UnicodeError):  # its text would repeat the whole value
        return "a text is not Unicode"
    if not isinstance(error, StatementError):
        return one_line(error)
    refused = f"the database refused: {one_line(error.orig)}"
    if isinstance(error, DataError | IntegrityError):
        return refused
    if not isinstance(error, DBAPIError):
        return f"a value does not fit its column: {one_line(error.orig)}"
    state = _state_of(error.orig)
    if isinstance(error, ProgrammingError | InterfaceError):  # without a state, the driver raised it before sending
        of_value = isinstance(error.orig, sqlite3.Error | _HasState) and state in ("", *_OTHER_TYPES)
        return refused if of_value else None
    return refused if state.startswith(_OF_VALUES) or _code_of(error.orig) in _MYSQL_VALUES else None


@contextlib.contextmanager
def database_errors() -> Generator[None]:
    """Converts errors of a database to ours. SQLAlchemy's texts contain the parameters, which are users' data, so only
    the driver's text is used."""
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
    """The SQLSTATE; empty if the driver does not report it."""
    return (isinstance(error, _HasState) and error.sqlstate) or ""


def _code_of(error: BaseException | None) -> int | None:
    """MySQL's error number."""
    return error.args[0] if error is not None and error.args and isinstance(error.args[0], int) else None


def _says_no(error: BaseException | None) -> bool:
    """Whether a user has to change something: the driver calls the error operational, but the statement, the rights or
    the table caused it."""
    if not isinstance(error, sqlite3.OperationalError):
        state = _state_of(error)
        return state.startswith(_FOR_PEOPLE) or (not state and refuses_to_connect(str(error)))
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
