"""The end of tumbling and hopping windows: their final results, and the state that nobody needs any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from ...planner.steps.aggregate import Aggregate
from ..state import StateStore
from ..window_times import window_ends
from .calls import Calls
from .columns import Ints, ints, key_names, number_within
from .stream_time import NEVER
from .windows import latest_closed


class Closing:
    """A window closes at the first row of its task at which stream time reaches its end plus grace. Since no later row
    can change it, its state at the end of that batch is its result, wherever the batch ends."""

    def __init__(self, step: Aggregate, store: StateStore, calls: Calls, others: Sequence[StateStore] = ()) -> None:
        """`others`: stores of the same windows, which are dropped with them."""
        assert step.window is not None
        self._window = step.window
        self._keys = key_names(step.schema)
        self._store = store
        self._others = others
        self._calls = calls
        self._until_closed = step.window.size_ms + step.window.grace_ms  # from a window's start
        self._forgotten: dict[int, int] = {}
        self.lossy = step.emit == "FINAL" and step.window.retention_ms is not None

    def forget(self, stream_times: Mapping[int, int]) -> None:
        """Drop closed windows, seldom enough to cost nothing."""
        for part, time in stream_times.items():
            if time - self._forgotten.get(part, NEVER) >= self._until_closed // 4:
                self._forgotten[part] = time
                self._expire(part, latest_closed(self._window, time) + 1)

    def _expire(self, part: int, below: int) -> None:
        """Drop the windows that start below."""
        for store in (self._store, *self._others):
            store.expire(part, "_ws", below)

    def emit(self, rows: pa.Table, at_rows: Ints, before: Mapping[int, int], after: Mapping[int, int]) -> pa.Table:
        """The results of the windows that close between the two stream times, in the order in which they do."""
        sequence, parts = ints(rows, "_seq"), ints(rows, "_part")
        tables: list[pa.Table] = []
        for part, time in sorted(after.items()):
            previous = before.get(part, NEVER)
            if time <= previous:
                continue
            low, high = latest_closed(self._window, previous), latest_closed(self._window, time)
            closed = self._store.between(part, "_ws", low, high)
            self._expire(part, high + 1)
            own = parts == part
            tables.append(self._results(closed, sequence[own], at_rows[own], int(sequence.max(initial=-1))))
        if not tables:
            tables.append(self._results(self._store.rows().slice(0, 0), sequence, at_rows, -1))
        out = pa.concat_tables(tables).sort_by([("_seq", "ascending"), ("_order", "ascending")])
        return out.set_column(out.schema.get_field_index("_order"), "_sub", pa.array(number_within(ints(out, "_seq"))))

    def _results(self, closed: pa.Table, sequence: Ints, at_rows: Ints, last: int) -> pa.Table:
        """`sequence`, `at_rows`: of the task's rows in this batch. What closes after them comes after `last`."""
        starts = ints(closed, "_ws")
        order = np.argsort(starts, kind="stable")  # within one start the store's order, by key
        ends = window_ends(starts, self._window.size_ms, self._window.timezone)
        trigger = np.searchsorted(at_rows, ends + self._window.grace_ms)
        if self.lossy:
            at = np.append(at_rows, NEVER)[trigger]
            advance = self._window.advance_ms or self._window.size_ms
            assert self._window.retention_ms is not None
            order = order[(starts >= at // advance * advance - self._window.retention_ms)[order]]
        closed = closed.take(pa.array(order))
        n = len(closed)
        columns = {
            "_seq": pa.array(np.append(sequence, last + 1)[trigger[order]]),
            "_order": pa.array(np.arange(n, dtype=np.int64)),
            "_part": closed.column("_part"),
            "_ts": closed.column("_ts"),
            "_weight": pa.array(np.ones(n, dtype=np.int8)),
            "_null": pa.array(np.zeros(n, dtype=np.bool_)),
            "_ws": closed.column("_ws"),
            "_we": pa.array(ends[order]),
            **{name: closed.column(name) for name in self._keys},
            **self._calls.results(closed),
        }
        return pa.table(columns)
