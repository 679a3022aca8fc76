"""Stream time: the largest rowtime that a task has seen, per task and, where needed, at every row.

What counts is every record of the source, also those that a filter drops later: the source stage writes the running
maximum into `_st`, so that a late row is told the same way wherever a batch ends. Behind a repartition only the rows
that arrive there count, as in Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from ...sql.functions.aggregate_kernels import running_max
from ...sql.types import BIGINT, INTEGER
from ..batch import ChangeBatch
from ..state import StateStore
from .columns import Ints, codes, flat, ints, with_columns

NEVER = -(1 << 62)


class StreamTime:
    """The stream time of each task, from batch to batch. State: one row per task."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str) -> None:
        self.store = StateStore(connection, name, {"_part": INTEGER}, {"stream_time_ms": BIGINT})
        self._known: dict[int, int] = {}
        self._known_at = -1  # the store's version

    def read(self) -> dict[int, int]:
        if self._known_at != self.store.version:
            rows = self.store.rows()
            self._known = dict(zip(rows["_part"].to_pylist(), rows["stream_time_ms"].to_pylist(), strict=True))
            self._known_at = self.store.version
        return dict(self._known)

    def write(self, before: Mapping[int, int], after: Mapping[int, int]) -> None:
        moved = {part: time for part, time in after.items() if before.get(part) != time}
        if moved:
            columns: list[Any] = [pa.array(list(moved), pa.int32()), pa.array(list(moved.values()), pa.int64())]
            self.store.write(pa.table(columns, names=["_part", "stream_time_ms"]))
            self._known, self._known_at = dict(after), self.store.version


def running(parts: pa.Array, times: Ints, before: Mapping[int, int]) -> tuple[Ints, dict[int, int]]:
    """The stream time at each row, itself included, and each task's after the last."""
    after = dict(before)
    if not len(times):
        return times, after
    task, _ = codes(parts)
    first = np.unique(task, return_index=True)[1]
    listed = [int(parts[int(row)].as_py()) for row in first]
    state = np.array([before.get(part, NEVER) for part in listed], dtype=np.int64)
    if len(listed) == 1:
        at_rows = np.maximum(np.maximum.accumulate(times), state[0])
        state = at_rows[-1:]
    else:
        at_rows = running_max(task, times, state)
    after |= dict(zip(listed, state.tolist(), strict=True))
    return at_rows, after


def merged(times: Mapping[int, int], more: Mapping[int, int]) -> dict[int, int]:
    return {part: max(times.get(part, NEVER), more.get(part, NEVER)) for part in {**times, **more}}


class SourceTime:
    """Adds `_st` to a source's batches."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str) -> None:
        self._time = StreamTime(connection, name)
        self.stores = {name: self._time.store}

    def process(self, batch: ChangeBatch) -> ChangeBatch:
        before = self._time.read()
        at_rows, after = running(flat(batch.rows, "_part"), ints(batch.rows, "_ts"), before)
        after = merged(after, batch.stream_time_ms)
        self._time.write(before, after)
        return replace(batch, rows=with_columns(batch.rows, {"_st": pa.array(at_rows)}), stream_time_ms=after)
