"""Aggregates that keep several values per group: COLLECT_LIST, COLLECT_SET, HISTOGRAM, ATTR, TOPK, TOPKDISTINCT,
COUNT_DISTINCT."""

from __future__ import annotations

import bisect
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...settings.property_table import COLLECT_LIST_LIMIT, COLLECT_SET_LIMIT
from ...types import (
    BIGINT,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    Array,
    Decimal,
    Field,
    Map,
    SqlType,
    Struct,
)
from .aggregate_fold import AggregateExample, AggregateFunction, Fold, State, own
from .aggregate_values import canonical, hashable, rank

Types = Sequence[SqlType]
Properties = Mapping[str, str]

_HISTOGRAM_LIMIT = 1000
_SORTED = (INTEGER, BIGINT, DOUBLE, STRING, BYTES, DATE, TIME, TIMESTAMP)


@dataclass(frozen=True, slots=True)
class CollectionLimits:
    """The most elements that a collection may have; a negative setting is no limit."""

    of_list: float
    of_set: float

    @staticmethod
    def of(properties: Properties) -> CollectionLimits:
        return CollectionLimits(_limit(COLLECT_LIST_LIMIT.of(properties)), _limit(COLLECT_SET_LIMIT.of(properties)))


def _limit(setting: int) -> float:
    return setting if setting >= 0 else math.inf


# ------------------------------------------------------------------ COLLECT_LIST, COLLECT_SET


def _collect_list(types: Types, constants: Sequence[Any], properties: Properties) -> Fold | None:
    if len(types) != 1:
        return None
    limit = CollectionLimits.of(properties).of_list
    form = hashable(types[0])

    def absorb(state: State, x: Any) -> State:
        if len(state[0]) < limit:
            state[0].append(x)
        return state

    def undo(state: State, x: Any) -> State:
        values = state[0]
        for i in range(len(values) - 1, -1, -1):
            if form(values[i]) == form(x):
                return ([*values[:i], *values[i + 1 :]],)
        return state

    def merge(a: State, b: State) -> State:
        both = [*a[0], *b[0]]
        return (both if len(both) <= limit else both[: int(limit)],)

    return Fold(
        parameter_types=(types[0],),
        state_types=(Array(types[0]),),
        return_type=Array(types[0]),
        initial=([],),
        add=lambda state, x: ([*state[0], x],) if len(state[0]) < limit else state,
        undo=undo,
        absorb=absorb,
        merge=merge,
        result=lambda state: state[0],
    )


def _collect_set(types: Types, constants: Sequence[Any], properties: Properties) -> Fold | None:
    if len(types) != 1:
        return None
    limit = CollectionLimits.of(properties).of_set
    identity = hashable(types[0])

    def absorb(state: State, x: Any) -> State:
        if len(state[0]) < limit:
            state[0].setdefault(identity(x), x)
        return state

    def add(state: State, x: Any) -> State:
        return state if len(state[0]) >= limit or identity(x) in state[0] else ({**state[0], identity(x): x},)

    def merge(a: State, b: State) -> State:
        for x in b[0].values():
            a = add(a, x)
        return a

    return Fold(
        parameter_types=(types[0],),
        state_types=(Array(types[0]),),
        return_type=Array(types[0]),
        initial=({},),
        add=add,
        absorb=absorb,
        merge=merge,
        result=lambda state: list(state[0].values()),
        load=lambda state: ({identity(x): x for x in state[0]},),
        dump=lambda state: (list(state[0].values()),),
    )


# ------------------------------------------------------------------ HISTOGRAM


def _histogram(types: Types, constants: Sequence[Any], properties: Properties) -> Fold | None:
    if list(types) != [STRING]:
        return None

    def is_counted(counts: dict[str, int], key: str | None, by: int) -> bool:
        return key is not None and (key in counts or (by > 0 and len(counts) < _HISTOGRAM_LIMIT))

    def absorb(state: State, key: str | None) -> State:
        counts = state[0]
        if is_counted(counts, key, 1):
            counts[key] = counts.get(key, 0) + 1
        return state

    def count(counts: dict[str, int], key: str | None, by: int) -> dict[str, int]:
        if key is None or not is_counted(counts, key, by):
            return counts
        changed = dict(counts)
        changed[key] = counts.get(key, 0) + by
        if changed[key] <= 0:
            del changed[key]
        return changed

    def merge(a: State, b: State) -> State:
        counts = a[0]
        for key, n in b[0].items():
            counts = count(counts, key, n)
        return (counts,)

    return Fold(
        parameter_types=(STRING,),
        state_types=(Map(STRING, BIGINT),),
        return_type=Map(STRING, BIGINT),
        initial=({},),
        add=lambda state, x: (count(state[0], x, 1),),
        undo=lambda state, x: (count(state[0], x, -1),),
        absorb=absorb,
        merge=merge,
        result=lambda state: list(state[0].items()),
        load=lambda state: (dict(state[0]),),
        dump=lambda state: (list(state[0].items()),),
    )


# ------------------------------------------------------------------ ATTR


def _attribute(types: Types, constants: Sequence[Any], properties: Properties) -> Fold | None:
    """State: the distinct values, NULL among them, and how often each is there."""
    if len(types) != 1:
        return None
    form = hashable(types[0])

    def count(state: State, x: Any, by: int) -> State:
        values, counts = list(state[0]), list(state[1])
        forms = list(map(form, values))
        if form(x) not in forms:
            return ([*values, x], [*counts, by]) if by > 0 else state
        i = forms.index(form(x))
        counts[i] += by
        if counts[i] <= 0:
            del values[i], counts[i]
        return values, counts

    def merge(a: State, b: State) -> State:
        for value, n in zip(*b, strict=True):
            a = count(a, value, n)
        return a

    return Fold(
        parameter_types=(types[0],),
        state_types=(Array(types[0]), Array(BIGINT)),
        return_type=types[0],
        initial=([], []),
        add=lambda state, x: count(state, x, 1),
        undo=lambda state, x: count(state, x, -1),
        merge=merge,
        result=lambda state: state[0][0] if len(state[0]) == 1 else None,
    )


# ------------------------------------------------------------------ TOPK, TOPKDISTINCT


def _k(constants: Sequence[Any]) -> int | None:
    k = constants[-1] if constants else None
    return k if isinstance(k, int) and not isinstance(k, bool) and k > 0 else None


def _is_sorted_type(type_: SqlType) -> bool:
    return type_ in _SORTED or isinstance(type_, Decimal)


def _topk(types: Types, constants: Sequence[Any], properties: Properties) -> Fold | None:
    k = _k(constants)
    if k is None or not types or not _is_sorted_type(types[0]):
        return None
    others = len(types) - 1
    element: SqlType = types[0]
    if others:
        element = Struct((Field("sort_col", types[0]), *(Field(f"col{i}", type_) for i, type_ in enumerate(types[1:]))))

    def place_of(entry: Any) -> Any:
        return rank(entry["sort_col"] if others else entry)

    def place(top: list[Any], entry: Any) -> list[Any]:
        """Equal ones stand in the order in which they came."""
        own = place_of(entry)
        if len(top) >= k and place_of(top[-1]) >= own:
            return top
        position = sum(1 for other in top if place_of(other) >= own)
        return top if position >= k else [*top[:position], entry, *top[position:]][:k]

    def add(state: State, x: Any, *rest: Any) -> State:
        if x is None:
            return state
        entry = {"sort_col": x, **{f"col{i}": value for i, value in enumerate(rest)}} if others else x
        return (place(state[0], entry),)

    def merge(a: State, b: State) -> State:
        top = a[0]
        for entry in b[0]:
            top = place(top, entry)
        return (top,)

    return Fold(
        parameter_types=tuple(types),
        state_types=(Array(element),),
        return_type=Array(element),
        initial=([],),
        add=add,
        merge=merge,
        result=lambda state: state[0],
    )


def _topk_distinct(types: Types, constants: Sequence[Any], properties: Properties) -> Fold | None:
    k = _k(constants)
    if k is None or len(types) != 1 or not _is_sorted_type(types[0]):
        return None

    def add(state: State, x: Any) -> State:
        top = state[0]
        if x is None or rank(x) in map(rank, top) or (len(top) >= k and rank(top[-1]) >= rank(x)):
            return state
        return (sorted([*top, x], key=rank, reverse=True)[:k],)

    def merge(a: State, b: State) -> State:
        for x in b[0]:
            a = add(a, x)
        return a

    return Fold(
        parameter_types=(types[0],),
        state_types=(Array(types[0]),),
        return_type=Array(types[0]),
        initial=([],),
        add=add,
        merge=merge,
        result=lambda state: state[0],
    )


# ------------------------------------------------------------------ COUNT_DISTINCT

_EXACT_UP_TO = 256
_REGISTER_BITS = 12
_REGISTERS = 1 << _REGISTER_BITS


def _hash(value: Any) -> int:
    digest = hashlib.blake2b(repr(value).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _register(registers: bytearray, hashed: int) -> None:
    bits = hashed & (1 << 64) - 1
    rest = bits & (1 << 64 - _REGISTER_BITS) - 1
    index, leading = bits >> 64 - _REGISTER_BITS, 64 - _REGISTER_BITS - rest.bit_length() + 1
    if leading > registers[index]:
        registers[index] = leading


def _estimate(registers: bytearray) -> int:
    """HyperLogLog's estimate (Flajolet et al. 2007), with linear counting where registers are empty."""
    raw = 0.7213 / (1 + 1.079 / _REGISTERS) * _REGISTERS**2 / sum(2.0**-r for r in registers)
    empty = registers.count(0)
    if raw <= 2.5 * _REGISTERS and empty:
        raw = _REGISTERS * math.log(_REGISTERS / empty)
    return round(raw)


def _count_distinct(types: Types, constants: Sequence[Any], properties: Properties) -> Fold | None:
    """State: the hashes while they are few, in order (then the count is exact), later HyperLogLog registers."""
    if len(types) != 1:
        return None
    form = canonical(types[0])

    def insert(state: State, hashed: int) -> State:
        """Changes the state."""
        hashes, registers = state
        if registers is not None:
            _register(registers, hashed)
            return state
        position = bisect.bisect_left(hashes, hashed)
        if position == len(hashes) or hashes[position] != hashed:
            hashes.insert(position, hashed)
        if len(hashes) <= _EXACT_UP_TO:
            return state
        fresh = bytearray(_REGISTERS)
        for each in hashes:
            _register(fresh, each)
        return [], fresh

    def merge(a: State, b: State) -> State:
        if a[1] is not None and b[1] is not None:
            return [], bytearray(map(max, a[1], b[1]))
        if b[1] is not None:
            a, b = b, a
        a = own(a)
        for hashed in b[0]:
            a = insert(a, hashed)
        return a

    return Fold(
        parameter_types=(types[0],),
        state_types=(Array(BIGINT), BYTES),
        return_type=BIGINT,
        initial=([], None),
        add=lambda state, x: state if x is None else insert(own(state), _hash(form(x))),
        absorb=lambda state, x: state if x is None else insert(state, _hash(form(x))),
        merge=merge,
        result=lambda state: len(state[0]) if state[1] is None else _estimate(state[1]),
        load=lambda state: (state[0], None if state[1] is None else bytearray(state[1])),
        dump=lambda state: (state[0], None if state[1] is None else bytes(state[1])),
    )


# ------------------------------------------------------------------ entries

_LETTERS = (("b",), ("a",), (None,), ("b",))
_TOPK_TYPES = "INTEGER|BIGINT|DOUBLE|DECIMAL|STRING|BYTES|DATE|TIME|TIMESTAMP"

COLLECTIONS = (
    AggregateFunction(
        "COLLECT_LIST",
        doc=f"All values in an array, in order of arrival, including NULLs. The property `{COLLECT_LIST_LIMIT}` "
        "(default: none) limits its length; later values are dropped.",
        signatures=("COLLECT_LIST(value ANY)",),
        examples=(AggregateExample((STRING,), _LETTERS, ["b", "a", None, "b"]),),
        make=_collect_list,
        supports_undo=True,
        properties=(COLLECT_LIST_LIMIT.name,),
    ),
    AggregateFunction(
        "COLLECT_SET",
        doc=f"The distinct values in an array, in order of first arrival, including NULL. The property "
        f"`{COLLECT_SET_LIMIT}` (default: none) limits its length; later values are dropped.",
        signatures=("COLLECT_SET(value ANY)",),
        examples=(AggregateExample((STRING,), _LETTERS, ["b", "a", None]),),
        make=_collect_set,
        supports_undo=False,
        properties=(COLLECT_SET_LIMIT.name,),
    ),
    AggregateFunction(
        "HISTOGRAM",
        doc="A map from each value to its number of occurrences; at most 1000 values are counted; NULLs are ignored.",
        signatures=("HISTOGRAM(value STRING)",),
        examples=(AggregateExample((STRING,), _LETTERS, [("b", 2), ("a", 1)]),),
        make=_histogram,
        supports_undo=True,
    ),
    AggregateFunction(
        "ATTR",
        doc="The value that all rows have; NULL if they differ.",
        signatures=("ATTR(value ANY)",),
        examples=(
            AggregateExample((STRING,), (("a",), ("a",)), "a"),
            AggregateExample((STRING,), (("a",), ("b",)), None),
            AggregateExample((STRING,), ((None,),), None),
        ),
        make=_attribute,
        supports_undo=True,
    ),
    AggregateFunction(
        "TOPK",
        doc="The `k` largest values, largest first; with further columns, structs of them (`sort_col`, `col0`, …), "
        "ordered by the first. Rows in which that is NULL are ignored.",
        signatures=(f"TOPK(value {_TOPK_TYPES}, k INTEGER)", f"TOPK(value {_TOPK_TYPES}, other ANY..., k INTEGER)"),
        examples=(
            AggregateExample((INTEGER,), ((1,), (None,), (3,), (2,), (3,)), [3, 3], (2,)),
            AggregateExample(
                (INTEGER, STRING),
                ((1, "a"), (3, None)),
                [{"sort_col": 3, "col0": None}, {"sort_col": 1, "col0": "a"}],
                (2,),
            ),
        ),
        make=_topk,
        supports_undo=False,
        arguments=None,
        constants=(1, 1),
    ),
    AggregateFunction(
        "TOPKDISTINCT",
        doc="The `k` largest distinct values, largest first; NULLs are ignored.",
        signatures=(f"TOPKDISTINCT(value {_TOPK_TYPES}, k INTEGER)",),
        examples=(AggregateExample((INTEGER,), ((1,), (None,), (3,), (2,), (3,)), [3, 2], (2,)),),
        make=_topk_distinct,
        supports_undo=False,
        constants=(1, 1),
    ),
    AggregateFunction(
        "COUNT_DISTINCT",
        doc=f"The number of distinct values: exact up to {_EXACT_UP_TO}, then an estimate that is off by 1.6 % on "
        "average (HyperLogLog). NULLs are ignored.",
        signatures=("COUNT_DISTINCT(value ANY)",),
        examples=(AggregateExample((STRING,), _LETTERS, 2), AggregateExample((STRING,), ((None,),), 0)),
        make=_count_distinct,
        supports_undo=False,
    ),
)
