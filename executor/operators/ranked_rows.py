# pyrefly: ignore-errors[implicit-any-parameter, unannotated-return]
"""Keeps the first rows of each group, in order, while rows arrive one by one: a compiled loop.

The rows of a group are an ordered list. A new row is inserted after the rows that are equal to it, which are older.
From its place on, ranks change, and rows whose rank is too large leave the list. A new row whose own rank is too large
is not inserted. This depends only on earlier rows, so batch boundaries make no difference.
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
"""The rank is the row's place, the place of the first row equal to it, or the number of distinct rows up to it."""

_ROW_NUMBER, _RANK = 0, 1


@dataclass(frozen=True, slots=True)
class Ranked:
    """Rows are numbered: first the `known` ones, then the new ones.

    `before`, `after`: the rank of each row; 0: none. `last`: per group the last row that changed it, or -1. If every
    change is wanted, there are events: `row` got or lost (`weight`) the `rank` when `cause` arrived.
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
    """In: `groups`: of each row; the first `known` rows are already ranked, older rows first. `largest`: the last rank
    that counts. `exact`: rows with equal words are equal; if not `exact`, the result is None as soon as two rows have
    equal words. `every`: whether each change is wanted; `old`: whether the ranks that rows lose are wanted, too."""
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
    """Out: whether the words decided; the number of events; the events: row, rank, weight, cause.

    Elements are copied one by one: for a copy of a slice, numba also compiles its error messages, which took longer
    than the rest of this function.
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
    """The place of the row, after rows that are equal to it, and whether there is an equal one. Most rows come last or
    are not inserted at all, so the search starts with the last one."""
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
    """Ranks the rows after a new one, into `now`; `after` has the ranks so far. Out: how many rows stay."""
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
