"""The compiled reading of flat AVRO records gives what the reading record by record gives."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from drawn import drawn
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.executor.formats import decoder, record_codec
from millstream.executor.formats.avro import avro_codec
from millstream.planner.schema import Column
from millstream.planner.specs import FormatSpec, RecordSchema
from millstream.sql.types import BIGINT, BOOLEAN, BYTES, DATE, DOUBLE, INTEGER, STRING, TIME, TIMESTAMP, Decimal

FIELDS: list[dict[str, Any]] = [
    {"name": "flag", "type": "boolean"},
    {"name": "i", "type": ["null", "int"]},
    {"name": "L", "type": ["long", "null"]},
    {"name": "l", "type": "long"},
    {"name": "f", "type": "float"},
    {"name": "d", "type": ["null", "double"]},
    {"name": "s", "type": ["null", "string"]},
    {"name": "y", "type": "bytes"},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
]
SCHEMA = RecordSchema(9, "AVRO", json.dumps({"type": "record", "name": "r", "fields": FIELDS}))
COLUMNS = (
    Column("S", STRING),
    Column("FLAG", BOOLEAN),
    Column("I", BIGINT),
    Column("L", BIGINT),
    Column("F", DOUBLE),
    Column("D", DOUBLE),
    Column("Y", BYTES),
    Column("DAY", DATE),
    Column("MISSING", INTEGER),
)
VALUES = st.fixed_dictionaries(
    {
        "flag": st.booleans(),
        "i": st.none() | st.integers(-(2**31), 2**31 - 1),
        "L": st.none() | st.integers(-(2**63), 2**63 - 1),
        "l": st.integers(-(2**63), 2**63 - 1),
        "f": st.floats(width=32, allow_nan=False),
        "d": st.none() | st.floats(allow_nan=False),
        "s": st.none() | st.text(max_size=5),
        "y": st.binary(max_size=3),
        "day": st.integers(-(2**31), 2**31 - 1),
    }
)


def both_ways(rows: list[bytes | None], columns: tuple[Column, ...] = COLUMNS, schema: RecordSchema = SCHEMA) -> Any:
    """Columns, nulls and errors of the compiled reading, which must be those of the other."""
    data = pa.array(rows, pa.binary())
    spec = FormatSpec("AVRO", schema=schema)
    found: list[Any] = []
    for small in (0, 1_000_000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(record_codec, "SMALL_BATCH", small)
            decoded = decoder(spec, columns).decode(data)
        plain = [a.cast(pa.int32()) if a.type == pa.date32() else a for a in decoded.columns]  # Python's end with 9999
        found.append(([a.to_pylist() for a in plain], decoded.null_rows.to_pylist(), decoded.errors))
    assert repr(found[0]) == repr(found[1])  # NaN equals nothing
    return found[0]


@settings(max_examples=drawn(30), deadline=None)
@given(st.lists(st.none() | VALUES, min_size=1, max_size=6))
def test_records_are_read_alike(values: list[dict[str, Any] | None]) -> None:
    both_ways([None if value is None else avro_codec(SCHEMA).write(value) for value in values])


@settings(max_examples=drawn(50), deadline=None)
@given(VALUES, st.integers(0, 60), st.binary(min_size=0, max_size=3))
def test_damaged_records_are_read_alike(value: dict[str, Any], at: int, bytes_: bytes) -> None:
    good = avro_codec(SCHEMA).write(value)
    both_ways([good, good[:at] + bytes_ + good[at + len(bytes_) :], good[:at], good + bytes_, good])


def test_every_column_is_there() -> None:
    value = {"flag": True, "i": None, "L": 2**63 - 1, "l": 1, "f": 1.5, "d": -0.5, "s": "é", "y": b"\xff", "day": 3}
    columns, null_rows, errors = both_ways([avro_codec(SCHEMA).write(value), None])
    assert [column[0] for column in columns][:7] == ["é", True, None, 2**63 - 1, 1.5, -0.5, b"\xff"]
    assert (null_rows, errors) == ([False, True], [])


@pytest.mark.parametrize(
    "column",
    [
        Column("S", INTEGER),
        Column("L", INTEGER),
        Column("L", STRING),
        Column("L", DOUBLE),
        Column("L", TIME),
        Column("L", TIMESTAMP),
        Column("L", Decimal(4, 0)),
    ],
)
def test_columns_of_other_types_are_read_alike(column: Column) -> None:
    value = {"flag": True, "i": 1, "L": 2**62, "l": 1, "f": 1.5, "d": 1.0, "s": "x", "y": b"", "day": 3}
    both_ways([avro_codec(SCHEMA).write({**value, "L": 5}), avro_codec(SCHEMA).write(value)], (column,))


def test_records_of_another_schema_in_the_same_batch_are_read_by_theirs() -> None:
    other = RecordSchema(10, "AVRO", json.dumps({"type": "record", "name": "r", "fields": [FIELDS[3]]}))
    mine = RecordSchema(9, "AVRO", other.text)
    rows = [avro_codec(mine).write({"l": 1}), avro_codec(other).write({"l": 2})] * 40
    decoded = decoder(FormatSpec("AVRO"), [Column("L", BIGINT)], schemas={9: mine, 10: other}.get).decode(
        pa.array(rows)
    )
    assert decoded.columns[0].to_pylist() == [1, 2] * 40
    assert not decoded.errors
