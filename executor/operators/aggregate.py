"""GROUP BY over streams and tables: without windows, or with windows that a row's time determines.

SQL evaluates the arguments, a store keeps the groups' states (`state/store.py`), and loops fold the rows in order
(`sql/functions/aggregation/aggregate_kernels.py` explains why not window functions). Session windows are in
`session.py`; `closing.py` closes windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import duckdb
import numpy as np
import pyarrow as pa

from ...planner.schema import Schema
from ...planner.steps.aggregate import Aggregate
from ...sql.functions.aggregation.aggregate_kernels import GroupEvents, running_max
from ...sql.types import BIGINT, INTEGER, SqlType
from ..batch import ChangeBatch
from ..building import Emit, Operator
from ..state.connection import Guard
from ..state.key_index import Numbered
from ..state.store import StateStore
from ..windows.placing import placing_of
from .closing import Closing
from .columns import (
    Bools,
    Ints,
    batch_schema,
    conform,
    equal,
    flat,
    ints,
    key_names,
    key_types,
    last_of_group,
    number_within,
    previous_in_group,
    take,
    with_values_and_keys,
)
from .groups.calls import Calls
from .stream_time import NEVER, StreamTime, merged, moved_on, running


@dataclass(frozen=True, slots=True)
class _Work:
    """The events of a batch. `known`: the groups that already had a state. Events refer to `rows`. Per event: `row` is
    the row that determines its time and order, and `keys` has its key columns. `every_row`: there is one event per row,
    in row order."""

    rows: pa.Table
    groups: Numbered
    known: Bools
    events: GroupEvents
    row: Ints
    keys: pa.Table
    every_row: bool


class Aggregator(Operator):
    """In:    rows with the grouping key in k0…; a stream's +1 rows, or a table's changes.
    Out:   the group's new result at +1, for each row (`every`) or for the group's last row in the batch (`last`); if
           the step emits old results, the old one at -1 before it. FINAL: each window once, when it closes.
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
        guard: Guard,
    ) -> None:
        self._step = step
        self._emit_every = emit == "every"
        self._only_changes = self._emit_every and not step.repeats  # with `last` it would depend on batch boundaries
        self._keys = ["_part", *key_names(step.schema)]
        self._input_schema = batch_schema(schema, extra, columns)
        self._own_time = not step.asks_stream_time or "_st" not in extra
        kept = ["_seq", "_ts", "_weight", "_null", *self._keys, *([] if self._own_time else ["_st"])]
        self._calls = Calls(
            connection, step.calls, schema, self._input_schema, kept, properties, guard, retracts=step.retracts
        )
        self._placing = None if step.window is None else placing_of(step.window)
        self.schema, self.extra = step.schema, ("_ws", "_we") if self._placing is not None else ()
        self._output_schema = batch_schema(step.schema, self.extra)
        key: dict[str, SqlType] = {"_part": INTEGER}
        key |= key_types(step.schema)
        key |= {} if self._placing is None else {self._placing.mark: BIGINT}
        self._store = StateStore(connection, step.id, key, {**self._calls.state_types, "_ts": BIGINT})
        members = self._calls.count_members(connection, step.id, key, retracts=step.retracts)
        self.stores = {step.id: self._store, **members}
        self._closing: Closing | None = None
        self._time: StreamTime | None = None
        if self._placing is not None:
            self._closing = Closing(step, self._placing, self._store, self._calls, list(members.values()))
            self._time = StreamTime(connection, f"{step.id}.stream_time")
            self.stores[f"{step.id}.stream_time"] = self._time.store

    def process(self, batch: ChangeBatch) -> ChangeBatch:
        rows = self._calls.with_arguments(conform(batch.rows, self._input_schema))
        rows = with_values_and_keys(rows, self._keys[1:])
        if self._closing is None or self._time is None:
            return ChangeBatch(self._changes(self._fold(self._plain_work(rows))), batch.stream_time_ms)
        before = self._time.read()
        at_rows, after = self._stream_times(rows, batch, before)
        folded = self._fold(self._windowed_work(rows, at_rows))
        self._time.write(before, after)
        if self._step.emit == "FINAL":
            out = self._closing.emit(rows, at_rows, before, after)
            return replace(batch, rows=conform(out, self._output_schema))
        self._closing.forget(after)
        return replace(batch, rows=self._changes(folded))

    @property
    def waits_for_time(self) -> bool:
        """Whether there are open windows whose results are emitted when they close."""
        return self._step.emit == "FINAL" and not self._store.is_empty()

    def of_nothing(self) -> ChangeBatch | None:
        """Without GROUP BY and without rows: the result of nothing, under a key of NULLs, for example a COUNT of 0."""
        if not self._step.of_all or not self._store.is_empty():
            return None
        blank = [pa.nulls(1, field.type) for field in self._input_schema]  # no event refers to this row
        rows = self._calls.with_arguments(pa.table(blank, schema=self._input_schema))
        group = np.zeros(1, dtype=np.int64)
        events = GroupEvents(group, _nothing(1), _nothing(1))
        states = pa.table({name: pa.nulls(1, self._store.change_schema.field(name).type) for name in self._store.value})
        keys = conform(pa.table({"_part": pa.array([0], pa.int32())}), self._store.key_schema)
        results, _ = self._calls.run(events, rows, states, [False], keys)
        meta = {"_seq": group, "_ts": group, "_weight": np.ones(1, np.int8), "_null": np.zeros(1, np.bool_)}
        columns = {**{name: pa.array(values) for name, values in meta.items()}, **results}
        columns |= {"_sub": pa.array([0], pa.int32()), **{name: keys.column(name) for name in keys.column_names}}
        return ChangeBatch(conform(pa.table(columns), self._output_schema))

    def take_out(self, keys: pa.Table) -> pa.Table:
        """Removes these groups; for groups without windows. Out: for each group that exists, `_index` (the position of
        its key) and its last results."""
        taken = self._store.read(keys)
        self._store.delete(taken.select(list(self._store.key)))
        self._calls.forget(keys)
        return pa.table({"_index": taken.column("_index"), **self._calls.results(taken)})

    def _stream_times(
        self, rows: pa.Table, batch: ChangeBatch, before: Mapping[int, int]
    ) -> tuple[Ints, dict[int, int]]:
        """The stream time at each row, and the stream time of each task after the batch."""
        if self._own_time:
            at_rows, after = running(flat(rows, "_part"), ints(rows, "_ts"), before)
            return at_rows, moved_on(after, batch.elapsed_ms)
        return ints(rows, "_st"), merged(before, batch.stream_time_ms)

    # -------------------------------------------------------------- what happens to which group

    def _plain_work(self, rows: pa.Table) -> _Work:
        groups, known = self._store.locate([flat(rows, name) for name in self._keys])
        of_row = groups.group
        n = np.arange(len(rows), dtype=np.int64)
        if not self._step.retracts:
            return _Work(
                rows, groups, known, GroupEvents(of_row, _nothing(len(rows)), n), n, rows.select(self._keys), True
            )
        retracted = ints(rows, "_weight") < 0
        sequence = ints(rows, "_seq")
        # An update that leaves a row in its group is one event: it removes the old row and adds the new one.
        pairs = np.zeros(len(rows), dtype=np.bool_)
        pairs[:-1] = retracted[:-1] & ~retracted[1:] & (sequence[:-1] == sequence[1:]) & (of_row[:-1] == of_row[1:])
        second = np.zeros(len(rows), dtype=np.bool_)
        second[1:] = pairs[:-1]
        undo = np.where(retracted, n, -1)
        add = np.where(retracted, np.where(pairs, n + 1, -1), n)
        kept = ~second
        events, row = _without_undo_of_nothing(GroupEvents(of_row[kept], undo[kept], add[kept]), n[kept], known)
        return _Work(rows, groups, known, events, row, take(rows.select(self._keys), row), False)

    def _windowed_work(self, rows: pa.Table, at_rows: Ints) -> _Work:
        assert self._placing is not None
        row, marks = self._placing.assign(ints(rows, "_ts"), at_rows)
        every_row = len(row) == len(rows) and self._placing.one_each
        if not every_row:
            self.late_rows += len(rows) - _distinct(row)
        keys = rows.select(self._keys)
        keys = keys if every_row else take(keys, row)
        keys = keys.append_column(self._placing.mark, pa.array(marks))
        if self._placing.one_each:
            groups, known = self._store.locate([flat(keys, name) for name in keys.column_names])
        else:
            groups, known = self._store.locate_marked([flat(rows, name) for name in self._keys], row, marks)
        return _Work(rows, groups, known, GroupEvents(groups.group, _nothing(len(row)), row), row, keys, every_row)

    # -------------------------------------------------------------- folding

    def _fold(self, work: _Work) -> _Folded:
        groups, known = work.groups, work.known
        states = self._store.values(groups.slot)
        old = None
        if self._step.emit_old and known.any():
            old = self._calls.results(states.filter(pa.array(known)))
        results, after = self._calls.run(
            work.events, work.rows, states, known.tolist(), work.keys, last_only=not self._emit_every
        )
        times = np.where(known, flat(states, "_ts").fill_null(NEVER).to_numpy(zero_copy_only=False), NEVER)
        row_times = ints(work.rows, "_ts")
        event_times = running_max(work.events.group, row_times if work.every_row else row_times[work.row], times)
        last = last_of_group(work.events.group, len(groups))
        touched = np.full(len(groups), not self._step.retracts)
        touched[work.events.group] = True  # the other groups have no events left, so they have no last event
        if len(work.row):
            keys = take(work.keys, last)
            columns = [*keys.columns, *after.values(), pa.array(times)]
            after_rows = pa.table(columns, names=[*keys.column_names, *after, "_ts"])
            if touched.all():
                self._store.write_at(groups.slot, after_rows)
            else:
                self._store.write_at(groups.slot[touched], after_rows.filter(pa.array(touched)))
        return _Folded(work, old, results, event_times, last[touched])

    # -------------------------------------------------------------- output

    def _changes(self, folded: _Folded) -> pa.Table:
        """The output of the folded events: each -1 retracts exactly the group's last emitted result.

        | emit  | emitted events         | the -1 before an event's +1 retracts                                       |
        | ----- | ---------------------- | -------------------------------------------------------------------------- |
        | every | all                    | the group's previous event in the batch; for the first, the stored result  |
        | last  | the group's last one   | the stored result: events in between were not emitted                      |

        A new group has nothing to retract. Without `repeats`, events whose result equals the one that they retract are
        left out. With `every`, batch boundaries make no difference, because the stored result is that of the last event
        of the previous batch. A -1 immediately precedes its +1 and has the same `_seq`: the next operator treats such a
        pair as one update of one row; separated, they would be a deletion and an insertion. Events keep the order of
        the rows that caused them, also with `last` (`np.sort`): in group order, a downstream join would see changes of
        two keys in an order that never existed.
        """
        work, groups = folded.work, folded.work.events.group
        n = len(groups)
        events = np.arange(n, dtype=np.int64) if self._emit_every else np.sort(folded.last)
        if not self._step.emit_old:
            return self._output(folded, events, None)
        # Positions of results: first those of the events, then the stored ones of the known groups.
        stored = np.where(work.known, np.cumsum(work.known) - 1 + n, -1)
        before = previous_in_group(groups) if self._emit_every else np.full(n, -1, dtype=np.int64)
        old = np.where(before >= 0, before, stored[groups])[events]
        if self._only_changes:
            differ = np.flatnonzero(self._differ(folded, events, old))
            events, old = events[differ], old[differ]
        return self._output(folded, events, old)

    @staticmethod
    def _differ(folded: _Folded, events: Ints, old: Ints) -> Bools:
        """Whether the results of these events differ from the old results at these positions. This is checked before
        rows are built (`columns.without_repeats` takes rows): in Nexmark's q4, most events are left out."""
        differ = old < 0
        for name, column in folded.results.items():
            whole = column if folded.old is None else pa.concat_arrays([column, folded.old[name]])
            differ |= ~equal(column.take(pa.array(events)), whole.take(pa.array(np.maximum(old, 0))))
        return differ

    def _output(self, folded: _Folded, events: Ints, old: Ints | None) -> pa.Table:
        """One row at +1 per event. In: `old`: the position of the result that a row at -1 before it retracts; if it is
        below 0, there is no such row."""
        work = folded.work
        lookup, weights = events, np.ones(len(events), dtype=np.int8)
        if old is not None:
            sides = np.stack([old >= 0, np.ones(len(events), dtype=np.bool_)], axis=1).reshape(-1)
            lookup = np.stack([old, events], axis=1).reshape(-1)[sides]
            weights = np.tile(np.array([-1, 1], dtype=np.int8), len(events))[sides]
            events = np.repeat(events, 2)[sides]
        everything = old is None and len(events) == len(work.row)
        keys = work.keys if everything else take(work.keys, events)
        sequence = ints(work.rows, "_seq")
        if not (everything and work.every_row):
            sequence = sequence[work.row[events]]
        columns: dict[str, pa.Array | pa.ChunkedArray] = {
            "_seq": pa.array(sequence),
            "_sub": pa.array(number_within(sequence)),
            "_part": keys.column("_part"),
            "_ts": pa.array(folded.times if everything else folded.times[events]),
            "_weight": pa.array(weights),
            "_null": _all_false(len(events)),
        }
        if self._placing is not None:
            marks = ints(keys, self._placing.mark)
            columns["_ws"], columns["_we"] = pa.array(self._placing.starts(marks)), pa.array(self._placing.ends(marks))
        columns |= {name: keys.column(name) for name in self._keys[1:]}
        for name, column in folded.results.items():
            if old is not None and folded.old is not None:
                column = pa.concat_arrays([column, folded.old[name]])
            columns[name] = column if everything else column.take(pa.array(lookup))
        return conform(pa.table(columns), self._output_schema)


@dataclass(frozen=True, slots=True)
class _Folded:
    """`old`: the previous results of the known groups, in order. `results`, `times`: per event, the results and the
    group's time. `last`: the last event of each touched group."""

    work: _Work
    old: dict[str, pa.Array] | None
    results: dict[str, pa.Array]
    times: Ints
    last: Ints


def _nothing(rows: int) -> Ints:
    return np.full(rows, -1, dtype=np.int64)


def _distinct(ascending: Ints) -> int:
    return min(1, len(ascending)) + int(np.count_nonzero(ascending[1:] != ascending[:-1]))


def _all_false(rows: int) -> pa.Array:
    return pa.Array.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(bytes((rows + 7) // 8))])


def _without_undo_of_nothing(events: GroupEvents, row: Ints, known: Bools) -> tuple[GroupEvents, Ints]:
    """Removes retractions from groups that do not exist: such an event only adds, or is dropped.

    They occur when a table's row was not counted when it appeared, because its key was NULL or it was an error.
    """
    while True:
        first = previous_in_group(events.group) < 0
        wrong = first & ~known[events.group] & (events.undo >= 0)
        if not wrong.any():
            return events, row
        undo = np.where(wrong, -1, events.undo)
        kept = (undo >= 0) | (events.add >= 0)
        events = GroupEvents(events.group[kept], undo[kept], events.add[kept])
        row = row[kept]
