"""Small vector operations on batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from millstream.executor.operators import columns
from millstream.executor.operators.columns import equal, take, where, with_values_and_keys

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


@pytest.mark.parametrize("dropped", [0, 1, 5, 6, 7, 50, 99, 100])
@pytest.mark.parametrize("many", [100, 101])
def test_rows_where_a_mask_is_true(dropped: int, many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows, many of which few are kept, and many of which nearly all are."""
    monkeypatch.setattr(columns, "_MANY_ROWS", many)
    numbers = np.arange(100)
    mask = numbers * 37 % 100 >= dropped
    texts = pa.chunked_array([[None if n % 5 == 0 else f"t{n}" for n in part] for part in np.split(numbers, [30, 64])])
    rows = pa.table({"n": numbers, "text": texts, "list": [[n] * (n % 3) for n in numbers.tolist()]})
    expected = [row for row, kept in zip(rows.to_pylist(), mask.tolist(), strict=True) if kept]
    unknown = pa.array([kept or (None if n % 2 else False) for n, kept in zip(numbers, mask.tolist(), strict=True)])
    for each in (mask, pa.array(mask), pa.chunked_array([mask[:11], mask[11:]]), unknown):
        found = where(rows, each)
        assert found.to_pylist() == expected
        assert found.schema == rows.schema
    assert (where(rows, mask) is rows) == (not dropped)


def test_rows_without_a_value_or_with_a_null_in_the_key_belong_to_no_group() -> None:
    rows = pa.table(
        {"_null": [False, True, False, False], "k0": [1, 2, None, 4], "k1": [1, 1, 1, None], "v0": [None] * 4}
    )
    assert with_values_and_keys(rows, ["k0", "k1"])["k0"].to_pylist() == [1]
    assert with_values_and_keys(rows, ["k0"])["k0"].to_pylist() == [1, 4]
    assert with_values_and_keys(rows, [])["k0"].to_pylist() == [1, None, 4]


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
