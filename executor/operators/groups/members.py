"""Which values a group has, and how often: what DISTINCT aggregates count by, and MIN and MAX of rows that are taken
back (`extremes.py`).

One row per group and value, so that a batch writes what it changed and no group is ever written as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb
import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ....sql.functions.aggregation.aggregate_kernels import GroupEvents
from ....sql.types import BIGINT, SqlType
from ...state.key_hash import Vector
from ...state.store import StateStore
from ..columns import Bools, Ints, codes, conform, flat, ints, take


@dataclass(frozen=True, slots=True)
class _Operations:
    """Additions (+1) and removals (-1) of values, in order; `event` tells from which event each comes.

    `pair` numbers the pairs of a group and a value, from 0; `first` is where each pair comes first.
    """

    event: Ints
    row: Ints
    sign: Ints
    pair: Ints
    first: Ints


class Members:
    """State: per group and value, for each of `calls`, how often it is there. The calls have the same argument.

    Without `retracts` nothing is ever taken back: then a value is just there, and is written once.
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
        self._keys = list(key)
        self.calls = tuple(calls)
        self._retracts = retracts
        self._counts = [f"n{call}" for call in calls]
        self.store = StateStore(connection, name, {**key, "m": value}, dict.fromkeys(self._counts, BIGINT))

    def distinct(self, events: Mapping[int, GroupEvents], values: pa.Array, keys: pa.Table) -> dict[int, GroupEvents]:
        """The events of each call, without those that change nothing about which values its groups have.

        In: events that refer to rows with these values; `keys`: of each event's group. NULL is no value.
        """
        if pa.types.is_floating(values.type):
            values = pc.add(values, 0.0)  # -0.0 is 0.0
        if not self._retracts:
            return self._first_times(events, values, keys)
        operations = _operations(events, values)
        if not len(operations.pair):
            return dict(events)
        pairs = take(keys.select(self._keys), operations.event[operations.first]).append_column(
            "m", values.take(pa.array(operations.row[operations.first]))
        )
        before = self._read(pairs)
        after, thinned = before.copy(), dict(events)
        for position, call in enumerate(self.calls):
            counts = _CallCounts(operations, events[call], before[position])
            after[position] = counts.after
            thinned[call] = counts.thinned()
        self._write(pairs, before, after)
        return thinned

    def _first_times(
        self, events: Mapping[int, GroupEvents], values: pa.Array, keys: pa.Table
    ) -> dict[int, GroupEvents]:
        """As `distinct`, where values only come: of each call the events with a value that its group did not have."""
        several = [events[call] for call in self.calls]
        row = np.maximum.reduce([each.add for each in several])
        there = row >= 0
        if values.null_count:
            there &= values.is_valid().to_numpy(zero_copy_only=False)[
                row
            ]  # row -1 looks at the last one: it is out anyway
        event = np.flatnonzero(there)
        if not len(event):
            return dict(events)
        members = take(keys.select(self._keys), event).append_column("m", values.take(pa.array(row[event])))
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
        """Per member and call whether it is there."""
        present = np.zeros((len(slots), len(self.calls)), np.bool_)
        if known.any():
            for position, column in enumerate(self.store.values_at(slots[known], self._counts)):
                present[known, position] = column.to_numpy(zero_copy_only=False) > 0
        return present

    def of_groups(self, call: int, keys: pa.Table) -> tuple[Ints, pa.Array]:
        """The values that each group has for this call, in ascending order, and whose they are: the key's position."""
        found = self.store.read(keys, by=self._keys)
        there = found.filter(pc.greater(found.column(f"n{call}"), 0))
        return ints(there, "_index"), flat(there, "m")

    def _read(self, pairs: pa.Table) -> Ints:
        """Per call and pair the count."""
        found = self.store.read(pairs)
        before = np.zeros((len(self.calls), len(pairs)), dtype=np.int64)
        index = ints(found, "_index")
        for position, name in enumerate(self._counts):
            before[position, index] = ints(found, name)
        return before

    def _write(self, pairs: pa.Table, before: Ints, after: Ints) -> None:
        changed = np.flatnonzero((before != after).any(axis=0))
        if not len(changed):
            return
        rows = take(pairs, changed)
        for position, name in enumerate(self._counts):
            rows = rows.append_column(name, pa.array(after[position, changed]))
        gone = ~(after[:, changed] > 0).any(axis=0)
        self.store.change(rows.append_column("_deleted", pa.array(gone)))


class _CallCounts:
    """The counts of one call: which operations begin or end a value's presence, and what is left in the end."""

    def __init__(self, operations: _Operations, events: GroupEvents, before: Ints) -> None:
        self._operations, self._events = operations, events
        event, sign = operations.event, operations.sign
        self._counts = np.where(sign > 0, events.add[event] >= 0, events.undo[event] >= 0)
        steps = np.where(self._counts, sign, 0)
        order = np.argsort(operations.pair, kind="stable")
        pair, steps = operations.pair[order], steps[order]
        starts = np.searchsorted(pair, np.arange(len(before)))
        total = np.cumsum(steps)
        base = before - (total[starts] - steps[starts])
        reached = total + base[pair]
        ends = np.append(starts[1:], len(pair)) - 1
        self.after = np.maximum(reached[ends], 0)
        turning = np.where(steps > 0, reached == 1, (steps < 0) & (reached == 0))
        self._turns = np.empty(len(order), dtype=np.bool_)
        self._turns[order] = turning

    def thinned(self) -> GroupEvents:
        keeps = self._counts & self._turns
        return GroupEvents(
            self._events.group,
            self._kept(self._events.undo, keeps & (self._operations.sign < 0)),
            self._kept(self._events.add, keeps & (self._operations.sign > 0)),
        )

    def _kept(self, rows: Ints, keeps: Bools) -> Ints:
        kept = np.full(len(rows), -1, dtype=np.int64)
        chosen = self._operations.event[keeps]
        kept[chosen] = rows[chosen]
        return kept


@numba.njit(cache=True, nogil=True)
def _first_times(pair: Vector, adds: Vector, present: Vector):
    """Of each event and call whether the call adds the pair's value while it is not `present`, which it is from then
    on. In: the pair of each event; per event and call whether it adds."""
    keeps = np.zeros(adds.shape, np.bool_)
    for i in range(len(pair)):
        for call in range(adds.shape[1]):
            if adds[i, call] and not present[pair[i], call]:
                keeps[i, call] = present[pair[i], call] = True
    return keeps


def _operations(events: Mapping[int, GroupEvents], values: pa.Array) -> _Operations:
    """What the events of any of the calls do; they differ only in which rows their filters let through."""
    several = list(events.values())
    undo = np.maximum.reduce([each.undo for each in several])
    add = np.maximum.reduce([each.add for each in several])
    row = np.stack([undo, add], axis=1).reshape(-1)
    value, distinct = codes(values)
    missing = values.is_null().to_numpy(zero_copy_only=False)
    there = (row >= 0) & ~missing[row]  # row -1 looks at the last one, and is left out all the same
    chosen = np.flatnonzero(there)
    event, row = chosen // 2, row[chosen]
    group = several[0].group[event]
    _, first, pair = np.unique(group * max(distinct, 1) + value[row], return_index=True, return_inverse=True)
    return _Operations(event, row, np.where(chosen % 2, 1, -1), pair.astype(np.int64), first.astype(np.int64))
