"""Numbers rows in the order in which they arrive in their task."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa

from ....sql.types import BIGINT, INTEGER
from ...state.store import StateStore
from ..columns import group, ints, take

ARRIVAL = "_n"


class ArrivalNumbers:
    """State: per task, the number of the next row."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str) -> None:
        self.store = StateStore(connection, f"{name}.arrivals", {"_part": INTEGER}, {ARRIVAL: BIGINT})

    def number(self, rows: pa.Table) -> pa.Table:
        """The rows with a column of their arrival numbers, which count from 0 in each task."""
        tasks, first = group(rows, ["_part"])
        parts = take(rows.select(["_part"]), first)
        found = self.store.read(parts)
        start = np.zeros(len(first), dtype=np.int64)
        start[ints(found, "_index")] = ints(found, ARRIVAL)
        order = np.argsort(tasks, kind="stable")
        sizes = np.bincount(tasks, minlength=len(first))
        before = np.cumsum(sizes) - sizes
        numbers = np.empty(len(rows), dtype=np.int64)
        numbers[order] = np.arange(len(rows), dtype=np.int64) - before[tasks[order]] + start[tasks[order]]
        self.store.write(parts.append_column(ARRIVAL, pa.array(start + sizes)))
        return rows.append_column(ARRIVAL, pa.array(numbers))
