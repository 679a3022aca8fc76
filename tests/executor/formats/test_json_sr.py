"""JSON_SR: JSON behind the id of a schema, in batches."""

from __future__ import annotations

from decimal import Decimal as Number

import pyarrow as pa
import pytest

from millstream.executor.formats import decode_logical, decoder, encode_logical, encoder
from millstream.executor.formats.codec import UnwritableRows
from millstream.planner.schema import Column
from millstream.planner.schemas.json_schemas import sql_type
from millstream.planner.specs import FormatSpec, RecordSchema
from millstream.sql.types import DOUBLE, INTEGER, STRING, Decimal, Field, Struct

from .record_formats import COLUMNS, NULLS, ROW, arrays_of, rows_of, spec_of

HEADER = b"\0\0\0\0\7"


@pytest.mark.parametrize("count", [1, 100])  # by rows, and by the compiled scan
def test_every_type_comes_back_as_it_was(count: int) -> None:
    spec, rows = spec_of("JSON_SR"), [ROW, NULLS] * count
    data = encoder(spec, COLUMNS).encode(arrays_of(rows), null_rows=pa.array([False] * len(rows)))
    decoded = decoder(spec, COLUMNS).decode(data)
    assert not decoded.errors
    assert rows_of(decoded.columns) == rows


def test_the_header_stands_before_the_json() -> None:
    column = Column("V", INTEGER)
    data = encoder(spec_of("JSON_SR", (column,)), [column]).encode(
        [pa.array([1, 2, None], pa.int32())], null_rows=pa.array([False, True, False])
    )
    assert data.to_pylist() == [HEADER + b'{"V":1}', None, HEADER + b'{"V":null}']


GIVEN = """{"type": "object", "required": ["V", "C", "D", "E"], "properties": {"V": {"type": "integer"},
 "C": {"oneOf": [{"type": "null"}, {"type": "string"}]}, "D": {"type": "integer", "default": 5},
 "E": {"type": ["null", "string"]}}}"""
NEEDED = """{"type": "object", "required": ["X"], "properties": {"V": {"type": "integer"}, "X": {"type": "integer"}}}"""


def given(text: str) -> FormatSpec:
    return FormatSpec("JSON_SR", schema=RecordSchema(7, "JSON", text, given=True))


def test_a_schema_that_a_statement_names_gives_all_members_of_its_objects() -> None:
    column = Column("V", INTEGER)
    rows = [pa.array([1, None], pa.int32())]
    data = encoder(given(GIVEN), [column]).encode(rows, null_rows=pa.array([False, True]))
    assert data.to_pylist() == [HEADER + b'{"V":1,"C":null,"D":5,"E":null}', None]


@pytest.mark.parametrize(("text", "member", "wrong"), [(GIVEN, "V", [1]), (NEEDED, "X", [0, 1])])
def test_a_required_member_without_a_value_cannot_be_written(text: str, member: str, wrong: list[int]) -> None:
    rows = [pa.array([1, None, None], pa.int32())]
    with pytest.raises(UnwritableRows, match=f"the member {member} has no value") as refused:
        encoder(given(text), [Column("V", INTEGER)]).encode(rows, null_rows=pa.array([False, False, True]))
    assert [error.row for error in refused.value.errors] == wrong


DEFAULTS = """{"type": "object", "required": ["D", "S"], "properties": {"D": {"type": "integer", "default": 5},
 "N": {"type": ["null", "integer"], "default": 6}, "S": {"oneOf": [{"type": "null"}, {"type": "object",
 "required": ["A"], "properties": {"A": {"type": "integer"}, "B": {"type": "string", "default": "b"}}}]}}}"""
IN_STRUCT = Struct((Field("A", INTEGER), Field("B", STRING)))


def test_the_default_is_written_where_the_schema_takes_no_null() -> None:
    columns = [Column("D", DOUBLE), Column("N", INTEGER), Column("S", IN_STRUCT)]
    rows = [
        pa.array([None, 1.5], pa.float64()),
        pa.array([None, None], pa.int32()),
        pa.array([{"A": 1, "B": None}, None], IN_STRUCT.arrow),
    ]
    data = encoder(given(DEFAULTS), columns).encode(rows, null_rows=pa.array([False, False]))
    assert data.to_pylist() == [
        HEADER + b'{"D":5.0,"N":null,"S":{"A":1,"B":"b"}}',
        HEADER + b'{"D":1.5,"N":null,"S":null}',
    ]


def test_a_required_member_of_a_struct_without_a_value_cannot_be_written() -> None:
    rows = [pa.array([1, 1, 1], pa.int32()), pa.array([{"A": 1}, {"B": "x"}, None], IN_STRUCT.arrow)]
    with pytest.raises(UnwritableRows, match="the member S->A has no value") as refused:
        encoder(given(DEFAULTS), [Column("D", INTEGER), Column("S", IN_STRUCT)]).encode(
            rows, null_rows=pa.array([False] * 3)
        )
    assert [error.row for error in refused.value.errors] == [1]


def test_a_slice_of_a_batch_is_read_as_itself() -> None:
    column = Column("V", STRING)
    spec = spec_of("JSON_SR", (column,), wrapped=False)
    data = encoder(spec, [column]).encode([pa.array(["a", "bc", None, "def"])])
    assert decoder(spec, [column]).decode(data[1:]).columns[0].to_pylist() == ["bc", None, "def"]


def test_the_bytes_that_were_read_stay_as_they_are() -> None:
    column = Column("V", STRING)
    data = pa.array([HEADER + b'{"V":"x"}'])
    decoder(spec_of("JSON_SR", (column,)), [column]).decode(data)
    assert data.to_pylist() == [HEADER + b'{"V":"x"}']


@pytest.mark.parametrize("count", [1, 100])
def test_records_without_a_header_or_json_are_error_rows(count: int) -> None:
    column = Column("V", DOUBLE)
    good = HEADER + b'{"v":1.5}'
    rows = [good, b"", b'{"V":1}', HEADER, HEADER + b"{", None] * count
    decoded = decoder(spec_of("JSON_SR", (column,)), [column]).decode(pa.array(rows, pa.binary()))
    assert [error.row for error in decoded.errors[:4]] == [1, 2, 3, 4]
    assert len(decoded.errors) == 4 * count
    assert "does not begin with the id of a schema" in decoded.errors[1].message
    assert decoded.columns[0].to_pylist() == [1.5, None, None, None, None, None] * count
    assert decoded.null_rows.to_pylist() == [False, False, False, False, False, True] * count


def test_logical_values_are_those_of_json() -> None:
    column = Column("N", Decimal(4, 2))
    spec = spec_of("JSON_SR", (column,))
    data = encode_logical(spec, [column], {"N": Number("1.50")})
    assert data == HEADER + b'{"N":1.50}'
    assert str(decode_logical(spec, [column], data)["N"]) == "1.50"


CHOICE = """{"type": "object", "properties": {"U": {"oneOf": [{"type": "null"}, {"type": "string"}, {"type": "integer"},
 {"type": "object", "properties": {"a": {"type": "boolean"}}},
 {"type": "object", "properties": {"b": {"type": "boolean"}}}]}}}"""


@pytest.mark.parametrize("count", [1, 10])
def test_a_value_of_a_choice_sets_the_field_of_its_type(count: int) -> None:
    type_ = sql_type(CHOICE, str.upper)
    assert isinstance(type_, Struct)
    column = Column("U", type_.fields[0].type)
    values = [b'"7"', b"7", b'{"a":true}', b'{"B":true}', b'{"connect_union_field_1":8}', b"null", b"[]"]
    rows = [HEADER + b'{"U":' + value + b"}" for value in values] * count
    decoded = decoder(given(CHOICE), [column]).decode(pa.array(rows, pa.binary()))
    nothing = dict.fromkeys(f"CONNECT_UNION_FIELD_{number}" for number in range(4))
    found = [
        {"CONNECT_UNION_FIELD_0": "7"},
        {"CONNECT_UNION_FIELD_1": 7},
        {"CONNECT_UNION_FIELD_2": {"A": True}},
        {"CONNECT_UNION_FIELD_3": {"B": True}},
        {"CONNECT_UNION_FIELD_1": 8},
    ]
    assert decoded.columns[0].to_pylist() == [*({**nothing, **each} for each in found), None, None] * count
    assert [error.row for error in decoded.errors] == [6 + 7 * number for number in range(count)]
