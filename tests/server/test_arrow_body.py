"""Arrow bodies from strangers: what small bodies could stand for is refused before it takes memory."""

from __future__ import annotations

import contextlib
import io
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millstream.server.http.arrow_body import read_table
from millstream.server.http.errors import RequestRefused

DICTIONARY = pa.DictionaryArray.from_arrays(pa.array(np.zeros(100_000, np.int8)), pa.array(["x" * 100_000]))


def body(array: pa.Array, compression: str | None = None) -> bytes:
    sink = io.BytesIO()
    table = pa.table({"a": array})
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    return sink.getvalue()


def view_of_one_text(count: int) -> pa.Array:
    """Many rows whose views lie over the same bytes."""
    one = pa.array(["x" * 100_000], pa.string_view())
    views = pa.py_buffer(one.buffers()[1].to_pybytes() * count)
    return pa.Array.from_buffers(pa.string_view(), count, [None, views, one.buffers()[2]])


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1, None]),
        pa.array(["a", "b"], pa.string_view()),
        pa.array(["a", "b", "a"]).dictionary_encode(),
        pa.array([[1], None]),
        pa.array([{"x": "y"}]),
        pa.array([], pa.string()),
        pa.nulls(3),
    ],
    ids=lambda array: str(array.type),
)
def test_plain_rows_are_read(array: pa.Array) -> None:
    assert read_table(body(array))["a"].to_pylist() == array.to_pylist()


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize(
    "array", [pa.array(np.zeros(5_000_000, np.int8)), pa.array(["a"]).dictionary_encode()], ids=str
)
def test_compressed_buffers_are_refused_unread(array: pa.Array, compression: str) -> None:
    allocated = pa.total_allocated_bytes()
    sent = body(array, compression)
    with pytest.raises(RequestRefused, match="compressed") as refused:
        read_table(sent)
    assert refused.value.error_code == 41500
    assert pa.total_allocated_bytes() <= allocated + len(sent)


@pytest.mark.parametrize(
    ("array", "code"),
    [
        (pa.nulls(10**9), 41300),
        (DICTIONARY, 41300),
        (view_of_one_text(10_000), 41300),
        (pa.RunEndEncodedArray.from_arrays([10**6], ["x" * 1000]), 41500),
        (pa.array([[1]], pa.list_view(pa.int64())), 41500),
        (pa.ListArray.from_arrays([0, 100_000], DICTIONARY), 41500),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else str(value),
)
def test_what_stands_for_more_than_it_weighs_is_refused(array: Any, code: int) -> None:
    with pytest.raises(RequestRefused) as refused:
        read_table(body(array))
    assert refused.value.error_code == code


def test_damaged_bodies_are_refused_and_nothing_worse() -> None:
    chance = random.Random(1)
    whole = body(pa.array(["a", None, "bc"] * 20).dictionary_encode())
    for _ in range(2_000):
        damaged = bytearray(whole[: chance.randrange(len(whole) + 1)] if chance.random() < 0.3 else whole)
        for _ in range(chance.randrange(1, 4) if damaged else 0):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        with contextlib.suppress(RequestRefused):
            read_table(bytes(damaged))
