"""Which texts are the same schema, and PROTOBUF schemas as descriptors."""

from __future__ import annotations

import pytest

from millstream.planner.schemas import protobuf_text
from millstream.planner.schemas.protobuf_printing import base64_of, descriptor_in, text_of
from millstream.planner.schemas.schema_forms import canonical, normal

SAME_AVRO = [
    ('"int"', '{"type": "int"}'),
    ('{"type": "record", "name": "a.R", "fields": []}',
     '{"fields": [], "namespace": "a", "name": "R", "type": "record"}'),
    ('{"type": "record", "name": "R", "namespace": "a", "fields": [{"name": "n", "type": ["null", "R"]}]}',
     '{"type": "record", "name": "a.R", "fields": [{"type": ["null", "a.R"], "name": "n"}]}'),
    ('{"type": "array", "items": {"type": "enum", "name": "a.E", "symbols": ["X"], "aliases": ["F"]}}',
     '{"items": {"aliases": ["a.F"], "type": "enum", "name": "E", "namespace": "a", "symbols": ["X"]},"type":"array"}'),
    ('{"type": "map", "values": {"type": "int", "logicalType": "date"}}',
     '{"values": {"logicalType": "date", "type": "int"}, "type": "map"}'),
]  # fmt: skip
OTHER_AVRO = [
    ('"int"', '{"type": "int", "logicalType": "date"}'),
    ('{"type": "record", "name": "a.R", "fields": []}', '{"type": "record", "name": "b.R", "fields": []}'),
    ('{"type": "enum", "name": "E", "symbols": ["X", "Y"]}', '{"type": "enum", "name": "E", "symbols": ["Y", "X"]}'),
    ('{"type": "record", "name": "R", "doc": "x", "fields": []}', '{"type": "record", "name": "R", "fields": []}'),
]
EVERYTHING = """
syntax = "proto3"; // as people write them
package shop;
import "google/protobuf/timestamp.proto";
import "base.proto";
option java_package = "com.shop";
message Order {
  reserved 20, 30 to 40; reserved "old";
  message Line { string sku = 1; base.Money price = 2 [deprecated = true]; }
  enum Kind { option allow_alias = true; NONE = 0; NIL = 0; SOME = 1; }
  int64 id = 1;
  repeated Line lines = 2;
  Kind kind = 3;
  google.protobuf.Timestamp at = 4;
  map<string, Line> by_sku = 6;
  optional int32 size = 7;
  oneof pay { string card = 8; int64 cash = 9; }
  repeated int32 loose = 10 [packed = false];
  bytes total = 11 [(confluent.field_meta) = { params: [{ key: "precision", value: "10" }], tags: ["PII"] }];
  string odd = 12 [json_name = "rare"];
}
service Shop { rpc Buy (stream Order) returns (Order); }
"""
BASE = 'syntax = "proto3"; package base; message Money { int64 units = 1; } enum Unused { U = 0; }'
SECOND = """
syntax = "proto2";
message A { required string name = 1; optional int32 n = 2 [default = -5]; repeated E e = 3; optional E f = 4 [default = Y]; }
enum E { X = 0; Y = 1; }
"""  # noqa: E501


@pytest.mark.parametrize(("one", "other"), SAME_AVRO)
def test_an_avro_schema_is_the_same_in_whatever_order_a_client_writes_it(one: str, other: str) -> None:
    assert canonical("AVRO", one) == canonical("AVRO", other)


@pytest.mark.parametrize(("one", "other"), OTHER_AVRO)
def test_what_readers_of_avro_can_tell_apart_is_another_schema(one: str, other: str) -> None:
    assert canonical("AVRO", one) != canonical("AVRO", other)


def test_the_order_of_json_members_counts_unless_the_normal_form_is_asked_for() -> None:
    one, other = '{"type": "object", "title": "x"}', '{"title": "x", "type": "object"}'
    assert canonical("JSON", one) != canonical("JSON", other)
    assert normal("JSON", one, ()) == normal("JSON", other, ())


@pytest.mark.parametrize("text", [EVERYTHING, SECOND])
def test_a_protobuf_schema_is_the_same_as_a_descriptor_and_as_the_text_of_that(text: str) -> None:
    references = (("base.proto", BASE),)
    sent = base64_of(protobuf_text.load(text, references).descriptor)
    descriptor = descriptor_in(sent)
    assert descriptor is not None
    printed = text_of(descriptor)
    assert normal("PROTOBUF", printed, references) == normal("PROTOBUF", text, references)
    assert protobuf_text.load(printed, references).parameters == protobuf_text.load(text, references).parameters


@pytest.mark.parametrize(
    ("before", "after"),
    [("units = 1", "units = 2"), ("int64 units", "int32 units"), ("int64 units", "repeated int64 units"),
     ("units = 1", "units = 1 [(confluent.field_meta).tags = 'PII']"), ("package base", "package other")],
)  # fmt: skip
def test_what_changes_records_or_rules_is_another_protobuf_schema(before: str, after: str) -> None:
    assert normal("PROTOBUF", BASE.replace(before, after), ()) != normal("PROTOBUF", BASE, ())
