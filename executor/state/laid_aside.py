"""Clears away what DuckDB keeps of buffers that are gone.

DuckDB notes every buffer that it lays aside, in the order in which it would take their memory back. It clears a queue
of such notes only from 32,768 on, and there are six of them. A note of a buffer that is gone still holds 210 bytes,
and a join writes 16, however few rows it has: a query grew by 3.4 KB with each join, until it held 45 MB for nothing.

A memory limit that cannot be met makes DuckDB go through all the queues, and drop these notes. The limit stays what it
was. What the database holds leaves the memory, too, and has to be read again; so it is done where the notes weigh
something against that.
"""

from __future__ import annotations

from typing import Final

import duckdb
import structlog

log = structlog.get_logger()

_NOTE_BYTES: Final = 210  # measured with DuckDB 2.0
_BYTES_MIN: Final = 1024 * 1024
_PART_OF_MEMORY: Final = 16
_LOOK_EVERY: Final = 32  # a look costs as much as a small statement

_LOOK: Final = """
SELECT (SELECT sum(dead_nodes) FROM duckdb_eviction_queues()), (SELECT sum(memory_usage_bytes) FROM duckdb_memory())
"""


class LaidAside:
    """Of one database; to be made before its settings are locked, since it leaves one of them open: its limit."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._calls = 0
        connection.execute(f"PREPARE _millstream_laid_aside AS {_LOOK}")
        ((self._limit,),) = connection.execute("SELECT current_setting('memory_limit')").fetchall()
        connection.execute("SET allowed_configs = ['memory_limit']")

    def clear(self) -> None:
        """To be called after every transaction; now and then it looks whether there is something to do."""
        self._calls += 1
        if self._calls % _LOOK_EVERY == 0 and self._is_worth_it():
            self._take_memory_back()

    def _is_worth_it(self) -> bool:
        ((notes, in_memory),) = self._connection.execute("EXECUTE _millstream_laid_aside").fetchall()
        return notes * _NOTE_BYTES >= max(_BYTES_MIN, in_memory // _PART_OF_MEMORY)

    def _take_memory_back(self) -> None:
        try:
            self._connection.execute("SET memory_limit = '0B'")
        except duckdb.OutOfMemoryException:  # as meant
            return
        except duckdb.Error as error:  # no room for what has to leave the memory: then it stays there
            log.warning("memory not taken back", error=str(error))
            return
        self._connection.execute(f"SET memory_limit = '{self._limit}'")
