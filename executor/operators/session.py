"""GROUP BY with session windows: a row joins the sessions of its key that lie within the gap, and makes them one.

Row by row in Python, as sessions depend on each other; reading and writing the state is vectorised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from ...planner.schema import Schema
from ...planner.steps.aggregate import Aggregate
from ...sql.functions.aggregation.aggregate_fold import State
from ...sql.functions.aggregation.aggregate_values import column_of, values_of
from ...sql.types import BIGINT, INTEGER, SqlType
from ..batch import ChangeBatch
from ..building import Emit, Operator
from ..state.store import StateStore
from .columns import Ints, batch_schema, conform, flat, group, ints, is_null, key_names, number_within, take
from .groups.calls import Calls
from .stream_time import NEVER, StreamTime, merged, moved_on, running


@dataclass(slots=True)
class _Session:
    """Start and end are the first and last rowtime in it; `states` has one state per call."""

    start: int
    end: int
    states: list[State]


@dataclass(slots=True)
class _Output:
    """Rows to emit, column by column. `group` tells the key, `session` the window and the result."""

    row: list[int] = field(default_factory=list)
    group: list[int] = field(default_factory=list)
    weight: list[int] = field(default_factory=list)
    session: list[_Session] = field(default_factory=list)

    def add(self, row: int, group: int, weight: int, session: _Session) -> None:
        self.row.append(row)
        self.group.append(group)
        self.weight.append(weight)
        self.session.append(session)


class SessionAggregator(Operator):
    """In:    a stream's rows with the grouping key in k0….
    Out:   per row the sessions that it merged at -1, and the one they became at +1 (`last`: the difference that the
           batch makes). FINAL: each session once, when it closes. A row's time is the end of its session.
    State: a row per open session.

    A session is closed when stream time has passed its end by more than gap and grace.
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
        assert step.window is not None
        self._step = step
        self._emit_every = emit == "every"
        self._gap = step.window.size_ms
        self._until_closed = step.window.size_ms + step.window.grace_ms  # from a session's end
        self._keys = ["_part", *key_names(step.schema)]
        self._input_schema = batch_schema(schema, extra, columns)
        self._has_st = "_st" in extra
        kept = ["_seq", "_ts", "_null", *self._keys, *(["_st"] if self._has_st else [])]
        self._calls = Calls(connection, step.calls, self._input_schema, kept, properties, merging=True)
        self.schema, self.extra = step.schema, ("_ws", "_we")
        self._output_schema = batch_schema(step.schema, self.extra)
        key: dict[str, SqlType] = {"_part": INTEGER}
        key |= dict(zip(self._keys[1:], (column.type for column in step.schema.key), strict=True))
        self._store = StateStore(connection, step.id, {**key, "_ws": BIGINT, "_we": BIGINT}, self._calls.state_types)
        self._time = StreamTime(connection, f"{step.id}.stream_time")
        self.stores = {step.id: self._store, f"{step.id}.stream_time": self._time.store}
        self._forgotten: dict[int, int] = {}
        self.late_rows = 0

    def process(self, batch: ChangeBatch) -> ChangeBatch:
        rows = self._relevant(self._calls.with_arguments(conform(batch.rows, self._input_schema)))
        before = self._time.read()
        if self._has_st:
            at_rows, after = ints(rows, "_st"), merged(before, batch.stream_time_ms)
        else:
            at_rows, after = running(flat(rows, "_part"), ints(rows, "_ts"), before)
            after = moved_on(after, batch.elapsed_ms)
        changes = self._fold(rows, at_rows)
        self._time.write(before, after)
        out = self._closed(rows, at_rows, before, after) if self._step.emit == "FINAL" else changes
        if self._step.emit != "FINAL":
            self._forget(after)
        return replace(batch, rows=out)

    @property
    def waits_for_time(self) -> bool:
        """Whether there are sessions whose results are given once they close."""
        return self._step.emit == "FINAL" and not self._store.is_empty()

    def _relevant(self, rows: pa.Table) -> pa.Table:
        """Rows with a value and all of a key."""
        drop = flat(rows, "_null").to_numpy(zero_copy_only=False)
        for missing in is_null(rows, self._keys[1:]):
            drop = drop | missing
        return rows.filter(pa.array(~drop)) if drop.any() else rows

    def _forget(self, stream_times: Mapping[int, int]) -> None:
        for part, time in stream_times.items():
            if time - self._forgotten.get(part, NEVER) >= self._until_closed // 4:
                self._forgotten[part] = time
                self._store.expire(part, "_we", time - self._until_closed)

    # -------------------------------------------------------------- folding

    def _fold(self, rows: pa.Table, at_rows: Ints) -> pa.Table:
        if not len(rows):
            return self._output_schema.empty_table()
        groups, first = group(rows, self._keys)
        keys = take(rows.select(self._keys), first)
        sessions = self._load(keys)
        originals = [{(s.start, s.end): s for s in of_key} for of_key in sessions]
        out = self._run(rows, at_rows, groups, sessions)
        last_row = np.zeros(len(first), dtype=np.int64)
        last_row[groups] = np.arange(len(rows), dtype=np.int64)
        net = self._difference(originals, sessions, last_row)
        self._save(keys, net)
        return self._table(out if self._emit_every else net, rows, keys)

    def _run(self, rows: pa.Table, at_rows: Ints, groups: Ints, sessions: list[list[_Session]]) -> _Output:
        folds = self._calls.folds
        arguments = [
            list(zip(*map(values_of, self._calls.arguments(rows, i)), strict=True)) if fold.parameter_types else None
            for i, fold in enumerate(folds)
        ]
        passes = [self._calls.passes(rows, i) for i in range(len(folds))]
        out, every = _Output(), self._emit_every  # without a list of them all, sessions in between are soon forgotten
        gap, until_closed, emit_old = self._gap, self._until_closed, self._step.emit_old
        times, now = ints(rows, "_ts").tolist(), at_rows.tolist()
        for row, (time, key) in enumerate(zip(times, groups.tolist(), strict=True)):
            start = end = time
            # A closed session takes no more rows, although its state may not have been dropped yet.
            latest, earliest = time + gap, max(time - gap, now[row] - until_closed)
            joined: list[_Session] = []
            others: list[_Session] = []
            for session in sessions[key]:
                if session.start <= latest and session.end >= earliest:
                    joined.append(session)
                    start, end = min(start, session.start), max(end, session.end)
                else:
                    others.append(session)
            if end + until_closed < now[row]:
                self.late_rows += 1
                continue
            states: list[State] = []
            for i, (fold, values) in enumerate(zip(folds, arguments, strict=True)):
                state = joined[0].states[i] if joined else fold.initial
                for session in joined[1:]:
                    state = fold.merge(state, session.states[i])
                counts = passes[i]
                if counts is not None and not counts[row]:
                    states.append(state)
                    continue
                states.append(fold.add(state) if values is None else fold.add(state, *values[row]))
            # A row at the very time of a session that is a single moment changes its result, not its window.
            if every and (start < end or emit_old):
                for session in joined:
                    out.add(row, key, -1, session)
            grown = _Session(start, end, states)
            position = len(others)
            while position and (others[position - 1].end, others[position - 1].start) > (end, start):
                position -= 1
            others.insert(position, grown)
            sessions[key] = others
            if every:
                out.add(row, key, 1, grown)
        return out

    def _difference(
        self,
        before: Sequence[Mapping[tuple[int, int], _Session]],
        after: Sequence[Sequence[_Session]],
        last_row: Ints,
    ) -> _Output:
        """What the batch changed in all, per key: sessions that went, then those that are new or have a new result."""
        out = _Output()
        for key in np.argsort(last_row, kind="stable").tolist():
            now = {(s.start, s.end): s for s in after[key]}
            row = int(last_row[key])
            for window, session in before[key].items():
                if window not in now or (self._step.emit_old and now[window] is not session):
                    out.add(row, key, -1, session)
            for window, session in now.items():
                if before[key].get(window) is not session:
                    out.add(row, key, 1, session)
        return out

    # -------------------------------------------------------------- state

    def _load(self, keys: pa.Table) -> list[list[_Session]]:
        """The open sessions of each key, ordered by end and start."""
        found = self._store.read(keys, by=self._keys)
        sessions: list[list[_Session]] = [[] for _ in range(len(keys))]
        windows = zip(*(ints(found, name).tolist() for name in ("_index", "_ws", "_we")), strict=True)
        per_row = self._states(found)
        for (index, start, end), states in zip(windows, per_row, strict=True):
            sessions[index].append(_Session(start, end, states))
        for of_key in sessions:
            of_key.sort(key=lambda s: (s.end, s.start))
        return sessions

    def _states(self, rows: pa.Table) -> list[list[State]]:
        """Per row the state of each call."""
        known = [True] * len(rows)
        per_call = [
            fold.states_of([flat(rows, f"s{i}_{j}") for j in range(len(fold.state_types))], known)
            for i, fold in enumerate(self._calls.folds)
        ]
        return [list(states) for states in zip(*per_call, strict=True)] if per_call else [[] for _ in known]

    def _save(self, keys: pa.Table, net: _Output) -> None:
        """Of a window that went and came again only the coming counts."""
        latest: dict[tuple[int, int, int], int] = {}
        for i, (key, session) in enumerate(zip(net.group, net.session, strict=True)):
            latest[key, session.start, session.end] = i
        chosen = sorted(latest.values())
        sessions = [net.session[i] for i in chosen]
        columns: dict[str, Any] = dict(
            zip(self._keys, take(keys, np.array([net.group[i] for i in chosen], np.int64)).columns, strict=True)
        )
        columns["_ws"] = pa.array([s.start for s in sessions], pa.int64())
        columns["_we"] = pa.array([s.end for s in sessions], pa.int64())
        for i, fold in enumerate(self._calls.folds):
            for j, column in enumerate(fold.columns_of([s.states[i] for s in sessions])):
                columns[f"s{i}_{j}"] = column
        columns["_deleted"] = pa.array([net.weight[i] < 0 for i in chosen], pa.bool_())
        self._store.change(pa.table(columns))

    # -------------------------------------------------------------- output

    def _table(self, out: _Output, rows: pa.Table, keys: pa.Table) -> pa.Table:
        sequence = ints(rows, "_seq")[np.array(out.row, dtype=np.int64)]
        of_rows = take(keys, np.array(out.group, dtype=np.int64))
        return self._rows(sequence, of_rows, out.session, out.weight)

    def _rows(self, sequence: Ints, keys: pa.Table, sessions: Sequence[_Session], weights: Sequence[int]) -> pa.Table:
        ends = pa.array([s.end for s in sessions], pa.int64())
        columns: dict[str, Any] = {
            "_seq": pa.array(sequence, pa.int64()),
            "_sub": pa.array(number_within(sequence)),
            "_part": keys.column("_part"),
            "_ts": ends,
            "_weight": pa.array(weights, pa.int8()),
            "_null": pa.array(np.zeros(len(sessions), dtype=np.bool_)),
            "_ws": pa.array([s.start for s in sessions], pa.int64()),
            "_we": ends,
            **{name: keys.column(name) for name in self._keys[1:]},
        }
        for i, fold in enumerate(self._calls.folds):
            columns[f"v{i}"] = column_of([fold.result(s.states[i]) for s in sessions], fold.return_type)
        return conform(pa.table(columns), self._output_schema)

    def _closed(self, rows: pa.Table, at_rows: Ints, before: Mapping[int, int], after: Mapping[int, int]) -> pa.Table:
        """The sessions that close between the two stream times, in the order in which they do."""
        sequence, parts = ints(rows, "_seq"), ints(rows, "_part")
        last = int(sequence.max(initial=-1)) + 1
        found: list[pa.Table] = []
        triggers: list[Ints] = []
        for part, time in sorted(after.items()):
            previous = before.get(part, NEVER)
            if time <= previous:
                continue
            low, high = previous - self._until_closed - 1, time - self._until_closed - 1
            closed = self._store.between(part, "_we", low, high)
            self._store.expire(part, "_we", high + 1)
            own = parts == part
            at = np.searchsorted(at_rows[own], ints(closed, "_we") + self._until_closed, side="right")
            found.append(closed)
            triggers.append(np.append(sequence[own], last)[at])
        if not found:
            return self._output_schema.empty_table()
        closed, trigger = pa.concat_tables(found), np.concatenate(triggers)
        order = np.lexsort((ints(closed, "_ws"), ints(closed, "_we"), trigger))
        closed = take(closed, order)
        windows = zip(ints(closed, "_ws").tolist(), ints(closed, "_we").tolist(), self._states(closed), strict=True)
        sessions = [_Session(start, end, states) for start, end, states in windows]
        return self._rows(trigger[order], closed, sessions, [1] * len(sessions))
