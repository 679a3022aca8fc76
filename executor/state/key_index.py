# pyrefly: ignore-errors[unannotated-return]
"""Numbers keys: compiled hash tables that index every key, and keys by a part of their columns.

Grouping a batch with Arrow's dictionaries, and joining its groups with the stored ones in DuckDB, took a third of a
windowed aggregate's processor time, and a join without an index reads all stored rows. One lookup in this table does
both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...sql.compiling.loops import AHEAD, inlined_loop, loop, prefetch, read_only
from ..operators.columns import Ints
from .key_hash import Hashes, Vector

_CAPACITY = 64  # keys, at first: on a server with many stores, most of them are small
_DOUBLED_TO = 1 << 20  # keys; then it grows by a quarter each time, to keep unused memory well below used memory
ROWS_MAX = 1 << 40
_MIXED = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))  # odd factors, with random-looking bits
_PAIR_BITS = np.uint64(32)  # low bits of a mixed pair that are dropped: the high bits depend on the whole pair
_GROUP_BITS = np.uint64(34)  # low bits of a hash that are dropped: they find its bucket; the rest is positive as int64


@dataclass(frozen=True, slots=True)
class Numbered:
    """The groups of a batch's rows, numbered from 0 in order of first occurrence.

    `group`: of each row. Per group: its `first` row, and its `slot`, the permanent number of the key.
    """

    group: Ints
    first: Ints
    slot: Ints

    def __len__(self) -> int:
        return len(self.first)


class SlotRange(NamedTuple):
    """`values`: per slot. `low` and `high`, both inclusive: per requested part."""

    values: Ints
    low: Ints
    high: Ints


_NOTHING = np.empty(0, np.int64)
_ANYTHING = SlotRange(_NOTHING, _NOTHING, _NOTHING)


class KeyIndex:
    """Assigns slots from 0 on, one per distinct key; equal keys always get the same slot.

    Keys are hashes (`key_hash.py`), whose bits need no further mixing. Memory per key: 16 bytes, plus 5 to 11 bytes of
    buckets.
    """

    def __init__(self) -> None:
        self.count = 0  # of slots
        self._hashes = np.empty((0, 2), np.uint64)
        self._buckets = np.empty(0, np.int32)
        self._allocate(_CAPACITY)

    @property
    def nbytes(self) -> int:
        return self._hashes.nbytes + self._buckets.nbytes

    def number(self, hashes: Hashes) -> Numbered:
        """The slots of these keys; a new key gets a new slot."""
        rows = hashes.shape[1]
        group, slot, first = np.empty((3, rows), np.int64)
        groups = np.full(1 << (2 * rows).bit_length(), -1, np.int32)
        row = found = 0
        while True:
            row, self.count, found = _number(
                hashes, row, self._hashes, self._buckets, groups, self.count, found, group, slot, first
            )
            if row == rows:
                return Numbered(group, first[:found].copy(), slot[:found].copy())
            self._allocate(_more(self.count))

    def find(self, hashes: Hashes) -> Ints:
        """The slot of each key, or -1."""
        return _find(hashes, self._hashes, self._buckets)

    def hashes_of(self, slots: Ints) -> Hashes:
        return np.ascontiguousarray(self._hashes[slots].T)

    def renumbered(self, slots: Ints) -> KeyIndex:
        """An index of the keys of these slots only, with new slots from 0 in this order."""
        other = KeyIndex()
        other.number(self.hashes_of(slots))
        return other

    def _allocate(self, capacity: int) -> None:
        """Makes room for this many keys."""
        hashes = np.empty((capacity, 2), np.uint64)
        hashes[: self.count] = self._hashes[: self.count]
        self._hashes = hashes
        size = 1 << (capacity * 4 // 3).bit_length()
        if size != len(self._buckets):
            self._buckets = np.full(size, -1, np.int32)
            _put_again(self._hashes, self.count, self._buckets)


class SlotCounter:
    """Assigns slots to keys that are all distinct and are never looked up: it stores no keys."""

    def __init__(self, count: int = 0) -> None:
        self.count = count

    def take(self, rows: int) -> Ints:
        """New slots for this many rows."""
        slots = self.count + np.arange(rows, dtype=np.int64)
        self.count += rows
        return slots

    def renumbered(self, slots: Ints) -> SlotCounter:
        """Like `KeyIndex.renumbered`."""
        return SlotCounter(len(slots))


class PartialIndex:
    """Slots by a part of their keys, newest first.

    Slots without a row are removed when a lookup passes them. They must be added again when they get a new row.
    """

    def __init__(self) -> None:
        self._parts = KeyIndex()
        self._head = np.full(_CAPACITY, -1, np.int32)  # per part: its newest slot
        self._next = np.full(_CAPACITY, -1, np.int32)  # per slot
        self._part = np.full(_CAPACITY, -1, np.int32)  # per slot; -1: not linked

    def add(self, hashes: Hashes, slots: Ints) -> None:
        """In: the hash of each slot's part, and the slots."""
        numbered = self.number(hashes)
        last = int(slots.max(initial=-1)) + 1
        self._next, self._part = grown(self._next, last, -1), grown(self._part, last, -1)
        _link(numbered.slot[numbered.group], slots, self._head, self._next, self._part)

    def number(self, hashes: Hashes) -> Numbered:
        """The numbers of these parts, in `slot`; a new part gets a new number."""
        numbered = self._parts.number(hashes)
        self._head = grown(self._head, self._parts.count, -1)
        return numbered

    def find(
        self, hashes: Hashes, rows: Vector, within: SlotRange | None = None, room: int = ROWS_MAX
    ) -> tuple[Ints, Ints]:
        """Like `rows_of`, for the parts with these hashes."""
        return self.rows_of(self._parts.find(hashes), rows, within, room)

    def rows_of(
        self, parts: Ints, rows: Vector, within: SlotRange | None = None, room: int = ROWS_MAX
    ) -> tuple[Ints, Ints]:
        """The slots of these parts that have a row. Out: the part's position, and the slot.

        In: `parts`: -1 has no rows. `rows`: the row of each slot; -1: none. `within`: only slots whose value is in this
        range. `room`: how many slots may be found. Raises `MemoryError` if there are more.
        """
        parts = read_only(parts)
        values, low, high = map(read_only, within or _ANYTHING)
        total = _count(parts, rows, values, low, high, self._head, self._next, self._part)
        if total > room:
            raise MemoryError(f"{total:,} rows meet in one batch, and there is room for {room:,}")
        return _walk(parts, values, low, high, self._head, self._next, total)

    def renumbered(self, slots: Ints) -> PartialIndex:
        """An index of these slots only, with new numbers from 0 in this order."""
        other = PartialIndex()
        parts = grown(self._part, int(slots.max(initial=-1)) + 1, -1)[slots].astype(np.int64)
        linked = np.flatnonzero(parts >= 0)
        other.add(self._parts.hashes_of(parts[linked]), linked)
        return other


def grown(column: Vector, count: int, blank: int) -> Vector:
    """The array, with room for at least `count` values. New values are `blank`."""
    if count <= len(column):
        return column
    more = np.full(max(count, _more(len(column))), blank, column.dtype)
    more[: len(column)] = column
    return more


def _more(capacity: int) -> int:
    return 2 * capacity if capacity < _DOUBLED_TO else capacity + capacity // 4


def numbered_pairs(one: Ints, other: Ints) -> tuple[Ints, Ints]:
    """Numbers the distinct pairs from 0, in order of first occurrence. Out: the number of each pair, and the first
    position of each number. In: two numbers per pair, of which `one` is a group's number (`Numbered.group`)."""
    group, first = np.empty((2, len(one)), np.int64)
    places = np.full(1 << (2 * len(one)).bit_length(), -1, np.int32)
    found = _number_pairs(read_only(one), read_only(other), places, group, first)
    return group, first[:found].copy()


def slots_of(numbered: Numbered) -> Ints:
    """The slot of each row."""
    return numbered.slot if len(numbered) == len(numbered.group) else numbered.slot[numbered.group]


@inlined_loop
def _ask_for(later: int, soon: int, hashes: Vector, buckets: Vector, mask: int):
    """Prefetches the bucket of a key that is needed later, and the hashes of a key that is needed soon."""
    prefetch(buckets, np.int64(later & mask))
    prefetch(hashes, 2 * np.int64(buckets[soon & mask]))


@loop
def _number(
    asked: Vector,
    row: int,
    hashes: Vector,
    buckets: Vector,
    groups: Vector,
    count: int,
    found: int,
    group: Vector,
    slots: Vector,
    first: Vector,
):
    """Continues at `row` until there is no room for a new key. Out: where it stopped; counts of slots and groups.

    `groups`: buckets of this batch's groups by their slots, at least twice as many as rows. They are few, so they stay
    in the processor's cache. A group number stored per key would not, because a large index does not fit there.
    """
    mask, group_mask = np.uint64(len(buckets) - 1), len(groups) - 1
    last = asked.shape[1] - 1
    for i in range(row, asked.shape[1]):
        _ask_for(asked[1, min(i + 2 * AHEAD, last)], asked[1, min(i + AHEAD, last)], hashes, buckets, mask)
        high, low = asked[0, i], asked[1, i]
        place = low & mask
        slot = np.int64(buckets[place])
        while slot >= 0 and (hashes[slot, 0] != high or hashes[slot, 1] != low):
            place = (place + np.uint64(1)) & mask
            slot = np.int64(buckets[place])
        if slot < 0:
            if count == len(hashes):
                return i, count, found
            slot = count
            buckets[place] = slot
            hashes[slot, 0], hashes[slot, 1] = high, low
            count += 1
        near = np.int64(low >> _GROUP_BITS) & group_mask
        own = np.int64(groups[near])
        while own >= 0 and slots[own] != slot:
            near = (near + 1) & group_mask
            own = np.int64(groups[near])
        if own < 0:
            own = np.int64(found)
            groups[near] = own
            slots[found] = slot
            first[found] = i
            found += 1
        group[i] = own
    return asked.shape[1], count, found


@loop
def _number_pairs(one: Vector, other: Vector, places: Vector, group: Vector, first: Vector):
    """In: `places`: like `groups` of `_number`."""
    mask = len(places) - 1
    found = 0
    for i in range(len(one)):
        mixed = (np.uint64(one[i]) * _MIXED[0]) ^ (np.uint64(other[i]) * _MIXED[1])
        place = np.int64(mixed >> _PAIR_BITS) & mask
        own = np.int64(places[place])
        while own >= 0 and (one[first[own]] != one[i] or other[first[own]] != other[i]):
            place = (place + 1) & mask
            own = np.int64(places[place])
        if own < 0:
            own = np.int64(found)
            places[place] = own
            first[found] = i
            found += 1
        group[i] = own
    return found


@loop  # the lookup of `_number`, inlined by hand: a call costs more than the lookup
def _find(asked: Vector, hashes: Vector, buckets: Vector):
    mask = np.uint64(len(buckets) - 1)
    last = asked.shape[1] - 1
    found = np.empty(asked.shape[1], np.int64)
    for i in range(asked.shape[1]):
        _ask_for(asked[1, min(i + 2 * AHEAD, last)], asked[1, min(i + AHEAD, last)], hashes, buckets, mask)
        high, low = asked[0, i], asked[1, i]
        place = low & mask
        slot = np.int64(buckets[place])
        while slot >= 0 and (hashes[slot, 0] != high or hashes[slot, 1] != low):
            place = (place + np.uint64(1)) & mask
            slot = np.int64(buckets[place])
        found[i] = slot
    return found


@loop
def _put_again(hashes: Vector, count: int, buckets: Vector):
    mask = np.uint64(len(buckets) - 1)
    for slot in range(count):
        place = hashes[slot, 1] & mask
        while buckets[place] >= 0:
            place = (place + np.uint64(1)) & mask
        buckets[place] = slot


@loop
def _link(parts: Vector, slots: Vector, head: Vector, following: Vector, part: Vector):
    for i in range(len(slots)):
        slot = slots[i]
        if part[slot] < 0:
            part[slot] = parts[i]
            following[slot] = head[parts[i]]
            head[parts[i]] = slot


@loop
def _count(
    parts: Vector,
    rows: Vector,
    values: Vector,
    low: Vector,
    high: Vector,
    head: Vector,
    following: Vector,
    part: Vector,
):
    """Counts the requested slots, and removes slots without a row from their chains."""
    total = 0
    anything = len(values) == 0
    for i in range(len(parts)):
        if parts[i] < 0:
            continue
        before = np.int64(-1)
        slot = np.int64(head[parts[i]])
        while slot >= 0:
            after = np.int64(following[slot])
            if rows[slot] >= 0:
                before = slot
                if anything or low[i] <= values[slot] <= high[i]:
                    total += 1
            else:
                part[slot] = -1
                if before >= 0:
                    following[before] = after
                else:
                    head[parts[i]] = after
            slot = after
    return total


@loop
def _walk(parts: Vector, values: Vector, low: Vector, high: Vector, head: Vector, following: Vector, total: int):
    position, slots = np.empty(total, np.int64), np.empty(total, np.int64)
    anything = len(values) == 0
    found = 0
    for i in range(len(parts)):
        slot = np.int64(head[parts[i]]) if parts[i] >= 0 else np.int64(-1)
        while slot >= 0:
            if anything or low[i] <= values[slot] <= high[i]:
                position[found], slots[found] = i, slot
                found += 1
            slot = np.int64(following[slot])
    return position, slots
