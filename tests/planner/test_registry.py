"""The schema registry's state, what schemas say in columns, and which versions may follow each other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millstream.planner.schema import Column
from millstream.planner.schemas import avro_schemas, json_schemas, protobuf_schemas, protobuf_text
from millstream.planner.schemas.compatibility import incompatibilities
from millstream.planner.schemas.registry import (
    GivenSchema,
    InvalidSchema,
    Reference,
    Registry,
    SchemaKind,
    Version,
    apply_record,
    ids_record,
    level_record,
    removal_record,
    version_record,
)
from millstream.planner.serde import _decode, _encode
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
    Decimal,
    Field,
    Map,
    Struct,
)

EVERY_TYPE = (
    Column("B", BOOLEAN),
    Column("I", INTEGER),
    Column("L", BIGINT),
    Column("D", DOUBLE),
    Column("S", STRING),
    Column("Y", BYTES),
    Column("N", Decimal(10, 2)),
    Column("DA", DATE),
    Column("TI", TIME),
    Column("TS", TIMESTAMP),
    Column("A", Array(STRING)),
    Column("M", Map(STRING, INTEGER)),
    Column("ST", Struct((Field("X", INTEGER), Field("Z", Array(Struct((Field("Q", STRING),))))))),
)
AS_STRUCT = Struct(tuple(Field(column.name, column.type) for column in EVERY_TYPE))


def registered(*versions: Version) -> Registry:
    registry = Registry()
    for version in versions:
        registry = registry.with_version(version)
    return registry


def record(*fields: object) -> str:
    return json.dumps({"type": "record", "name": "r", "fields": list(fields)})


def test_the_same_schema_has_the_same_id_under_every_subject() -> None:
    registry = Registry()
    first = registry.new_version("a-value", GivenSchema("AVRO", '{"type": "int"}'))
    registry = registry.with_version(first)
    second = registry.new_version("b-value", GivenSchema("AVRO", '{"type":"int"}'))
    third = registry.with_version(second).new_version("b-value", GivenSchema("AVRO", '"string"'))
    assert (first.id, first.version) == (1, 1)
    assert (second.id, second.version) == (1, 1)
    assert (third.id, third.version) == (2, 2)


def test_registering_what_is_there_changes_nothing() -> None:
    version = Version("s", 1, 7, "JSON", '{"type":"object"}')
    assert registered(version).new_version("s", GivenSchema("JSON", '{ "type" : "object" }')) == version


def test_an_id_that_somebody_chose_is_kept_and_cannot_be_taken() -> None:
    version = Registry().new_version("s", GivenSchema("AVRO", '"int"'), schema_id=102)
    assert version.id == 102
    with pytest.raises(InvalidSchema, match="102 belongs to another schema"):
        registered(version).new_version("t", GivenSchema("AVRO", '"long"'), schema_id=102)


def test_the_registry_is_the_fold_of_its_records() -> None:
    version = Version("s", 1, 1, "PROTOBUF", "message M {}", (Reference("e.proto", "e", 1),))
    other = Version("e", 1, 2, "AVRO", '"int"')
    registry = Registry()
    records = [version_record(version), version_record(other), level_record("s", "FULL"), level_record("", "NONE")]
    for key, value in [*records, (b'{"keytype":"NOOP","magic":0}', None)]:
        registry = apply_record(registry, key, value)
    assert registry == registered(version, other).with_level("s", "FULL").with_level("", "NONE")
    assert (registry.level("s"), registry.level("e")) == ("FULL", "NONE")
    assert apply_record(registry, *removal_record("e", 1)).latest("e") is None


def test_no_id_is_given_twice_though_compaction_leaves_nothing_of_what_was_removed() -> None:
    """Records of a topic may name a schema that was deleted for good: they must never be read by another one."""
    records = [
        version_record(Version("s", 1, 1, "AVRO", '"int"')),
        version_record(Version("t", 1, 7, "AVRO", '"long"')),
        ids_record(7),
        removal_record("t", 1),
        removal_record("s", 1),
        (b'{"keytype":"NOOP","magic":0}', None),  # of another registry: says nothing
        ids_record(3),
    ]
    whole, compacted = Registry(), Registry()
    for record in records:
        whole = apply_record(whole, *record)
    for record in [records[2], records[6]]:
        compacted = apply_record(compacted, *record)
    assert (
        whole.new_version("u", GivenSchema("AVRO", '"string"')).id
        == compacted.new_version("u", GivenSchema("AVRO", '"string"')).id
        == 8
    )
    assert (
        compacted.new_version("u", GivenSchema("AVRO", '"string"'), schema_id=2).id == 2
    )  # who brings ids along knows why


def test_a_deleted_version_is_no_latest_one_but_its_id_stays() -> None:
    gone = Version("s", 1, 5, "AVRO", '"int"', deleted=True)
    registry = registered(gone)
    assert registry.latest("s") is None
    assert registry.by_id(5) == gone
    assert registry.new_version("s", GivenSchema("AVRO", '"long"')).version == 2


def test_references_come_before_what_imports_them() -> None:
    registry = registered(
        Version("base", 1, 1, "PROTOBUF", "base"),
        Version("event", 1, 2, "PROTOBUF", "event", (Reference("base.proto", "base", 1),)),
        Version("s", 1, 3, "PROTOBUF", "top", (Reference("event.proto", "event", 1),)),
    )
    schema = registry.record_schema(registry.versions["s", 1])
    assert schema.references == (("base.proto", "base"), ("event.proto", "event"))
    with pytest.raises(InvalidSchema, match='version 1 of "nope", which does not exist'):
        registry.resolve((Reference("x", "nope", 1),))


def test_a_format_with_its_schema_survives_the_command_topic() -> None:
    schema = RecordSchema(3, "PROTOBUF", "message M {}", (("a", "b"), ("c", "d")), "M", given=True)
    spec = FormatSpec("PROTOBUF", schema=schema, nullable="OPTIONAL")
    assert _decode(json.loads(json.dumps(_encode(spec)))) == spec


def test_avro_columns_come_back_as_they_were_written() -> None:
    text = avro_schemas.write_schema(EVERY_TYPE, avro_schemas.VALUE_NAME, wrapped=True)
    assert avro_schemas.sql_type(text, str) == AS_STRUCT


def test_json_columns_come_back_as_they_were_written() -> None:
    assert json_schemas.sql_type(json_schemas.write_schema(EVERY_TYPE, wrapped=True), str) == AS_STRUCT


def test_protobuf_columns_come_back_as_they_were_written() -> None:
    for nullable in ("", "OPTIONAL", "WRAPPER"):
        file = protobuf_text.load(protobuf_schemas.write_schema(EVERY_TYPE, "com.acme.Row", nullable))
        assert file.messages[0].full_name == "com.acme.Row"
        assert protobuf_schemas.sql_type(file, file.messages[0], str, nullable=nullable) == AS_STRUCT


def test_a_written_avro_record_has_the_names_of_kafka_connect() -> None:
    column = Column("V", Struct((Field("F", INTEGER),)))
    node = json.loads(avro_schemas.write_schema([column], avro_schemas.VALUE_NAME, wrapped=True))
    assert node["name"] == "KsqlDataSourceSchema"
    assert node["fields"][0]["type"][1]["name"] == "KsqlDataSourceSchema_V"
    assert avro_schemas.key_name("MY_TABLE") == "io.confluent.ksql.avro_schemas.MyTableKey"
    assert avro_schemas.write_schema([column], "a.K", wrapped=False).startswith('{"type":"record","name":"K"')
    assert avro_schemas.write_schema([Column("K", INTEGER)], "a.K", wrapped=False) == '"int"'


def test_avro_types_without_a_counterpart_are_left_out() -> None:
    text = record(
        {"name": "a", "type": "null"},
        {"name": "b", "type": ["null", {"type": "record", "name": "r2", "fields": [{"name": "self", "type": "r2"}]}]},
        {"name": "c", "type": {"type": "enum", "name": "e", "symbols": ["X"]}},
        {"name": "d", "type": ["int", "string"]},
        {"name": "e", "type": {"type": "fixed", "name": "f", "size": 2}},
        {"name": "f", "type": {"type": "bytes", "logicalType": "decimal", "precision": 99, "scale": 2}},
    )
    assert str(avro_schemas.sql_type(text, str.upper)) == (
        "STRUCT<`C` STRING, `D` STRUCT<`INT` INTEGER, `STRING` STRING>, `E` BYTES>"
    )


@pytest.mark.parametrize(
    ("precision", "scale"), [(4, 10), (4, -1), (0, 0), (39, 0), ("many", 0), (4, "some"), (4, "9" * 5_000), (4, None)]
)
def test_a_decimal_that_cannot_be_is_left_out(precision: Any, scale: Any) -> None:
    said = {"precision": precision, "scale": scale}
    avro = record(
        {"name": "a", "type": {"type": "bytes", "logicalType": "decimal", **said}}, {"name": "b", "type": "int"}
    )
    assert str(avro_schemas.sql_type(avro, str.upper)) == "STRUCT<`B` INTEGER>"
    connect = {"connect.decimal.precision": precision, "scale": scale}
    decimal = {"type": "number", "title": "org.apache.kafka.connect.data.Decimal", "connect.parameters": connect}
    text = json.dumps({"type": "object", "properties": {"a": decimal, "b": {"type": "string"}}})
    assert str(json_schemas.sql_type(text, str.upper)) == "STRUCT<`B` STRING>"


@pytest.mark.parametrize(("precision", "scale"), [("4", "10"), ("many", "0"), ("4", "9" * 5_000)])
def test_a_decimal_that_cannot_be_is_left_out_of_a_message(precision: str, scale: str) -> None:
    said = f'{{key: "precision", value: "{precision}"}}, {{key: "scale", value: "{scale}"}}'
    file = protobuf_text.load(
        'syntax = "proto3"; import "confluent/meta.proto"; import "confluent/type/decimal.proto"; message M {'
        f"confluent.type.Decimal a = 1 [(confluent.field_meta) = {{params: [{said}]}}]; int32 b = 2; }}"
    )
    assert str(protobuf_schemas.sql_type(file, file.messages[0], str)) == "STRUCT<`b` INTEGER>"


def test_a_reference_into_a_list_may_name_any_place() -> None:
    text = json.dumps(
        {"type": "object", "properties": {"a": {"$ref": "#/x/" + "9" * 5_000}}, "x": [{"type": "string"}]}
    )
    with pytest.raises(InvalidSchema, match="which does not exist"):
        json_schemas.sql_type(text, str.upper)


def test_json_types_follow_connect_where_it_says_something() -> None:
    text = json.dumps(
        {
            "type": "object",
            "properties": {
                "z": {"connect.index": 1, "type": "integer"},
                "a": {"connect.index": 0, "type": ["null", "number"]},
                "i": {"connect.index": 2, "type": "integer", "connect.type": "int16"},
                "s": {"connect.index": 3, "type": "string", "connect.type": "int32"},
                "m": {"connect.index": 4, "type": "object", "additionalProperties": {"type": "boolean"}},
                "r": {"connect.index": 5, "$ref": "#/definitions/point"},
            },
            "definitions": {"point": {"type": "object", "properties": {"x": {"type": "number"}}}},
        }
    )
    assert str(json_schemas.sql_type(text, str.upper)) == (
        "STRUCT<`A` DOUBLE, `Z` BIGINT, `I` INTEGER, `S` STRING, `M` MAP<STRING, BOOLEAN>, `R` STRUCT<`X` DOUBLE>>"
    )


def test_protobuf_messages_are_found_by_name_and_by_index() -> None:
    file = protobuf_text.load('syntax = "proto3"; message A { message B { int32 x = 1; } B b = 1; } message C {}')
    inner = file.message("A.B")
    assert inner is not None
    assert file.indexes(inner) == (0, 0)
    assert file.at((0, 0)) == inner
    assert file.at((1,)) == file.message("C")
    assert file.at((2,)) is None
    assert file.message("Nope") is None


def test_protobuf_oneofs_unsigned_numbers_and_enums_have_types() -> None:
    file = protobuf_text.load(
        """syntax = "proto3"; package p;
        message M {
          enum Suit { SPADES = 0; HEARTS = 1; }
          oneof pick { int32 a = 1; string b = 2; }
          uint32 u = 3; Suit suit = 4; repeated fixed64 f = 5; map<string, Suit> m = 6; M again = 7;
        }"""
    )
    assert str(protobuf_schemas.sql_type(file, file.messages[0], str)) == (
        "STRUCT<`pick_0` STRUCT<`a` INTEGER, `b` STRING>, `u` BIGINT, `suit` STRING, `f` ARRAY<BIGINT>, "
        "`m` MAP<STRING, STRING>>"
    )


@pytest.mark.parametrize(
    "text", ["", "message {", 'syntax = "proto3"; message M { Nope n = 1; }', 'import "no.proto";']
)
def test_protobuf_text_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchema, match="PROTOBUF schema"):
        protobuf_text.load(text)


INT = {"name": "a", "type": "int"}
LONG = {"name": "a", "type": "long"}
MORE = {"name": "b", "type": "int"}
MORE_WITH_DEFAULT = {"name": "b", "type": "int", "default": 0}


@pytest.mark.parametrize(
    ("kind", "old", "new", "level", "compatible"),
    [
        ("AVRO", record(INT), record(INT, MORE_WITH_DEFAULT), "BACKWARD", True),
        ("AVRO", record(INT), record(INT, MORE), "BACKWARD", False),
        ("AVRO", record(INT), record(INT, MORE), "FORWARD", True),
        ("AVRO", record(INT), record(LONG), "BACKWARD", True),
        ("AVRO", record(LONG), record(INT), "BACKWARD", False),
        ("AVRO", record(INT), record(LONG), "FULL", False),
        ("AVRO", record(INT), '"string"', "BACKWARD", False),
        ("AVRO", record(INT), '"string"', "NONE", True),
        ("AVRO", '"int"', '["null", "int"]', "BACKWARD", True),
        ("JSON", '{"type":"integer"}', '{"type":"number"}', "BACKWARD", True),
        ("JSON", '{"type":"number"}', '{"type":"integer"}', "BACKWARD", False),
        ("JSON", '{"type":"object"}', '{"type":"object","required":["a"]}', "BACKWARD", False),
        ("PROTOBUF", "message M { int32 a = 1; }", "message M { int64 a = 1; int32 b = 2; }", "FULL", True),
        ("PROTOBUF", "message M { int32 a = 1; }", "message M { string a = 1; }", "BACKWARD", False),
        ("PROTOBUF", "message M { int32 a = 1; }", "message N { int32 a = 1; }", "BACKWARD", False),
    ],
)
def test_a_version_may_follow_if_its_level_allows(
    kind: SchemaKind, old: str, new: str, level: str, compatible: bool
) -> None:
    def text(said: str) -> str:
        return f'syntax = "proto3"; {said}' if kind == "PROTOBUF" else said

    registry = registered(Version("s", 1, 1, kind, text(old))).with_level("s", level)
    assert (not incompatibilities(Version("s", 2, 2, kind, text(new)), registry)) == compatible


def test_transitive_levels_look_at_every_version() -> None:
    registry = registered(Version("s", 1, 1, "AVRO", '"string"'), Version("s", 2, 2, "AVRO", '"int"'))
    new = Version("s", 3, 3, "AVRO", '"long"')
    assert not incompatibilities(new, registry)
    assert incompatibilities(new, registry.with_level("s", "BACKWARD_TRANSITIVE"))


def named(name: str, **fields: object) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": of, "type": type} for of, type in fields.items()]}


def test_a_record_that_another_branch_of_a_union_stood_in_for_is_compared_where_it_stands_alone() -> None:
    def version(number: int, alone: str) -> Version:
        either = [named("X", a="int"), named("Y", a="int")]
        return Version("s", number, number, "AVRO", json.dumps(named("R", either=either, alone=alone)))

    problems = incompatibilities(version(2, "X"), registered(version(1, "Y")))
    assert problems == ["$.alone: the record Y is called X"]


def test_what_was_compatible_inside_of_what_was_not_is_compared_again() -> None:
    """`Inner` can be read only as long as the `Outer` around it is taken to be readable."""

    def version(number: int, type_of_a: str) -> Version:
        outer = named("Outer", inner=named("Inner", back=["null", "Outer"]), a=type_of_a)
        other = named("Other", inner="Inner", a="int") | {"aliases": ["Outer"]}
        return Version("s", number, number, "AVRO", json.dumps(named("R", either=[outer, other])))

    assert incompatibilities(version(2, "int"), registered(version(1, "int"))) == []
    assert incompatibilities(version(2, "string"), registered(version(1, "int"))) != []


def test_messages_that_many_others_have_are_compared_once() -> None:
    """Along all ways to it, the last message would be compared 2 ** 24 times."""
    text = 'syntax = "proto3"; message M24 { int32 a = 1; }' + "".join(
        f"message M{number} {{ M{number + 1} a = 1; M{number + 1} b = 2; }}" for number in range(24)
    )
    new = Version("s", 2, 2, "PROTOBUF", text.replace("int32", "string"))
    assert incompatibilities(new, registered(Version("s", 1, 1, "PROTOBUF", text))) == ["M24.a: the type changed"]
