# pyrefly: ignore-errors[implicit-any-parameter, unannotated-return]
"""Compiled loops for the hot aggregates; what they mean is in their Python folds, which agree with them bit by bit.

A loop in row order, and not DuckDB's window functions: those add DOUBLEs along a segment tree, so a sum depended on
where a batch ends, and their sort costs more than everything else (100 000 rows, 10 000 groups, COUNT and SUM per row:
75 ms by windows over batch and state; 0.3 ms by the loops here, 30 ms with grouping, reading and writing the state).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...compiling.loops import loop, read_only

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]


# Below this many events Python is as fast as a compiled loop, and needs no compiler.
COMPILED_FROM = 64


@dataclass(frozen=True, slots=True)
class GroupEvents:
    """What happens to the groups, in order: event i takes row `undo[i]` back from `group[i]` and adds row `add[i]`.

    -1 stands for no row; an event with neither leaves the state and gives the result as it is.
    """

    group: Ints
    undo: Ints
    add: Ints

    def __len__(self) -> int:
        return len(self.group)


# (events, argument columns, state columns with a row per group) → (result per event, new state columns)
Kernel = Callable[[GroupEvents, Sequence[pa.Array], Sequence[pa.Array]], tuple[pa.Array, list[pa.Array]]]


def valid(column: pa.Array) -> Bools:
    if column.null_count == 0:
        return np.ones(len(column), dtype=np.bool_)
    return column.is_valid().to_numpy(zero_copy_only=False)


def numbers(column: pa.Array) -> np.ndarray[Any, Any]:
    """The values, which are not to be written to; what stands at NULLs is any number."""
    if column.null_count:
        column = column.fill_null(0)
    return read_only(column.to_numpy(zero_copy_only=False))


def both_valid(columns: Sequence[pa.Array]) -> Bools:
    result = valid(columns[0])
    for column in columns[1:]:
        result = result & valid(column)
    return result


@loop
def _count(group, undo, add, present, state, out):
    for i in range(len(group)):
        g = group[i]
        if undo[i] >= 0 and present[undo[i]]:
            state[g] -= 1
        if add[i] >= 0 and present[add[i]]:
            state[g] += 1
        out[i] = state[g]


@loop
def _sum(group, undo, add, present, values, state, out):
    for i in range(len(group)):
        g = group[i]
        if undo[i] >= 0 and present[undo[i]]:
            state[g] -= values[undo[i]]
        if add[i] >= 0 and present[add[i]]:
            state[g] += values[add[i]]
        out[i] = state[g]


@loop
def _average(group, undo, add, present, values, total, count, out):
    for i in range(len(group)):
        g = group[i]
        if undo[i] >= 0 and present[undo[i]]:
            total[g] -= values[undo[i]]
            count[g] -= 1
        if add[i] >= 0 and present[add[i]]:
            total[g] += values[add[i]]
            count[g] += 1
        out[i] = 0.0 if count[g] == 0 else float(total[g]) / float(count[g])


@loop
def _extreme(group, add, present, values, greatest, state, known, out, out_known):
    for i in range(len(group)):
        g = group[i]
        row = add[i]
        if row >= 0 and present[row]:
            value = values[row]
            best = state[g]
            # NaN is greater than all numbers, as in comparisons and in ORDER BY; it differs from itself.
            one, other = (value, best) if greatest else (best, value)
            if not known[g] or one > other or (one != one and other == other):
                state[g] = value
                known[g] = True
        out[i] = state[g]
        out_known[i] = known[g]


@loop
def _pick(group, add, eligible, latest, offset, pointer, out):
    for i in range(len(group)):
        g = group[i]
        row = add[i]
        if row >= 0 and eligible[row] and (latest or pointer[g] < 0):
            pointer[g] = offset + row
        out[i] = pointer[g]


@loop
def _deviation(group, undo, add, present, values, count, total, squares, rooted, out):
    for i in range(len(group)):
        g = group[i]
        if undo[i] >= 0 and present[undo[i]]:
            x = values[undo[i]]
            n = count[g]
            if n > 1:
                d = n * x - total[g]
                squares[g] -= d * d / (n * (n - 1.0))
            count[g] = n - 1
            total[g] -= x
        if add[i] >= 0 and present[add[i]]:
            x = values[add[i]]
            n = count[g] + 1
            count[g] = n
            total[g] += x
            if n > 1:
                d = n * x - total[g]
                squares[g] += d * d / (n * (n - 1.0))
        variance = 0.0 if count[g] < 2 else squares[g] / (count[g] - 1.0)
        out[i] = np.sqrt(variance) if rooted else variance


@loop
def _correlation(group, undo, add, present, xs, ys, n, sx, sy, sxx, syy, sxy, out):
    for i in range(len(group)):
        g = group[i]
        for sign in (-1.0, 1.0):
            row = undo[i] if sign < 0 else add[i]
            if row >= 0 and present[row]:
                x = xs[row]
                y = ys[row]
                n[g] += 1 if sign > 0 else -1
                sx[g] += sign * x
                sy[g] += sign * y
                sxx[g] += sign * (x * x)
                syy[g] += sign * (y * y)
                sxy[g] += sign * (x * y)
        count = float(n[g])
        spread = (count * sxx[g] - sx[g] * sx[g]) * (count * syy[g] - sy[g] * sy[g])
        out[i] = (count * sxy[g] - sx[g] * sy[g]) / np.sqrt(spread) if spread > 0 else np.nan


@loop
def _running_max(group, values, state, out):
    for i in range(len(group)):
        g = group[i]
        if values[i] > state[g]:
            state[g] = values[i]
        out[i] = state[g]


def running_max(group: Ints, values: Ints, state: Ints) -> Ints:
    """The largest value of each group so far, per event; goes on from `state` (one per group), and changes it."""
    out = np.empty(len(group), dtype=np.int64)
    loop = _running_max if len(group) >= COMPILED_FROM else _running_max.py_func
    loop(read_only(group), read_only(values), state, out)
    return out


def _own(column: pa.Array, dtype: Any = None) -> np.ndarray[Any, Any]:
    """A copy to write into."""
    return np.array(numbers(column), dtype=dtype, copy=True)


def count_kernel(
    events: GroupEvents, arguments: Sequence[pa.Array], state: Sequence[pa.Array]
) -> tuple[Any, list[Any]]:
    rows = int(max(events.undo.max(initial=-1), events.add.max(initial=-1))) + 1
    present = valid(arguments[0]) if arguments else np.ones(rows, dtype=np.bool_)
    total, out = _own(state[0]), np.empty(len(events), dtype=np.int64)
    _count(events.group, events.undo, events.add, present, total, out)
    return pa.array(out), [pa.array(total)]


def sum_kernel(events: GroupEvents, arguments: Sequence[pa.Array], state: Sequence[pa.Array]) -> tuple[Any, list[Any]]:
    (values,) = arguments
    total = _own(state[0])
    out = np.empty(len(events), dtype=total.dtype)
    _sum(events.group, events.undo, events.add, valid(values), numbers(values), total, out)
    return pa.array(out), [pa.array(total)]


def average_kernel(
    events: GroupEvents, arguments: Sequence[pa.Array], state: Sequence[pa.Array]
) -> tuple[Any, list[Any]]:
    (values,) = arguments
    total, count, out = _own(state[0]), _own(state[1]), np.empty(len(events), dtype=np.float64)
    _average(events.group, events.undo, events.add, valid(values), numbers(values), total, count, out)
    return pa.array(out), [pa.array(total), pa.array(count)]


def extreme_kernel(*, greatest: bool) -> Kernel:
    """MIN or MAX of numbers and of what is kept as numbers."""

    def run(events: GroupEvents, arguments: Sequence[pa.Array], state: Sequence[pa.Array]) -> tuple[Any, list[Any]]:
        (values,) = arguments
        best, known = _own(state[0]), np.array(valid(state[0]), copy=True)
        out, out_known = np.empty(len(events), dtype=best.dtype), np.empty(len(events), dtype=np.bool_)
        _extreme(events.group, events.add, valid(values), numbers(values), greatest, best, known, out, out_known)
        return pa.array(out, mask=~out_known), [pa.array(best, mask=~known)]

    return run


def ordered_extreme_kernel(*, greatest: bool) -> Kernel:
    """MIN or MAX of any type that Arrow sorts (texts by their bytes, which is Python's order): the loop compares places
    among the different values."""

    def run(events: GroupEvents, arguments: Sequence[pa.Array], state: Sequence[pa.Array]) -> tuple[Any, list[Any]]:
        groups = len(state[0])
        encoded = pa.concat_arrays([state[0], arguments[0].cast(state[0].type)]).dictionary_encode()
        order = pc.sort_indices(encoded.dictionary)
        rank = np.empty(len(order), dtype=np.int64)
        rank[order.to_numpy()] = np.arange(len(order), dtype=np.int64)
        there = valid(encoded.indices)
        places = np.zeros(len(encoded), dtype=np.int64)
        places[there] = rank[numbers(encoded.indices)[there]]
        best, known = places[:groups].copy(), there[:groups].copy()
        out, out_known = np.empty(len(events), dtype=np.int64), np.empty(len(events), dtype=np.bool_)
        rows = there[groups:], read_only(places[groups:])
        _extreme(events.group, events.add, *rows, greatest, best, known, out, out_known)
        values = encoded.dictionary.take(order)
        return values.take(pa.array(out, mask=~out_known)), [values.take(pa.array(best, mask=~known))]

    return run


def pick_kernel(*, latest: bool, ignore_nulls: bool) -> Kernel:
    """LATEST or EARLIEST of any type: the loop picks row numbers, Arrow takes the values.

    State: the value, and whether there has been one (it may be NULL).
    """

    def run(events: GroupEvents, arguments: Sequence[pa.Array], state: Sequence[pa.Array]) -> tuple[Any, list[Any]]:
        (values,) = arguments
        groups = len(state[0])
        seen = numbers(state[1])
        pointer = np.where(seen, np.arange(groups, dtype=np.int64), -1)
        eligible = valid(values) if ignore_nulls else np.ones(len(values), dtype=np.bool_)
        out = np.empty(len(events), dtype=np.int64)
        _pick(events.group, events.add, eligible, latest, groups, pointer, out)
        pool = pa.concat_arrays([state[0], values.cast(state[0].type)])

        def take(pointers: Ints) -> pa.Array:
            return pool.take(pa.array(pointers, mask=pointers < 0))

        return take(out), [take(pointer), pa.array(pointer >= 0)]

    return run


def deviation_kernel(*, rooted: bool) -> Kernel:
    def run(events: GroupEvents, arguments: Sequence[pa.Array], state: Sequence[pa.Array]) -> tuple[Any, list[Any]]:
        (values,) = arguments
        own = [_own(column) for column in state]
        out = np.empty(len(events), dtype=np.float64)
        doubles = numbers(values).astype(np.float64)
        _deviation(events.group, events.undo, events.add, valid(values), doubles, *own, rooted, out)
        return pa.array(out), [pa.array(column) for column in own]

    return run


def correlation_kernel(
    events: GroupEvents, arguments: Sequence[pa.Array], state: Sequence[pa.Array]
) -> tuple[Any, list[Any]]:
    xs, ys = (numbers(column).astype(np.float64) for column in arguments)
    own = [_own(column) for column in state]
    out = np.empty(len(events), dtype=np.float64)
    _correlation(events.group, events.undo, events.add, both_valid(arguments), xs, ys, *own, out)
    return pa.array(out), [pa.array(column) for column in own]
