"""The rows of each partition: in order, and not copied where they stand together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.executor.partitioning import RowsOfPartition, split_by_partition

ROWS = pa.table({"n": pa.array(range(6))})


def split(partitions: list[int]) -> list[RowsOfPartition]:
    return split_by_partition(np.array(partitions, np.int32))


@pytest.mark.parametrize(
    ("partitions", "together"),
    [
        ([4, 4, 4, 4, 4, 4], {4: True}),
        ([0, 0, 0, 1, 1, 1], {0: True, 1: True}),
        ([1, 0, 0, 0, 0, 1], {0: True, 1: False}),
        ([0, 1, 0, 1, 0, 2], {0: False, 1: False, 2: True}),
    ],
)
def test_rows_that_stand_together_are_a_range(partitions: list[int], together: dict[int, bool]) -> None:
    assert {part.partition: isinstance(part.numbers, range) for part in split(partitions)} == together
    for part in split(partitions):
        own = part.of(ROWS)["n"]
        assert own.to_pylist() == [n for n in range(6) if partitions[n] == part.partition]
        copied = own.chunk(0).buffers()[1].address != ROWS["n"].chunk(0).buffers()[1].address
        assert copied == (not together[part.partition])


@given(st.lists(st.integers(0, 40), max_size=200))
def test_each_row_is_in_its_partition_once_and_in_order(partitions: list[int]) -> None:
    found = {part.partition: list(part.numbers) for part in split(partitions)}
    wanted: dict[int, list[int]] = {}
    for row, partition in enumerate(partitions):
        wanted.setdefault(partition, []).append(row)
    assert found == wanted


def test_rows_that_are_left_out() -> None:
    first, second = split([0, 0, 0, 1, 0, 1])
    assert first.without([1, 5]).of(ROWS)["n"].to_pylist() == [0, 2, 4]
    assert second.without([1, 5]).of(ROWS)["n"].to_pylist() == [3]
    assert second.without([3, 5]).of(ROWS).num_rows == 0
