"""EARLIEST_BY_OFFSET and LATEST_BY_OFFSET: the first and the last values in order of arrival.

A late row can make one session of two whose rows came in turns. The states of sessions number their values for that:
in a state of an earlier version the number is NULL, and its values count as the first ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ...types import BIGINT, BOOLEAN, INTEGER, STRING, Array, SqlType
from .aggregate_fold import AggregateExample, AggregateFunction, Fold, NumberedFold, State
from .aggregate_kernels import pick_kernel

_UNNUMBERED: Final = -1


def _options(constants: Sequence[Any]) -> tuple[int | None, bool] | None:
    """(n, ignoreNulls) of `[n][, ignoreNulls]`; None where the constants are something else."""
    rest = list(constants)
    n = None
    if rest and isinstance(rest[0], int) and not isinstance(rest[0], bool):
        n = rest.pop(0)
        if n < 1:
            return None
    ignore_nulls = True
    if rest and isinstance(rest[0], bool):
        ignore_nulls = rest.pop(0)
    return None if rest else (n, ignore_nulls)


def _by_offset(latest: bool) -> Callable[[Sequence[SqlType], Sequence[Any], Mapping[str, str]], Fold | None]:
    def make(types: Sequence[SqlType], constants: Sequence[Any], properties: Mapping[str, str]) -> Fold | None:
        options = _options(constants)
        if len(types) != 1 or options is None:
            return None
        n, ignore_nulls = options
        return _one(types[0], latest, ignore_nulls) if n is None else _several(types[0], latest, ignore_nulls, n)

    return make


def _one(type_: SqlType, latest: bool, ignore_nulls: bool) -> Fold:
    def add(state: State, x: Any) -> State:
        if (x is None and ignore_nulls) or (state[1] and not latest):
            return state
        return x, True

    def merge(a: State, b: State) -> State:
        first, second = (b, a) if latest else (a, b)
        return first if first[1] else second

    return Fold(
        parameter_types=(type_,),
        state_types=(type_, BOOLEAN),
        return_type=type_,
        initial=(None, False),
        add=add,
        merge=merge,
        result=lambda state: state[0],
        kernel=pick_kernel(latest=latest, ignore_nulls=ignore_nulls),
        numbered=NumberedFold(_one_numbered(type_, latest, ignore_nulls), last=lambda state: state[2]),
    )


def _one_numbered(type_: SqlType, latest: bool, ignore_nulls: bool) -> Fold:
    def add(state: State, x: Any, number: int) -> State:
        if (x is None and ignore_nulls) or (state[1] and not latest):
            return state
        return x, True, number

    def merge(a: State, b: State) -> State:
        if not (a[1] and b[1]):
            return a if a[1] else b
        return b if (b[2] >= a[2]) == latest else a

    return Fold(
        parameter_types=(type_, BIGINT),
        state_types=(type_, BOOLEAN, BIGINT),
        return_type=type_,
        initial=(None, False, _UNNUMBERED),
        add=add,
        merge=merge,
        result=lambda state: state[0],
        load=lambda state: (*state[:2], _number(state[2])),
    )


def _several(type_: SqlType, latest: bool, ignore_nulls: bool, n: int) -> Fold:
    def keep(values: list[Any]) -> State:
        return (values[-n:] if latest else values[:n],)

    return Fold(
        parameter_types=(type_,),
        state_types=(Array(type_),),
        return_type=Array(type_),
        initial=([],),
        add=lambda state, x: state if x is None and ignore_nulls else keep([*state[0], x]),
        merge=lambda a, b: keep([*a[0], *b[0]]),
        result=lambda state: state[0],
        numbered=NumberedFold(
            _several_numbered(type_, latest, ignore_nulls, n), last=lambda state: max(state[1], default=_UNNUMBERED)
        ),
    )


def _several_numbered(type_: SqlType, latest: bool, ignore_nulls: bool, n: int) -> Fold:
    def keep(values: list[Any], numbers: list[int]) -> State:
        return (values[-n:], numbers[-n:]) if latest else (values[:n], numbers[:n])

    def merge(a: State, b: State) -> State:
        values, numbers = [*a[0], *b[0]], [*a[1], *b[1]]
        order = sorted(range(len(numbers)), key=numbers.__getitem__)
        return keep([values[i] for i in order], [numbers[i] for i in order])

    return Fold(
        parameter_types=(type_, BIGINT),
        state_types=(Array(type_), Array(BIGINT)),
        return_type=Array(type_),
        initial=([], []),
        add=lambda state, x, number: state if x is None and ignore_nulls else keep([*state[0], x], [*state[1], number]),
        merge=merge,
        result=lambda state: state[0],
        load=lambda state: (state[0], [_UNNUMBERED] * len(state[0]) if state[1] is None else state[1]),
    )


def _number(stored: int | None) -> int:
    return _UNNUMBERED if stored is None else stored


def _entry(name: str, which: str, latest: bool, results: tuple[Any, Any, Any]) -> AggregateFunction:
    rows = (("a",), (None,), ("b",), (None,))
    return AggregateFunction(
        name,
        doc=f"The {which} value, or an array of the {which} `n`, in order of arrival. NULLs are skipped "
        "unless `ignoreNulls` is false.",
        signatures=(
            f"{name}(value ANY)",
            f"{name}(value ANY, ignoreNulls BOOLEAN)",
            f"{name}(value ANY, n INTEGER)",
            f"{name}(value ANY, n INTEGER, ignoreNulls BOOLEAN)",
        ),
        examples=(
            AggregateExample((STRING,), rows, results[0]),
            AggregateExample((STRING,), rows, results[1], (2, False)),
            AggregateExample((STRING,), rows, results[2], (5,)),
            AggregateExample((INTEGER,), ((None,),), None),
            AggregateExample((INTEGER,), ((None,),), None, (False,)),
        ),
        make=_by_offset(latest),
        supports_undo=False,
        constants=(0, 2),
    )


BY_OFFSET = (
    _entry("EARLIEST_BY_OFFSET", "earliest", False, ("a", ["a", None], ["a", "b"])),
    _entry("LATEST_BY_OFFSET", "latest", True, ("b", ["b", None], ["a", "b"])),
)
