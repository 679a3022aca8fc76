"""Computes the results and states of an aggregation's calls for the sessions of a batch, given their course."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa

from ....sql.functions.aggregation.aggregate_fold import State
from ....sql.functions.aggregation.aggregate_kernels import GroupEvents
from ..columns import Ints, flat
from .calls import Calls
from .session_course import SessionCourse, by_level


@dataclass(frozen=True, slots=True)
class SessionValues:
    """Results of versions, and states of sessions, as columns. `version_at`, `session_at`: the position of each."""

    results: Mapping[str, pa.Array]
    states: Mapping[str, pa.Array]
    version_at: Ints
    session_at: Ints

    def results_of(self, versions: Ints) -> dict[str, pa.Array]:
        """The results of these versions. In: no version of a late row, which makes none."""
        return _taken(self.results, self.version_at[versions])

    def states_of(self, sessions: Ints) -> dict[str, pa.Array]:
        return _taken(self.states, self.session_at[sessions])


def values_of_sessions(
    calls: Calls, course: SessionCourse, rows: pa.Table, stored: pa.Table, *, last_only: bool
) -> SessionValues:
    """In: `stored`: the states of the sessions from before the batch. With `last_only`, only the results of these
    sessions and of each session's last version are valid; others are undefined."""
    parents = course.parents()
    wanted = {session for sessions in parents.values() for session in sessions}
    ended: dict[int, Sequence[State]] = {}  # the last states of the wanted sessions, one per call
    results, states = [calls.results(stored)], []
    version_at = np.arange(course.known + len(rows), dtype=np.int64)
    session_at, within = (np.zeros(len(course.level), dtype=np.int64) for _ in range(2))
    versions, counted = course.known, 0
    for level, (sessions, of_rows) in enumerate(by_level(course)):
        within[sessions] = np.arange(len(sessions))  # the position of a session in its level
        nothing = np.full(len(of_rows), -1, dtype=np.int64)
        events = GroupEvents(within[course.session[of_rows]], nothing, of_rows)
        if level:
            begun, known = _merged(calls, [[ended[each] for each in parents[session]] for session in sessions.tolist()])
        else:
            begun, known = _begun(calls, stored, len(sessions))
        result, after = calls.run_merging(events, rows, begun, known, last_only=last_only)
        if wanted:
            ending = [session for session in sessions.tolist() if session in wanted]
            ended |= zip(ending, calls.states(after, within[ending]), strict=True)
        results.append(result)
        states.append(after)
        version_at[course.known + of_rows] = versions + np.arange(len(of_rows))
        session_at[sessions] = counted + within[sessions]
        versions, counted = versions + len(of_rows), counted + len(sessions)
    return SessionValues(_joined(results), _joined(states), version_at, session_at)


def _begun(calls: Calls, stored: pa.Table, sessions: int) -> tuple[pa.Table, list[bool]]:
    """The states of existing sessions, and NULLs for sessions that start."""
    new = sessions - len(stored)
    columns = {
        name: pa.concat_arrays([flat(stored, name), pa.nulls(new, type_.arrow)])
        for name, type_ in calls.state_types.items()
    }
    return pa.table(columns), [True] * len(stored) + [False] * new


def _merged(calls: Calls, parents: Sequence[Sequence[Sequence[State]]]) -> tuple[pa.Table, list[bool]]:
    """The states that merged sessions begin with. In: per session, the states of its parents."""
    columns: dict[str, pa.Array] = {}
    for i, fold in enumerate(calls.folds):
        states = [reduce(fold.merge, [of_calls[i] for of_calls in sessions]) for sessions in parents]
        columns |= {f"s{i}_{j}": column for j, column in enumerate(fold.columns_of(states))}
    return pa.table(columns), [True] * len(parents)


def _taken(columns: Mapping[str, pa.Array], at: Ints) -> dict[str, pa.Array]:
    rows = pa.array(at)
    return {name: column.take(rows) for name, column in columns.items()}


def _joined(parts: Sequence[Mapping[str, pa.Array]]) -> dict[str, pa.Array]:
    return {name: pa.concat_arrays([part[name] for part in parts]) for name in parts[0]}
