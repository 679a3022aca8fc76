"""NaN, the infinities and -0.0: a format holds them so that others read what was meant, or it refuses the row."""

from __future__ import annotations

import csv
import io
import json
import math
import struct
from collections.abc import Callable
from typing import Any

import fastavro
import msgpack
import pyarrow as pa
import pytest

from millstream.executor.formats import decoder, encoder
from millstream.executor.formats.codec import UnwritableRows, encode_writable
from millstream.planner.schema import Column
from millstream.planner.specs import FormatSpec
from millstream.sql.types import DOUBLE, STRING, Array, Field, Map, SqlType, Struct

from .record_formats import spec_of

COLUMN = Column("V", DOUBLE)
NUMBERS = [math.nan, math.inf, -math.inf, -0.0, 1.5]
COUNTS = [1, 20]  # few rows are written one by one, many by compiled loops


def avro(data: bytes) -> Any:
    schema = json.loads(spec_of("AVRO", (COLUMN,)).schema.text)  # pyrefly: ignore[missing-attribute]
    return fastavro.schemaless_reader(io.BytesIO(data[5:]), schema)["V"]  # pyrefly: ignore[bad-index, unsupported-operation]


def protobuf(data: bytes) -> float:
    """After the header: magic, id, indexes; then field 1 of 64 bits, little-endian."""
    field = data[6:]
    assert field[:1] == b"\x09"
    return struct.unpack("<d", field[1:])[0]


READERS: dict[str, tuple[FormatSpec, Callable[[bytes], Any]]] = {
    "JSON": (FormatSpec("JSON"), lambda data: float(json.loads(data)["V"])),
    "DELIMITED": (FormatSpec("DELIMITED"), lambda data: float(next(csv.reader([data.decode()]))[0])),
    "KAFKA": (FormatSpec("KAFKA", wrap_single=False), lambda data: struct.unpack(">d", data)[0]),
    "MSGPACK": (FormatSpec("MSGPACK"), lambda data: msgpack.unpackb(data)["V"]),
    "AVRO": (spec_of("AVRO", (COLUMN,)), avro),
    "PROTOBUF": (spec_of("PROTOBUF", (COLUMN,)), protobuf),
}


def same(a: float, b: float) -> bool:
    return math.isnan(a) == math.isnan(b) and (math.isnan(a) or struct.pack("d", a) == struct.pack("d", b))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", READERS)
def test_each_number_is_read_by_others_and_by_us(name: str, count: int) -> None:
    spec, read = READERS[name]
    data = encoder(spec, [COLUMN]).encode(
        [pa.array(NUMBERS * count)], null_rows=pa.array([False] * len(NUMBERS) * count)
    )
    others = [read(each) for each in data.to_pylist()]
    ours = decoder(spec, [COLUMN]).decode(data)
    assert not ours.errors
    for found in (others, ours.columns[0].to_pylist()):
        assert len(found) == len(NUMBERS) * count
        assert all(same(a, b) for a, b in zip(NUMBERS * count, found, strict=True)), found


X: SqlType = Struct((Field("X", DOUBLE),))
ENDLESS: list[tuple[SqlType, Any, Any]] = [
    (DOUBLE, -0.0, math.nan),
    (DOUBLE, 1.5, math.inf),
    (DOUBLE, None, -math.inf),
    (Array(DOUBLE), [None, 1.0], [1.0, math.nan]),
    (Map(STRING, DOUBLE), [("a", 1.0), ("b", None)], [("a", 1.0), ("b", math.inf)]),
    (X, {"X": None}, {"X": math.nan}),
    (Array(X), [None, {"X": 1.0}], [None, {"X": -math.inf}]),
    (Map(STRING, Array(X)), [("a", [{"X": 0.5}])], [("a", []), ("b", [{"X": math.nan}])]),
]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(("type_", "good", "bad"), ENDLESS)
def test_json_sr_refuses_a_row_with_a_number_that_its_schema_does_not_know(
    type_: SqlType, good: Any, bad: Any, count: int
) -> None:
    columns = (Column("N", STRING), Column("V", type_))
    rows = [good, bad, None, good] * count
    arrays = [pa.array(["NaN"] * len(rows)), pa.array(rows, type_.arrow)]  # the text is one
    absent = pa.array([False] * len(rows))
    write = encoder(spec_of("JSON_SR", columns), columns)
    with pytest.raises(UnwritableRows, match="JSON_SR holds no NaN"):
        write.encode(arrays, null_rows=absent)
    data, errors = encode_writable(write, arrays, absent)
    assert [error.row for error in errors] == [row for row in range(len(rows)) if row % 4 == 1]
    read = decoder(spec_of("JSON_SR", columns), columns).decode(data).columns[1].to_pylist()
    assert read == [good, None, None, good] * count


def test_a_row_without_a_value_has_no_number() -> None:
    write = encoder(spec_of("JSON_SR", (COLUMN,)), [COLUMN])
    assert write.encode([pa.array([math.nan])], null_rows=pa.array([True])).to_pylist() == [None]


def test_a_text_that_others_wrote_for_such_a_number_is_read() -> None:
    data = pa.array([b'\0\0\0\0\7{"V":"-Infinity"}'])
    assert decoder(spec_of("JSON_SR", (COLUMN,)), [COLUMN]).decode(data).columns[0].to_pylist() == [-math.inf]
