"""Databases that SQLAlchemy knows, for the source and the sink `sql`: addresses, engines, and errors as ours."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Generator
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    IntegrityError,
    NoSuchModuleError,
    NotSupportedError,
    ProgrammingError,
    SQLAlchemyError,
)

from .connector_errors import ConnectorFailed, InvalidConnector, SystemUnavailable, one_line

URL: Final = "connection.url"
_HINT: Final = "Change the table, the rights or the settings, then RESTART CONNECTOR."


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
        raise SystemUnavailable(f"the database does not answer: {one_line(error.orig)}") from None
    except SQLAlchemyError as error:
        raise ConnectorFailed(f"the database cannot be used so: {one_line(error)}") from None


def _says_no(error: BaseException | None) -> bool:
    """Of SQLite, whose operational errors may be of the statement, as for a table that does not exist, or of the file's
    path, which somebody has to change."""
    if not isinstance(error, sqlite3.OperationalError):
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
