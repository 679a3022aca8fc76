"""MIN and MAX over rows that are taken back again."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal as Number
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drawn import drawn
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.sql.functions.aggregation.aggregate_kernels import GroupEvents
from millstream.sql.functions.aggregation.aggregate_values import column_of
from millstream.sql.functions.aggregation.aggregates import AGGREGATES
from millstream.sql.types import BIGINT, BYTES, DATE, DOUBLE, STRING, TIMESTAMP, Decimal, SqlType

Step = tuple[int, Any, bool]  # group, value, whether it is taken back


def results(name: str, type_: SqlType, steps: list[Step], cut: int) -> list[Any]:
    """After each step; the states are stored and read again at `cut`."""
    fold = AGGREGATES[name].fold([type_], retracts=True)
    state = [pa.nulls(2, each.arrow) for each in fold.state_types]
    known, found = [False, False], []
    for part in (steps[:cut], steps[cut:]):
        rows = np.arange(len(part), dtype=np.int64)
        back = np.array([each[2] for each in part], dtype=np.bool_)
        groups = np.array([each[0] for each in part], dtype=np.int64)
        events = GroupEvents(groups, np.where(back, rows, -1), np.where(back, -1, rows))
        out, state = fold.run(events, [column_of([each[1] for each in part], type_)], state, known)
        found += out.to_pylist()
        known = [True, True]
    return found


def expected(name: str, steps: list[Step]) -> list[Any]:
    held: list[Counter[Any]] = [Counter(), Counter()]
    found: list[Any] = []
    for group, value, back in steps:
        if value is not None:
            held[group][value] += -1 if back else 1
        there = [value for value, count in held[group].items() if count > 0]
        found.append((max if name == "MAX" else min)(there) if there else None)
    return found


@st.composite
def changes(draw: st.DrawFn) -> list[Step]:
    """Values come, and only what is there is taken back."""
    held: list[list[int | None]] = [[], []]
    steps: list[Step] = []
    for _ in range(draw(st.integers(0, 25))):
        group = draw(st.integers(0, 1))
        if held[group] and draw(st.booleans()):
            at = draw(st.integers(0, len(held[group]) - 1))
            steps.append((group, held[group].pop(at), True))
        else:
            value = draw(st.none() | st.integers(-3, 3))
            held[group].append(value)
            steps.append((group, value, False))
    return steps


@pytest.mark.parametrize("name", ["MIN", "MAX"])
@settings(max_examples=drawn(30), deadline=None)
@given(changes(), st.integers(0, 25))
def test_the_extreme_is_that_of_what_is_there(name: str, steps: list[Step], cut: int) -> None:
    assert results(name, BIGINT, steps, min(cut, len(steps))) == expected(name, steps)


@pytest.mark.parametrize(
    ("type_", "low", "high"),
    [
        (STRING, "a", "b"),
        (BYTES, b"\x00", b"\x01"),
        (DOUBLE, -0.5, 1e300),
        (Decimal(6, 2), Number("-1.50"), Number("9.00")),
    ],
)
def test_any_ordered_type_will_do(type_: SqlType, low: Any, high: Any) -> None:
    steps = [(0, low, False), (0, high, False), (0, high, True), (0, low, True)]
    assert results("MAX", type_, steps, 2) == [low, high, low, None]
    assert results("MIN", type_, steps, 2) == [low, low, low, None]


@pytest.mark.parametrize("type_", [DATE, TIMESTAMP])
def test_times_are_ordered(type_: SqlType) -> None:
    first, second = column_of([0, 1], type_).to_pylist()
    steps = [(0, 1, False), (0, 0, False), (0, 1, True)]
    assert results("MAX", type_, steps, 1) == [second, second, first]


def test_nan_is_no_value() -> None:
    steps = [(0, math.nan, False), (0, 1.0, False), (0, math.nan, True), (0, 1.0, True)]
    assert results("MAX", DOUBLE, steps, 1) == [None, 1.0, 1.0, None]
