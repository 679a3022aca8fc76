# pyright: reportMissingParameterType=false
"""The first rows of each group by their order, kept while rows come one by one: a compiled loop.

A group's rows are a list in order. A row that comes is put behind those that are equal to it, which are older; from its
place on ranks change, and rows whose rank is too large leave the list. A row that would be one of them is not put in.
That depends on the rows before it only, so where a batch ends makes no difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...sql.compiling.loops import inlined_loop, loop
from .columns import Ints
from .sort_words import Words

Vector = np.ndarray[Any, Any]

RANKS: Sequence[str] = ("ROW_NUMBER", "RANK", "DENSE_RANK")
"""By function: a row's place, that of the first row equal to it, or how many different ones there are up to it."""

_ROW_NUMBER, _RANK = 0, 1


@dataclass(frozen=True, slots=True)
class Ranked:
    """Rows are numbered: first the `known` ones, then those that came.

    `before`, `after`: each row's rank, 0 where it has none. `last`: per group the last row that changed it, or -1. With
    every change: `row` got or lost (`weight`) the `rank` when `cause` came.
    """

    before: Ints
    after: Ints
    last: Ints
    row: Ints
    rank: Ints
    weight: Ints
    cause: Ints


def rank_rows(
    words: Words,
    groups: Ints,
    group_count: int,
    known: int,
    function: str,
    largest: int,
    *,
    exact: bool,
    every: bool,
    old: bool,
) -> Ranked | None:
    """In: `groups`: of each row; the first `known` rows are ranked already, older ones first. `largest`: the last rank
    that counts. `exact`: rows with equal words are equal; else there is no result where two are. `every`, `old`:
    whether each change is wanted, and with it the ranks that rows lose."""
    rows = words.shape[1]
    mode = RANKS.index(function)
    room = np.bincount(groups, minlength=group_count)
    if mode == _ROW_NUMBER:
        room = np.minimum(room, largest + 1)
    starts = np.cumsum(room) - room
    before, after = np.zeros((2, rows), np.int64)
    last = np.full(group_count, -1, np.int64)
    state = np.zeros(int(room.sum()), np.int64), starts, np.zeros(group_count, np.int64)
    decided, count, events = _rank(words, groups, known, mode, largest, exact, every, old, *state, before, after, last)
    return Ranked(before, after, last, *events[:, :count]) if decided else None


@loop
def _rank(words, groups, known, mode, largest, exact, every, old, listed, starts, sizes, before, after, last):
    """Out: whether the words decided; how many events there are, and these: row, rank, weight, cause.

    Elements are copied one by one: numba compiles all that an error of a copied slice could say, which took longer than
    the rest of this.
    """
    count = 0
    events = np.empty((4, 2 * (len(groups) - known) if every else 0), np.int64)
    now = np.zeros(len(groups), np.int64)
    for row in range(len(groups)):
        if row == known:
            for each in range(len(groups)):
                before[each] = after[each]
        group = groups[row]
        start, size = starts[group], sizes[group]
        place, equal = _place(words, listed, start, size, row)
        if equal and not exact:
            return False, 0, events
        rank = place + 1
        if place and mode != _ROW_NUMBER:
            previous = after[listed[start + place - 1]]
            rank = previous if equal else (rank if mode == _RANK else previous + 1)
        if rank > largest:
            continue
        for at in range(start + size, start + place, -1):
            listed[at] = listed[at - 1]
        listed[start + place] = row
        now[row] = rank
        kept = _rank_behind(listed, start, place, size + 1, mode, largest, after, now)
        if row >= known:
            last[group] = row
        if every and row >= known:
            if count + 2 * (size + 1 - place) > events.shape[1]:
                more = np.empty((4, 2 * (events.shape[1] + size + 1)), np.int64)
                for part in range(4):
                    for event in range(count):
                        more[part, event] = events[part, event]
                events = more
            for at in range(start + place, start + size + 1 if old else start):
                other = listed[at]
                if after[other] != 0 and after[other] != now[other]:
                    events[0, count], events[1, count] = other, after[other]
                    events[2, count], events[3, count] = -1, row
                    count += 1
            for at in range(start + place, start + kept):
                other = listed[at]
                if after[other] != now[other]:
                    events[0, count], events[1, count] = other, now[other]
                    events[2, count], events[3, count] = 1, row
                    count += 1
        for at in range(start + place, start + size + 1):
            after[listed[at]] = now[listed[at]]
        sizes[group] = kept
    return True, count, events


@inlined_loop
def _place(words, listed, start, size, row):
    """Where the row comes, behind those that are equal to it, and whether one is. Most rows come last or not at all, so
    the last one is looked at first."""
    low, high = 0, size
    equal = False
    middle = size - 1
    while low < high:
        order = 0
        other = listed[start + middle]
        for word in range(words.shape[0]):
            if words[word, other] != words[word, row]:
                order = -1 if words[word, other] < words[word, row] else 1
                break
        equal |= order == 0
        if order > 0:
            high = middle
        else:
            low = middle + 1
        middle = (low + high) // 2
    return low, equal


@inlined_loop
def _rank_behind(listed, start, place, size, mode, largest, after, now):
    """Ranks the rows behind a new one: in `now`, while `after` has the ranks until now. Out: how many rows stay."""
    kept = size
    for at in range(place + 1, size):
        row, previous = listed[start + at], listed[start + at - 1]
        rank = at + 1
        if mode != _ROW_NUMBER:
            same = at > place + 1 and after[row] == after[previous]
            rank = now[previous] if same else (rank if mode == _RANK else now[previous] + 1)
        now[row] = rank
        if rank > largest and kept == size:
            kept = at
    for at in range(kept, size):
        now[listed[start + at]] = 0
    return kept
