# pyrefly: ignore-errors[implicit-any-parameter, unannotated-return]
"""The rows of many groups in order, and the first rows of each group: for top-n over rows that may be retracted.

The structure is that of `ordered_values.py`: most rows are in a sorted run, later ones in a heap. To find the first
rows of a group, they are taken out one by one and put back into its heap. A row that changes is a new node. Each new
run renumbers the nodes in its order, so that reading the run reads memory sequentially.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ....sql.compiling.loops import loop, read_only
from ...state.key_index import grown
from ..columns import Bools, Ints
from ..groups.ordered_values import gather, is_better, melded, put_bytes, without_top
from ..ranked_rows import RANKS
from .sort_bytes import ARRIVAL_BYTES, SortBytes

Vector = np.ndarray[Any, Any]

YOUNG_MAX = 1_000  # rows in heaps before a new run is made; or a third of all rows, if that is more
_PRESENT, _LISTED = np.uint8(1), np.uint8(2)
_ROW_NUMBER, _RANK = 0, 1


class RankChanges(NamedTuple):
    """Rows that got or lost (`weight`) a `rank`. `run`: the run of changes; `place`: the number of the group among
    those that the run touched. `row`: the change that added the row; if it is -1, the row existed before, in `slot`."""

    run: Ints
    weight: Ints
    place: Ints
    rank: Ints
    row: Ints
    slot: Ints


class OrderedRows:
    """Rows are identified by their slots in a store, groups by numbers."""

    def __init__(self, function: str, largest: int) -> None:
        """In: `function`: one of `RANKS`; `largest`: the last rank that counts."""
        self._mode, self._largest = RANKS.index(function), largest
        self._node = np.zeros(0, np.int32)  # per slot; -1: none
        self._count = 0  # of nodes
        self._live = 0
        self._slot = np.zeros(0, np.int64)  # per node, like the next arrays
        self._group = np.zeros(0, np.int32)
        self._state = np.zeros(0, np.uint8)
        self._child = np.zeros(0, np.int32)
        self._sibling = np.zeros(0, np.int32)
        self._words = np.zeros(0, np.uint64)
        self._starts = np.zeros(0, np.int64)
        self._sizes = np.zeros(0, np.int32)
        self._content = np.zeros(0, np.uint8)
        self._used = 0  # of the content
        self._young = 0  # rows in heaps
        self._due = False  # whether there are rows that are in no run and no heap
        self._shown = np.zeros(0, np.int64)  # per node; 0 except during a change
        self._stamp = 0  # of the last run
        self._stamps = np.zeros(0, np.int64)  # per group, of the last run that changed it
        self._top = np.zeros(0, np.int32)  # per group, of its heap
        self._next = np.zeros(0, np.int64)  # per group, in the run, whose nodes are the first ones
        self._end = np.zeros(0, np.int64)

    def load(self, slots: Ints, groups: Ints, keys: SortBytes) -> None:
        """Adds initial rows, none of which was known. Slots are distinct."""
        nodes = self._made(slots, groups, keys)
        self._state[nodes] = _PRESENT
        self._node[slots] = nodes
        self._live += len(slots)
        self._due = True

    def change(self, slots: Ints, groups: Ints, comes: Bools, keys: SortBytes, runs: Ints) -> RankChanges:
        """The net changes of ranks in each run of changes. In: per change, the slot and the group of the row, whether
        it comes or goes, and its run, an ascending number. A row that comes replaces the one in its slot."""
        if self._due or self._young > max(YOUNG_MAX, self._live // 3) or self._count > 2 * self._live + YOUNG_MAX:
            self._sort()
        first = self._count
        self._made(slots, groups, keys)
        found, young, more = _change(
            *map(read_only, (slots, groups, comes, runs)), first, self._stamp, self._mode, self._largest,
            self._node, self._slot, self._next, self._end, self._stamps, self._shown, *self._heaps,
        )  # fmt: skip
        self._stamp += len(slots)
        self._young += young
        self._live += more
        run, weight, place, rank, node = found
        is_new = node >= first
        return RankChanges(run, weight, place, rank, np.where(is_new, node - first, -1), self._slot[node])

    def _made(self, slots: Ints, groups: Ints, keys: SortBytes) -> Ints:
        """Makes nodes for these rows, which are in no run and no heap yet."""
        first, count = self._count, self._count + len(slots)
        nodes = np.arange(first, count)
        self._grow(count, int(slots.max(initial=-1)) + 1, int(groups.max(initial=-1)) + 1, int(keys.sizes.sum()))
        self._slot[nodes], self._group[nodes], self._state[nodes] = slots, groups, 0
        self._used = put_bytes(
            nodes,
            *map(read_only, (keys.starts, keys.sizes, keys.content)),
            self._words,
            self._starts,
            self._sizes,
            self._content,
            self._used,
        )
        self._count = count
        return nodes

    @property
    def _heaps(self) -> tuple[Vector, ...]:
        keys = self._words, self._starts, self._sizes, self._content
        return self._state, self._child, self._sibling, self._top, *keys

    def _grow(self, nodes: int, slots: int, groups: int, more_bytes: int) -> None:
        self._node = grown(self._node, slots, -1)
        self._slot, self._group = grown(self._slot, nodes, 0), grown(self._group, nodes, 0)
        self._state = grown(self._state, nodes, 0)
        self._child, self._sibling = grown(self._child, nodes, -1), grown(self._sibling, nodes, -1)
        self._words, self._starts = grown(self._words, nodes, 0), grown(self._starts, nodes, 0)
        self._sizes, self._content = grown(self._sizes, nodes, 0), grown(self._content, self._used + more_bytes, 0)
        self._shown, self._stamps = grown(self._shown, nodes, 0), grown(self._stamps, groups, 0)
        self._top = grown(self._top, groups, -1)
        self._next, self._end = grown(self._next, groups, 0), grown(self._end, groups, 0)

    def _sort(self) -> None:
        """Sorts all rows into a new run."""
        there = np.flatnonzero(self._state[: self._count] & _PRESENT)
        sizes = self._sizes[there]
        content = np.empty(int(sizes.sum()), np.uint8)
        gather(there, self._starts, self._sizes, self._content, content)
        order = _order(sizes, content)
        order = order[np.argsort(self._group[there[order]], kind="stable")]
        there, count = there[order], len(order)
        ends = np.cumsum(sizes, dtype=np.int64)
        arranged = np.empty_like(content)
        gather(order, ends - sizes, sizes, content, arranged)
        self._slot[:count], self._group[:count] = self._slot[there], self._group[there]
        self._words[:count], self._sizes[:count] = self._words[there], sizes[order]
        self._starts[:count] = np.cumsum(sizes[order], dtype=np.int64) - sizes[order]
        self._content[: len(arranged)] = arranged
        self._used, self._count, self._young, self._due = len(arranged), count, 0, False
        self._state[:] = 0
        self._state[:count] = _PRESENT | _LISTED
        self._node[self._slot[:count]] = np.arange(count)
        self._top[:] = self._child[:] = self._sibling[:] = -1
        counts = np.bincount(self._group[:count], minlength=len(self._end))
        self._end = np.cumsum(counts)
        self._next = self._end - counts


def _order(sizes: Vector, content: Vector) -> Ints:
    """The order of rows by their bytes. In: the size of each row's bytes; the bytes of all rows, concatenated."""
    if len(sizes) and (sizes == sizes[0]).all():
        padded = np.zeros((len(sizes), -(-int(sizes[0]) // 8) * 8), np.uint8)
        padded[:, : sizes[0]] = content.reshape(len(sizes), -1)
        words = padded.view(">u8").astype(np.uint64)
        return np.lexsort(words.T[::-1])
    ends = np.append(0, np.cumsum(sizes, dtype=np.int64))
    buffers = [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(content.tobytes())]
    return (
        pc.array_sort_indices(pa.Array.from_buffers(pa.large_binary(), len(sizes), buffers)).to_numpy().astype(np.int64)
    )


@loop
def _is_equal(one, other, sizes, starts, content):
    """Whether two rows are equal except for their arrival."""
    if sizes[one] != sizes[other]:
        return False
    for at in range(sizes[one] - ARRIVAL_BYTES):
        if content[starts[one] + at] != content[starts[other] + at]:
            return False
    return True


@loop
def _first(
    group, mode, largest, out, count, firsts, ends, state, child, sibling, tops, words, starts, sizes, content
):  # fmt: skip
    """Adds the first rows of the group to `out`: node and rank. Out: this array, maybe a longer copy; how many rows it
    has; by how much the number of rows in heaps has grown."""
    young, begin, rank = 0, count, 0
    greatest = np.bool_(False)  # not a literal: for a literal, numba would compile the called functions again
    top = np.int64(tops[group])
    while True:
        while top >= 0 and not state[top] & _PRESENT:
            gone = top
            top = without_top(top, child, sibling, words, starts, sizes, content, greatest)
            state[gone] = 0
            young -= 1
        at = firsts[group]
        while at < ends[group] and not state[at] & _PRESENT:
            state[at] = 0
            at += 1
        firsts[group] = at
        node = top
        if at < ends[group] and (top < 0 or is_better(at, top, words, starts, sizes, content, greatest)):
            node = at
        if node < 0:
            break
        place = count - begin + 1
        if mode == _ROW_NUMBER or count == begin:
            own = place
        elif _is_equal(out[0, count - 1], node, sizes, starts, content):
            own = rank
        else:
            own = place if mode == _RANK else rank + 1
        if own > largest:
            break
        rank = own
        if node == top:
            top = without_top(top, child, sibling, words, starts, sizes, content, greatest)
        else:
            firsts[group] = at + 1
            young += 1
        if count == out.shape[1]:
            more = np.empty((2, 2 * count), np.int64)
            for at in range(count):
                more[0, at], more[1, at] = out[0, at], out[1, at]
            out = more
        out[0, count], out[1, count] = node, rank
        count += 1
    for place in range(begin, count):
        node = out[0, place]
        child[node] = sibling[node] = -1
        if top < 0:
            top = node
        else:
            top = melded(top, node, child, sibling, words, starts, sizes, content, greatest)
    tops[group] = top
    return out, count, young


@loop
def _change(
    slots, groups, comes, runs, first, stamp, mode, largest, node_of, slot_of, firsts, ends, stamps, shown,
    state, child, sibling, tops, words, starts, sizes, content,
):  # fmt: skip
    """Out: the changes of ranks as run, weight, place of the group, rank, node; by how much the numbers of rows in
    heaps and of all rows have grown."""
    found = np.empty((5, 2 * len(slots) + 16), np.int64)
    old, new = np.empty((2, 64), np.int64), np.empty((2, 64), np.int64)
    touched = np.empty(len(slots), np.int64)
    bounds = np.empty(len(slots) + 1, np.int64)
    count, young, live, begin = 0, 0, 0, 0
    greatest = np.bool_(False)
    while begin < len(slots):
        run, end = runs[begin], begin
        stamp += 1
        many, known = 0, np.int64(0)
        while end < len(slots) and runs[end] == run:
            group = groups[end]
            if stamps[group] != stamp:
                stamps[group] = stamp
                touched[many] = group
                bounds[many] = known
                old, known, more = _first(
                    group, mode, largest, old, known, firsts, ends, state, child, sibling, tops, words, starts, sizes,
                    content,
                )  # fmt: skip
                young += more
                many += 1
            end += 1
        bounds[many] = known
        for i in range(begin, end):
            slot = slots[i]
            if node_of[slot] >= 0:
                state[node_of[slot]] &= ~_PRESENT
                node_of[slot] = -1
                live -= 1
            if comes[i]:
                node, group = np.int64(first + i), groups[i]
                node_of[slot] = node
                state[node] = _PRESENT | _LISTED
                child[node] = sibling[node] = -1
                if tops[group] < 0:
                    tops[group] = node
                else:
                    top = np.int64(tops[group])
                    tops[group] = melded(top, node, child, sibling, words, starts, sizes, content, greatest)
                young += 1
                live += 1
        for position in range(many):
            group = touched[position]
            new, now, more = _first(
                group, mode, largest, new, np.int64(0), firsts, ends, state, child, sibling, tops, words, starts, sizes,
                content,
            )  # fmt: skip
            young += more
            if count + now + bounds[position + 1] - bounds[position] > found.shape[1]:
                longer = np.empty((5, 2 * (count + now + bounds[position + 1] - bounds[position])), np.int64)
                for part in range(5):
                    for at in range(count):
                        longer[part, at] = found[part, at]
                found = longer
            for at in range(now):
                shown[new[0, at]] = new[1, at]
            for at in range(bounds[position], bounds[position + 1]):
                node = old[0, at]
                if shown[node] == old[1, at]:
                    shown[node] = 0
                else:
                    found[0, count], found[1, count], found[2, count] = run, -1, position
                    found[3, count], found[4, count] = old[1, at], node
                    count += 1
            for at in range(now):
                node = new[0, at]
                if shown[node]:
                    found[0, count], found[1, count], found[2, count] = run, 1, position
                    found[3, count], found[4, count] = new[1, at], node
                    count += 1
                shown[node] = 0
        begin = end
    return found[:, :count], young, live
