"""AVRO: the branch of a union is the one that the bytes name; and single values are written exactly, or not at all."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import fastavro
import pytest

from millstream.executor.formats.avro import AvroCodec
from millstream.executor.formats.wire import Unwritable
from millstream.planner.specs import RecordSchema

X = [{"name": "x", "type": "int"}]
EVENT = {
    "type": "record", "name": "shop.Event",
    "fields": [{"name": "v", "type": ["null", {"type": "record", "name": "Bought", "fields": X},
                                      {"type": "record", "name": "other.Returned", "fields": X}]},
               {"name": "again", "type": ["null", "Bought"], "default": None}],
}  # fmt: skip


def codec(type_: Any) -> AvroCodec:
    return AvroCodec(RecordSchema(1, "AVRO", json.dumps(type_)))


def field(type_: Any) -> AvroCodec:
    return codec({"type": "record", "name": "r", "fields": [{"name": "v", "type": type_}]})


def written_elsewhere(type_: Any, value: Any) -> bytes:
    stream = io.BytesIO(b"\0\0\0\0\1")
    stream.seek(5)
    fastavro.schemaless_writer(stream, fastavro.parse_schema(type_), value)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("branch", "struct", "encoded"),
    [
        (("shop.Bought", {"x": 1}), {"Bought": {"x": 1}, "Returned": None}, {"shop.Bought": {"x": 1}}),
        (("other.Returned", {"x": 2}), {"Bought": None, "Returned": {"x": 2}}, {"other.Returned": {"x": 2}}),
        (None, None, None),
    ],
)
def test_of_two_records_with_the_same_fields_the_right_one_is_read_and_written(
    branch: Any, struct: Any, encoded: Any
) -> None:
    events = codec(EVENT)
    data = written_elsewhere(EVENT, {"v": branch, "again": {"x": 3}})
    assert events.read(data) == {"v": struct, "again": {"x": 3}}
    assert events.json_of(data) == {"v": encoded, "again": {"shop.Bought": {"x": 3}}}
    assert events.write({"v": struct, "again": {"x": 3}}) == data
    assert events.from_json({"v": encoded, "again": {"shop.Bought": {"x": 3}}}) == data


ENUM = {"type": "enum", "name": "e", "symbols": ["A"]}
FIXED = {"type": "fixed", "name": "f", "size": 1}


@pytest.mark.parametrize(
    ("union", "set_"),
    [
        (["int", "long"], {"long": 5}),
        (["float", "double"], {"double": 0.1}),
        (["string", ENUM], {"e": "A"}),
        (["bytes", FIXED], {"f": b"a"}),
        ([{"type": "map", "values": "int"}, {"type": "record", "name": "p", "fields": X}], {"p": {"x": 1}}),
        (["string", "null", "int"], {"int": 1}),
    ],
)
def test_a_branch_is_not_mistaken_for_another_of_the_same_kind_of_value(union: list[Any], set_: dict[str, Any]) -> None:
    found = field(union)
    assert {
        name: value for name, value in found.read(found.write({"v": set_}))["v"].items() if value is not None
    } == set_
    data = found.write({"v": set_})
    assert found.from_json(found.json_of(data)) == data


def test_the_default_of_a_union_is_of_its_first_branch() -> None:
    union = codec({"type": "record", "name": "r", "fields": [{"name": "v", "type": ["string", "int"], "default": "x"}]})
    assert union.read(union.write({})) == {"v": {"string": "x", "int": None}}
    assert union.read(union.from_json({})) == {"v": {"string": "x", "int": None}}


@pytest.mark.parametrize(
    ("type_", "value", "message"),
    [
        ("int", 2**31, "wants a number of type int, the number 2147483648 is out of its range"),
        ("long", 2**63, "wants a number of type long, the number 9223372036854775808 is out of its range"),
        ("int", "x", 'wants a number, the text "x" came'),
        ("int", True, "wants a number, true came"),
        ("int", 1.5, "wants a whole number, the number 1.5 came"),
        ("double", "sNaN", 'wants a number, the text "sNaN" came'),
        ("float", 1e300, "wants a number of type float, the number 1e+300 is out of its range"),
        ("double", "x", 'wants a number, the text "x" came'),
        ("double", [1], "wants a number, an array came"),
        ("boolean", 1, "wants a boolean, the number 1 came"),
        ("string", {"a": 1}, "wants a text, an object came"),
        ("bytes", 1, "wants bytes, the number 1 came"),
        ("bytes", "?", 'wants bytes, the text "?" is not base64'),
        (FIXED, b"ab", "wants 1 bytes, 2 bytes came"),
        (ENUM, "B", 'the AVRO enum e has A, the text "B" came'),
        ({"type": "array", "items": "int"}, {}, "wants an array, an object came"),
        ({"type": "map", "values": "int"}, [], "wants a map, an array came"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "x", 'a number, the text "x" came'),
    ],
)
def test_a_value_that_does_not_fit_is_refused_in_plain_words(type_: Any, value: Any, message: str) -> None:
    with pytest.raises(Unwritable) as refused:
        field(type_).write({"v": value})
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("type_", "value", "message"),
    [
        ("int", 1.5, "wants a whole number, the number 1.5 came"),
        ("int", 2**31, "the number 2147483648 is out of its range"),
        ("int", "1", 'wants a number, the text "1" came'),
        ("boolean", "x", 'wants a boolean, the text "x" came'),
        ("boolean", 3, "wants a boolean, the number 3 came"),
        ("double", "x", 'wants a number, the text "x" came'),
        ("double", None, "wants a number, null came"),
        ("string", 5, "wants a text, the number 5 came"),
        ("bytes", "日", 'wants bytes, as a text of Latin-1, the text "日" came'),
        (ENUM, 1, "wants a text, the number 1 came"),
        (ENUM, "B", 'the AVRO enum e has A, the text "B" came'),
        (["null", "string"], "x", 'carries the name of its type, as in {"string": …}; the text "x" came'),
        (["null", "string"], {"int": 1}, 'has string, and no "int"'),
        ({"type": "array", "items": "int"}, 5, "wants an array, the number 5 came"),
    ],
)
def test_json_that_does_not_fit_is_refused_with_its_field(type_: Any, value: Any, message: str) -> None:
    with pytest.raises(Unwritable) as refused:
        field(type_).from_json({"v": value})
    assert str(refused.value).startswith("in the field v, ")
    assert message in str(refused.value)
    with pytest.raises(Unwritable, match="the field v has no value"):
        field(type_).from_json({})


def test_numbers_that_are_not_finite_have_their_names_in_json() -> None:
    found = codec({"type": "array", "items": "double"})
    data = found.from_json(["NaN", "Infinity", "-Infinity", 1, 2.5])
    assert math.isnan(found.read(data)[0])
    assert found.json_of(data) == ["NaN", "Infinity", "-Infinity", 1.0, 2.5]


@pytest.mark.parametrize(
    ("union", "value", "branch"),
    [
        (["string", "int"], 5, "int"),
        (["null", "string", "boolean", "double"], True, "boolean"),
        (["string", "bytes"], 1.5, "string"),
        (["bytes", "string"], "abcd", "string"),
        ([{"type": "enum", "name": "e", "symbols": ["x"]}, "string"], "x", "e"),
    ],
)
def test_a_bare_value_is_of_the_branch_that_need_not_convert_it(union: list[Any], value: object, branch: str) -> None:
    schema = field(union)
    written = schema.read(schema.write({"v": value}))["v"]
    assert [name for name, member in written.items() if member is not None] == [branch]
