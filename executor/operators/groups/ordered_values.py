# pyrefly: ignore-errors[implicit-any-parameter, unannotated-return]
"""The values of many groups in order. It gives the best value of a group after each of many changes.

Values have numbers, which are slots of a store. Most values are in a run: it is sorted, group by group, and read from
the front only. Values that were added later are in one pairing heap per group, whose links are arrays. Once there are
many of them, all values are sorted into a new run, as in a log-structured merge tree. A removed value is only marked,
and skipped when it comes first. A change costs O(log n) on average. A heap of all values is as good in theory, but each
step down waits for memory: with a million values it was half as fast as with a hundred thousand.
Pairing heap: Fredman, Sedgewick, Sleator and Tarjan, "The pairing heap", 1986.

Values are compared as words of 64 bits (`sort_words.py`). For texts, bytes and decimals, the word has the first bytes;
if the words are equal, all bytes are compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ....sql.compiling.loops import loop, read_only
from ...state.key_index import grown
from ..columns import Ints
from ..sort_words import is_plain, plain_values, plain_words

Vector = np.ndarray[Any, Any]

_PRESENT, _LISTED = np.uint8(1), np.uint8(2)
_DECIMAL_BYTES = 16
YOUNG_MAX = 1_000  # values in heaps before a new run is made; or half the size of the run, if that is more


class ValueWords:
    """The values in a comparable form, by number. Only numbers that were `put` may be read."""

    def __init__(self, type_: pa.DataType) -> None:
        self._type = type_
        self._plain = is_plain(type_)
        self.known = np.zeros(0, np.bool_)
        self.words = np.zeros(0, np.uint64)
        self.starts = np.zeros(0, np.int64)  # `starts`, `sizes` and `content` are empty for plain values
        self.sizes = np.zeros(0, np.int32)
        self.content = np.zeros(0, np.uint8)
        self._used = 0

    def put(self, numbers: Ints, values: pa.Array) -> None:
        """In: distinct numbers; values that are not NULL."""
        count = int(numbers.max(initial=-1)) + 1
        self.known, self.words = grown(self.known, count, 0), grown(self.words, count, 0)
        new = np.flatnonzero(~self.known[numbers])
        if not len(new):
            return
        if len(new) < len(numbers):
            numbers, values = numbers[new], values.take(pa.array(new))
        self.known[numbers] = True
        if self._plain:
            self.words[numbers] = plain_words(values)
            return
        starts, sizes, content = bytes_of(values)
        self.starts, self.sizes = grown(self.starts, count, 0), grown(self.sizes, count, 0)
        self.content = grown(self.content, self._used + int(sizes.sum()), 0)
        self._used = put_bytes(
            numbers, starts, sizes, content, self.words, self.starts, self.sizes, self.content, self._used
        )

    def sorted(self, numbers: Ints, *, greatest: bool) -> Ints:
        """The positions of these numbers in the order of their values, the greatest or least one first."""
        if self._plain:
            words = self.words[numbers]
            return np.argsort(~words if greatest else words)
        values = self._gathered(numbers)
        if pa.types.is_string(self._type):
            values = values.cast(pa.binary())
        order = pc.array_sort_indices(values, order="descending" if greatest else "ascending")
        return order.to_numpy().astype(np.int64)

    def values(self, numbers: Ints) -> pa.Array:
        """The values of these numbers; -1 gives NULL."""
        missing = numbers < 0
        if missing.any():  # another number cannot replace -1: it may never have been put, and be invalid for the type
            found = self._found(numbers[~missing])
            return found.take(pa.array(np.cumsum(~missing) - 1, mask=missing))
        return self._found(numbers)

    def _found(self, numbers: Ints) -> pa.Array:
        if not len(numbers):
            return pa.nulls(0, self._type)
        return plain_values(self.words[numbers], self._type) if self._plain else self._gathered(numbers)

    def _gathered(self, numbers: Ints) -> pa.Array:
        ends = np.cumsum(self.sizes[numbers], dtype=np.int64)
        content = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
        gather(numbers, self.starts, self.sizes, self.content, content)
        return _from_bytes(np.append(0, ends), content, self._type)


class OrderedGroups:
    """The values that each group has, and its best one: the greatest or the least."""

    def __init__(self, words: ValueWords, *, greatest: bool) -> None:
        self._words = words
        self._greatest = greatest
        self._state = np.zeros(0, np.uint8)  # per value: whether it exists, and whether it is in a run or heap
        self._group = np.zeros(0, np.int32)  # per value
        self._child = np.zeros(0, np.int32)  # per value; -1: none
        self._sibling = np.zeros(0, np.int32)
        self._top = np.zeros(0, np.int32)  # per group, of its heap
        self._young = 0  # values in heaps
        self._due = False  # whether there are values that are in no run and no heap
        self._run = np.zeros(0, np.int64)
        self._first = np.zeros(0, np.int64)  # per group: where its run begins, and ends
        self._end = np.zeros(0, np.int64)

    def load(self, groups: Ints, values: Ints) -> None:
        """Adds initial values, none of which was known. Call it before `change`."""
        self._grow(int(groups.max(initial=-1)) + 1, int(values.max(initial=-1)) + 1)
        self._state[values] = _PRESENT
        self._group[values] = groups
        self._due = True

    def change(self, groups: Ints, undo: Ints, add: Ints) -> Ints:
        """The best value of each event's group after the event; -1 if the group has none. In: the events in order: the
        group of each, the value that it removes and the value that it adds; -1: none."""
        self._sort_all()
        self._grow(int(groups.max(initial=-1)) + 1, int(max(undo.max(initial=-1), add.max(initial=-1))) + 1)
        best = np.empty(len(groups), np.int64)
        words = self._words
        self._young += _change(
            groups, undo, add, self._state, self._group, self._child, self._sibling, self._top, best,
            self._run, self._first, self._end,
            words.words, words.starts, words.sizes, words.content, self._greatest,
        )  # fmt: skip
        return best

    def forget(self, values: Ints) -> None:
        """Removes these values."""
        self._state[values[values < len(self._state)]] &= ~_PRESENT

    def _grow(self, groups: int, values: int) -> None:
        self._state, self._group = grown(self._state, values, 0), grown(self._group, values, 0)
        self._child, self._sibling = grown(self._child, values, -1), grown(self._sibling, values, -1)
        self._top = grown(self._top, groups, -1)
        self._first, self._end = grown(self._first, groups, 0), grown(self._end, groups, 0)

    def _sort_all(self) -> None:
        """Sorts all values into a new run, if too many of them are in heaps."""
        if not self._due and self._young <= max(YOUNG_MAX, len(self._run) // 2):
            return
        there = np.flatnonzero(self._state & _PRESENT)
        self._state[:] = 0
        self._state[there] = _PRESENT | _LISTED
        groups = self._group[there]
        order = self._words.sorted(there, greatest=self._greatest)
        order = order[np.argsort(groups[order], kind="stable")]
        self._run = there[order]
        counts = np.bincount(groups, minlength=len(self._end))
        self._end = np.cumsum(counts)
        self._first = self._end - counts
        self._top[:] = self._child[:] = self._sibling[:] = -1
        self._young, self._due = 0, False


def bytes_of(values: pa.Array) -> tuple[Vector, Vector, Vector]:
    """Where each value begins, how many bytes it has, and all bytes. The order of the bytes is that of the values."""
    if pa.types.is_decimal(values.type):
        _, data = values.buffers()
        words = np.frombuffer(data, np.uint64)[2 * values.offset : 2 * (values.offset + len(values))].reshape(-1, 2)
        ordered = np.stack([words[:, 1] ^ np.uint64(1 << 63), words[:, 0]], axis=1).astype(">u8")
        sizes = np.full(len(values), _DECIMAL_BYTES, np.int64)
        starts = np.arange(len(values), dtype=np.int64) * _DECIMAL_BYTES
        return read_only(starts), read_only(sizes), read_only(ordered.reshape(-1).view(np.uint8))
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    starts = bounds.astype(np.int64)
    return read_only(starts[:-1]), read_only(np.diff(starts)), read_only(content)


def _from_bytes(bounds: Ints, content: Vector, type_: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(type_):
        words = content.view(">u8").reshape(-1, 2).astype(np.uint64)
        data = np.stack([words[:, 1], words[:, 0] ^ np.uint64(1 << 63)], axis=1)
        return pa.Array.from_buffers(type_, len(data), [None, pa.py_buffer(data.tobytes())])
    offsets = pa.py_buffer(bounds.astype(np.int32).tobytes())
    return pa.Array.from_buffers(type_, len(bounds) - 1, [None, offsets, pa.py_buffer(content.tobytes())])


@loop
def put_bytes(numbers, starts, sizes, content, all_words, all_starts, all_sizes, all_content, used):
    for i in range(len(numbers)):
        number, start, size = numbers[i], starts[i], sizes[i]
        word = np.uint64(0)
        for at in range(8):
            byte = np.uint64(content[start + at]) if at < size else np.uint64(0)
            word = (word << np.uint64(8)) | byte
        all_words[number], all_starts[number], all_sizes[number] = word, used, size
        for at in range(size):
            all_content[used + at] = content[start + at]
        used += size
    return used


@loop
def gather(numbers, starts, sizes, content, out):
    end = 0
    for i in range(len(numbers)):
        start = starts[numbers[i]]
        for at in range(sizes[numbers[i]]):
            out[end] = content[start + at]
            end += 1


@loop
def is_better(one, other, words, starts, sizes, content, greatest):
    if words[one] != words[other]:
        return (words[one] > words[other]) == greatest
    if len(starts) == 0:
        return False
    shorter = min(sizes[one], sizes[other])
    for at in range(min(8, shorter), shorter):  # the first 8 bytes are in the words, which are equal
        left, right = content[starts[one] + at], content[starts[other] + at]
        if left != right:
            return (left > right) == greatest
    return (sizes[one] > sizes[other]) == greatest


@loop
def melded(one, other, child, sibling, words, starts, sizes, content, greatest):
    """Melds two heaps. Out: the top; the other heap becomes its first child."""
    if is_better(other, one, words, starts, sizes, content, greatest):
        one, other = other, one
    sibling[other] = child[one]
    child[one] = other
    return one


@loop
def without_top(top, child, sibling, words, starts, sizes, content, greatest):
    """Removes the top. Out: the new top. It melds the children in pairs, and then the pairs from last to first."""
    pairs = np.int64(-1)
    node = np.int64(child[top])
    while node >= 0:
        pair, other = node, np.int64(sibling[node])
        node = np.int64(-1)
        if other >= 0:
            node = np.int64(sibling[other])
            pair = melded(pair, other, child, sibling, words, starts, sizes, content, greatest)
        sibling[pair] = pairs
        pairs = pair
    child[top] = sibling[top] = -1
    if pairs < 0:
        return pairs
    left, node = pairs, np.int64(sibling[pairs])
    sibling[left] = -1
    while node >= 0:
        other = node
        node = np.int64(sibling[node])
        sibling[other] = -1
        left = melded(left, other, child, sibling, words, starts, sizes, content, greatest)
    sibling[left] = -1
    return left


@loop
def _change(
    groups, undo, add, state, group_of, child, sibling, tops, best, run, firsts, ends, words, starts, sizes, content,
    greatest,
):  # fmt: skip
    """Out: by how much the number of values in heaps has grown."""
    young = 0
    for i in range(len(groups)):
        group = groups[i]
        top = np.int64(tops[group])
        if undo[i] >= 0:
            state[undo[i]] &= ~_PRESENT
        come = add[i]
        if come >= 0:
            if not state[come] & _LISTED:
                group_of[come] = group
                child[come] = sibling[come] = -1
                young += 1
                if top < 0:
                    top = come
                else:
                    top = melded(top, come, child, sibling, words, starts, sizes, content, greatest)
            state[come] = _PRESENT | _LISTED
        while top >= 0 and not state[top] & _PRESENT:
            gone = top
            top = without_top(top, child, sibling, words, starts, sizes, content, greatest)
            state[gone] = 0
            young -= 1
        tops[group] = top
        first = firsts[group]
        while first < ends[group] and not state[run[first]] & _PRESENT:
            state[run[first]] = 0
            first += 1
        firsts[group] = first
        best[i] = top
        if first < ends[group]:
            sorted_first = run[first]
            if top < 0 or is_better(sorted_first, top, words, starts, sizes, content, greatest):
                best[i] = sorted_first
    return young
