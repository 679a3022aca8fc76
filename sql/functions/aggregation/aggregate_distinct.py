"""DISTINCT as a fold: an aggregate that keeps the values it has seen in its own state.

For sessions, which merge; other aggregates count their members in a store (`executor/operators/groups/members.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...types import Array
from .aggregate_fold import Fold, State
from .aggregate_values import hashable

_Seen = dict[Any, Any]


def distinct_fold(inner: Fold) -> Fold:
    """`inner`, of one argument, over each value once; NULL is none."""

    identity = hashable(inner.parameter_types[0])

    def grown(state: State, values: Iterable[Any]) -> State:
        seen: _Seen = state[0]
        new = {known: value for value in values if value is not None and (known := identity(value)) not in seen}
        if not new:
            return state
        folded: State = state[1]
        for value in new.values():
            folded = inner.add(folded, value)
        return {**seen, **new}, folded

    empty: State = ({}, inner.initial)
    return Fold(
        parameter_types=inner.parameter_types,
        state_types=(Array(inner.parameter_types[0]),),
        return_type=inner.return_type,
        initial=empty,
        add=lambda state, value: grown(state, (value,)),
        merge=lambda a, b: grown(a, b[0].values()),
        result=lambda state: inner.result(state[1]),
        load=lambda stored: grown(empty, stored[0] or ()),
        dump=lambda state: (list(state[0].values()),),
    )
