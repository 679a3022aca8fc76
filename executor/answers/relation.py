"""The rows of a stream or table as a relation in DuckDB, which generated SQL queries. This module reads no topic.

Until a checkpoint, DuckDB keeps the space of deleted rows and scans them in every query. An in-memory database
checkpoints on its own only for large transactions: a table of 500 keys took 22 MB after 300,000 updates, 50 at a time.
"""

from __future__ import annotations

import contextlib
from typing import Final

import duckdb

from ...planner.steps.source import Source
from ..batch import ChangeBatch
from ..operators.statement import execute, readable
from ..sources.source_reader import empty_rows

RELATION: Final = "source"
DEAD_ROWS_MAX: Final = 20_000  # deleted rows, in excess of the live ones; a checkpoint takes at least 4 ms


class SourceRelation:
    """The table `source`, with the columns `k0`…, `v0`…, `_ts`, `_ws`, `_we`, `_rowpartition`, `_offset`. Not
    thread-safe.

    State: the number of rows, and the number of rows deleted since the last checkpoint.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, source: Source) -> None:
        self._connection = connection
        self._source = source
        self._columns = _columns(source)
        self._stream_time_ms: dict[int, int] = {}  # by partition, only for a table with a TTL
        self._starts: dict[int, int] = {}  # by partition: rows of records before this offset are removed
        self._rows = self._dead = 0
        self._create()

    def apply(self, changes: ChangeBatch) -> None:
        """Applies the next changes atomically. Raises `duckdb.Error`."""
        self._take_in(changes)
        self._expire(changes)

    def forget_before(self, partition: int, offset: int) -> None:
        """Deletes the rows of records before this offset, where the partition now begins."""
        if offset > self._starts.get(partition, 0):
            self._delete(f"FROM {RELATION} WHERE _rowpartition = {partition} AND _offset < {offset}")
            self._starts[partition] = offset

    def compact(self) -> None:
        """Frees the space of deleted rows if there are many. Call it outside of a transaction."""
        if self._dead > self._rows + DEAD_ROWS_MAX:
            execute(self._connection, "CHECKPOINT")
            ((self._rows,),) = execute(self._connection, f"SELECT count(*) FROM {RELATION}")
            self._dead = 0

    def _create(self) -> None:
        self._connection.register("shape", empty_rows(self._source))
        selected = ", ".join(
            name if known else f"CAST(NULL AS BIGINT) AS {name}" for name, known in self._columns.items()
        )
        self._connection.execute(f"CREATE TABLE {RELATION} AS SELECT {selected} FROM shape")
        self._connection.unregister("shape")

    def _take_in(self, changes: ChangeBatch) -> None:
        if not changes.rows.num_rows:
            return
        self._connection.register("batch", readable(changes.rows))
        self._connection.execute("BEGIN")
        try:
            if self._source.kind == "TABLE":
                self._replace()
            else:
                self._insert("batch WHERE NOT _null ORDER BY _seq")
            self._connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(duckdb.Error):
                self._connection.execute("ROLLBACK")
            raise
        finally:
            self._connection.unregister("batch")

    def _expire(self, changes: ChangeBatch) -> None:
        """Deletes rows that were not updated for the table's TTL, by the stream time of their partition."""
        if self._source.ttl_ms is None:
            return
        for partition, time in changes.stream_time_ms.items():
            latest = self._stream_time_ms[partition] = max(time, self._stream_time_ms.get(partition, time))
            self._delete(f"FROM {RELATION} WHERE _rowpartition = {partition} AND _ts <= {latest - self._source.ttl_ms}")

    def _replace(self) -> None:
        """Deletes the batch's keys, then inserts the last row of each key unless it is a deletion."""
        keys = [name for name in self._columns if name.startswith("k")]
        if self._source.key_window is not None:
            keys += ["_ws", "_we"]
        same = " AND ".join(f"s.{key} IS NOT DISTINCT FROM b.{key}" for key in keys) or "true"
        partition = f"PARTITION BY {', '.join(keys)} " if keys else ""
        last = f"row_number() OVER ({partition}ORDER BY _seq DESC) = 1"
        # Without the values: DuckDB finds the last row by a sort key of all of its columns, in which -0.0 is 0.0.
        found = f"SELECT {', '.join([*keys, '_seq'])} FROM batch QUALIFY {last}"
        self._connection.execute(f"CREATE OR REPLACE TEMP TABLE latest AS {found}")
        self._delete(f"FROM {RELATION} AS s USING latest AS b WHERE {same}")
        self._insert("batch SEMI JOIN latest USING (_seq) WHERE NOT _null")

    def _delete(self, rows: str) -> None:
        """Deletes the rows and counts them. After a rollback the counts are wrong until the next `compact`, which then
        happens earlier."""
        ((deleted,),) = execute(self._connection, f"DELETE {rows}")
        self._dead += deleted
        self._rows -= deleted

    def _insert(self, rows: str) -> None:
        selected = ", ".join(name if known else f"NULL AS {name}" for name, known in self._columns.items())
        ((inserted,),) = execute(self._connection, f"INSERT INTO {RELATION} SELECT {selected} FROM {rows}")
        self._rows += inserted


def _columns(source: Source) -> dict[str, bool]:
    """The relation's columns, and whether batches of the source have them."""
    names = [f"k{i}" for i in range(len(source.schema.key))] + [f"v{i}" for i in range(len(source.schema.value))]
    names += ["_ts", "_ws", "_we", "_rowpartition", "_offset"]
    present = set(empty_rows(source).column_names)
    return {name: name in present for name in names}
