"""Keys go to the partitions to which Kafka's own clients send them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.logcore import murmur2_bulk
from millstream.logcore.murmur2 import murmur2, partition_of, partitions_of


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_that_of_kafka(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed % 2**32


@given(st.lists(st.none() | st.binary(max_size=40), max_size=40), st.integers(1, 1000))
@settings(max_examples=50, deadline=None)
def test_the_compiled_hash_agrees_with_the_plain_one(keys: list[bytes | None], partition_count: int) -> None:
    expected = [-1 if key is None else partition_of(key, partition_count) for key in keys]
    array = pa.array(keys, pa.binary())
    assert murmur2_bulk.partitions_of(array, partition_count).tolist() == expected
    assert partitions_of(array, partition_count).tolist() == expected
    assert partitions_of(array.slice(1), partition_count).tolist() == expected[1:]


def test_text_is_hashed_as_its_bytes() -> None:
    assert partitions_of(pa.array(["foobar"] * 3000), 7).tolist() == [partition_of(b"foobar", 7)] * 3000
