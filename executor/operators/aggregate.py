"""GROUP BY with and without tumbling and hopping windows, of streams and of tables.

SQL evaluates the arguments, DuckDB keeps the state, and loops in row order fold (`sql/functions/aggregate_kernels.py`
says why not window functions). Sessions are in `session.py`, what closes windows in `closing.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import duckdb
import numpy as np
import pyarrow as pa

from ...planner.physical import Aggregate
from ...planner.schema import Schema
from ...sql.functions.aggregate_kernels import Events, running_max
from ...sql.types import BIGINT, INTEGER, SqlType
from ..batch import ChangeBatch
from ..state import StateStore
from .calls import Calls
from .closing import Closing
from .columns import (
    Bools,
    Ints,
    batch_schema,
    codes,
    conform,
    flat,
    group,
    ints,
    is_null,
    key_names,
    last_of_group,
    number_within,
    previous_in_group,
    take,
)
from .stream_time import NEVER, StreamTime, merged, running
from .windows import assign

Emit = Literal["every", "last"]


@dataclass(frozen=True, slots=True)
class _Work:
    """What a batch does to the groups. `keys`: of each group. Events refer to `rows`; `row` is the one that gives an
    event its time and place."""

    rows: pa.Table
    keys: pa.Table
    events: Events
    row: Ints


class Aggregator:
    """In:    rows with the grouping key in k0…; a stream's +1 rows, or a table's changes.
    Out:   the group's new result at +1 for each row (`every`) or for the last row of the batch (`last`), before it
           the old one at -1 where the step emits it. FINAL: each window once, when it closes.
    State: the folds' states and the largest rowtime of each group.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        step: Aggregate,
        schema: Schema,
        extra: Sequence[str],
        columns: Sequence[str] | None,
        properties: Mapping[str, str],
        emit: Emit,
    ) -> None:
        self._step = step
        self._emit_every = emit == "every"
        self._keys = ["_part", *key_names(step.schema)]
        self._input_schema = batch_schema(schema, extra, columns)
        self._has_st = "_st" in extra
        kept = ["_seq", "_ts", "_weight", "_null", *self._keys, *(["_st"] if self._has_st else [])]
        self._calls = Calls(connection, step.calls, self._input_schema, kept, properties)
        windowed = step.window is not None
        self.schema, self.extra = step.schema, ("_ws", "_we") if windowed else ()
        self._output_schema = batch_schema(step.schema, self.extra)
        key: dict[str, SqlType] = {"_part": INTEGER}
        key |= dict(zip(self._keys[1:], (column.type for column in step.schema.key), strict=True))
        key |= {"_ws": BIGINT} if windowed else {}
        self._store = StateStore(connection, step.id, key, {**self._calls.state_types, "_ts": BIGINT})
        self.stores = {step.id: self._store}
        self._closing: Closing | None = None
        self._time: StreamTime | None = None
        if windowed:
            self._closing = Closing(step, self._store, self._calls)
            self._own_time = not self._has_st or self._closing.lossy
            if self._own_time or step.emit == "FINAL":
                self._time = StreamTime(connection, f"{step.id}.stream_time")
                self.stores[f"{step.id}.stream_time"] = self._time.store

    def process(self, batch: ChangeBatch) -> ChangeBatch:
        rows = self._relevant(self._calls.with_arguments(conform(batch.rows, self._input_schema)))
        if self._closing is None:
            return ChangeBatch(self._changes(self._fold(self._plain_work(rows)), rows), batch.stream_time_ms)
        before = self._time.read() if self._time is not None else {}
        at_rows, after = self._stream_times(rows, batch, before)
        folded = self._fold(self._windowed_work(rows, at_rows))
        if self._time is not None:
            self._time.write(before, after)
        if self._step.emit == "FINAL":
            out = self._closing.emit(rows, at_rows, before, after)
            return ChangeBatch(conform(out, self._output_schema), batch.stream_time_ms)
        self._closing.forget(after)
        return ChangeBatch(self._changes(folded, rows), batch.stream_time_ms)

    def _relevant(self, rows: pa.Table) -> pa.Table:
        """Rows with a value and all of a key; of a stream also no retractions, which it does not have."""
        drop = flat(rows, "_null").to_numpy(zero_copy_only=False)
        for name in self._keys[1:]:
            if rows.column(name).null_count:
                drop = drop | is_null(rows, [name])[0]
        return rows.filter(pa.array(~drop)) if drop.any() else rows

    def _stream_times(
        self, rows: pa.Table, batch: ChangeBatch, before: Mapping[int, int]
    ) -> tuple[Ints, dict[int, int]]:
        """The stream time at each row, and each task's after the batch."""
        if self._own_time:
            return running(flat(rows, "_part"), ints(rows, "_ts"), before)
        return ints(rows, "_st"), merged(before, batch.stream_time_ms)

    # -------------------------------------------------------------- what happens to which group

    def _plain_work(self, rows: pa.Table) -> _Work:
        groups, first = group(rows, self._keys)
        keys = take(rows.select(self._keys), first)
        n = np.arange(len(rows), dtype=np.int64)
        nothing = np.full(len(rows), -1, dtype=np.int64)
        if not self._step.retracts:
            return _Work(rows, keys, Events(groups, nothing, n), n)
        retracted = ints(rows, "_weight") < 0
        sequence = ints(rows, "_seq")
        # An update of a row that stays in its group is one event: the old row out, the new one in.
        pairs = np.zeros(len(rows), dtype=np.bool_)
        pairs[:-1] = retracted[:-1] & ~retracted[1:] & (sequence[:-1] == sequence[1:]) & (groups[:-1] == groups[1:])
        second = np.zeros(len(rows), dtype=np.bool_)
        second[1:] = pairs[:-1]
        undo = np.where(retracted, n, -1)
        add = np.where(retracted, np.where(pairs, n + 1, -1), n)
        kept = ~second
        return _Work(rows, keys, Events(groups[kept], undo[kept], add[kept]), n[kept])

    def _windowed_work(self, rows: pa.Table, at_rows: Ints) -> _Work:
        assert self._step.window is not None
        row, starts = assign(self._step.window, ints(rows, "_ts"), at_rows)
        by_key, _ = group(rows, self._keys)
        window, windows = codes(pa.array(starts))
        groups, size = codes(pa.array(by_key[row] * max(windows, 1) + window))
        first = np.empty(size, dtype=np.int64)
        first[groups[::-1]] = np.arange(len(groups) - 1, -1, -1, dtype=np.int64)
        keys = take(rows.select(self._keys), row[first]).append_column("_ws", pa.array(starts[first]))
        return _Work(rows, keys, Events(groups, np.full(len(row), -1, dtype=np.int64), row), row)

    # -------------------------------------------------------------- folding

    def _fold(self, work: _Work) -> _Folded:
        size = len(work.keys)
        found = self._store.read(work.keys)
        where = np.full(size, -1, dtype=np.int64)
        where[ints(found, "_index")] = np.arange(len(found), dtype=np.int64)
        known = where >= 0
        work = _without_undo_of_nothing(work, known) if self._step.retracts else work
        states = take(found.select(list(self._store.value)), where)
        old = None
        if self._step.emit_old and known.any():
            old = self._calls.results(states.filter(pa.array(known)))
        results, after = self._calls.run(work.events, work.rows, states, known.tolist())
        times = np.where(known, flat(states, "_ts").fill_null(NEVER).to_numpy(zero_copy_only=False), NEVER)
        event_times = running_max(work.events.group, ints(work.rows, "_ts")[work.row], times)
        touched = np.zeros(size, dtype=np.bool_)
        touched[work.events.group] = True
        columns = [*work.keys.columns, *after.values(), pa.array(times)]
        rows = pa.table(columns, names=[*work.keys.column_names, *after, "_ts"])
        self._store.write(rows if touched.all() else rows.filter(pa.array(touched)))
        return _Folded(work, known, old, results, event_times)

    # -------------------------------------------------------------- output

    def _changes(self, folded: _Folded, rows: pa.Table) -> pa.Table:
        work, groups = folded.work, folded.work.events.group
        n = len(groups)
        events = np.arange(n, dtype=np.int64)
        if not self._emit_every:
            touched = np.unique(groups)
            events = np.sort(last_of_group(groups, len(work.keys))[touched])
        if not self._step.emit_old:
            return self._output(folded, events, None)
        # Results are looked up among those of the events, followed by the stored ones of the known groups.
        stored = np.where(folded.known, np.cumsum(folded.known) - 1 + n, -1)
        before = previous_in_group(groups) if self._emit_every else np.full(n, -1, dtype=np.int64)
        old = np.where(before >= 0, before, stored[groups])[events]
        return self._output(folded, events, old)

    def _output(self, folded: _Folded, events: Ints, old: Ints | None) -> pa.Table:
        """A row at +1 per event, with `old` a row at -1 before it that has the result at that position."""
        work = folded.work
        lookup, weights = events, np.ones(len(events), dtype=np.int8)
        if old is not None:
            sides = np.stack([old >= 0, np.ones(len(events), dtype=np.bool_)], axis=1).reshape(-1)
            lookup = np.stack([old, events], axis=1).reshape(-1)[sides]
            weights = np.tile(np.array([-1, 1], dtype=np.int8), len(events))[sides]
            events = np.repeat(events, 2)[sides]
        everything = old is None and len(events) == len(work.row)
        keys = take(work.keys, work.events.group[events])
        sequence = ints(work.rows, "_seq")[work.row[events]]
        columns: dict[str, pa.Array | pa.ChunkedArray] = {
            "_seq": pa.array(sequence),
            "_sub": pa.array(number_within(sequence)),
            "_part": keys.column("_part"),
            "_ts": pa.array(folded.times[events]),
            "_weight": pa.array(weights),
            "_null": pa.array(np.zeros(len(events), dtype=np.bool_)),
        }
        if self._step.window is not None:
            columns["_ws"] = keys.column("_ws")
            columns["_we"] = pa.array(ints(keys, "_ws") + self._step.window.size_ms)
        columns |= {name: keys.column(name) for name in self._keys[1:]}
        for name, column in folded.results.items():
            if old is not None and folded.old is not None:
                column = pa.concat_arrays([column, folded.old[name]])
            columns[name] = column if everything else column.take(pa.array(lookup))
        return conform(pa.table(columns), self._output_schema)


@dataclass(frozen=True, slots=True)
class _Folded:
    """`known`: the groups that had a state, `old` their results, in order. Per event: the results, the group's time."""

    work: _Work
    known: Bools
    old: dict[str, pa.Array] | None
    results: dict[str, pa.Array]
    times: Ints


def _without_undo_of_nothing(work: _Work, known: Bools) -> _Work:
    """A row cannot be taken back from a group that does not exist: such an event only adds, or is none at all.

    It comes about where a table's row was not counted when it appeared, for its key was NULL or it was an error.
    """
    events, row = work.events, work.row
    while True:
        first = previous_in_group(events.group) < 0
        wrong = first & ~known[events.group] & (events.undo >= 0)
        if not wrong.any():
            return _Work(work.rows, work.keys, events, row)
        undo = np.where(wrong, -1, events.undo)
        kept = (undo >= 0) | (events.add >= 0)
        events = Events(events.group[kept], undo[kept], events.add[kept])
        row = row[kept]
