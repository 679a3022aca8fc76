"""Modes of the schema registry: schemas that come from another one, and subjects that do not change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from asgi_client import AsgiClient

from millstream.errors import StatementError
from millstream.planner.schemas.registry import Registry, apply_record, mode_record
from millstream.server.catalog.schema_store import SchemaStore
from millstream.server.registry.registry_app import schema_registry_app
from millstream.testing import Sandbox


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as made:
        yield made


@pytest.fixture
def client(sandbox: Sandbox) -> AsgiClient:
    return AsgiClient(schema_registry_app(sandbox.engine.schemas, sandbox.engine.lock))


def _register(client: AsgiClient, subject: str, text: str, **more: Any) -> Any:
    return client.post(f"/subjects/{subject}/versions", json={"schema": text, **more})


def test_schemas_of_another_registry_are_imported_with_their_ids_and_numbers(client: AsgiClient) -> None:
    client.put("/config", json={"compatibility": "FULL"})
    assert client.put("/mode", json={"mode": "IMPORT"}).json() == {"mode": "IMPORT"}
    assert _register(client, "common", '"string"', id=41, version=3).json()["id"] == 41
    assert _register(client, "s", '"int"', id=17, version=5).json()["id"] == 17
    assert _register(client, "s", '"string"', id=41, version=7).json()["id"] == 41, "they are not compared"
    assert _register(client, "s", '"int"', id=17, version=5).json()["id"] == 17, "again"
    reference = [{"name": "x", "subject": "common", "version": 3}]
    assert _register(client, "r", '"long"', id=50, version=1, references=reference).json()["id"] == 50
    assert client.put("/mode", json={"mode": "READWRITE"}).json() == {"mode": "READWRITE"}
    assert client.get("/subjects/s/versions").json() == [5, 7]
    assert client.get("/schemas/ids/17").json()["schema"] == '"int"'
    assert _register(client, "new", '"double"').json()["id"] == 51, "ids go on behind those that came"


def test_what_is_taken_is_not_imported_over(client: AsgiClient) -> None:
    client.put("/mode", json={"mode": "IMPORT"})
    _register(client, "s", '"int"', id=17, version=5)
    for subject, wanted in (("s", {"id": 18, "version": 5}), ("t", {"id": 17, "version": 1})):
        answer = _register(client, subject, '"string"', **wanted)
        assert (answer.status_code, answer.json()["error_code"]) == (422, 42201)
    without = _register(client, "s", '"string"')
    assert (without.status_code, without.json()["error_code"]) == (422, 42205)
    assert client.get("/subjects").json() == ["s"]


def test_what_was_imported_may_be_imported_again(client: AsgiClient) -> None:
    client.put("/mode", json={"mode": "IMPORT"})
    for version in (2, 4, 2, 4):
        assert _register(client, "s", '"int"', id=17, version=version).json()["id"] == 17
    client.delete("/subjects/s/versions/2")
    assert client.get("/subjects/s/versions").json() == [4]
    assert _register(client, "s", '"int"', id=17, version=2).json()["id"] == 17, "it was deleted since"
    assert client.get("/subjects/s/versions").json() == [2, 4]
    assert _register(client, "s", '"int"', id=18, version=4).json()["error_code"] == 42201


def test_an_id_belongs_to_one_kind_of_schema(client: AsgiClient) -> None:
    client.put("/mode", json={"mode": "IMPORT"})
    text = '{"type":"string"}'
    assert _register(client, "a", text, id=5).json()["id"] == 5
    assert _register(client, "j", text, id=5, schemaType="JSON").json()["error_code"] == 42201
    assert _register(client, "b", text, id=5).json()["id"] == 5


def test_who_writes_by_a_schema_that_is_there_needs_no_id_while_others_are_imported(client: AsgiClient) -> None:
    _register(client, "s", '"int"')
    client.put("/mode", {"mode": "IMPORT"}, {"force": "true"})
    assert _register(client, "s", '"int"').json()["id"] == 1
    assert _register(client, "s", '"int"', id=-1, version=0).json()["id"] == 1, "so clients say none"
    assert _register(client, "other", '"int"').json()["error_code"] == 42205


@pytest.mark.parametrize("name", ["id", "version"])
def test_ids_and_versions_have_four_bytes(client: AsgiClient, name: str) -> None:
    client.put("/mode", json={"mode": "IMPORT"})
    wanted = {"id": 7, "version": 7}
    answer = _register(client, "s", '"int"', **{**wanted, name: 2**31})
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42201)
    assert _register(client, "s", '"int"', **{**wanted, name: 2**31 - 1}).status_code == 200


def test_a_registry_with_schemas_is_not_imported_into_unless_it_is_forced(client: AsgiClient) -> None:
    _register(client, "s", '"int"')
    refused = client.put("/mode", json={"mode": "IMPORT"})
    assert (refused.status_code, refused.json()["error_code"]) == (422, 42205)
    assert client.get("/mode").json() == {"mode": "READWRITE"}
    assert client.put("/mode/other", json={"mode": "IMPORT"}).status_code == 200, "it has none"
    assert client.put("/mode", {"mode": "IMPORT"}, {"force": "true"}).status_code == 200
    assert client.get("/mode/s", {"defaultToGlobal": "true"}).json() == {"mode": "IMPORT"}
    assert client.get("/mode/s").json()["error_code"] == 40409, "it has none of its own"
    assert client.get("/mode/other").json() == {"mode": "IMPORT"}


def test_nothing_changes_in_a_subject_that_is_read_only(client: AsgiClient, sandbox: Sandbox) -> None:
    _register(client, "s-value", '"int"')
    client.put("/mode/s-value", json={"mode": "readonly"})
    assert _register(client, "s-value", '"int"').json()["id"] == 1, "it is there"
    for answer in (_register(client, "s-value", '"long"'), client.delete("/subjects/s-value")):
        assert (answer.status_code, answer.json()["error_code"]) == (422, 42205)
        assert answer.json()["message"] == "Subject s-value is in read-only mode"
    level = client.put("/config/s-value", json={"compatibility": "NONE"})
    for answer in (level, client.delete("/config/s-value")):
        assert answer.json()["error_code"] == 42205
    assert _register(client, "t-value", '"int"').json()["id"] == 1, "others go on"
    assert client.delete("/mode/s-value").json() == {"mode": "READONLY"}
    assert client.delete("/subjects/s-value").json() == [1]


def test_statements_register_nothing_in_a_subject_that_is_closed(client: AsgiClient, sandbox: Sandbox) -> None:
    client.put("/mode", json={"mode": "READONLY"})
    create = "CREATE STREAM s (v INT) WITH (kafka_topic='s', value_format='AVRO', partitions=1);"
    with pytest.raises(StatementError, match="Subject s-value is in read-only mode"):
        sandbox.execute(create)
    client.put("/mode", json={"mode": "READWRITE"})
    sandbox.execute(create)


def test_no_level_changes_where_the_whole_registry_is_read_only(client: AsgiClient) -> None:
    client.put("/mode", json={"mode": "READONLY"})
    refused = client.put("/config", json={"compatibility": "NONE"})
    assert refused.json() == {"error_code": 42205, "message": "The schema registry is in read-only mode"}
    client.put("/mode/s", json={"mode": "READWRITE"})
    assert client.put("/config/s", json={"compatibility": "NONE"}).status_code == 200


def test_a_topic_stays_whose_schemas_are_not_to_be_deleted(client: AsgiClient, sandbox: Sandbox) -> None:
    sandbox.execute("CREATE STREAM s (v INT) WITH (kafka_topic='s', value_format='AVRO', partitions=1);")
    client.put("/mode/s-value", json={"mode": "READONLY"})
    with pytest.raises(StatementError, match="Subject s-value is in read-only mode"):
        sandbox.execute("DROP STREAM s DELETE TOPIC;")
    assert "s" in sandbox.engine.log.topics()
    assert "S" in sandbox.engine.catalog.sources
    client.delete("/mode/s-value")
    sandbox.execute("DROP STREAM s DELETE TOPIC;")
    assert client.get("/subjects").json() == []


def test_modes_are_there_for_another_reader_of_the_log(client: AsgiClient, sandbox: Sandbox) -> None:
    client.put("/mode", json={"mode": "IMPORT"})
    _register(client, "s", '"int"', id=17, version=5)
    client.put("/mode", json={"mode": "READWRITE"})
    client.put("/mode/s", json={"mode": "READONLY"})
    client.put("/mode/t", json={"mode": "READONLY"})
    client.delete("/mode/t")
    registry = SchemaStore(sandbox.engine.log).registry
    assert (registry.mode("s"), registry.mode("t"), registry.mode("")) == ("READONLY", "READWRITE", "READWRITE")
    assert [(version.version, version.id) for version in registry.of_subject("s")] == [(5, 17)]


def test_what_is_no_mode_is_refused(client: AsgiClient) -> None:
    answer = client.put("/mode", json={"mode": "OFTEN"})
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42204)


def test_a_mode_is_a_record_of_the_topic_as_the_registry_of_confluent_writes_it() -> None:
    registry = apply_record(Registry(), b'{"keytype":"MODE","subject":null,"magic":0}', b'{"mode":"READONLY"}')
    registry = apply_record(registry, *mode_record("s", "IMPORT"))
    assert (registry.mode("other"), registry.mode("s")) == ("READONLY", "IMPORT")
    assert apply_record(registry, *mode_record("s", None)).mode("s") == "READONLY"
    assert apply_record(registry, *mode_record("s", "FORWARD")).mode("s") == "READONLY", "one that we do not know"
