"""DuckDB connections as every part of the executor opens them: no files, no network, no extensions, settings locked.

A state file needs the file system of the process, and DuckDB leaves a database's own files open to SQL; therefore
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
from ...sql.settings.property_table import DUCKDB_MEMORY, DUCKDB_TEMP, DUCKDB_THREADS
from .memory_shares import MemoryShares, shares_of
from .temporary_folders import TemporaryFolder

MEMORY = ":memory:"
# A state file is written far more often than it is read. Compressing its texts took half of the time of a commit with
# wide rows (460,000 bids: 0.66 s, without 0.30 s; the file has 73 MB instead of 31). Numbers stay compressed, which
# costs next to nothing.
_TEXT_COMPRESSION = "fsst,dict_fsst"
THREADS_MAX = 4  # of one DuckDB, where nothing is set: batches are small, and there are many queries


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How much of the machine one DuckDB instance may use. None leaves it to DuckDB.

    `shares`: what a limit is taken from where there is no `memory_limit`. `bounds`: of functions that run there.
    """

    memory_limit: str | None = None  # DuckDB's notation: 512MB, 2GB
    threads: int | None = None
    temp_directory: str | None = None  # where large operators spill
    shares: MemoryShares | None = None
    bounds: CallBounds = field(default_factory=CallBounds)

    @staticmethod
    def of(properties: Mapping[str, str], threads: int | None = None) -> EngineSettings:
        """In: `threads`: where nobody sets it; None takes those of the machine. Raises `InvalidProperty`."""
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
    """Opens a database that cannot reach anything but itself. Call `lock` once the set-up is done.

    In: `directories`: it may attach databases in these, and so its SQL may read and write there."""
    settings = settings or EngineSettings()
    config: dict[str, str | bool | int | float | list[str]] = {
        "async_threads": 0,  # else DuckDB makes eight for each database, to prefetch from remote files
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
    elif path == MEMORY:  # DuckDB's own choice is a folder in the working directory of whoever started the process
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
    connection.execute("SET GLOBAL TimeZone = 'UTC'")  # of cursors too
    # DuckDB 2.0 computes what occurs twice in an expression once, in front of it, and so outside of its TRY.
    connection.execute("SET disabled_optimizers = 'common_subexpressions'")
    connection.execute(f"SET disabled_compression_methods = '{_TEXT_COMPRESSION}'")  # `config` ignores it
    if directories:
        connection.execute(f"SET allowed_directories = [{', '.join(map(_literal, directories))}]")
        connection.execute("SET enable_external_access = false")
    return connection


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


class SideConnections:
    """Further connections to a database, for statements that run side by side. Each has a transaction of its own, so
    they are for what reads no tables. Until `close`, which comes before that of the database's own connection."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._opened: list[duckdb.DuckDBPyConnection] = []

    def first(self, count: int) -> Sequence[duckdb.DuckDBPyConnection]:
        """So many of them, the same ones each time."""
        while len(self._opened) < count:
            self._opened.append(self._connection.cursor())
        return self._opened[:count]

    def close(self) -> None:
        for each in self._opened:
            each.close()
        self._opened = []


@dataclass(frozen=True, slots=True)
class Guard:
    """Where the statements of one pipeline run. `side`: further connections, for slices that are computed side by side,
    if they may. `aside`: for what may fail: None makes one. `interruptible`: who interrupts the pipeline's connection
    stops all that can take long, so nothing runs aside without need."""

    side: SideConnections | None = None
    aside: SideConnections | None = None
    interruptible: bool = False


@functools.cache
def spill_directory() -> Path:
    """For this process and this user alone; DuckDB makes its folders in it when it needs them. To be called before the
    process begins to end: from then on nothing more can be arranged for its end."""
    folder = TemporaryFolder("spill")
    atexit.register(folder.remove)
    return folder.path


def lock(connection: duckdb.DuckDBPyConnection) -> None:
    """From here on no statement can change a setting."""
    connection.execute("SET lock_configuration = true")
