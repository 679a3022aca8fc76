"""Numbers for keys: a hash table in compiled code that remembers every key it was asked for.

Grouping a batch by Arrow's dictionaries (one per key column, then one of their pairs) and joining its groups with the
stored ones in DuckDB cost a third of a windowed aggregate's processor time; one look into this table does both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import pyarrow as pa

from ....sql.functions.aggregation.aggregate_values import as_physical
from ..columns import Ints

Vector = np.ndarray[Any, Any]  # an argument of a compiled loop

_CAPACITY = 1_024  # keys, at first
_MIX = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


@dataclass(frozen=True, slots=True)
class Numbered:
    """The groups of a batch's rows, from 0, in the order in which they first come.

    `group`: of each row. Per group: its `first` row and its `slot`, which is the key's number for good.
    """

    group: Ints
    first: Ints
    slot: Ints

    def __len__(self) -> int:
        return len(self.first)


class GroupIndex:
    """Slots are given out from 0 on, one per different key; equal keys always get the same one. No key may be NULL."""

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._words = [_Words(type_) for type_ in types]
        self.count = 0  # of slots
        self._room = np.empty(0, np.int64)  # kept: fresh memory costs a page fault per 512 rows
        self._batch = 0
        self._allocate(_CAPACITY, np.empty((_CAPACITY, len(types)), np.int64))

    @property
    def nbytes(self) -> int:
        return (
            self._keys.nbytes
            + self._room.nbytes
            + 4 * len(self._buckets)
            + 16 * len(self._stamps)
            + sum(w.nbytes for w in self._words)
        )

    def number(self, columns: Sequence[pa.Array]) -> Numbered:
        """In: the key columns of the batch's rows."""
        rows = len(columns[0])
        width = len(columns)
        if (width + 2) * rows > len(self._room):
            self._room = np.empty((width + 2) * rows, np.int64)
        words = self._room[: width * rows].reshape(width, rows)
        slot, first = self._room[width * rows : (width + 2) * rows].reshape(2, rows)
        for number, column in enumerate(columns):
            words[number] = self._words[number].of(column)
        group = np.empty(rows, np.int64)
        self._batch += 1
        row = found = 0
        while True:
            row, self.count, found = _number(
                words, row, self._keys, self._buckets, self._stamps, self._local, self._batch, self.count, found,
                group, slot, first,
            )  # fmt: skip
            if row == rows:
                return Numbered(group, first[:found].copy(), slot[:found].copy())
            self._grow()

    def _allocate(self, capacity: int, keys: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        self._keys = keys
        self._buckets = np.full(2 * capacity, -1, np.int32)
        self._stamps = np.zeros(capacity, np.int64)  # the last batch that had the key
        self._local = np.zeros(capacity, np.int64)  # its group there

    def _grow(self) -> None:
        old, stamps, local = self._keys, self._stamps, self._local
        self._allocate(2 * len(old), np.concatenate([old, np.empty_like(old)]))
        self._stamps[: len(old)], self._local[: len(old)] = stamps, local
        _put_again(self._keys, self.count, self._buckets)


class _Words:
    """The values of one key column as integers: those that are none get numbers as they come."""

    def __init__(self, type_: pa.DataType) -> None:
        self._numbers: dict[Any, int] | None = None if _is_whole(type_) else {}
        self._bytes = 0

    @property
    def nbytes(self) -> int:
        return self._bytes

    def of(self, column: pa.Array) -> Ints:
        if self._numbers is None:
            return as_physical(column).to_numpy(zero_copy_only=False)
        if pa.types.is_nested(column.type):
            values, indices = [repr(value) for value in column.to_pylist()], None
        else:
            if pa.types.is_float64(column.type):  # NaN is one key, and must be so for a dictionary too
                column = _bits(column)
            encoded = column.dictionary_encode()
            values, indices = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
        known, numbers = len(self._numbers), self._numbers
        listed = np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int64)
        if len(numbers) > known:
            self._bytes += (len(numbers) - known) * (100 + column.nbytes // max(1, len(column)))
        return listed if indices is None else listed[indices]


def _is_whole(type_: pa.DataType) -> bool:
    return pa.types.is_integer(type_) or pa.types.is_temporal(type_) or pa.types.is_boolean(type_)


def _bits(column: pa.Array) -> pa.Array:
    values = column.to_numpy(zero_copy_only=False)
    return pa.array(np.where(np.isnan(values), np.nan, values).view(np.int64))


@numba.njit(cache=True, nogil=True, inline="always")
def _mixed(hashed: Any, word: Any):
    """Takes numbers, not arrays: numba counts references to an array at every inlined call."""
    hashed = (hashed ^ np.uint64(word)) * _MIX
    return hashed ^ (hashed >> _HALF)


@numba.njit(cache=True, nogil=True)
def _number(
    words: Vector,
    row: int,
    keys: Vector,
    buckets: Vector,
    stamps: Vector,
    local: Vector,
    batch: int,
    count: int,
    found: int,
    group: Vector,
    slots: Vector,
    first: Vector,
):
    """Goes on from `row` until there is no room for a new key. Out: where it stopped; counts of slots and groups."""
    mask = np.uint64(len(buckets) - 1)
    width = words.shape[0]
    for i in range(row, words.shape[1]):
        hashed = np.uint64(0)
        for j in range(width):
            hashed = _mixed(hashed, words[j, i])
        place = hashed & mask
        slot = np.int64(buckets[place])
        while slot >= 0:
            same = True
            for j in range(width):
                same &= keys[slot, j] == words[j, i]
            if same:
                break
            place = (place + np.uint64(1)) & mask
            slot = np.int64(buckets[place])
        if slot < 0:
            if count == len(keys):
                return i, count, found
            slot = count
            buckets[place] = slot
            for j in range(width):
                keys[slot, j] = words[j, i]
            count += 1
        if stamps[slot] != batch:
            stamps[slot] = batch
            local[slot] = found
            slots[found] = slot
            first[found] = i
            found += 1
        group[i] = local[slot]
    return words.shape[1], count, found


@numba.njit(cache=True, nogil=True)
def _put_again(keys: Vector, count: int, buckets: Vector):
    mask = np.uint64(len(buckets) - 1)
    for slot in range(count):
        hashed = np.uint64(0)
        for j in range(keys.shape[1]):
            hashed = _mixed(hashed, keys[slot, j])
        place = hashed & mask
        while buckets[place] >= 0:
            place = (place + np.uint64(1)) & mask
        buckets[place] = slot
