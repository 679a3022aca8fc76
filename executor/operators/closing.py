"""Closes windows that a row's time determines: emits their final results and drops their state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from ...planner.steps.aggregate import Aggregate
from ..state.store import StateStore
from ..windows.placing import Placing
from .columns import Ints, ints, key_names, number_within
from .groups.calls import Calls
from .stream_time import NEVER


class Closing:
    """A window closes at the first row of its task at which stream time reaches its end plus grace. No later row can
    change it. So its state at the end of that batch is its result, wherever the batch ends."""

    def __init__(
        self,
        step: Aggregate,
        placing: Placing,
        store: StateStore,
        calls: Calls,
        others: Sequence[StateStore] = (),
    ) -> None:
        """In: `others`: further stores keyed by the same windows; their rows are dropped together with the windows."""
        self._placing, window = placing, placing.window
        self._keys = key_names(step.schema)
        self._store = store
        self._others = others
        self._calls = calls
        self._until_closed = window.size_ms + window.grace_ms  # from a window's start
        self._forgotten: dict[int, int] = {}
        self._lossy = step.lossy

    def forget(self, stream_times: Mapping[int, int]) -> None:
        """Drops closed windows. It runs rarely enough to cost nothing."""
        for part, time in stream_times.items():
            if time - self._forgotten.get(part, NEVER) >= self._until_closed // 4:
                self._forgotten[part] = time
                self._expire(part, self._placing.latest_closed(time) + 1)

    def _expire(self, part: int, below: int) -> None:
        """Drops the windows whose mark is less than `below`."""
        for store in (self._store, *self._others):
            store.expire(part, self._placing.mark, below)

    def emit(self, rows: pa.Table, at_rows: Ints, before: Mapping[int, int], after: Mapping[int, int]) -> pa.Table:
        """The results of the windows that close between the two stream times, in the order in which they close."""
        sequence, parts = ints(rows, "_seq"), ints(rows, "_part")
        tables: list[pa.Table] = []
        for part, time in sorted(after.items()):
            previous = before.get(part, NEVER)
            if time <= previous:
                continue
            low, high = self._placing.latest_closed(previous), self._placing.latest_closed(time)
            closed = self._store.between(part, self._placing.mark, low, high)
            self._expire(part, high + 1)
            own = parts == part
            tables.append(self._results(closed, sequence[own], at_rows[own], int(sequence.max(initial=-1))))
        if not tables:
            tables.append(self._results(self._store.rows().slice(0, 0), sequence, at_rows, -1))
        out = pa.concat_tables(tables).sort_by([("_seq", "ascending"), ("_order", "ascending")])
        return out.set_column(out.schema.get_field_index("_order"), "_sub", pa.array(number_within(ints(out, "_seq"))))

    def _results(self, closed: pa.Table, sequence: Ints, at_rows: Ints, last: int) -> pa.Table:
        """In: `sequence`, `at_rows`: of the task's rows in this batch. Windows that close after these rows come after
        `last`."""
        marks, window = ints(closed, self._placing.mark), self._placing.window
        order = np.argsort(marks, kind="stable")  # at equal marks it keeps the store's order, which is by key
        starts, ends = self._placing.starts(marks), self._placing.ends(marks)
        trigger = np.searchsorted(at_rows, ends + window.grace_ms)
        if self._lossy:
            at = np.append(at_rows, NEVER)[trigger]
            assert window.retention_ms is not None
            order = order[(starts >= self._placing.latest_starts(at) - window.retention_ms)[order]]
        closed = closed.take(pa.array(order))
        n = len(closed)
        columns = {
            "_seq": pa.array(np.append(sequence, last + 1)[trigger[order]]),
            "_order": pa.array(np.arange(n, dtype=np.int64)),
            "_part": closed.column("_part"),
            "_ts": closed.column("_ts"),
            "_weight": pa.array(np.ones(n, dtype=np.int8)),
            "_null": pa.array(np.zeros(n, dtype=np.bool_)),
            "_ws": pa.array(starts[order]),
            "_we": pa.array(ends[order]),
            **{name: closed.column(name) for name in self._keys},
            **self._calls.results(closed),
        }
        return pa.table(columns)
