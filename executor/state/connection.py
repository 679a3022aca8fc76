"""Opens the DuckDB connections of the executor: without files, network and extensions, and with locked settings.

A state file needs the file system of the process, and DuckDB allows SQL to access a database's own files. Therefore
only SQL that Millstream generated runs here. What is blocked and what is not was measured (hostile input, 6.1).
"""

from __future__ import annotations

import atexit
import functools
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from ...sql.functions.bounds import CallBounds
from ...sql.functions.udf import failures_of
from ...sql.identifiers import quoted_for_duckdb
from ...sql.settings.property_table import DUCKDB_MEMORY, DUCKDB_TEMP, DUCKDB_THREADS
from .memory_shares import MemoryShares, shares_of
from .temporary_folders import TemporaryFolder

MEMORY = ":memory:"
# DuckDB 2.0 computes a subexpression that occurs twice only once, before the expression, and so outside of its TRY.
# And it fails to compare a text with what the statistics of a table say is NULL, such as a CASE that no row meets.
_DISABLED_OPTIMIZERS = "common_subexpressions,statistics_propagation"
# A state file is written far more often than it is read. Compressing its texts took half of the time of a commit with
# wide rows (460,000 bids: 0.66 s, and 0.30 s without compression; the file then has 73 MB, not 31).
# Numbers stay compressed, which costs almost nothing.
_TEXT_COMPRESSION = "fsst,dict_fsst"
THREADS_MAX = 4  # of one DuckDB, unless it is set: batches are small, and there are many queries


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How much of the machine one DuckDB instance may use. None leaves it to DuckDB.

    `shares`: where the limit is taken from if there is no `memory_limit`. `bounds`: of functions that run there.
    """

    memory_limit: str | None = None  # DuckDB's notation: 512MB, 2GB
    threads: int | None = None
    temp_directory: str | None = None  # where large operators spill
    shares: MemoryShares | None = None
    bounds: CallBounds = field(default_factory=CallBounds)

    @staticmethod
    def of(properties: Mapping[str, str], threads: int | None = None) -> EngineSettings:
        """In: `threads`: the default if the property is not set; None uses the number of CPUs, at most `THREADS_MAX`.
        Raises `InvalidProperty`."""
        limit = DUCKDB_MEMORY.of(properties) or None
        shares = shares_of(limit)
        return EngineSettings(
            memory_limit=limit if shares is None else None,
            threads=DUCKDB_THREADS.of(properties) or threads or min(THREADS_MAX, os.cpu_count() or 1),
            temp_directory=DUCKDB_TEMP.of(properties) or None,
            shares=shares,
            bounds=CallBounds.of(properties),
        )


def open_connection(
    path: str = MEMORY, settings: EngineSettings | None = None, *, directories: Sequence[str] = ()
) -> duckdb.DuckDBPyConnection:
    """Opens a database that can access nothing but itself. Call `lock` after the set-up.

    In: `directories`: the database may attach databases in these, so its SQL may read and write there."""
    settings = settings or EngineSettings()
    config: dict[str, str | bool | int | float | list[str]] = {
        "async_threads": 0,  # by default DuckDB makes eight for each database, to prefetch from remote files
        "enable_external_access": bool(directories),
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "allow_community_extensions": False,
        "allow_persistent_secrets": False,
        "python_enable_replacements": False,
    }
    share = None
    if settings.memory_limit:
        config["memory_limit"] = settings.memory_limit
    elif settings.shares is not None:
        share = settings.shares.take()
        config["memory_limit"] = f"{share}B"
    if settings.threads:
        config["threads"] = settings.threads
    if settings.temp_directory:
        config["temp_directory"] = settings.temp_directory
    elif path == MEMORY:  # DuckDB's default is a folder in the working directory of the process
        config["temp_directory"] = str(spill_directory() / uuid.uuid4().hex)
    try:
        connection = duckdb.connect(path, config=config)
    except BaseException:
        if share is not None and settings.shares is not None:
            settings.shares.give_back(share)
        raise
    if share is not None and settings.shares is not None:
        settings.shares.belongs_to(connection, share)
    failures_of(connection).bounds = settings.bounds
    connection.execute("SET GLOBAL TimeZone = 'UTC'")  # also for cursors
    connection.execute(f"SET disabled_optimizers = '{_DISABLED_OPTIMIZERS}'")
    connection.execute(f"SET disabled_compression_methods = '{_TEXT_COMPRESSION}'")  # `config` ignores it
    if directories:
        connection.execute(f"SET allowed_directories = [{', '.join(map(_literal, directories))}]")
        connection.execute("SET enable_external_access = false")
    return connection


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


class SideConnections:
    """Further connections to a database, for statements that run in parallel. Each has its own transaction, so they are
    for statements that read no tables. Call `close` before closing the database's own connection."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._opened: list[duckdb.DuckDBPyConnection] = []

    def first(self, count: int) -> Sequence[duckdb.DuckDBPyConnection]:
        """The first `count` connections, the same ones each time."""
        while len(self._opened) < count:
            self._opened.append(_sibling(self._connection))
        return self._opened[:count]

    def close(self) -> None:
        for each in self._opened:
            each.close()
        self._opened = []


def _sibling(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """A further connection to the same database, which knows the same Python functions."""
    ((name,),) = connection.execute("SELECT current_database()").fetchall()
    opened = connection.cursor()
    opened.execute(f"USE {quoted_for_duckdb(name)}")
    return opened


@dataclass(frozen=True, slots=True)
class Guard:
    """Where the statements of one pipeline run. `side`: further connections, if slices may be computed in parallel.
    `aside`: connections for statements that may fail; None makes one. `interruptible`: interrupting the pipeline's
    connection must stop everything that can take long, so nothing runs on other connections without need."""

    side: SideConnections | None = None
    aside: SideConnections | None = None
    interruptible: bool = False


@functools.cache
def spill_directory() -> Path:
    """The spill folder of this process, private to this user. DuckDB makes its own folders in it when it needs them.
    Call it before the process begins to exit: after that, no exit handler can be registered."""
    folder = TemporaryFolder("spill")
    atexit.register(folder.remove)
    return folder.path


def lock(connection: duckdb.DuckDBPyConnection) -> None:
    """After this, no statement can change a setting."""
    connection.execute("SET lock_configuration = true")
