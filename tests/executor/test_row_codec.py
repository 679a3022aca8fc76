"""Rows of columns as bytes: every type comes back as it was, and equal values have equal bytes."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.executor.state.row_codec import MalformedRow, decode_rows, encode_rows, fingerprint

_NUMBERS = st.integers(-(2**63), 2**63 - 1)
_SCALARS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), _NUMBERS),
    (pa.float64(), st.floats(allow_nan=False).map(lambda value: value + 0.0)),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text()),
    (pa.binary(), st.binary()),
    (pa.date32(), st.dates()),
    (pa.time64("us"), st.times()),
    (pa.timestamp("ms"), st.datetimes().map(lambda value: value.replace(microsecond=0))),
    (pa.decimal128(20, 4), st.integers(-(10**19), 10**19).map(lambda value: decimal.Decimal(value).scaleb(-4))),
]


def _typed() -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    """A type, and its values, NULL among them."""

    def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.one_of(
            inner.map(lambda of: (pa.list_(of[0]), st.lists(of[1], max_size=4))),
            st.tuples(inner, inner).map(
                lambda two: (
                    pa.struct([("a", two[0][0]), ("B", two[1][0])]),
                    st.fixed_dictionaries({"a": two[0][1], "B": two[1][1]}),
                )
            ),
            inner.map(
                lambda of: (pa.map_(pa.string(), of[0]), st.lists(st.tuples(st.text(max_size=3), of[1]), max_size=3))
            ),
        )

    scalars = st.sampled_from(_SCALARS).map(lambda of: (of[0], st.none() | of[1]))
    return st.recursive(scalars, lambda inner: nested(inner).map(lambda of: (of[0], st.none() | of[1])), max_leaves=4)


@given(st.data())
def test_decoding_undoes_encoding(data: st.DataObject) -> None:
    typed = data.draw(st.lists(_typed(), min_size=0, max_size=10))
    rows = data.draw(st.integers(0, 8))
    columns = [pa.array([data.draw(values) for _ in range(rows)], type_) for type_, values in typed]
    encoded = encode_rows(columns, rows)
    assert encoded.null_count == 0
    found = decode_rows(encoded, [type_ for type_, _ in typed])
    assert [column.to_pylist() for column in found] == [column.to_pylist() for column in columns]
    for column in found:
        column.validate(full=True)


@given(st.data())
def test_slices_are_encoded_as_their_copies(data: st.DataObject) -> None:
    type_, values = data.draw(_typed())
    column = pa.array([data.draw(values) for _ in range(7)], type_)
    copied = pa.array(column.slice(2, 4).to_pylist(), type_)
    assert encode_rows([column.slice(2, 4)], 4).to_pylist() == encode_rows([copied], 4).to_pylist()
    assert decode_rows(encode_rows([column], 7).slice(2, 4), [type_])[0].to_pylist() == copied.to_pylist()


def test_floats_that_are_equal_have_equal_bytes() -> None:
    other_nan = np.frombuffer(np.uint64(0xFFF8000000000001).tobytes(), np.float64)[0]
    column = pa.array([0.0, -0.0, math.nan, other_nan, 1.5], pa.float64())
    zero, minus_zero, nan, another, other = encode_rows([column], 5).to_pylist()
    assert zero == minus_zero
    assert nan == another
    assert other not in (zero, nan)


@pytest.mark.parametrize("type_", [pa.float64(), pa.list_(pa.float64()), pa.struct([("d", pa.float64())])])
def test_what_is_no_key_keeps_the_sign_of_a_zero(type_: pa.DataType) -> None:
    values = {pa.float64(): [-0.0, 0.0], pa.list_(pa.float64()): [[-0.0], [0.0]]}.get(type_, [{"d": -0.0}, {"d": 0.0}])
    (found,) = decode_rows(encode_rows([pa.array(values, type_)], 2, keys=False), [type_])
    assert str(found.to_pylist()) == str(values)


@given(st.binary(max_size=40), st.data())
def test_bytes_that_are_no_row_are_refused_or_decoded(content: bytes, data: st.DataObject) -> None:
    type_, _ = data.draw(_typed())
    try:
        (column,) = decode_rows(pa.array([content], pa.binary()), [type_])
    except MalformedRow:
        return
    column.validate()


@pytest.mark.parametrize("cut", [1, 4, 9])
def test_rows_that_are_cut_off_are_refused(cut: int) -> None:
    columns = [pa.array([1], pa.int64()), pa.array(["ada"]), pa.array([datetime.date(2026, 1, 1)])]
    whole = encode_rows(columns, 1)[0].as_py()
    with pytest.raises(MalformedRow):
        decode_rows(pa.array([whole[:-cut]], pa.binary()), [column.type for column in columns])


def test_a_row_is_compact() -> None:
    columns = [pa.array([7], pa.int64()), pa.array([None], pa.string()), pa.array(["ada"])]
    assert len(encode_rows(columns, 1)[0].as_py()) == 1 + 8 + 4 + 3


def test_another_schema_has_another_fingerprint() -> None:
    one = pa.schema([("n", pa.int64())])
    assert fingerprint(one) == fingerprint(pa.schema([("n", pa.int64())]))
    assert len({fingerprint(one), fingerprint(pa.schema([("n", pa.int32())])), fingerprint(pa.schema([]))}) == 3
