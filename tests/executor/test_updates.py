"""How changes become records."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from millstream.executor.updates import settle


def _rows(*rows: tuple[int, str | None, int]) -> pa.Table:
    sequence, keys, weights = (list(column) for column in zip(*rows, strict=True))
    return pa.table({"_seq": pa.array(sequence, pa.int64()), "k0": keys, "_weight": pa.array(weights, pa.int8())})


def _settled(*rows: tuple[int, str | None, int]) -> list[tuple[int, str | None, int]]:
    return [tuple(row.values()) for row in settle(_rows(*rows)).to_pylist()]


def test_an_update_is_one_record() -> None:
    assert _settled((0, "a", -1), (0, "a", 1), (1, "b", 1)) == [(0, "a", 1), (1, "b", 1)]


def test_a_retraction_that_nothing_replaces_is_a_tombstone() -> None:
    assert _settled((0, "a", -1), (0, "b", 1)) == [(0, "a", -1), (0, "b", 1)]


def test_retractions_of_other_input_rows_do_not_pair() -> None:
    assert _settled((0, "a", -1), (1, "a", 1)) == [(0, "a", -1), (1, "a", 1)]


def test_a_null_key_pairs_with_itself() -> None:
    assert _settled((0, None, -1), (0, None, 1)) == [(0, None, 1)]


def test_a_row_that_an_input_record_brings_and_takes_back_is_deleted() -> None:
    assert _settled((0, "a", -1), (0, "a", 1), (0, "a", -1)) == [(0, "a", 1), (0, "a", -1)]


def test_a_row_that_comes_back_is_not_deleted() -> None:
    assert _settled((0, "a", -1), (0, "b", -1), (0, "a", 1)) == [(0, "b", -1), (0, "a", 1)]


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from(["a", "b", None]), st.sampled_from([-1, 1])),
        min_size=1,
        max_size=20,
    )
)
def test_exactly_the_retractions_without_a_successor_stay(rows: list[tuple[int, str | None, int]]) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    expected = [row for i, row in enumerate(rows) if row[2] > 0 or (row[0], row[1], 1) not in rows[i + 1 :]]
    assert _settled(*rows) == expected
