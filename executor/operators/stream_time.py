"""Stream time: the largest rowtime that a task has seen, per task and, where needed, at every row.

For steps with `Step.asks_stream_time`, every record of the source counts, even if a filter drops it later: the source
stage writes the running maximum into `_st`, so whether a row is late does not depend on batch boundaries. For windows
with EMIT CHANGES, and after a repartition, only the rows that arrive there count, as in Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from ...sql.functions.aggregation.aggregate_kernels import running_max
from ...sql.types import BIGINT, INTEGER
from ..batch import ChangeBatch
from ..building import Operator
from ..state.store import StateStore
from .columns import Ints, flat, ints, with_columns

NEVER = -(1 << 62)


class StreamTime:
    """Keeps the stream time of each task between batches. State: one row per task."""

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
    """The stream time at each row, including this row, and the stream time of each task after the last row."""
    after = dict(before)
    if not len(times):
        return times, after
    numbers = parts.to_numpy(zero_copy_only=False)
    if (numbers == numbers[0]).all():
        part = int(numbers[0])
        at_rows = np.maximum(np.maximum.accumulate(times), before.get(part, NEVER))
        return at_rows, after | {part: int(at_rows[-1])}
    listed = np.flatnonzero(np.bincount(numbers))
    task = np.zeros(int(listed[-1]) + 1, np.int64)
    task[listed] = np.arange(len(listed))
    state = np.array([before.get(part, NEVER) for part in listed.tolist()], dtype=np.int64)
    at_rows = running_max(task[numbers], times, state)
    return at_rows, after | dict(zip(listed.tolist(), state.tolist(), strict=True))


def merged(times: Mapping[int, int], more: Mapping[int, int]) -> dict[int, int]:
    return {part: max(times.get(part, NEVER), more.get(part, NEVER)) for part in {**times, **more}}


def moved_on(times: Mapping[int, int], elapsed_ms: int) -> dict[int, int]:
    """The stream times after the sources were idle for `elapsed_ms`."""
    return {part: time + elapsed_ms for part, time in times.items()}


class SourceTime(Operator):
    """Adds `_st` to a source's batches."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str) -> None:
        self._time = StreamTime(connection, name)
        self.stores = {name: self._time.store}

    def process(self, batch: ChangeBatch) -> ChangeBatch:
        before = self._time.read()
        at_rows, after = running(flat(batch.rows, "_part"), ints(batch.rows, "_ts"), before)
        after = moved_on(merged(after, batch.stream_time_ms), batch.elapsed_ms)
        self._time.write(before, after)
        return replace(batch, rows=with_columns(batch.rows, {"_st": pa.array(at_rows)}), stream_time_ms=after)
