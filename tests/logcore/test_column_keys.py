"""Keys of columnar batches are equal where all of their values are, and only there."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.logcore.records.column_keys import column_keys, key_metadata

DOMAINS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "byte": (pa.int8(), [None, 0, 1, -1, 127]),
    "int": (pa.int32(), [None, 0, 1, -1, 256]),
    "long": (pa.int64(), [None, 0, 1, -1, 2**63 - 1, -(2**63)]),
    "flag": (pa.bool_(), [None, False, True]),
    "day": (pa.date32(), [None, 0, 1]),
    "time": (pa.time64("us"), [None, 0, 1_000]),
    "moment": (pa.timestamp("us"), [None, 0, 1, 10**15]),
    "text": (pa.string(), [None, "", "0", "n", "1:1", "a\x00"]),
    "bytes": (pa.binary(), [None, b"", b"\x00", b"\x00\x00", b"n"]),
    "double": (pa.float64(), [None, 0.0, 1.0, 1e300]),
    "number": (pa.decimal128(10, 2), [None, 0, 1]),
    "list": (pa.list_(pa.int64()), [None, [], [1], [None]]),
}


def batch(types: list[str], rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    names = [f"c{i}" for i in range(len(types))]
    arrays = [pa.array([row[i] for row in rows], DOMAINS[type_][0]) for i, type_ in enumerate(types)]
    return pa.record_batch(arrays, names).replace_schema_metadata(key_metadata(names))


def keys(columns: pa.RecordBatch) -> list[bytes]:
    found = column_keys(columns)
    assert found is not None
    assert found.keys.null_count == 0
    return found.keys.to_pylist()


@given(st.lists(st.sampled_from(list(DOMAINS)), min_size=1, max_size=4).flatmap(
    lambda types: st.tuples(
        st.just(types), st.lists(st.tuples(*(st.sampled_from(DOMAINS[type_][1]) for type_ in types)), max_size=12)
    )
))  # fmt: skip
def test_keys_are_equal_where_the_values_are(case: tuple[list[str], list[tuple[Any, ...]]]) -> None:
    types, rows = case
    found = keys(batch(types, rows))
    for one, its_key in zip(rows, found, strict=True):
        for other, other_key in zip(rows, found, strict=True):
            assert (its_key == other_key) == (one == other)


@pytest.mark.parametrize("type_", list(DOMAINS))
def test_a_slice_has_the_keys_of_its_rows(type_: str) -> None:
    whole = batch([type_, "long"], [(value, 7) for value in DOMAINS[type_][1]])
    assert keys(whole.slice(1, 2)) == keys(whole)[1:3]


def test_values_of_other_types_are_of_another_family() -> None:
    one, other = column_keys(batch(["int"], [(1,)])), column_keys(batch(["long"], [(1,)]))
    assert one is not None
    assert other is not None
    assert one.family != other.family
