"""AVRO: columns to records and back, schemas that differ from the columns, and bytes that are no record."""

from __future__ import annotations

import io
import json
from decimal import Decimal as Number
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from millstream.executor.errors import QueryFailed
from millstream.executor.formats import decode_logical, decoder, encode_logical, encoder
from millstream.executor.formats.avro import AvroCodec
from millstream.executor.formats.wire import Unreadable
from millstream.planner.schema import Column
from millstream.planner.schemas import avro_schemas
from millstream.planner.specs import FormatSpec, KeyWindow, RecordSchema
from millstream.sql.types import BIGINT, BOOLEAN, DOUBLE, INTEGER, STRING, TIMESTAMP, Array, Decimal, Field, Map, Struct

from .record_formats import COLUMNS, NULLS, ROW, arrays_of, rows_of, spec_of


def written(schema: Any, value: Any, schema_id: int = 9) -> tuple[RecordSchema, bytes]:
    """A record that another producer wrote."""
    stream = io.BytesIO()
    stream.write(b"\0" + schema_id.to_bytes(4, "big"))
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return RecordSchema(schema_id, "AVRO", json.dumps(schema)), stream.getvalue()


def read(schema: RecordSchema, data: bytes, *columns: Column, bare: bool = False) -> Any:
    spec = FormatSpec("AVRO", wrap_single=not bare)
    return decoder(spec, columns, schemas=lambda number: schema if number == schema.id else None).decode(
        pa.array([data], pa.binary())
    )


def test_every_type_comes_back_as_it_was() -> None:
    spec = spec_of("AVRO")
    data = encoder(spec, COLUMNS).encode(arrays_of([ROW, NULLS]), null_rows=pa.array([False, False]))
    decoded = decoder(spec, COLUMNS).decode(data)
    assert not decoded.errors
    assert rows_of(decoded.columns) == [ROW, NULLS]
    assert data[0].as_py()[:5] == b"\0\0\0\0\7"


def test_what_we_write_is_avro_for_others() -> None:
    spec = spec_of("AVRO", (Column("N", Decimal(4, 2)), Column("T", TIMESTAMP)))
    row = encoder(spec, (Column("N", Decimal(4, 2)), Column("T", TIMESTAMP))).encode(
        [pa.array([Number("-1.25")], pa.decimal128(4, 2)), pa.array([1_700_000_000_000_000], pa.timestamp("us"))]
    )
    assert spec.schema is not None
    found: Any = fastavro.schemaless_reader(
        io.BytesIO(row[0].as_py()[5:]), fastavro.parse_schema(json.loads(spec.schema.text))
    )
    assert found["N"] == Number("-1.25")
    assert found["T"].timestamp() == 1_700_000_000


def test_null_records_stay_null() -> None:
    spec = spec_of("AVRO")
    data = encoder(spec, COLUMNS).encode(arrays_of([ROW, ROW]), null_rows=pa.array([True, False]))
    decoded = decoder(spec, COLUMNS).decode(data)
    assert decoded.null_rows.to_pylist() == [True, False]


def test_a_key_is_null_when_all_its_columns_are() -> None:
    keys = (Column("A", INTEGER, "KEY"), Column("B", INTEGER, "KEY"))
    data = encoder(spec_of("AVRO", keys), keys).encode([pa.array([1, None]), pa.array([None, None], pa.int32())])
    assert data.is_null().to_pylist() == [False, True]


def test_a_bare_value_is_not_inside_a_record() -> None:
    column = Column("V", STRING)
    spec = spec_of("AVRO", (column,), wrapped=False)
    data = encoder(spec, [column]).encode([pa.array(["x", None])], null_rows=pa.array([False, False]))
    assert data.to_pylist() == [b"\0\0\0\0\7\2x", None]
    assert decoder(spec, [column]).decode(data).columns[0].to_pylist() == ["x", None]


def test_windowed_keys_end_with_their_window() -> None:
    column = Column("K", INTEGER, "KEY")
    spec, window = spec_of("AVRO", (column,), wrapped=False), KeyWindow("TUMBLING", 10)
    data = encoder(spec, [column], window).encode([pa.array([1], pa.int32())], window_start=pa.array([20]))
    decoded = decoder(spec, [column], window=window).decode(data)
    assert decoded.columns[0].to_pylist() == [1]
    assert decoded.window_start is not None
    assert decoded.window_start.to_pylist() == [20]


def test_names_match_in_any_case_and_missing_fields_are_null() -> None:
    schema, data = written(
        {"type": "record", "name": "r", "fields": [{"name": "count", "type": "int"}, {"name": "x", "type": "string"}]},
        {"count": 4, "x": "?"},
    )
    decoded = read(schema, data, Column("UNKNOWN", INTEGER), Column("COUNT", BIGINT))
    assert rows_of(decoded.columns, (Column("U", INTEGER), Column("C", BIGINT))) == [{"U": None, "C": 4}]


def test_values_widen_and_become_text_but_nothing_is_guessed() -> None:
    schema, data = written("int", 10)
    assert read(schema, data, Column("V", STRING), bare=True).columns[0].to_pylist() == ["10"]
    assert read(schema, data, Column("V", DOUBLE), bare=True).columns[0].to_pylist() == [10.0]
    assert "BOOLEAN wanted" in read(schema, data, Column("V", BOOLEAN), bare=True).errors[0].message
    schema, data = written("long", 2**40)
    assert "out of range for INTEGER" in read(schema, data, Column("V", INTEGER), bare=True).errors[0].message
    schema, data = written("string", "12")
    assert "INTEGER wanted" in read(schema, data, Column("V", INTEGER), bare=True).errors[0].message


def test_a_union_of_several_types_is_a_struct() -> None:
    schema, data = written(["null", "int", "string"], "x")
    column = Column("V", Struct((Field("INT", INTEGER), Field("STRING", STRING))))
    assert read(schema, data, column, bare=True).columns[0].to_pylist() == [{"INT": None, "STRING": "x"}]


def test_a_record_that_contains_itself_can_be_read() -> None:
    node = {
        "type": "record",
        "name": "n",
        "fields": [
            {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}},
            {"name": "next", "type": ["null", "n"]},
        ],
    }
    value = {"d": Number("1.5"), "next": {"d": Number("2.5"), "next": None}}
    schema, data = written(node, value)
    assert decode_logical(FormatSpec("AVRO", schema=schema), (), data) == value


@pytest.mark.parametrize("levels", [2_000, 100_000])
def test_a_record_that_is_nested_too_deeply_is_an_error_row(levels: int) -> None:
    """fastavro's compiled reader ends the process at some thousands of levels, which take a byte each."""
    node = {"type": "record", "name": "R", "fields": [{"name": "R", "type": ["null", "R"]}]}
    schema, _ = written(node, {"R": None})
    data = b"\0\0\0\0\x09" + b"\2" * levels + b"\0"
    decoded = read(schema, data, Column("N", INTEGER))
    assert [error.message for error in decoded.errors] == ["the AVRO record is nested too deeply"]
    with pytest.raises(Unreadable, match="nested too deeply"):
        AvroCodec(schema).json_of(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "does not begin with the id of a schema"),
        (b"{}", "does not begin with the id of a schema"),
        (b"\1\0\0\0\7", "does not begin with the id of a schema"),
        (b"\0\0\0\0\7", "do not fit their AVRO schema"),
        (b"\0\0\0\0\7\2", "do not fit their AVRO schema"),
        (b"\0\0\0\0\7\2\x7e", "do not fit their AVRO schema"),
        (b"\0\0\0\0\7\2\2x\0", "1 bytes are left"),
        (b"\0\0\0\0\7\x08\2x", "do not fit their AVRO schema"),
        (b"\0\0\0\0\7\2\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "do not fit their AVRO schema"),
        (b"\0\0\0\0\7\2\2\xff", "do not fit their AVRO schema"),
        (b"\0\0\0\0\x08\2", "names the schema 8, which the schema registry does not have"),
    ],
)
def test_bytes_that_are_no_record_are_an_error_row(data: bytes, message: str) -> None:
    column = Column("S", STRING)
    spec = spec_of("AVRO", (column,))
    good = encoder(spec, [column]).encode([pa.array(["ok"])], null_rows=pa.array([False]))[0].as_py()
    decoded = decoder(spec, [column]).decode(pa.array([good, data, good], pa.binary()))
    assert [error.row for error in decoded.errors] == [1]
    assert message in decoded.errors[0].message
    assert decoded.columns[0].to_pylist() == ["ok", None, "ok"]
    assert decoded.null_rows.to_pylist() == [False, False, False]


def test_a_record_of_another_kind_of_schema_is_an_error_row() -> None:
    schema = RecordSchema(8, "PROTOBUF", 'syntax = "proto3"; message M {}')
    decoded = read(schema, b"\0\0\0\0\x08\0", Column("S", STRING))
    assert "which is PROTOBUF, not AVRO" in decoded.errors[0].message


def test_a_given_schema_gets_its_defaults_and_refuses_what_is_missing() -> None:
    def spec(field: dict[str, Any]) -> FormatSpec:
        node = {"type": "record", "name": "r", "fields": [{"name": "c1", "type": "int"}, field]}
        return FormatSpec("AVRO", schema=RecordSchema(3, "AVRO", json.dumps(node), given=True))

    column = Column("c1", INTEGER)
    one, present = [pa.array([4], pa.int32())], pa.array([False])
    data = encoder(spec({"name": "c2", "type": "int", "default": 100}), [column]).encode(one, null_rows=present)
    defaulted = spec({"name": "c2", "type": "int", "default": 100})
    assert decode_logical(defaulted, [column], data[0].as_py()) == {"c1": 4, "c2": 100}
    with pytest.raises(QueryFailed, match="Unable to serialize record: the field c2 has no value"):
        encoder(spec({"name": "c2", "type": "double"}), [column]).encode(one, null_rows=present)


def test_a_decimal_that_does_not_fit_the_schema_is_refused() -> None:
    node = {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}
    spec = FormatSpec("AVRO", wrap_single=False, schema=RecordSchema(3, "AVRO", json.dumps(node)))
    with pytest.raises(QueryFailed, match="does not fit into the AVRO decimal"):
        encoder(spec, [Column("V", Decimal(4, 2))]).encode([pa.array([Number("1.25")])], null_rows=pa.array([False]))


def test_logical_values_take_names_in_any_case_and_base64() -> None:
    spec = spec_of("AVRO")
    value = {"s": "x", "y": "AP8=", "n": "1.5", "da": 3, "ts": 1000, "st": {"x": 1}, "unknown": 1}
    data = encode_logical(spec, COLUMNS, value)
    found = decode_logical(spec, COLUMNS, data)
    assert found == dict.fromkeys(NULLS) | {
        "S": "x", "Y": b"\0\xff", "N": Number("1.50"), "DA": 3, "TS": 1000, "ST": {"X": 1, "W": None},
    }  # fmt: skip
    assert str(found["N"]) == "1.50"


def test_arrays_keep_their_nulls() -> None:
    column = Column("A", Array(INTEGER))
    spec = spec_of("AVRO", (column,), wrapped=False)
    data = encoder(spec, [column]).encode([pa.array([[1, None], []], column.type.arrow)])
    assert decoder(spec, [column]).decode(data).columns[0].to_pylist() == [[1, None], []]


@pytest.mark.parametrize("items", ["null", {"type": "record", "name": "e", "fields": [{"name": "n", "type": "null"}]}])
def test_a_schema_by_which_a_few_bytes_could_be_endless_is_refused(items: Any) -> None:
    schema = RecordSchema(3, "AVRO", json.dumps({"type": "array", "items": items}))
    decoded = read(schema, b"\0\0\0\0\3" + b"\xff" * 8 + b"\x7f\0", Column("A", Array(STRING)), bare=True)
    assert "items that take no bytes" in decoded.errors[0].message


def test_fields_of_a_struct_that_differ_in_case_keep_their_values() -> None:
    column = Column("S", Struct((Field("A", INTEGER), Field("a", INTEGER))))
    spec = spec_of("AVRO", (column,))
    data = encoder(spec, [column]).encode([pa.array([{"A": 1, "a#1": 2}], column.type.arrow)])
    assert decode_logical(spec, [column], data[0].as_py()) == {"S": {"A": 1, "a": 2}}
    assert decoder(spec, [column]).decode(data).columns[0].to_pylist() == [{"A": 1, "a#1": 2}]


def test_an_error_inside_a_map_names_the_key() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "M", "type": {"type": "map", "values": "long"}}]}
    decoded = read(*written(schema, {"M": {"a": 1, "b": 2**31}}), Column("M", Map(STRING, INTEGER)))
    assert [error.message for error in decoded.errors] == ["$.M.b: the number 2147483648 is out of range for INTEGER"]


def test_a_value_without_columns_is_no_tombstone() -> None:
    spec = spec_of("AVRO", ())
    assert encoder(spec, []).encode([], null_rows=pa.array([False, True])).to_pylist() == [b"\0\0\0\0\7", None]


def test_a_short_name_means_the_type_in_its_own_namespace() -> None:
    node = {"type": "record", "name": "a.R", "fields": [
        {"name": "p", "type": {"type": "record", "name": "b.P", "fields": [{"name": "x", "type": "int"}]}},
        {"name": "q", "type": {"type": "record", "name": "P", "fields": [{"name": "y", "type": "string"}]}},
        {"name": "r", "type": "P"},
        {"name": "l", "type": {"type": "array", "items": ["null", "P"]}},
    ]}  # fmt: skip
    value = {"p": {"x": 1}, "q": {"y": "a"}, "r": {"y": "b"}, "l": [{"y": "c"}, None]}
    schema = RecordSchema(3, "AVRO", json.dumps(node))
    codec = AvroCodec(schema)
    assert codec.read(codec.write(value)) == value
    type_ = avro_schemas.sql_type(schema.text, str.upper)
    assert str(type_).endswith("`R` STRUCT<`Y` STRING>, `L` ARRAY<STRUCT<`Y` STRING>>>")
