"""The calls of an aggregation, and the columns that keep their states."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa

from ....planner.schema import Schema
from ....planner.steps.aggregate import AggregateCall
from ....sql.functions.aggregation.aggregate_distinct import distinct_fold
from ....sql.functions.aggregation.aggregate_fold import State
from ....sql.functions.aggregation.aggregate_kernels import GroupEvents
from ....sql.functions.aggregation.aggregates import AGGREGATES
from ....sql.types import SqlType
from ...state.connection import Guard
from ...state.store import StateStore
from ..columns import Bools, Ints, flat
from .arguments import Arguments
from .extremes import Extremes
from .members import Members, Turned

NUMBER: Final = "_number"
"""A column of numbers that increase with the arrival of a key's rows, across batches."""


class Calls:
    """The calls of one aggregation. Column `s{i}_{j}` is column j of the state of call i; `v{i}` is its result."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        calls: Sequence[AggregateCall],
        schema: Schema,
        input_schema: pa.Schema,
        kept: Sequence[str],
        properties: Mapping[str, str],
        guard: Guard,
        *,
        merging: bool = False,
        retracts: bool = False,
    ) -> None:
        """In: `merging`: states can be merged. They then contain their distinct values and, if the order of arrival
        matters, the numbers of their rows. `retracts`: rows may be retracted."""
        self.folds = [
            AGGREGATES[call.function].fold(
                [a.type for a in call.arguments], call.constants, properties, retracts=retracts and not call.ordered
            )
            for call in calls
        ]
        if merging:
            self.folds = [
                distinct_fold(fold) if call.distinct else fold for call, fold in zip(calls, self.folds, strict=True)
            ]
        self.last_numbers: dict[int, Callable[[State], int]] = {}  # by call
        for i, fold in enumerate(self.folds):
            if merging and fold.numbered is not None:
                self.folds[i], self.last_numbers[i] = fold.numbered.fold, fold.numbered.last
        self.state_types: dict[str, SqlType] = {
            f"s{i}_{j}": type_ for i, fold in enumerate(self.folds) for j, type_ in enumerate(fold.state_types)
        }
        self.result_names = [f"v{i}" for i in range(len(calls))]
        self._calls = calls
        self._members: list[Members] = []
        self._extremes: dict[int, Extremes] = {}
        types = [fold.parameter_types for fold in self.folds]  # after the arguments there may be a row's number
        self._arguments = Arguments(connection, calls, types, schema, input_schema, kept, guard)

    def with_arguments(self, rows: pa.Table) -> pa.Table:
        """The kept columns, and the columns that the calls read."""
        return self._arguments.beside(rows)

    def arguments(self, rows: pa.Table, call: int) -> list[pa.Array]:
        """The arguments of the call. In: the rows, with the column NUMBER if a call needs it."""
        given = self._arguments.columns(rows, call)
        return [*given, flat(rows, NUMBER)] if call in self.last_numbers else given

    def last_number(self, states: pa.Table) -> Ints:
        """The largest row number in each row of state columns, or -1."""
        last = np.full(len(states), -1, dtype=np.int64)
        for i, of_state in self.last_numbers.items():
            found = self.folds[i].states_of(self._state(states, i), [True] * len(states))
            last = np.maximum(last, np.array([of_state(state) for state in found], dtype=np.int64))
        return last

    def count_members(
        self, connection: duckdb.DuckDBPyConnection, name: str, key: Mapping[str, SqlType], *, retracts: bool
    ) -> dict[str, StateStore]:
        """Makes the stores that DISTINCT and ordered calls need, by name. Calls with the same argument share a store.
        In: `key`: of the groups."""
        by_argument: dict[tuple[str, SqlType], list[int]] = {}
        for i, call in enumerate(self._calls):
            if call.distinct or call.ordered:
                by_argument.setdefault((call.arguments[0].sql, self.folds[i].parameter_types[0]), []).append(i)
        for number, ((_, type_), calls) in enumerate(by_argument.items()):
            members = Members(connection, f"{name}.members{number}", key, type_, calls, retracts=retracts)
            self._members.append(members)
            for i in calls:
                if self._calls[i].ordered:
                    self._extremes[i] = Extremes(self.folds[i], self._calls[i].function, members, i)
        return {members.store.name: members.store for members in self._members}

    def run(
        self,
        events: GroupEvents,
        rows: pa.Table,
        states: pa.Table,
        known: Sequence[bool],
        keys: pa.Table,
        *,
        last_only: bool = False,
    ) -> tuple[dict[str, pa.Array], dict[str, pa.Array]]:
        """Folds the events. In: `keys`: the key of each event. Out: the results per event, and the new states per
        group. With `last_only`, only the results of each group's last event are valid."""
        results: dict[str, pa.Array] = {}
        after: dict[str, pa.Array] = {}
        of_calls, turned = self._events(events, rows, keys)
        for i, fold in enumerate(self.folds):
            state, arguments = self._state(states, i), self.arguments(rows, i)
            if i in self._extremes:
                results[f"v{i}"], columns = self._extremes[i].run(of_calls[i], turned[i], arguments, state, known, keys)
            else:
                results[f"v{i}"], columns = fold.run(of_calls[i], arguments, state, known, last_only=last_only)
            after |= {f"s{i}_{j}": column for j, column in enumerate(columns)}
        return results, after

    def run_merging(
        self, events: GroupEvents, rows: pa.Table, states: pa.Table, known: Sequence[bool], *, last_only: bool
    ) -> tuple[dict[str, pa.Array], dict[str, pa.Array]]:
        """Like `run`, for states that can be merged: these need no stores of members."""
        results: dict[str, pa.Array] = {}
        after: dict[str, pa.Array] = {}
        for i, fold in enumerate(self.folds):
            own, state = _filtered(events, self.passes(rows, i)), self._state(states, i)
            results[f"v{i}"], columns = fold.run(own, self.arguments(rows, i), state, known, last_only=last_only)
            after |= {f"s{i}_{j}": column for j, column in enumerate(columns)}
        return results, after

    def passes(self, rows: pa.Table, call: int) -> Bools | None:
        """The rows that pass the call's filter; None if it has no filter."""
        return self._arguments.passes(rows, call)

    def _events(
        self, events: GroupEvents, rows: pa.Table, keys: pa.Table
    ) -> tuple[list[GroupEvents], dict[int, Turned]]:
        """The events of each call: a row that its filter or DISTINCT leaves out becomes -1. And the members of calls
        whose values may be retracted."""
        of_calls = self._filtered_events(events, rows)
        for i, extremes in self._extremes.items():
            of_calls[i] = _filtered(of_calls[i], extremes.before_counting(self.arguments(rows, i)[0]))
            extremes.prepare(of_calls[i])
        turned: dict[int, Turned] = {}
        for members in self._members:
            own = {call: of_calls[call] for call in members.calls}
            thinned, of_members = members.distinct(own, self.arguments(rows, members.calls[0])[0], keys)
            turned |= of_members
            for call, each in thinned.items():
                of_calls[call] = each
        return of_calls, turned

    def _filtered_events(self, events: GroupEvents, rows: pa.Table) -> list[GroupEvents]:
        """The events that pass each call's filter. Each distinct filter is evaluated once."""
        of_filters: dict[str | None, GroupEvents] = {}
        for call in range(len(self.folds)):
            name = self._arguments.filter_of(call)
            if name not in of_filters:
                of_filters[name] = _filtered(events, self.passes(rows, call))
        return [of_filters[self._arguments.filter_of(call)] for call in range(len(self.folds))]

    def forget(self, keys: pa.Table) -> None:
        """Removes the members of these groups; for groups without windows."""
        for members in self._members:
            slots = members.forget(keys)
            for call in self._extremes.keys() & set(members.calls):
                self._extremes[call].forget(slots)

    def states(self, columns: Mapping[str, pa.Array], at: Ints) -> list[tuple[State, ...]]:
        """The states in these rows of the state columns: one per call."""
        rows = pa.table({name: column.take(pa.array(at)) for name, column in columns.items()})
        per_call = [fold.states_of(self._state(rows, i), [True] * len(at)) for i, fold in enumerate(self.folds)]
        return [tuple(of_call[row] for of_call in per_call) for row in range(len(at))]

    def _state(self, rows: pa.Table, call: int) -> list[pa.Array]:
        return [flat(rows, f"s{call}_{j}") for j in range(len(self.folds[call].state_types))]

    def results(self, states: pa.Table) -> dict[str, pa.Array]:
        """The results of stored states."""
        return {f"v{i}": fold.results(self._state(states, i)) for i, fold in enumerate(self.folds)}


def _filtered(events: GroupEvents, passes: Bools | None) -> GroupEvents:
    if passes is None or not len(passes):
        return events
    undo = np.where((events.undo >= 0) & passes[events.undo], events.undo, -1)
    add = np.where((events.add >= 0) & passes[events.add], events.add, -1)
    return GroupEvents(events.group, undo, add)
