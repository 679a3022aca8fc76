"""GROUP BY with session windows: a row joins the sessions of its key within the gap, and merges them.

Sessions depend on each other's times, but not on values. So a loop over the times alone finds what happens to each
session (`groups/session_course.py`). After that, the calls fold a session like any other group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from ...planner.schema import Schema
from ...planner.steps.aggregate import Aggregate
from ...sql.types import BIGINT, INTEGER, SqlType
from ..batch import ChangeBatch
from ..building import Emit, Operator
from ..state.connection import Guard
from ..state.store import StateStore
from .columns import (
    Ints,
    batch_schema,
    conform,
    flat,
    group,
    ints,
    key_names,
    key_types,
    last_of_group,
    number_within,
    take,
    with_columns,
    with_values_and_keys,
)
from .groups.calls import NUMBER, Calls
from .groups.session_course import OpenSessions, SessionCourse, course_of
from .groups.session_values import SessionValues, values_of_sessions
from .stream_time import NEVER, StreamTime, merged, moved_on, running

_NO_END = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows to emit. `row` determines the place in the batch, `version` the session's window and result."""

    row: Ints
    version: Ints
    weight: np.ndarray[Any, np.dtype[np.int8]]


class SessionAggregator(Operator):
    """In:    a stream's rows with the grouping key in k0….
    Out:   per row, the sessions that it merged at -1, and the new session at +1 (`last`: the net difference of the
           batch). FINAL: each session once, when it closes. The time of an output row is the end of its session.
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
        guard: Guard,
    ) -> None:
        assert step.window is not None
        self._step = step
        self._emit_every = emit == "every"
        self._gap = step.window.size_ms
        self._until_closed = step.window.size_ms + step.window.grace_ms  # from a session's end
        self._keys = ["_part", *key_names(step.schema)]
        self._input_schema = batch_schema(schema, extra, columns)
        self._own_time = not step.asks_stream_time or "_st" not in extra
        kept = ["_seq", "_ts", "_null", *self._keys, *([] if self._own_time else ["_st"])]
        self._calls = Calls(connection, step.calls, schema, self._input_schema, kept, properties, guard, merging=True)
        self.schema, self.extra = step.schema, ("_ws", "_we")
        self._output_schema = batch_schema(step.schema, self.extra)
        key: dict[str, SqlType] = {"_part": INTEGER}
        key |= key_types(step.schema)
        self._store = StateStore(connection, step.id, {**key, "_ws": BIGINT, "_we": BIGINT}, self._calls.state_types)
        self._time = StreamTime(connection, f"{step.id}.stream_time")
        self.stores = {step.id: self._store, f"{step.id}.stream_time": self._time.store}
        self._forgotten: dict[int, int] = {}

    def process(self, batch: ChangeBatch) -> ChangeBatch:
        rows = self._calls.with_arguments(conform(batch.rows, self._input_schema))
        rows = with_values_and_keys(rows, self._keys[1:])
        before = self._time.read()
        if self._own_time:
            at_rows, after = running(flat(rows, "_part"), ints(rows, "_ts"), before)
            after = moved_on(after, batch.elapsed_ms)
        else:
            at_rows, after = ints(rows, "_st"), merged(before, batch.stream_time_ms)
        changes = self._fold(rows, at_rows)
        self._time.write(before, after)
        out = self._closed(rows, at_rows, before, after) if self._step.emit == "FINAL" else changes
        if self._step.emit != "FINAL":
            self._forget(after)
        return replace(batch, rows=out)

    @property
    def waits_for_time(self) -> bool:
        """Whether there are open sessions whose results are emitted when they close."""
        return self._step.emit == "FINAL" and not self._store.is_empty()

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
        keys, times = take(rows.select(self._keys), first), ints(rows, "_ts")
        sessions, stored = self._open(keys, groups, times)
        course = course_of(
            len(keys), groups, times, at_rows, sessions, gap_ms=self._gap, until_closed_ms=self._until_closed
        )
        self.late_rows += course.late_rows
        if self._calls.last_numbers:
            rows = rows.append_column(NUMBER, pa.array(self._numbers(len(keys), groups, sessions, stored)))
        values = values_of_sessions(self._calls, course, rows, stored, last_only=not self._emit_every)
        self._save(keys, course, values)
        out = self._each(course) if self._emit_every else self._net(course, last_of_group(groups, len(first)))
        return self._output(
            ints(rows, "_seq")[out.row],
            take(keys, groups[out.row]),
            course.start[out.version],
            course.end[out.version],
            out.weight,
            values.results_of(out.version),
        )

    def _open(self, keys: pa.Table, groups: Ints, times: Ints) -> tuple[OpenSessions, pa.Table]:
        """The stored sessions that a row of the batch may join, and their states. If rows are numbered: all stored
        sessions of the keys."""
        earliest = np.full(len(keys), _NO_END, dtype=np.int64)
        np.minimum.at(earliest, groups, times)
        low = np.full(len(keys), -_NO_END) if self._calls.last_numbers else earliest - self._gap
        bounds = {"_low": pa.array(low), "_high": pa.array(np.full(len(keys), _NO_END))}
        index, slots = self._store.locate_between(with_columns(keys, bounds), self._keys, "_we")
        names = ["_ws", "_we", *self._calls.state_types]
        found = pa.table(self._store.values_at(slots, names), names=names)
        order = np.lexsort((ints(found, "_ws"), ints(found, "_we"), index))
        found = take(found, order)
        return OpenSessions(index[order], ints(found, "_ws"), ints(found, "_we")), found

    def _numbers(self, keys: int, groups: Ints, sessions: OpenSessions, stored: pa.Table) -> Ints:
        """A number for each row that is larger than those of the key's earlier rows in open sessions."""
        last = np.full(keys, -1, dtype=np.int64)
        np.maximum.at(last, sessions.group, self._calls.last_number(stored))
        return last[groups] + 1 + np.arange(len(groups), dtype=np.int64)

    def _save(self, keys: pa.Table, course: SessionCourse, values: SessionValues) -> None:
        """Deletes windows that are gone, and writes each session that got a row."""
        changed = np.flatnonzero(course.is_open & (course.version >= course.known))
        gone = np.flatnonzero(course.is_gone)
        sessions = np.concatenate([gone, changed])
        windows = np.concatenate([gone, course.version[changed]])  # the versions that have these windows
        columns = dict(zip(self._keys, take(keys, course.group[sessions]).columns, strict=True))
        columns |= {"_ws": pa.array(course.start[windows]), "_we": pa.array(course.end[windows])}
        columns |= values.states_of(sessions)  # in rows to delete, the values are ignored
        columns["_deleted"] = pa.array(np.arange(len(sessions)) < len(gone))
        self._store.change(pa.table(columns))

    # -------------------------------------------------------------- output

    def _each(self, course: SessionCourse) -> _Rows:
        """The changes of each row: the sessions that it joined at -1, and the resulting session at +1."""
        made = np.flatnonzero(course.session >= 0)
        joined_row, joined_version = course.joined_row, course.joined_version
        if not self._step.emit_old:
            # If start and end of a session are equal, a row at this time changes its result but not its window.
            grown = course.known + joined_row
            longer = course.start[grown] < course.end[grown]
            joined_row, joined_version = joined_row[longer], joined_version[longer]
        row = np.concatenate([joined_row, made])
        order = np.argsort(row, kind="stable")
        return _Rows(
            row[order],
            np.concatenate([joined_version, course.known + made])[order],
            np.repeat(np.array([-1, 1], np.int8), [len(joined_row), len(made)])[order],
        )

    def _net(self, course: SessionCourse, last_row: Ints) -> _Rows:
        """The net changes of the batch, per key in the order of the keys' last rows: first sessions that are gone, then
        sessions that are new or have a new result."""
        old = np.flatnonzero(course.is_touched if self._step.emit_old else course.is_gone)
        new = np.flatnonzero(course.is_open & (course.version >= course.known))
        version = np.concatenate([old, course.version[new]])
        weight = np.repeat(np.array([-1, 1], np.int8), [len(old), len(new)])
        row = last_row[course.group[np.concatenate([old, new])]]
        order = np.lexsort((course.start[version], course.end[version], weight, row))
        return _Rows(row[order], version[order], weight[order])

    def _output(
        self,
        sequence: Ints,
        keys: pa.Table,
        starts: Ints,
        ends: Ints,
        weights: np.ndarray[Any, np.dtype[np.int8]],
        results: Mapping[str, pa.Array],
    ) -> pa.Table:
        columns: dict[str, Any] = {
            "_seq": pa.array(sequence),
            "_sub": pa.array(number_within(sequence)),
            "_part": keys.column("_part"),
            "_ts": pa.array(ends),
            "_weight": pa.array(weights),
            "_null": pa.array(np.zeros(len(sequence), dtype=np.bool_)),
            "_ws": pa.array(starts),
            "_we": pa.array(ends),
            **{name: keys.column(name) for name in self._keys[1:]},
            **results,
        }
        return conform(pa.table(columns), self._output_schema)

    def _closed(self, rows: pa.Table, at_rows: Ints, before: Mapping[int, int], after: Mapping[int, int]) -> pa.Table:
        """The sessions that close between the two stream times, in the order in which they close."""
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
        weights = np.ones(len(closed), np.int8)
        results = self._calls.results(closed)
        return self._output(trigger[order], closed, ints(closed, "_ws"), ints(closed, "_we"), weights, results)
