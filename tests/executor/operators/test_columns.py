"""Small vector operations on batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millstream.executor.operators.columns import equal, take

ROWS = pa.table({"n": pa.array([10, 11, 12])})


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ([0, 1, 2], [10, 11, 12]),
        ([0, 1], [10, 11]),
        ([0, 2, 2], [10, 12, 12]),
        ([0, 0, 2], [10, 10, 12]),
        ([2, 1, 0], [12, 11, 10]),
        ([-1, 1, 2], [None, 11, 12]),
        ([0, 1, 2, 2], [10, 11, 12, 12]),
        ([], []),
    ],
)
def test_rows_come_in_the_order_they_are_asked_for(rows: list[int], wanted: list[int | None]) -> None:
    assert take(ROWS, np.array(rows, np.int64))["n"].to_pylist() == wanted


def test_all_rows_in_their_order_are_not_copied() -> None:
    assert take(ROWS, np.arange(3)) is ROWS
    empty = ROWS.slice(0, 0)
    assert take(empty, np.arange(0)) is empty


NAN = float("nan")


@pytest.mark.parametrize(
    ("left", "right", "type_", "wanted"),
    [
        ([1, 2, None, None], [1, 3, 1, None], pa.int64(), [True, False, False, True]),
        ([1, 2], [1, 3], pa.int32(), [True, False]),
        ([0.0, 0.0, NAN, None, 0.0], [0.0, -0.0, NAN, None, None], pa.float64(), [True, False, True, True, False]),
        (["a", None, ""], ["a", None, None], pa.string(), [True, True, False]),
        ([[1], [1]], [[1], [2]], pa.list_(pa.int64()), [False, False]),
    ],
)
def test_equal_values_are_those_that_nobody_can_tell_apart(
    left: list[object], right: list[object], type_: pa.DataType, wanted: list[bool]
) -> None:
    assert equal(pa.array(left, type_), pa.array(right, type_)).tolist() == wanted
