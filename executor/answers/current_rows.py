"""The current rows of one partition of a table, computed from all its changes. Spark's data source reads them.

A `SourceRelation` is updated and queried many times; this is filled only once. So it does not delete single rows: it
collects changes, and when there are more changes than rows, it keeps the last one of each key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa

from ...planner.steps.source import Source
from ..operators.statement import fetch, readable
from ..sources.source_reader import empty_rows

FOLD_ROWS: Final = 500_000


class CurrentRows:
    """The last row of each key (and window), unless it is a deletion or has expired. Not thread-safe.

    State: `_kept`: one row per key, in offset order. `_pending`: later changes. `_latest_ms`: the stream time.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, source: Source, fold_rows: int = FOLD_ROWS) -> None:
        """In: `fold_rows`: the minimal number of changes that are collected before they are folded."""
        self._connection = connection
        self._fold_rows = fold_rows
        self._ttl_ms = source.ttl_ms
        self._keys = [f"k{i}" for i in range(len(source.schema.key))]
        if source.key_window is not None:
            self._keys += ["_ws", "_we"]
        self._kept = empty_rows(source)
        self._pending: list[pa.Table] = []
        self._pending_count = 0
        self._latest_ms = -1

    def add(self, rows: pa.Table, stream_time_ms: Mapping[int, int]) -> None:
        """In: the next changes of the partition, in offset order, and its largest rowtime."""
        self._pending.append(rows)
        self._pending_count += rows.num_rows
        self._latest_ms = max(self._latest_ms, *stream_time_ms.values(), -1)
        if self._pending_count >= max(self._fold_rows, self._kept.num_rows):
            self._fold()

    def rows(self) -> pa.Table:
        """The current rows, with the columns of a batch."""
        self._fold()
        rows = self._kept
        if self._ttl_ms is not None:
            rows = rows.filter(pa.array(rows["_ts"].to_numpy() > self._latest_ms - self._ttl_ms))
        return rows

    def _fold(self) -> None:
        if not self._pending:
            return
        rows = pa.concat_tables([self._kept, *(part.select(self._kept.column_names) for part in self._pending)])
        self._pending, self._pending_count = [], 0
        latest = self._last_offsets(rows)
        offsets = rows["_offset"].to_numpy()
        keep = np.zeros(len(offsets), np.bool_)
        keep[np.searchsorted(offsets, latest)] = True  # offsets are unique and ascending
        keep &= ~rows["_null"].to_numpy()
        self._kept = rows.filter(pa.array(keep))

    def _last_offsets(self, rows: pa.Table) -> np.ndarray:
        """The last offset of each key."""
        grouped = f" GROUP BY {', '.join(self._keys)}" if self._keys else ""
        self._connection.register("changes", readable(rows.select([*self._keys, "_offset"])))
        try:
            return fetch(self._connection, f"SELECT max(_offset) AS last FROM changes{grouped}")["last"].to_numpy()
        finally:
            self._connection.unregister("changes")
