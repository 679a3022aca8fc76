"""The schema registry: what statements register and read, and its HTTP routes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from asgi_client import AsgiClient

from millstream.errors import FormatError, InvalidProperty, InvalidStatement, StatementError
from millstream.executor.errors import QueryFailed
from millstream.executor.sources.schemas_topic import SCHEMAS_TOPIC
from millstream.logcore.client import FetchedRows, RowRecords
from millstream.planner.schemas.registry import GivenSchema, Registry, apply_record
from millstream.server.catalog.schema_store import SchemaStore
from millstream.server.handlers.assertions import AssertionFailed
from millstream.server.registry.registry_app import schema_registry_app
from millstream.testing import Sandbox


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as made:
        yield made


@pytest.fixture
def client(sandbox: Sandbox) -> AsgiClient:
    return AsgiClient(schema_registry_app(sandbox.engine.schemas, sandbox.engine.lock))


def registry_of(sandbox: Sandbox) -> Registry:
    return sandbox.engine.schemas.registry


def source(sandbox: Sandbox, name: str) -> dict[str, Any]:
    return next(found for found in sandbox.sources() if found["name"] == name)


# ------------------------------------------------------------------ statements


def test_a_created_stream_registers_the_schemas_of_its_columns(sandbox: Sandbox) -> None:
    sandbox.execute(
        "CREATE STREAM my_stream (k INT KEY, v STRING) WITH (kafka_topic='t', format='AVRO', partitions=1);"
    )
    topic = sandbox.topics()[0]
    assert topic["key_schema"] == "int"
    assert topic["value_schema"]["connect.name"] == "io.confluent.ksql.avro_schemas.KsqlDataSourceSchema"
    assert (topic["key_schema_id"], topic["value_schema_id"]) == (1, 2)


def test_a_source_on_a_topic_with_a_schema_does_not_register_another(sandbox: Sandbox) -> None:
    sandbox.create_topic("t")
    sandbox.register_schema("t", "value", "JSON_SR", {"type": "object", "properties": {"a": {"type": "integer"}}})
    sandbox.execute("CREATE STREAM s (a BIGINT, b INT) WITH (kafka_topic='t', value_format='JSON_SR');")
    assert [version.version for version in registry_of(sandbox).of_subject("t-value")] == [1]


@pytest.mark.parametrize(
    ("format_", "schema"),
    [
        ("AVRO", {"type": "record", "name": "r", "fields": [{"name": "c1", "type": "int"}]}),
        ("PROTOBUF", 'syntax = "proto3"; message M { int32 c1 = 1; }'),
        ("JSON_SR", {"type": "object", "properties": {"c1": {"type": "integer", "connect.type": "int32"}}}),
    ],
)
def test_columns_come_from_the_registry_in_upper_case_or_by_id_as_they_are(
    sandbox: Sandbox, format_: str, schema: Any
) -> None:
    sandbox.create_topic("t")
    sandbox.register_schema("t", "value", format_, schema)
    sandbox.execute(f"CREATE STREAM a (k INT KEY) WITH (kafka_topic='t', value_format='{format_}');")
    sandbox.execute(f"CREATE STREAM b WITH (kafka_topic='t', value_format='{format_}', value_schema_id=1);")
    assert source(sandbox, "A")["schema"] == "`K` INTEGER KEY, `C1` INTEGER"
    assert source(sandbox, "B")["schema"] == "`c1` INTEGER"


def test_a_bare_key_is_called_rowkey_and_a_bare_value_rowval(sandbox: Sandbox) -> None:
    sandbox.create_topic("t")
    sandbox.register_schema("t", "key", "AVRO", "string")
    sandbox.register_schema("t", "value", "AVRO", "int")
    sandbox.execute("CREATE TABLE t WITH (kafka_topic='t', format='AVRO', wrap_single_value=false);")
    assert source(sandbox, "T")["schema"] == "`ROWKEY` STRING KEY, `ROWVAL` INTEGER"
    with pytest.raises(InvalidStatement, match="WRAP_SINGLE_VALUE=false"):
        sandbox.execute("CREATE STREAM s WITH (kafka_topic='t', format='AVRO');")


def test_a_query_writes_by_its_own_schema_and_reads_each_record_by_its(sandbox: Sandbox) -> None:
    sandbox.execute(
        "CREATE STREAM s (k STRING KEY, v INT) WITH (kafka_topic='t', value_format='AVRO', partitions=1);"
        "CREATE STREAM o WITH (value_format='PROTOBUF', value_schema_full_name='com.acme.Row') AS SELECT * FROM s;"
    )
    sandbox.produce("t", "a", {"v": 1})
    sandbox.register_schema(
        "t", "value", "AVRO", {"type": "record", "name": "x", "fields": [{"name": "V", "type": "long"}]}
    )
    sandbox.produce("t", "b", {"v": 2})
    sandbox.drain()
    assert [record["value"] for record in sandbox.consume("O")] == [{"V": 1}, {"V": 2}]
    latest = registry_of(sandbox).latest("O-value")
    assert latest is not None
    assert "package com.acme;" in latest.text


def test_a_record_whose_schema_nobody_knows_goes_to_the_processing_log(sandbox: Sandbox) -> None:
    sandbox.execute(
        "CREATE STREAM s (v INT) WITH (kafka_topic='t', value_format='AVRO', partitions=1);"
        "CREATE STREAM o AS SELECT * FROM s;"
        "CREATE STREAM raw (v BYTES) WITH (kafka_topic='t', value_format='KAFKA');"
        "INSERT INTO raw VALUES (TO_BYTES('000000006302', 'hex'));"
        "INSERT INTO s VALUES (5);"
    )
    sandbox.drain()
    assert [record["value"] for record in sandbox.consume("O")] == [{"V": 5}]


def test_a_given_schema_must_begin_with_the_columns(sandbox: Sandbox) -> None:
    fields = [{"name": "B", "type": "double"}, {"name": "A", "type": "int"}]
    sandbox.create_topic("o")
    sandbox.register_schema("o", "value", "AVRO", {"type": "record", "name": "r", "fields": fields}, schema_id=9)
    sandbox.execute("CREATE STREAM s (a INT) WITH (kafka_topic='t', value_format='AVRO', partitions=1);")
    with pytest.raises(InvalidStatement, match="value columns are changed, missing or reordered"):
        sandbox.execute("CREATE STREAM o WITH (kafka_topic='o', value_schema_id=9) AS SELECT * FROM s;")


def test_a_schema_id_that_nobody_has_is_refused_with_the_topic_it_was_for(sandbox: Sandbox) -> None:
    sandbox.execute("CREATE STREAM s (a INT) WITH (kafka_topic='t', value_format='AVRO', partitions=1);")
    with pytest.raises(InvalidStatement, match="values on topic 'o' with id 9 does not exist") as refused:
        sandbox.execute("CREATE STREAM o WITH (kafka_topic='o', value_schema_id=9) AS SELECT * FROM s;")
    assert "Subject: o-value" in str(refused.value)
    assert refused.value.hint == "Register it, or leave out VALUE_SCHEMA_ID."


def test_a_row_that_the_given_schema_does_not_take_ends_the_query(sandbox: Sandbox) -> None:
    fields = [{"name": "A", "type": "int"}, {"name": "B", "type": "double"}]
    sandbox.create_topic("o")
    sandbox.register_schema("o", "value", "AVRO", {"type": "record", "name": "r", "fields": fields}, schema_id=9)
    sandbox.execute(
        "CREATE STREAM s (a INT) WITH (kafka_topic='t', value_format='AVRO', partitions=1);"
        "CREATE STREAM o WITH (kafka_topic='o', value_schema_id=9) AS SELECT * FROM s;"
    )
    sandbox.produce("t", None, {"a": 1})
    with pytest.raises(QueryFailed, match="Unable to serialize record"):
        sandbox.drain()


@pytest.mark.parametrize(
    ("name", "value"), [("JSON", 1), ("AVRO", 1), ("PROTOBUF", {"A": 1}), ("PROTOBUF_NOSR", {"A": 1}), ("KAFKA", 1)]
)
def test_the_default_for_single_values_holds_for_formats_that_know_both_forms(name: str, value: Any) -> None:
    with Sandbox(properties={"ksql.persistence.wrap.single.values": "false"}) as sandbox:
        sandbox.execute(
            f"CREATE STREAM s (a INT) WITH (kafka_topic='t', value_format='{name}', partitions=1);"
            "CREATE STREAM o AS SELECT * FROM s;"
        )
        sandbox.produce("t", None, value)
        sandbox.drain()
        assert sandbox.consume("O")[0]["value"] == value


def test_json_by_a_given_schema_has_all_its_members(sandbox: Sandbox) -> None:
    members = {"A": {"type": "integer", "connect.type": "int32"}, "B": {"type": "number", "default": 1.5}, "C": {}}
    sandbox.create_topic("o")
    sandbox.register_schema("o", "value", "JSON_SR", {"type": "object", "properties": members}, schema_id=9)
    sandbox.execute(
        "CREATE STREAM s (a INT) WITH (kafka_topic='t', value_format='JSON', partitions=1);"
        "CREATE STREAM o WITH (kafka_topic='o', value_format='JSON_SR', value_schema_id=9) AS SELECT * FROM s;"
    )
    sandbox.produce("t", None, {"A": 1})
    sandbox.drain()
    assert sandbox.consume("o")[0]["value"] == {"A": 1, "B": 1.5, "C": None}


@pytest.mark.parametrize(
    ("with_", "error", "message"),
    [
        ("value_format='AVRO'", InvalidStatement, "values on topic 't' does not exist in the Schema Registry"),
        ("format='JSON_SR'", InvalidStatement, "keys on topic 't' does not exist in the Schema Registry"),
        ("value_format='AVRO', value_schema_id=5", InvalidStatement, "with id 5 does not exist"),
        ("value_format='JSON', value_schema_id=5", InvalidProperty, "VALUE_FORMAT should support schema inference"),
        ("value_format='KAFKA', value_schema_full_name='x'", InvalidProperty, "following configs: .fullSchemaName."),
        ("value_format='AVRO', value_protobuf_nullable_representation='WRAPPER'", InvalidProperty, "nullableRepres"),
        ("value_format='PROTOBUF', value_protobuf_nullable_representation='X'", InvalidProperty, "OPTIONAL or WRAPPER"),
        ("value_format='AVRO', value_schema_full_name=' '", InvalidProperty, "cannot be empty"),
    ],
)
def test_what_cannot_be_inferred_is_refused(
    sandbox: Sandbox, with_: str, error: type[StatementError], message: str
) -> None:
    sandbox.create_topic("t")
    with pytest.raises(error, match=message):
        sandbox.execute(f"CREATE STREAM s WITH (kafka_topic='t', {with_});")


@pytest.mark.parametrize("name", ["rowtime", "WindowStart"])
def test_a_schema_with_a_reserved_name_gives_no_columns(sandbox: Sandbox, name: str) -> None:
    sandbox.create_topic("t")
    schema = {"type": "record", "name": "r", "fields": [{"name": name, "type": "long"}, {"name": "v", "type": "int"}]}
    sandbox.register_schema("t", "value", "AVRO", schema)
    with pytest.raises(InvalidStatement, match=f"'{name.upper()}' is a reserved column name"):
        sandbox.execute("CREATE STREAM s WITH (kafka_topic='t', value_format='AVRO');")


def test_columns_and_a_schema_id_exclude_each_other(sandbox: Sandbox) -> None:
    with pytest.raises(InvalidProperty, match="Table elements and VALUE_SCHEMA_ID cannot both exist"):
        sandbox.execute(
            "CREATE STREAM s (v INT) WITH (kafka_topic='t', value_format='AVRO', value_schema_id=1, partitions=1);"
        )


def test_names_that_a_format_does_not_take_are_refused(sandbox: Sandbox) -> None:
    with pytest.raises(FormatError, match="Illegal initial character: 1x"):
        sandbox.execute("CREATE STREAM s (`1x` INT) WITH (kafka_topic='t', value_format='AVRO', partitions=1);")
    with pytest.raises(FormatError, match="Illegal field name: a-b"):
        sandbox.execute("CREATE STREAM s (`a-b` INT) WITH (kafka_topic='t', value_format='PROTOBUF', partitions=1);")
    assert not registry_of(sandbox).versions


def test_a_sink_whose_schema_does_not_fit_the_earlier_one_is_refused(sandbox: Sandbox) -> None:
    sandbox.engine.schemas.default_level = None
    sandbox.execute(
        "CREATE STREAM s (a INT, b STRING) WITH (kafka_topic='t', value_format='AVRO', partitions=1);"
        "CREATE STREAM o WITH (kafka_topic='o') AS SELECT a FROM s;"
    )
    with pytest.raises(InvalidStatement, match="not BACKWARD compatible"):
        sandbox.execute("CREATE STREAM o2 WITH (kafka_topic='o') AS SELECT b AS a FROM s;")


def test_a_replaced_query_may_append_a_column(sandbox: Sandbox) -> None:
    sandbox.engine.schemas.default_level = None
    sandbox.execute(
        "CREATE STREAM s (a INT, b STRING) WITH (kafka_topic='t', value_format='AVRO', partitions=1);"
        "CREATE STREAM o AS SELECT a FROM s;"
        "CREATE OR REPLACE STREAM o AS SELECT a, b FROM s;"
    )
    assert [version.version for version in registry_of(sandbox).of_subject("O-value")] == [1, 2]


def test_an_added_column_gets_into_the_schema(sandbox: Sandbox) -> None:
    sandbox.execute(
        "CREATE STREAM s (a INT) WITH (kafka_topic='t', value_format='AVRO', value_schema_full_name='x.Y', "
        "partitions=1);"
        "ALTER STREAM s ADD COLUMN b STRING;"
        "INSERT INTO s VALUES (1, 'x');"
    )
    latest = registry_of(sandbox).latest("t-value")
    assert latest is not None
    assert json.loads(latest.text)["name"] == "Y"
    assert sandbox.consume("t")[0]["value"] == {"A": 1, "B": "x"}


def test_dropping_the_topic_drops_its_schemas(sandbox: Sandbox) -> None:
    sandbox.execute("CREATE STREAM s (a INT KEY, b INT) WITH (kafka_topic='t', format='AVRO', partitions=1);")
    sandbox.execute("DROP STREAM s DELETE TOPIC;")
    assert registry_of(sandbox).subjects() == []
    assert registry_of(sandbox).by_id(1) is not None


def test_assert_schema_tells_whether_a_schema_is_there(sandbox: Sandbox) -> None:
    sandbox.execute("CREATE STREAM s (b INT) WITH (kafka_topic='t', value_format='AVRO', partitions=1);")
    (answer,) = sandbox.execute("ASSERT SCHEMA SUBJECT 't-value' ID 1;")
    assert answer["@type"] == "assert_schema"
    assert answer["exists"] is True
    sandbox.execute("ASSERT NOT EXISTS SCHEMA SUBJECT 'nope' TIMEOUT 1 SECOND;")
    with pytest.raises(AssertionFailed, match="Schema with subject name nope does not exist"):
        sandbox.execute("ASSERT SCHEMA SUBJECT 'nope' TIMEOUT 0 SECONDS;")


def test_another_reader_of_the_log_sees_the_same_registry(sandbox: Sandbox) -> None:
    sandbox.execute("CREATE STREAM s (k INT KEY, b INT) WITH (kafka_topic='t', format='JSON_SR', partitions=1);")
    other = SchemaStore(sandbox.engine.log)
    assert other.registry.versions == registry_of(sandbox).versions
    found = other.schema(2)
    assert found is not None
    assert found.kind == "JSON"


def write_schemas(sandbox: Sandbox, *records: tuple[bytes, bytes]) -> None:
    """As a Kafka client writes to the topic."""
    log = sandbox.engine.log
    if log.topic(SCHEMAS_TOPIC) is None:
        log.create_topic(SCHEMAS_TOPIC, 1)
    columns: dict[str, list[Any]] = {
        "timestamp": [0] * len(records), "key": [key for key, _ in records], "value": [value for _, value in records],
    }  # fmt: skip
    schema = pa.schema([("timestamp", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])
    log.append(SCHEMAS_TOPIC, 0, RowRecords(pa.table(columns, schema=schema)))


SCHEMA_KEY = b'{"keytype":"SCHEMA","subject":"s","version":1}'


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"no json", b"x"),
        (SCHEMA_KEY, b'{"id":1}'),
        (SCHEMA_KEY, b"[" * 100_000),
        (SCHEMA_KEY, b"1" * 10_000),
        (SCHEMA_KEY, b'{"subject":"s","version":"1","id":1,"schema":"\\"int\\""}'),
        (SCHEMA_KEY, b'{"subject":"s","version":1,"id":"1","schema":"\\"int\\""}'),
        (SCHEMA_KEY, b'{"subject":"s","version":1,"id":1,"schema":7}'),
        (b'{"keytype":"CONFIG","subject":null}', b'{"compatibilityLevel":"NEVER"}'),
        (b'{"keytype":"CONFIG","subject":["s"]}', b'{"compatibilityLevel":"NONE"}'),
        (b'{"keytype":"DELETE_SUBJECT","subject":"t-value"}', b'{"version":"1"}'),
    ],
)
def test_records_that_no_registry_wrote_are_left_out(sandbox: Sandbox, key: bytes, value: bytes) -> None:
    write_schemas(sandbox, (key, value))
    sandbox.execute("CREATE STREAM s (b INT) WITH (kafka_topic='t', value_format='AVRO', partitions=1);")
    write_schemas(sandbox, (key, value))
    sandbox.execute("CREATE STREAM z (b INT) WITH (kafka_topic='z', value_format='AVRO', partitions=1);")
    assert registry_of(sandbox).subjects() == ["t-value", "z-value"]


def test_a_registry_whose_topic_was_made_anew_has_what_is_there(sandbox: Sandbox) -> None:
    for name in ("t", "u"):
        sandbox.execute(f"CREATE STREAM {name} (b INT) WITH (kafka_topic='{name}', value_format='AVRO', partitions=1);")
    assert registry_of(sandbox).subjects() == ["t-value", "u-value"]
    sandbox.engine.log.delete_topic(SCHEMAS_TOPIC)
    sandbox.execute("CREATE STREAM z (b INT) WITH (kafka_topic='z', value_format='AVRO', partitions=1);")
    assert registry_of(sandbox).subjects() == ["z-value"]


# ------------------------------------------------------------------ HTTP

INT = {"schema": '"int"'}
LONG = {"schema": '"long"'}


def test_schemas_are_registered_and_found_again(client: AsgiClient) -> None:
    assert client.post("/subjects/s/versions", json=INT).json()["id"] == 1
    assert client.post("/subjects/s/versions", json=INT).json()["id"] == 1
    assert client.post("/subjects/s/versions", json=LONG).json()["id"] == 2
    assert client.get("/subjects").json() == ["s"]
    assert client.get("/subjects/s/versions").json() == [1, 2]
    described = client.get("/subjects/s/versions/latest").json()
    guid = described.pop("guid")
    assert described == {"subject": "s", "version": 2, "id": 2, "schema": '"long"'}
    assert client.post("/subjects/s", json=LONG).json() == {**described, "guid": guid}
    assert client.get("/schemas/ids/2").json() == {"schema": '"long"', "guid": guid}
    assert client.get("/schemas/ids/1/versions").json() == [{"subject": "s", "version": 1}]
    assert client.get("/subjects/s/versions/1/schema").text == '"int"'


def test_other_kinds_and_references_are_shown(client: AsgiClient) -> None:
    event = {"schemaType": "PROTOBUF", "schema": 'syntax = "proto3"; message Event { int32 a = 1; }'}
    client.post("/subjects/event/versions", json=event)
    reference = {"name": "event.proto", "subject": "event", "version": 1}
    top = {
        "schemaType": "PROTOBUF",
        "schema": 'syntax = "proto3"; import "event.proto"; message Top { Event e = 1; }',
        "references": [reference],
    }
    assert client.post("/subjects/top/versions", json=top).json()["id"] == 2
    found = client.get("/schemas/ids/2").json()
    assert (found["schemaType"], found["references"]) == ("PROTOBUF", [reference])
    assert client.get("/subjects/event/versions/1/referencedby").json() == [2]
    assert client.delete("/subjects/event").json()["error_code"] == 42206


def test_an_incompatible_schema_is_a_conflict(client: AsgiClient) -> None:
    client.put("/config", json={"compatibility": "BACKWARD"})
    client.post("/subjects/s/versions", json=LONG)
    refused = client.post("/subjects/s/versions", json=INT)
    assert refused.status_code == 409
    assert refused.json()["error_code"] == 409
    assert client.post("/compatibility/subjects/s/versions/latest", json=INT).json() == {"is_compatible": False}
    assert client.post("/compatibility/subjects/s/versions", json=LONG).json() == {"is_compatible": True}
    assert client.put("/config/s", json={"compatibility": "none"}).json() == {"compatibility": "NONE"}
    assert client.post("/subjects/s/versions", json=INT).json()["id"] == 2
    assert client.delete("/config/s").json()["compatibilityLevel"] == "NONE"
    assert client.get("/config").json() == {"compatibilityLevel": "BACKWARD"}


def test_subjects_are_deleted_softly_first(client: AsgiClient) -> None:
    client.post("/subjects/s/versions", json=INT)
    assert client.delete("/subjects/s", params={"permanent": "true"}).json()["error_code"] == 40405
    assert client.delete("/subjects/s").json() == [1]
    assert client.get("/subjects/s/versions").json()["error_code"] == 40401
    assert client.get("/subjects", params={"deleted": "true"}).json() == ["s"]
    assert client.get("/schemas/ids/1").json()["schema"] == '"int"'
    assert client.delete("/subjects/s").json()["error_code"] == 40404
    assert client.delete("/subjects/s", params={"permanent": "true"}).json() == [1]
    assert client.get("/schemas/ids/1").json()["error_code"] == 40403


def test_the_id_of_a_schema_that_was_deleted_for_good_is_not_given_again(client: AsgiClient, sandbox: Sandbox) -> None:
    assert client.post("/subjects/s/versions", json=INT).json()["id"] == 1
    assert client.post("/subjects/t/versions", json=LONG).json()["id"] == 2
    for subject in "ts":
        client.delete(f"/subjects/{subject}")
        assert client.delete(f"/subjects/{subject}", params={"permanent": "true"}).json() == [1]
    log = sandbox.engine.log
    compacted = dict[bytes, bytes | None]()
    for run in log.fetch(SCHEMAS_TOPIC, 0, 0).runs:
        assert isinstance(run, FetchedRows)
        compacted |= zip(run.table["key"].to_pylist(), run.table["value"].to_pylist(), strict=True)
    left = Registry()
    for key, value in compacted.items():
        left = left if value is None else apply_record(left, key, value)
    assert left.new_version("u", GivenSchema("AVRO", '"int"')).id == 3
    assert SchemaStore(log).registry.new_version("u", GivenSchema("AVRO", '"int"')).id == 3
    assert client.post("/subjects/u/versions", json=INT).json()["id"] == 3
    assert client.get("/schemas/ids/1").json()["error_code"] == 40403


@pytest.mark.parametrize(
    ("body", "number"),
    [
        ({"schema": ""}, 42201),
        ({}, 42201),
        ({"schema": "{"}, 42201),
        ({"schema": '{"type":"record"}'}, 42201),
        ({"schema": '"nope"'}, 42201),
        ({"schema": "message", "schemaType": "PROTOBUF"}, 42201),
        ({"schema": '"int"', "schemaType": "XML"}, 42201),
        ({"schema": '"int"', "references": [{"name": "x"}]}, 42201),
        ({"schema": '"int"', "references": [{"name": "x", "subject": "x", "version": 1}]}, 42201),
    ],
)
def test_what_is_no_schema_is_refused(client: AsgiClient, body: dict[str, Any], number: int) -> None:
    answer = client.post("/subjects/s/versions", json=body)
    assert (answer.status_code, answer.json()["error_code"]) == (422, number)
    assert client.get("/subjects").json() == []


def _record(fields: str) -> str:
    return f'{{"type":"record","name":"R","fields":{fields}}}'


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("AVRO", "{}", 'at $: "type" is missing'),
        ("AVRO", "1", "at $: a schema is the name of a type, an object with a type, or a list of schemas (a union)"),
        ("AVRO", '{"type":["int"]}', "at $.type: the name of a type is needed, not ['int']"),
        ("AVRO", '{"type":"record","name":"R"}', 'at $: "fields" is missing'),
        ("AVRO", '{"type":"record","fields":[]}', 'at $: "name" is missing'),
        ("AVRO", _record("{}"), "at $.fields: a list is needed, not {}"),
        ("AVRO", _record("[1]"), "at $.fields[0]: a field is an object with a name and a type"),
        ("AVRO", _record('[{"name":"a"}]'), 'at $.fields[0]: "type" is missing'),
        ("AVRO", _record('[{"name":"a","type":{"type":"array"}}]'), 'at $.a: "items" is missing'),
        ("AVRO", _record('[{"name":"a","type":["null",{"type":"map"}]}]'), 'at $.a[1]: "values" is missing'),
        ("AVRO", _record('[{"name":"a b","type":"int"}]'), "at $.fields[0].name: 'a b' is no name"),
        ("AVRO", _record('[{"name":"a","type":"int"},{"name":"a","type":"int"}]'), 'there are two fields "a"'),
        ("AVRO", '{"type":"enum","name":"E"}', 'at $: "symbols" is missing'),
        ("AVRO", '{"type":"enum","name":"E","symbols":["1"]}', "at $.symbols: '1' is no name"),
        ("AVRO", '{"type":"fixed","name":"F","size":"4"}', "at $.size: a number is needed, not '4'"),
        ("AVRO", '{"type":"fixed","name":"F","size":-1}', "at $.size: a size is a number from 0"),
        ("AVRO", '{"type":"fixed","name":"F","size":true}', "at $.size: a size is a number from 0"),
        ("AVRO", _record('[{"name":"a.b","type":"int"}]'), "at $.fields[0].name: 'a.b' is no name"),
        ("AVRO", '{"type":"fixed","name":"x.","size":1}', "at $.name: '' is no name"),
        ("AVRO", _record('[{"name":"a","type":"Other"}]'), "there is no type Other"),
        ("JSON", '{"type":"object","properties":[]}', "at $.properties: an object of schemas is needed"),
        ("JSON", '{"properties":{"a":1}}', "at $.a: a schema is an object, true or false"),
        ("AVRO", '[["int"]]', "at $[0]: a union holds no union"),
        ("AVRO", '{"type":"x","fields":[[[]]]}', "the AVRO schema 1 cannot be used"),
        ("JSON", '{"type":[1]}', "at $.type: the name of a type, or a list of such names, is needed"),
        ("JSON", '{"type":1}', "at $.type: the name of a type, or a list of such names, is needed"),
        ("JSON", '{"type":"object","required":true}', "at $.required: a list of names is needed"),
        ("JSON", '{"$ref":"#/definitions/d","definitions":{"d":{"type":1}}}', "at #/definitions/d.type: the name"),
        ("JSON", '{"$ref":"#/oneOf/1","oneOf":[{}]}', 'refers to "#/oneOf/1", which does not exist'),
        ("JSON", '{"oneOf":{}}', "at $.oneOf: a list of schemas is needed"),
        ("JSON", '{"type":"array","items":{"anyOf":[1]}}', "at $.items.anyOf[0]: a schema is an object"),
        ("PROTOBUF", 'syntax = "proto3";\nmessage A {', "line 2, column 12: mismatched input '<EOF>'"),
        ("PROTOBUF", 'syntax = "proto3"; message A { int32 a; }', "line 1, column 39: "),
        ("PROTOBUF", 'syntax = "proto3"; /* é\n */ message A { int32 /* */ a; }', "line 2, column 30: "),
        ("PROTOBUF", 'syntax = "proto3"; message A { /* int32 a = 1; }', "line 1, "),
        ("PROTOBUF", 'syntax = "proto3"; message A { int32 a = "1; }', "line 1, "),
    ],
)
def test_a_schema_that_is_none_is_refused_with_the_place(
    client: AsgiClient, capfd: pytest.CaptureFixture[str], kind: str, text: str, said: str
) -> None:
    response = client.post("/subjects/s/versions", json={"schemaType": kind, "schema": text})
    assert response.status_code == 422
    assert response.json()["error_code"] == 42201
    assert said in response.json()["message"]
    assert capfd.readouterr().err == "", "the parser says nothing by itself"


@pytest.mark.parametrize(
    ("kind", "begin", "end"), [("AVRO", '{"type":"array","items":', "}"), ("JSON", '{"type":"array","items":', "}")]
)
def test_a_schema_that_is_nested_too_deeply_is_refused(client: AsgiClient, kind: str, begin: str, end: str) -> None:
    text = begin * 20_000 + ('"int"' if kind == "AVRO" else "true") + end * 20_000
    answer = client.post("/subjects/s/versions", json={"schemaType": kind, "schema": text})
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42201)


@pytest.mark.parametrize("references", [5, "x", [5], {"a": 1}, [{"name": "x", "subject": "s", "version": "x"}]])
def test_references_that_are_none_are_refused(client: AsgiClient, references: Any) -> None:
    answer = client.post("/subjects/s/versions", json={"schema": '"int"', "references": references})
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42201)


def test_half_a_surrogate_pair_in_a_schema_is_told(client: AsgiClient) -> None:
    answer = client.post("/subjects/s/versions", json={"schema": '"\\ud83d"'})
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42201)
    assert "\ud83d" in answer.json()["message"]
    client.put("/config", json={"compatibility": "BACKWARD"})
    for number, type_ in enumerate(("string", "integer")):
        text = f'{{"type":"object","properties":{{"\\ud83d":{{"type":"{type_}"}}}}}}'
        answer = client.post("/subjects/j/versions", json={"schemaType": "JSON", "schema": text})
        assert answer.status_code == (200, 409)[number]
    assert client.get("/subjects/j/versions/1").status_code == 200


def test_json_schemas_of_any_value_are_compared(client: AsgiClient) -> None:
    client.put("/config", json={"compatibility": "FULL"})
    for properties, id_ in (('{"a":true,"b":{"type":"string"}}', 1), ('{"a":{"type":"integer"},"b":true}', 2)):
        text = f'{{"type":"object","properties":{properties},"required":["a"]}}'
        assert client.post("/subjects/s/versions", json={"schemaType": "JSON", "schema": text}).json()["id"] == id_


def test_what_nobody_foresaw_is_logged_and_answered_as_by_the_registry(
    client: AsgiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Registry, **_: Any) -> list[str]:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(Registry, "subjects", fail)
    answer = client.get("/subjects")
    assert (answer.status_code, answer.json()["error_code"]) == (500, 50001)
    assert answer.json()["message"].startswith("internal error; see ")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("AVRO", "[]"),
        ("AVRO", '{"type":"record","name":"com.x.R","fields":[{"name":"next","type":["null","R"]}]}'),
        ("AVRO", '{"type":"fixed","name":"F","size":0}'),
        ("JSON", '{"properties":{"a":true,"b":{"type":"string","connect.index":"x"}}}'),
        ("JSON", '{"oneOf":[true,{"type":"null"}]}'),
        (
            "JSON",
            '{"type":"number","title":"org.apache.kafka.connect.data.Decimal","connect.parameters":{"scale":"x"}}',
        ),
        ("AVRO", '{"type":"fixed","name":".F","size":1}'),
        ("AVRO", '{"type":"fixed","name":"com.x.Outer$.F","size":1}'),
        ("AVRO", '{"type":"fixed","name":"F","namespace":"my-company.Outer$","size":1}'),
        ("JSON", '{"$ref":"#/definitions/any","definitions":{"any":true}}'),
        ("JSON", '{"$ref":"#/properties/a/oneOf/1","properties":{"a":{"oneOf":[{"type":"null"},{"type":"string"}]}}}'),
        ("JSON", '{"$ref":"#/definitions/a~1b%20c","definitions":{"a/b c":{"type":"string"}}}'),
        ("PROTOBUF", 'syntax = "proto3"; // a comment\nmessage A { reserved 2; map<string, int32> m = 1; }'),
        ("PROTOBUF", 'syntax = "proto3";\nmessage A {\n  int32 a = 1  // why\n  [/* * */ deprecated /**/ = true];\n}'),
        (
            "PROTOBUF",
            'syntax = "proto3"; enum E { A = 0 /* none */; }\nmessage M { E e /* \n\n */ = 1; reserved 5, // x\n 6; }',
        ),
        (
            "PROTOBUF",
            'syntax/**/=\'proto3\';\f\v message M { string a = 1 [(x) = "/*", (y) = "\\"//", (z) = \'"*/\']; }',
        ),
    ],
)
def test_a_schema_is_registered_whatever_columns_it_gives(client: AsgiClient, kind: str, text: str) -> None:
    assert client.post("/subjects/s/versions", json={"schemaType": kind, "schema": text}).json()["id"] == 1


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("/subjects/s/versions/1", 40401),
        ("/schemas/ids/99", 40403),
        ("/schemas/ids/x", 40403),
        ("/config/s", 40408),
        ("/mode/s", 40409),
        ("/nope", 404),
    ],
)
def test_what_is_not_there_is_not_found(client: AsgiClient, path: str, number: int) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.json()["error_code"]) == (404, number)


def test_versions_are_numbers_or_latest(client: AsgiClient) -> None:
    client.post("/subjects/s/versions", json=INT)
    assert client.get("/subjects/s/versions/x").json()["error_code"] == 42202
    assert client.get("/subjects/s/versions/0").json()["error_code"] == 42202
    assert client.get("/subjects/s/versions/7").json()["error_code"] == 40402
    assert client.get("/subjects/s/versions/-1").json()["version"] == 1


def test_a_schema_that_a_client_registers_is_what_a_statement_finds(client: AsgiClient, sandbox: Sandbox) -> None:
    sandbox.create_topic("t")
    body = {"schema": json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]})}
    client.post("/subjects/t-value/versions", json=body)
    sandbox.execute("CREATE STREAM s WITH (kafka_topic='t', value_format='AVRO');")
    assert source(sandbox, "S")["schema"] == "`A` INTEGER"


def test_a_subject_may_have_slashes(client: AsgiClient) -> None:
    assert client.post("/subjects/a%2Fb%2F/versions", json=INT).status_code == 200
    assert client.get("/subjects").json() == ["a/b/"]
    assert client.get("/subjects/a%2fb%2F/versions/").json() == [1]
    assert client.get("/subjects/a%2Fb%2F/versions/latest").json()["subject"] == "a/b/"
    assert client.get("/subjects/a/b/versions").status_code == 404
    assert client.put("/config/a%2Fb%2F", json={"compatibility": "NONE"}).status_code == 200
    assert client.delete("/subjects/a%2Fb%2F").json() == [1]
    assert client.get("/").json() == {}
