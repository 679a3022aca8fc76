"""PROTOBUF and PROTOBUF_NOSR: columns to messages and back, what may be NULL, and bytes that are no message."""

from __future__ import annotations

from decimal import Decimal as Number
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass

from millstream.executor.errors import QueryFailed
from millstream.executor.formats import decode_logical, decoder, encode_logical, encoder
from millstream.executor.formats.wire import Unwritable
from millstream.planner.schema import Column
from millstream.planner.schemas import protobuf_text
from millstream.planner.specs import FormatSpec, RecordSchema
from millstream.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    Array,
    Field,
    Map,
    SqlType,
    Struct,
)  # fmt: skip

from .record_formats import COLUMNS, NULLS, ROW, arrays_of, rows_of, spec_of

SCALARS = (
    Column("I", INTEGER),
    Column("L", BIGINT),
    Column("D", DOUBLE),
    Column("B", BOOLEAN),
    Column("S", STRING),
    Column("Y", BYTES),
)


def encoded(spec: FormatSpec, columns: tuple[Column, ...], *rows: dict[str, Any]) -> pa.BinaryArray:
    return encoder(spec, columns).encode(arrays_of(list(rows), columns), null_rows=pa.array([False] * len(rows)))


@pytest.mark.parametrize("nullable", ["", "OPTIONAL", "WRAPPER"])
@pytest.mark.parametrize("name", ["PROTOBUF", "PROTOBUF_NOSR"])
def test_every_type_comes_back_as_it_was(name: str, nullable: str) -> None:
    spec = spec_of(name, nullable=nullable)
    data = encoded(spec, COLUMNS, ROW)
    decoded = decoder(spec, COLUMNS).decode(data)
    assert not decoded.errors
    assert rows_of(decoded.columns) == [ROW]
    assert data[0].as_py().startswith(b"\0\0\0\0\7\0") == (name == "PROTOBUF")


def test_what_we_write_is_protobuf_for_others() -> None:
    spec = spec_of("PROTOBUF", (Column("A", INTEGER), Column("B", Array(STRING))))
    data = encoded(spec, (Column("A", INTEGER), Column("B", Array(STRING))), {"A": 150, "B": ["testing"]})
    assert data[0].as_py() == b"\0\0\0\0\7" + b"\0" + bytes.fromhex("089601") + b"\x12\x07testing"


@pytest.mark.parametrize("name", ["PROTOBUF", "PROTOBUF_NOSR"])
def test_a_plain_field_has_no_null_but_its_default(name: str) -> None:
    spec = spec_of(name, SCALARS)
    decoded = decoder(spec, SCALARS).decode(encoded(spec, SCALARS, NULLS))
    assert rows_of(decoded.columns, SCALARS) == [{"I": 0, "L": 0, "D": 0.0, "B": False, "S": "", "Y": b""}]


@pytest.mark.parametrize("nullable", ["OPTIONAL", "WRAPPER"])
@pytest.mark.parametrize("name", ["PROTOBUF", "PROTOBUF_NOSR"])
def test_optional_fields_and_wrappers_tell_null_from_the_default(name: str, nullable: str) -> None:
    spec = spec_of(name, SCALARS, nullable=nullable)
    zero = {"I": 0, "L": 0, "D": 0.0, "B": False, "S": "", "Y": b""}
    nothing: dict[str, Any] = dict.fromkeys(zero)
    decoded = decoder(spec, SCALARS).decode(encoded(spec, SCALARS, zero, nothing))
    assert rows_of(decoded.columns, SCALARS) == [zero, nothing]


def test_a_missing_message_is_null_and_missing_collections_are_empty() -> None:
    columns = (
        Column("S", Struct((Field("X", INTEGER),))),
        Column("A", Array(STRING)),
        Column("M", Map(STRING, STRING)),
    )
    spec = spec_of("PROTOBUF", columns)
    decoded = decoder(spec, columns).decode(encoded(spec, columns, {"S": None, "A": None, "M": None}))
    assert rows_of(decoded.columns, columns) == [{"S": None, "A": [], "M": []}]


def test_null_inside_an_array_or_a_map_is_refused() -> None:
    for type_, value in ((Array(STRING), ["a", None]), (Map(STRING, STRING), [("k", None)])):
        column = Column("V", type_)
        with pytest.raises(QueryFailed, match="PROTOBUF holds no NULL inside an array or a map"):
            encoded(spec_of("PROTOBUF", (column,)), (column,), {"V": value})


@pytest.mark.parametrize("name", ["PROTOBUF", "PROTOBUF_NOSR", "AVRO"])
def test_days_and_milliseconds_may_come_as_text_as_other_whole_numbers_do(name: str) -> None:
    columns = (Column("N", INTEGER), Column("D", DATE), Column("T", TIME), Column("M", TIMESTAMP))
    spec = spec_of(name, columns)
    data = encode_logical(spec, columns, {"N": "7", "D": "18000", "T": "5000", "M": "-1"})
    assert decode_logical(spec, columns, data) == {"N": 7, "D": 18000, "T": 5000, "M": -1}


@pytest.mark.parametrize("type_", [INTEGER, DATE, TIME, TIMESTAMP])
def test_a_text_that_is_no_whole_number_is_refused_in_plain_words(type_: SqlType) -> None:
    columns = (Column("V", type_),)
    with pytest.raises(Unwritable, match=r"the PROTOBUF schema wants a whole number, the text \"soon\" came"):
        encode_logical(spec_of("PROTOBUF", columns), columns, {"V": "soon"})


EVENTS = """syntax = "proto3"; package p;
message First { int32 a = 1; }
message Outer {
  message Inner { sint64 count = 1; Suit suit = 2; oneof pick { string text = 3; int32 number = 4; } }
  enum Suit { SPADES = 0; HEARTS = 1; }
  Inner inner = 1;
}
"""


def test_a_record_names_the_message_that_it_is() -> None:
    schema = RecordSchema(9, "PROTOBUF", EVENTS)
    message = protobuf_text.load(EVENTS).message("p.Outer.Inner")
    assert message is not None
    body = GetMessageClass(message)(count=-3, suit=1, number=0).SerializeToString()
    data = b"\0\0\0\0\x09" + b"\x04\x02\x00" + body  # two indexes: 1 and 0, as zigzag numbers
    pick = Column("PICK_0", Struct((Field("TEXT", STRING), Field("NUMBER", INTEGER))))
    columns = (Column("COUNT", BIGINT), Column("SUIT", STRING), pick)
    decoded = decoder(FormatSpec("PROTOBUF"), columns, schemas=lambda number: schema).decode(pa.array([data]))
    assert not decoded.errors
    assert rows_of(decoded.columns, columns) == [{"COUNT": -3, "SUIT": "HEARTS", "PICK_0": {"TEXT": None, "NUMBER": 0}}]


def test_a_named_message_is_what_is_written() -> None:
    spec = FormatSpec("PROTOBUF", schema=RecordSchema(9, "PROTOBUF", EVENTS, message="p.Outer"))
    value = {"INNER": {"COUNT": 1, "SUIT": "HEARTS", "PICK_0": {"TEXT": "x", "NUMBER": None}}}
    data = encode_logical(spec, (), value)
    assert data is not None
    assert data[:7] == b"\0\0\0\0\x09\x02\x02"
    assert decode_logical(spec, (), data) == {
        "inner": {"pick_0": {"text": "x", "number": None}, "count": 1, "suit": "HEARTS"}
    }


def test_schemas_import_others() -> None:
    text = 'syntax = "proto3"; import "event.proto"; message Top { Event event = 1; }'
    schema = RecordSchema(9, "PROTOBUF", text, (("event.proto", 'syntax = "proto3"; message Event { int64 at = 1; }'),))
    spec = FormatSpec("PROTOBUF", schema=schema)
    assert decode_logical(spec, (), encode_logical(spec, (), {"event": {"at": 1}})) == {"event": {"at": 1}}


def test_a_decimal_keeps_the_scale_that_it_was_written_with() -> None:
    text = 'syntax = "proto3"; import "confluent/type/decimal.proto"; message M { confluent.type.Decimal d = 1; }'
    spec = FormatSpec("PROTOBUF", schema=RecordSchema(9, "PROTOBUF", text))
    found = decode_logical(spec, (), encode_logical(spec, (), {"d": Number("10.10")}))
    assert str(found["d"]) == "10.10"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "does not begin with the id of a schema"),
        (b"\0\0\0\0\7", "ends inside its message indexes"),
        (b"\0\0\0\0\7\x80\x80\x80\x80\x80\x80\x80\x80", "ends inside its message indexes"),
        (b"\0\0\0\0\7\x02\x04", "has no message at [2]"),
        (b"\0\0\0\0\7\x01", "has -1 message indexes"),
        (b"\0\0\0\0\7\0\x0a\x7f", "do not fit their PROTOBUF schema"),
        (b"\0\0\0\0\7\0\x0a\1\xff", "do not fit their PROTOBUF schema"),
        (b"\0\0\0\0\x08\0", "names the schema 8"),
    ],
)
def test_bytes_that_are_no_message_are_an_error_row(data: bytes, message: str) -> None:
    columns = (Column("S", STRING),)
    spec = spec_of("PROTOBUF", columns)
    good = encoded(spec, columns, {"S": "ok"})[0].as_py()
    decoded = decoder(spec, columns).decode(pa.array([good, data, good], pa.binary()))
    assert [error.row for error in decoded.errors] == [1]
    assert message in decoded.errors[0].message
    assert decoded.columns[0].to_pylist() == ["ok", None, "ok"]


def test_a_date_that_does_not_exist_is_an_error_row() -> None:
    text = 'syntax = "proto3"; import "google/type/date.proto"; message M { google.type.Date DA = 1; }'
    spec = FormatSpec("PROTOBUF_NOSR", schema=RecordSchema(0, "PROTOBUF", text))
    columns = tuple(column for column in COLUMNS if column.name == "DA")
    decoded = decoder(spec, columns).decode(pa.array([b"\x0a\x04\x08\x01\x10\x0d"]))
    assert len(decoded.errors) == 1


@pytest.mark.parametrize("scale", [b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\xf8\xff\xff\xff\xff\x01"])
def test_a_decimal_with_a_scale_that_no_number_has_is_an_error_row(scale: bytes) -> None:
    text = 'syntax = "proto3"; import "confluent/type/decimal.proto"; message M { confluent.type.Decimal V = 1; }'
    spec = FormatSpec("PROTOBUF_NOSR", schema=RecordSchema(0, "PROTOBUF", text))
    message = b"\x0a\x01\x01\x18" + scale
    decoded = decoder(spec, [Column("V", BIGINT)]).decode(pa.array([b"\x0a" + bytes([len(message)]) + message]))
    assert "a scale that no number has" in decoded.errors[0].message


def test_unsigned_numbers_beyond_bigint_are_an_error_row() -> None:
    text = 'syntax = "proto3"; message M { uint64 V = 1; }'
    spec = FormatSpec("PROTOBUF_NOSR", schema=RecordSchema(0, "PROTOBUF", text))
    decoded = decoder(spec, [Column("V", BIGINT)]).decode(pa.array([b"\x08" + b"\xff" * 9 + b"\x01"]))
    assert "out of range for BIGINT" in decoded.errors[0].message


def test_columns_that_nobody_needs_are_not_looked_at() -> None:
    columns = (Column("I", BOOLEAN), Column("L", BIGINT))
    written = (Column("I", INTEGER), Column("L", BIGINT))
    data = encoded(spec_of("PROTOBUF", written), written, {"I": 1, "L": 2})
    decoded = decoder(spec_of("PROTOBUF", written), columns, needed=[False, True]).decode(data)
    assert not decoded.errors
    assert rows_of(decoded.columns, columns) == [{"I": None, "L": 2}]


def test_null_records_stay_null() -> None:
    columns = (Column("L", BIGINT),)
    spec = spec_of("PROTOBUF", columns)
    data = encoder(spec, columns).encode([pa.array([1, 2])], null_rows=pa.array([True, False]))
    assert data.is_null().to_pylist() == [True, False]
    assert decoder(spec, columns).decode(data).null_rows.to_pylist() == [True, False]
