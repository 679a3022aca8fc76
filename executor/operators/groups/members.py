"""The values of each group and their counts. DISTINCT aggregates need them, and so do MIN and MAX over rows that may be
retracted (`extremes.py`).

There is one row per group and value, so a batch writes only what it changed, and never a whole group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from ....sql.compiling.loops import loop
from ....sql.functions.aggregation.aggregate_kernels import GroupEvents
from ....sql.types import BIGINT, SqlType
from ...state.equal_keys import with_one_zero
from ...state.key_hash import Vector
from ...state.key_index import Numbered
from ...state.store import StateStore
from ..columns import Bools, Ints, conform, flat, take


@dataclass(frozen=True, slots=True)
class Turned:
    """The members that the events of a call add and remove: per event a slot of the store, or -1. `slots`, `values`:
    all members that the batch touches; the slots are distinct."""

    undo: Ints
    add: Ints
    slots: Ints
    values: pa.Array


class Members:
    """State: for each group, value and call of `calls`, how often the group has the value. The calls have the same
    argument.

    Without `retracts`, no row is ever retracted: then the state only says that a value exists, and is written once.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        name: str,
        key: Mapping[str, SqlType],
        value: SqlType,
        calls: Sequence[int],
        *,
        retracts: bool,
    ) -> None:
        self.keys = list(key)
        self.calls = tuple(calls)
        self.value_type = value.arrow
        self._retracts = retracts
        self._counts = [f"n{call}" for call in calls]
        self.store = StateStore(connection, name, {**key, "m": value}, dict.fromkeys(self._counts, BIGINT))

    def distinct(
        self, events: Mapping[int, GroupEvents], values: pa.Array, keys: pa.Table
    ) -> tuple[dict[int, GroupEvents], dict[int, Turned]]:
        """The events of each call, without those that do not change the set of values of its group; and, if values may
        be retracted, the members that the events add and remove.

        In: events that refer to rows with these values; `keys`: the key of each event's group. NULL is no value.
        """
        values = with_one_zero(values)
        if not self._retracts:
            return self._first_times(events, values, keys), {}
        event, row, adds = _operations(events, values)
        members = take(keys.select(self.keys), event).append_column("m", values.take(pa.array(row)))
        members = conform(members, self.store.key_schema)
        numbered, known = self.store.locate([flat(members, name) for name in members.column_names])
        before = self._counted(numbered.slot, known)
        after = before.copy()
        several = [events[call] for call in self.calls]
        sides = [np.where(adds, each.add[event], each.undo[event]) >= 0 for each in several]
        turns = _count(numbered.group, adds, np.stack(sides, axis=1), after)
        self._write(members, numbered, before, after)
        firsts = flat(members, "m").take(pa.array(numbered.first))
        slots = numbered.slot[numbered.group]
        thinned, turned = dict(events), dict[int, Turned]()
        for position, (call, each) in enumerate(zip(self.calls, several, strict=True)):
            gone, come = np.flatnonzero(turns[:, position] & ~adds), np.flatnonzero(turns[:, position] & adds)
            thinned[call] = GroupEvents(
                each.group, _at(event[gone], row[gone], len(each)), _at(event[come], row[come], len(each))
            )
            turned[call] = Turned(
                _at(event[gone], slots[gone], len(each)),
                _at(event[come], slots[come], len(each)),
                numbered.slot,
                firsts,
            )
        return thinned, turned

    def forget(self, keys: pa.Table) -> Ints:
        """Removes the members of these groups. Out: their slots."""
        _, _, slots = self.store.locate_by([flat(keys, name) for name in self.keys], self.keys)
        gone = pa.table(self.store.values_at(slots, list(self.store.key)), schema=self.store.key_schema)
        self.store.change_at(slots, gone.append_column("_deleted", pa.array(np.ones(len(gone), np.bool_))))
        return slots

    def _first_times(
        self, events: Mapping[int, GroupEvents], values: pa.Array, keys: pa.Table
    ) -> dict[int, GroupEvents]:
        """Like `distinct`, if values are only added: per call, the events with a value that its group did not have."""
        several = [events[call] for call in self.calls]
        row = np.maximum.reduce([each.add for each in several])
        there = row >= 0
        if values.null_count:
            there &= values.is_valid().to_numpy(zero_copy_only=False)[
                row
            ]  # row -1 reads the last row, but is dropped anyway
        event = np.flatnonzero(there)
        if not len(event):
            return dict(events)
        members = take(keys.select(self.keys), event).append_column("m", values.take(pa.array(row[event])))
        members = conform(members, self.store.key_schema)
        numbered, known = self.store.locate([flat(members, name) for name in members.column_names])
        before = self._present(numbered.slot, known)
        after = before.copy()
        adds = np.stack([each.add[event] >= 0 for each in several], axis=1)
        keeps = _first_times(numbered.group, adds, after)
        changed = np.flatnonzero((before != after).any(axis=1))
        rows = take(members, numbered.first[changed])
        for position, name in enumerate(self._counts):
            rows = rows.append_column(name, pa.array(after[changed, position].astype(np.int64)))
        self.store.write_at(numbered.slot[changed], rows)
        thinned = dict(events)
        for position, (call, each) in enumerate(zip(self.calls, several, strict=True)):
            add = np.full(len(each), -1, np.int64)
            kept = event[keeps[:, position]]
            add[kept] = each.add[kept]
            thinned[call] = GroupEvents(each.group, each.undo, add)
        return thinned

    def _present(self, slots: Ints, known: Bools) -> Bools:
        """Whether each member exists, per call."""
        present = np.zeros((len(slots), len(self.calls)), np.bool_)
        if known.any():
            for position, column in enumerate(self.store.values_at(slots[known], self._counts)):
                present[known, position] = column.to_numpy(zero_copy_only=False) > 0
        return present

    def _counted(self, slots: Ints, known: Bools) -> Ints:
        """The count of each member, per call."""
        counts = np.zeros((len(slots), len(self.calls)), np.int64)
        if known.any():
            for position, column in enumerate(self.store.values_at(slots[known], self._counts)):
                counts[known, position] = column.to_numpy(zero_copy_only=False)
        return counts

    def _write(self, members: pa.Table, numbered: Numbered, before: Ints, after: Ints) -> None:
        changed = np.flatnonzero((before != after).any(axis=1))
        rows = take(members, numbered.first[changed])
        for position, name in enumerate(self._counts):
            rows = rows.append_column(name, pa.array(after[changed, position]))
        gone = ~(after[changed] > 0).any(axis=1)
        self.store.change_at(numbered.slot[changed], rows.append_column("_deleted", pa.array(gone)))


@loop
def _first_times(pair: Vector, adds: Vector, present: Vector) -> Vector:
    """Out: per event and call, whether the call adds the pair's value for the first time; this sets `present`.
    In: the pair (group and value) of each event; per event and call, whether it adds."""
    keeps = np.zeros(adds.shape, np.bool_)
    for i in range(len(pair)):
        for call in range(adds.shape[1]):
            if adds[i, call] and not present[pair[i], call]:
                keeps[i, call] = present[pair[i], call] = True
    return keeps


@loop
def _count(pair: Vector, adds: Vector, counted: Vector, counts: Vector) -> Vector:
    """Out: per operation and call, whether the pair's value appears or disappears. In: per operation, the pair (group
    and value) and whether it adds; per operation and call, whether it counts. `counts`, per pair and call, is updated
    from the counts before to those after."""
    turns = np.zeros(counted.shape, np.bool_)
    for i in range(len(pair)):
        for call in range(counted.shape[1]):
            if not counted[i, call]:
                continue
            if adds[i]:
                counts[pair[i], call] += 1
                turns[i, call] = counts[pair[i], call] == 1
            elif counts[pair[i], call] > 0:
                counts[pair[i], call] -= 1
                turns[i, call] = counts[pair[i], call] == 0
    return turns


def _operations(events: Mapping[int, GroupEvents], values: pa.Array) -> tuple[Ints, Ints, Bools]:
    """The operations of the events of all calls, in order: the event, the row, and whether the row is added or
    retracted. The calls differ only in the rows that pass their filters."""
    several = list(events.values())
    undo = np.maximum.reduce([each.undo for each in several])
    add = np.maximum.reduce([each.add for each in several])
    row = np.stack([undo, add], axis=1).reshape(-1)
    there = row >= 0
    if values.null_count:
        missing = values.is_null().to_numpy(zero_copy_only=False)
        there &= ~missing[row]  # row -1 reads the last row, but is dropped anyway
    chosen = np.flatnonzero(there)
    return chosen // 2, row[chosen], chosen % 2 == 1


def _at(events: Ints, values: Ints, count: int) -> Ints:
    """An array for `count` events that has these values at these events and -1 elsewhere."""
    found = np.full(count, -1, dtype=np.int64)
    found[events] = values
    return found
