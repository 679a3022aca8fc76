"""What today's serializers ask of the schema registry, beyond registering and reading a schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl

import pytest
from asgi_client import AsgiClient

from millstream.planner.schemas import protobuf_text
from millstream.planner.schemas.protobuf_printing import base64_of
from millstream.server.registry.registry_app import schema_registry_app
from millstream.testing import Sandbox

ORDER = {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "id", "type": "long"}]}
RULES = {
    "domainRules": [{"name": "hide", "kind": "TRANSFORM", "type": "ENCRYPT", "mode": "WRITEREAD", "tags": ["PII"]}]
}
MONEY = 'syntax = "proto3"; package base; message Money { int64 units = 1; }'
ENUMS = 'syntax = "proto3"; package base; enum Color { NONE = 0; RED = 1; }'
PRICE = 'syntax = "proto3"; import "money.proto"; message Price { base.Money money = 1; int32 n = 2; }'


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as made:
        yield made


@pytest.fixture
def client(sandbox: Sandbox) -> AsgiClient:
    return AsgiClient(schema_registry_app(sandbox.engine.schemas, sandbox.engine.lock))


def register(client: AsgiClient, subject: str, schema: Any, *, query: str = "", **more: Any) -> dict[str, Any]:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    params = dict(parse_qsl(query))
    answer = client.post(f"/subjects/{subject}/versions", json={"schema": text, **more}, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def get(client: AsgiClient, url: str) -> Any:
    path, _, query = url.partition("?")
    return client.get(path, params=dict(parse_qsl(query)))


def serialized(text: str, *references: tuple[str, str]) -> str:
    return base64_of(protobuf_text.load(text, references).descriptor)


def test_an_avro_schema_is_found_in_whatever_order_another_client_writes_it(client: AsgiClient) -> None:
    first = register(client, "s", ORDER)
    other = {"name": "shop.Order", "fields": [{"type": {"type": "long"}, "name": "id"}], "type": "record"}
    assert client.post("/subjects/s", json={"schema": json.dumps(other)}).json()["id"] == first["id"]
    assert register(client, "s", other)["version"] == 1


def test_a_protobuf_schema_comes_as_a_descriptor_and_is_a_text_for_others(client: AsgiClient) -> None:
    register(client, "money.proto", serialized(MONEY), schemaType="PROTOBUF")
    reference = [{"name": "money.proto", "subject": "money.proto", "version": 1}]
    descriptor = serialized(PRICE, ("money.proto", MONEY))
    made = register(client, "p-value", descriptor, schemaType="PROTOBUF", references=reference)
    assert "message Price {" in client.get("/subjects/p-value/versions/1/schema").text
    again = get(client, f"/schemas/ids/{made['id']}?format=serialized").json()
    body = {"schema": again["schema"], "schemaType": "PROTOBUF", "references": reference}
    assert client.post("/subjects/p-value", json=body).json()["version"] == 1
    as_text = register(client, "p-value", PRICE, query="normalize=true", schemaType="PROTOBUF", references=reference)
    assert as_text["version"] == 1


def test_statements_read_by_a_schema_that_came_as_a_descriptor(client: AsgiClient, sandbox: Sandbox) -> None:
    sandbox.create_topic("p")
    register(client, "money.proto", serialized(MONEY), schemaType="PROTOBUF")
    reference = [{"name": "money.proto", "subject": "money.proto", "version": -1}]
    register(client, "p-value", serialized(PRICE, ("money.proto", MONEY)), schemaType="PROTOBUF", references=reference)
    sandbox.execute("CREATE STREAM p WITH (kafka_topic='p', value_format='PROTOBUF');")
    assert sandbox.sources()[-1]["schema"] == "`MONEY` STRUCT<`UNITS` BIGINT>, `N` INTEGER"


def test_a_file_of_enums_only_is_there_to_be_imported(client: AsgiClient) -> None:
    register(client, "color.proto", serialized(ENUMS), schemaType="PROTOBUF")
    text = 'syntax = "proto3"; import "color.proto"; message Paint { base.Color c = 1; }'
    reference = [{"name": "color.proto", "subject": "color.proto", "version": 1}]
    assert register(client, "p", text, schemaType="PROTOBUF", references=reference)["id"] == 2


def test_metadata_and_rules_stay_with_a_schema_and_with_those_after_it(client: AsgiClient) -> None:
    plain = register(client, "plain", ORDER)
    ruled = register(client, "s", ORDER, ruleSet=RULES, metadata={"properties": {"owner": "me"}})
    assert ruled["id"] != plain["id"]
    assert client.get("/subjects/s/versions/latest").json()["ruleSet"] == RULES
    assert client.get(f"/schemas/ids/{ruled['id']}").json()["ruleSet"] == RULES
    assert register(client, "s", ORDER)["id"] == ruled["id"], "who says none has those that are there"
    wider = {**ORDER, "fields": [*ORDER["fields"], {"name": "n", "type": "int", "default": 0}]}
    assert register(client, "s", wider)["ruleSet"] == RULES
    other = register(client, "s", wider, ruleSet={"domainRules": []}, metadata={"properties": {"owner": "you"}})
    assert (other["version"], other["metadata"]) == (3, {"properties": {"owner": "you"}})
    found = get(client, "/subjects/s/metadata?key=owner&value=me").json()
    assert (found["version"], found["ruleSet"]) == (2, RULES)
    assert get(client, "/subjects/s/metadata?key=owner&value=nobody").json()["error_code"] == 40403


def test_a_schema_has_a_guid_that_is_its_own_wherever_it_is(client: AsgiClient) -> None:
    made = register(client, "s", ORDER)
    assert register(client, "t", ORDER)["guid"] == made["guid"] != register(client, "u", '"int"')["guid"]
    found = client.get(f"/schemas/guids/{made['guid'].upper()}").json()
    assert (found["schema"], found["id"]) == (json.dumps(ORDER), made["id"])
    assert client.get("/schemas/guids/nope").json()["error_code"] == 40403


def test_the_guid_of_another_registry_is_imported(client: AsgiClient) -> None:
    client.put("/mode", json={"mode": "IMPORT"})
    guid = "c6a24cd9-0f5b-4f0a-9a8f-0c5b4b9e3f11"
    register(client, "s", ORDER, id=7, version=3, guid=guid)
    assert client.get(f"/schemas/guids/{guid}").json()["id"] == 7


def test_lists_are_read_page_by_page_to_their_end(client: AsgiClient) -> None:
    for subject in "abc":
        register(client, subject, ORDER)
    client.delete("/subjects/c")
    assert get(client, "/subjects?offset=0&limit=1").json() == ["a"]
    assert get(client, "/subjects?offset=2&limit=1").json() == []
    assert get(client, "/subjects?deletedOnly=true").json() == ["c"]
    assert get(client, "/schemas/ids/1/subjects?offset=1&limit=-1").json() == ["b"]
    assert get(client, "/schemas/ids/1/subjects?deleted=true").json() == ["a", "b", "c"]
    assert get(client, "/schemas/ids/1/versions?subject=b").json() == [{"subject": "b", "version": 1}]
    assert get(client, "/subjects/a/versions?offset=1").json() == []
    assert [found["subject"] for found in get(client, "/schemas?offset=1&limit=5").json()] == ["b"]


def test_contexts_are_those_that_subjects_name(client: AsgiClient) -> None:
    register(client, ":.east:s", ORDER)
    assert client.get("/contexts").json() == [".", ".east"]
    assert get(client, "/subjects?subjectPrefix=:.east:").json() == [":.east:s"]


def test_what_a_subject_cannot_be_configured_with_is_named(client: AsgiClient) -> None:
    answer = client.put("/config/s", json={"compatibility": "FULL", "normalize": False, "alias": "t"}).json()
    assert answer["error_code"] == 42203
    assert "alias" in answer["message"]
    assert client.put("/config/s", json={"compatibility": "FULL", "normalize": False}).status_code == 200


def test_a_version_that_was_deleted_softly_is_not_deleted_so_again(client: AsgiClient) -> None:
    register(client, "s", ORDER)
    assert client.delete("/subjects/s/versions/1").json() == 1
    assert client.delete("/subjects/s/versions/1").json()["error_code"] == 40406


@pytest.mark.parametrize("more", [{"ruleSet": "x"}, {"metadata": [1]}])
def test_metadata_and_rules_are_objects(client: AsgiClient, more: dict[str, Any]) -> None:
    answer = client.post("/subjects/s/versions", json={"schema": '"int"', **more})
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42201)
