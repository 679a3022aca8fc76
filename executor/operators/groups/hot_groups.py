"""The groups of an aggregate that were touched lately, in memory, in front of their `StateStore`.

Reading a batch's groups by a join and writing them back cost DuckDB more than everything else an aggregate does. Here a
batch finds its groups by a compiled hash table, and what it changes goes to the changelog at once but to DuckDB only
with `settle`, then each group once. What is in memory can be dropped at any time after that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from ...state.store import StateStore
from ..columns import Bools, Ints, conform, flat, ints, take
from .group_index import GroupIndex, Numbered
from .state_columns import StateColumn, state_column

BYTES_MAX = 128 * 1024 * 1024  # of one aggregate; beyond, everything is settled and forgotten


class HotGroups:
    """In: the store. Everything that changes it goes through here, except its `restore` and `expire`.

    Invariant: a slot that is `_known` has the group's newest state; one that is not has no state, neither here nor in
    the store, once `find` has returned it.
    """

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._names = list(store.key)
        self._unsettled: list[tuple[Ints, pa.Table]] = []
        store.on_settle(self._settle)
        self._forget()
        self._whole = not len(store)  # the store has no group that is not here

    def find(self, columns: Sequence[pa.Array]) -> tuple[Numbered, Bools]:
        """The groups of rows, and which of these have a state. In: the key columns, in the store's order."""
        if self._version != self._store.version or self._nbytes() > BYTES_MAX:
            self._settle()
            self._forget()
        before = self._index.count
        numbered = self._index.number(columns)
        for column in self._columns.values():
            column.grow(self._index.count)
        missing = self._index.count - len(self._known)
        if missing > 0:
            self._known = np.concatenate([self._known, np.zeros(max(missing, len(self._known)), np.bool_)])
        if not self._whole and self._index.count > before:
            self._load(columns, numbered, numbered.slot >= before)
        return numbered, self._known[numbered.slot]

    def states(self, groups: Numbered) -> pa.Table:
        """The value columns, a row per group: NULL where it has no state."""
        return pa.table({name: column.get(groups.slot) for name, column in self._columns.items()})

    def write(self, groups: Numbered, rows: pa.Table, chosen: Bools) -> None:
        """New states. In: key and value columns, a row per group; only the `chosen` ones are written."""
        slots = groups.slot
        if not chosen.all():
            rows, slots = rows.filter(pa.array(chosen)), slots[chosen]
        self._set(slots, rows)
        if len(rows):
            self._unsettled.append((slots, self._store.defer(rows)))

    def _nbytes(self) -> int:
        return self._index.nbytes + sum(column.nbytes for column in self._columns.values())

    def _forget(self) -> None:
        schema = self._store.change_schema
        self._index = GroupIndex([self._store.key_schema.field(name).type for name in self._names])
        self._columns: Mapping[str, StateColumn] = {
            name: state_column(schema.field(name).type) for name in self._store.value
        }
        self._known = np.zeros(0, np.bool_)
        self._whole = False
        self._version = self._store.version

    def _set(self, slots: Ints, rows: pa.Table) -> None:
        for name, column in self._columns.items():
            column.set(slots, flat(rows, name))
        self._known[slots] = True

    def _load(self, columns: Sequence[pa.Array], groups: Numbered, new: Bools) -> None:
        """What the store has of groups that are not here."""
        asked = take(pa.table(list(columns), names=self._names), groups.first[new])
        found = self._store.read(conform(asked, self._store.key_schema))
        if len(found):
            self._set(groups.slot[new][ints(found, "_index")], found)

    def _settle(self) -> None:
        """Of each group only what it became last is written."""
        if not self._unsettled:
            return
        slots = np.concatenate([slots for slots, _ in self._unsettled])
        rows = pa.concat_tables([rows for _, rows in self._unsettled])
        self._unsettled = []
        last = np.full(int(slots.max()) + 1, -1, np.int64)
        last[slots] = np.arange(len(slots), dtype=np.int64)
        last = last[last >= 0]
        current = self._version == self._store.version
        self._store.apply(rows if len(last) == len(rows) else rows.take(pa.array(last)))
        if current:
            self._version = self._store.version
