"""MIN and MAX over rows that may be retracted: finds the next value when the smallest or largest one is removed.

A store has the count of each value of a group, one row per value (`members.py`), so a batch writes only what it
changed. A fold keeps only the best value, which suffices until a row is retracted. At the first retraction, all values
are loaded from the store and sorted in memory (`ordered_values.py`): about 35 bytes per value, plus the bytes of texts.
From then on a change costs O(log n), however many values a group has, and no value is a Python object.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ....sql.functions.aggregation.aggregate_fold import Fold
from ....sql.functions.aggregation.aggregate_kernels import GroupEvents
from ....sql.functions.aggregation.aggregates import AGGREGATES
from ...state.key_hash import key_hashes
from ...state.key_index import KeyIndex, slots_of
from ..columns import Bools, Ints, flat, last_of_group, take
from .members import Members, Turned
from .ordered_values import OrderedGroups, ValueWords


class Extremes:
    """One call of MIN or MAX. Its events come from `members`: an event adds a value that the group did not have, or
    removes a value that the group no longer has.

    State: none of its own. The values in memory are derived from the members' store. They are loaded again if something
    else changed the store or if it renumbered its keys.
    """

    def __init__(self, fold: Fold, function: str, members: Members, call: int) -> None:
        """In: `fold`: the fold without retractions, whose state is the best value; `members`: counts the values of this
        `call`."""
        self._fold, self._members, self._call = fold, members, call
        self._greatest = AGGREGATES[function].picks == "greatest"
        self._ordered: _Ordered | None = None

    def before_counting(self, values: pa.Array) -> Bools | None:
        """Which values of a batch can be ordered (None: all); NULL cannot. Called before the members count them."""
        return values.is_valid().to_numpy(zero_copy_only=False) if values.null_count else None

    def prepare(self, events: GroupEvents) -> None:
        """Loads the ordered values if these events need them. Called before the members count these events and before
        DISTINCT thins them out."""
        if self._ordered is not None and not self._ordered.follow(self._members):
            self._ordered = None
        if self._ordered is None and (events.undo >= 0).any():
            self._ordered = _Ordered(self._members, self._call, greatest=self._greatest)

    def run(
        self,
        events: GroupEvents,
        turned: Turned,
        arguments: Sequence[pa.Array],
        state: Sequence[pa.Array],
        known: Sequence[bool],
        keys: pa.Table,
    ) -> tuple[pa.Array, list[pa.Array]]:
        """Like `Fold.run`. In: `turned`: the members of the events; `keys`: the key of each event's group."""
        if self._ordered is None:
            (values,) = arguments
            values = pc.add(values, 0.0) if pa.types.is_floating(values.type) else values  # -0.0 is 0.0
            return self._fold.run(events, [values], state, known)
        best, after = self._ordered.change(events, turned, keys, len(state[0]))
        self._ordered.followed(self._members)
        groups = len(state[0])
        untouched = np.flatnonzero(after < -1)
        column = self._ordered.values(np.maximum(after, -1))
        if len(untouched):
            chosen = np.arange(groups)
            chosen[untouched] += groups
            column = pa.concat_arrays([column, state[0]]).take(pa.array(chosen))
        return self._ordered.values(best), [column]

    def forget(self, slots: Ints) -> None:
        """Follows the removal of these members, which must be the only change of the store."""
        if self._ordered is not None:
            self._ordered.forget(slots)
            self._ordered.followed(self._members)


class _Ordered:
    """The values of a call in order. The number of a value is its slot in the members' store."""

    def __init__(self, members: Members, call: int, *, greatest: bool) -> None:
        self._groups = KeyIndex()
        self._words = ValueWords(members.value_type)
        self._values = OrderedGroups(self._words, greatest=greatest)
        self._at = (members.store.version, members.store.numbering)
        for slots, rows in members.store.pieces([*members.keys, "m", f"n{call}"]):
            there = np.flatnonzero(flat(rows, f"n{call}").to_numpy(zero_copy_only=False) > 0)
            if not len(there):
                continue
            slots, rows = slots[there], take(rows, there)
            self._words.put(slots, flat(rows, "m"))
            groups = slots_of(self._groups.number(key_hashes([flat(rows, name) for name in members.keys])))
            self._values.load(groups, slots)

    def follow(self, members: Members) -> bool:
        """Whether the values in memory are those of the members' store."""
        return self._at == (members.store.version, members.store.numbering)

    def followed(self, members: Members) -> None:
        self._at = (members.store.version, members.store.numbering)

    def change(self, events: GroupEvents, turned: Turned, keys: pa.Table, groups: int) -> tuple[Ints, Ints]:
        """The best value after each event, in its group, and the best value of each group after all events: -1 if there
        is none, -2 if the group has no event."""
        after = np.full(groups, -2, np.int64)
        if not len(events):
            return after[:0], after
        self._words.put(turned.slots, turned.values)
        last = last_of_group(events.group, groups)
        there = np.zeros(groups, np.bool_)
        there[events.group] = True
        touched = np.flatnonzero(there)
        own = take(keys, last[touched])
        number = np.empty(groups, np.int64)
        number[touched] = slots_of(self._groups.number(key_hashes([flat(own, name) for name in own.column_names])))
        best = self._values.change(number[events.group], turned.undo, turned.add)
        after[touched] = best[last[touched]]
        return best, after

    def values(self, numbers: Ints) -> pa.Array:
        return self._words.values(numbers)

    def forget(self, slots: Ints) -> None:
        self._values.forget(slots)
