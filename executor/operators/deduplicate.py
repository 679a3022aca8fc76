"""DEDUPLICATE: the first row of each key within a period of time.

Time is divided into slots as long as the period within which rows count as duplicates. Emitted rows of a key are at
least that far apart, so a slot has at most one of them. The rows that a new row may duplicate are in its slot and the
two adjacent ones: three lookups by key, however many rows are stored.

An emitted row is stored as long as a duplicate of it may arrive; rows that are more than `late_ms` late are dropped.
Removing it later changes no result, so the state is cleared only now and then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa

from ...planner.schema import Schema
from ...planner.steps.deduplicate import Deduplicate
from ...sql.types import BIGINT, INTEGER, SqlType
from ..batch import ChangeBatch
from ..building import Building, ChainNode, Operator, builds
from ..state.store import StateStore
from .columns import Bools, Ints, batch_schema, conform, flat, group, ints, key_types, take
from .expiry import TaskTime

_FAR = 1 << 61  # times are clipped to this, so that sums with them do not overflow


class Deduplicator(Operator):
    """In and out: see the step `Deduplicate`.
    State: the time of each emitted row, by its key and slot.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        step: Deduplicate,
        schema: Schema,
        extra: Sequence[str],
        columns: Sequence[str] | None,
    ) -> None:
        self._within_ms, self._late_ms = step.within_ms, step.late_ms
        key: dict[str, SqlType] = {"_part": INTEGER}
        key |= key_types(schema)
        self._keys = list(key)
        self._given = StateStore(connection, step.id, {**key, "_slot": BIGINT}, {"_ts": BIGINT})
        self._time = TaskTime(connection, f"{step.id}.stream_time", extra)
        self._cleared: dict[int, int] = {}  # per task: the first slot that may be stored; absent if unknown
        self.stores = {step.id: self._given, **self._time.stores}
        self.schema, self.extra, self.columns = schema, tuple(extra), columns
        self._batch_schema = batch_schema(schema, extra, columns)

    def process(self, batch: ChangeBatch) -> ChangeBatch:
        rows = conform(batch.rows, self._batch_schema)
        now, after = self._time.advance(batch, rows)
        times = np.clip(ints(rows, "_ts"), -_FAR, _FAR)
        there = ~flat(rows, "_null").to_numpy(zero_copy_only=False)
        in_time = times >= np.clip(now, -_FAR, _FAR) - self._late_ms
        self.late_rows += int((there & ~in_time).sum())
        asked = np.flatnonzero(there & in_time)
        given = asked[self._first(take(rows.select(self._keys), asked), times[asked])]
        self._clear(after)
        return replace(batch, rows=rows if len(given) == len(rows) else take(rows, given))

    def _first(self, keys: pa.Table, times: Ints) -> Bools:
        """Which rows have no earlier row close to them. These rows are stored."""
        count = len(times)
        if not count:
            return np.empty(0, np.bool_)
        slots = times // self._within_ms
        around = np.concatenate([slots, slots - 1, slots + 1])
        places, first = group(pa.concat_tables([keys] * 3), self._keys, [around])
        asked = take(keys, first % count).append_column("_slot", pa.array(around[first]))
        remembered = self._times_of(asked)
        first_of_key = self._among(places.reshape(3, count), times, remembered)
        written = places[:count][first_of_key]
        self._given.write(take(asked, written).append_column("_ts", pa.array(times[first_of_key])))
        return first_of_key

    def _times_of(self, asked: pa.Table) -> list[int | None]:
        """The time of the emitted row in each asked slot of a key; None: there is none."""
        found = self._given.read(asked)
        times: list[int | None] = [None] * len(asked)
        for place, time in zip(ints(found, "_index").tolist(), ints(found, "_ts").tolist(), strict=True):
            times[place] = time
        return times

    def _among(self, places: Ints, times: Ints, remembered: list[int | None]) -> Bools:
        """Decides row by row, because each emitted row affects the decision about later ones."""
        chosen = np.zeros(len(times), np.bool_)
        for row, (here, *beside) in enumerate(places.T.tolist()):
            time = int(times[row])
            if remembered[here] is None and not any(self._close(time, remembered[place]) for place in beside):
                chosen[row], remembered[here] = True, time
        return chosen

    def _close(self, time: int, other: int | None) -> bool:
        return other is not None and abs(time - other) < self._within_ms

    def _clear(self, after: Mapping[int, int]) -> None:
        """Removes the slots whose rows no row that may still arrive can be close to."""
        for task, time in after.items():
            below = (max(min(time, _FAR), -_FAR) - self._late_ms) // self._within_ms - 1
            spare = 1 + self._late_ms // self._within_ms // 4
            if below >= self._cleared.get(task, below - spare) + spare:
                self._given.expire(task, "_slot", below)
                self._cleared[task] = below


@builds(Deduplicate)
def build(step: Deduplicate, building: Building) -> ChainNode:
    below = building.node(step.input)
    operator = Deduplicator(building.connection, step, below.schema, below.extra, below.columns)
    return building.chain(below, operator, step)
