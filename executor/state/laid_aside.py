"""Frees the memory that DuckDB keeps for buffers that no longer exist.

DuckDB has queues of the buffers that it may evict, in the order of eviction. It purges a queue only when it has 32,768
entries, and there are six queues. The entry of a buffer that no longer exists takes 210 bytes, and each join adds 16
entries, however few rows it has. So a query grew by 3.4 KB with each join, until it held 45 MB for nothing.

Setting a memory limit that cannot be met makes DuckDB go through all queues and drop these entries. The limit stays
the same meanwhile, so statements of other threads do not fail. The database's data leaves the memory, too, and must be
read again. So this is only done if the entries take enough memory in comparison.
"""

from __future__ import annotations

from typing import Final

import duckdb
import structlog

log = structlog.get_logger("millstream.queries")

_NOTE_BYTES: Final = 210  # measured with DuckDB 2.0
_BYTES_MIN: Final = 1024 * 1024
_PART_OF_MEMORY: Final = 16
_LOOK_EVERY: Final = 32  # a check costs as much as a small statement

_LOOK: Final = """
SELECT (SELECT sum(dead_nodes) FROM duckdb_eviction_queues()), (SELECT sum(memory_usage_bytes) FROM duckdb_memory())
"""


class LaidAside:
    """For one DuckDB instance. Make it before the settings are locked: it keeps one of them open, the memory limit."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._calls = 0
        connection.execute(f"PREPARE _millstream_laid_aside AS {_LOOK}")
        connection.execute("SET allowed_configs = ['memory_limit']")

    def clear(self) -> None:
        """Call it after transactions. Every `_LOOK_EVERY` calls it checks whether there is something to do."""
        self._calls += 1
        if self._calls % _LOOK_EVERY == 0 and self._is_worth_it():
            self._take_memory_back()

    def _is_worth_it(self) -> bool:
        ((notes, in_memory),) = self._connection.execute("EXECUTE _millstream_laid_aside").fetchall()
        return notes * _NOTE_BYTES >= max(_BYTES_MIN, in_memory // _PART_OF_MEMORY)

    def _take_memory_back(self) -> None:
        ((limit,),) = self._connection.execute("SELECT current_setting('memory_limit')").fetchall()
        try:
            self._connection.execute("SET memory_limit = '0B'")
        except duckdb.OutOfMemoryException:  # as intended
            return
        except duckdb.Error as error:  # there is no space for the data that must leave the memory, so it stays there
            log.warning("memory not taken back", error=str(error))
            return
        self._connection.execute(f"SET memory_limit = '{limit}'")
