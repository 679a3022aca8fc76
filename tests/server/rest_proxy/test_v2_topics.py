"""Topics and producing of the REST proxy's v2, as its clients use them."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from rest_proxy import ProxyClient, base64_of, refused, stored
from running_server import service_in

from millstream.logcore.murmur2 import partition_of
from millstream.planner.schemas.registry import GivenSchema
from millstream.server.security.access import hash_token
from millstream.server.service import Service

AVRO = json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "string"]}]})
PROTO = 'syntax = "proto3"; message M { int64 a = 1; string long_name = 2; }'


def offsets(response: httpx.Response) -> list[tuple[int | None, int | None, int | None]]:
    assert response.status_code == 200, response.text
    return [(each["partition"], each["offset"], each["error_code"]) for each in response.json()["offsets"]]


def test_topics_and_their_partitions_are_described(proxy: ProxyClient, topic: str) -> None:
    assert topic in proxy.get("/topics").json()
    described = proxy.get(f"/topics/{topic}").json()
    assert (described["name"], described["configs"]["cleanup.policy"]) == (topic, "delete")
    replica = {"broker": 1, "leader": True, "in_sync": True}
    partitions = [{"partition": number, "leader": 1, "replicas": [replica]} for number in (0, 1)]
    assert described["partitions"] == proxy.get(f"/topics/{topic}/partitions").json() == partitions
    assert proxy.get(f"/topics/{topic}/partitions/1").json() == partitions[1]
    assert proxy.get("/brokers").json() == {"brokers": [1]}
    assert proxy.get("/topics").headers["content-type"] == "application/vnd.kafka.v2+json"


def test_offsets_are_those_of_the_partition(proxy: ProxyClient, topic: str) -> None:
    path = f"/topics/{topic}/partitions/1"
    assert proxy.get(f"{path}/offsets").json() == {"beginning_offset": 0, "end_offset": 0}
    proxy.produce(path, {"records": [{"value": 1}, {"value": 2}, {"value": 3}]})
    assert proxy.get(f"{path}/offsets").json() == {"beginning_offset": 0, "end_offset": 3}


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/topics/nope", (404, 40401)),
        ("/topics/nope/partitions", (404, 40401)),
        ("/topics/nope/partitions/0", (404, 40401)),
        ("/topics/nope/partitions/0/offsets", (404, 40401)),
        ("/topics/TOPIC/partitions/2", (404, 40402)),
        ("/topics/TOPIC/partitions/2/offsets", (404, 40402)),
        ("/topics/TOPIC/partitions/-1", (404, 40402)),
        ("/topics/TOPIC/partitions/x/offsets", (404, 40402)),
        ("/topics/TOPIC/partitions/99999999999999999999", (404, 40402)),
    ],
)
def test_what_there_is_not_is_not_found(proxy: ProxyClient, topic: str, path: str, answer: tuple[int, int]) -> None:
    assert refused(proxy.get(path.replace("TOPIC", topic))) == answer


def test_binary_records_are_stored_as_their_bytes(service: Service, proxy: ProxyClient, topic: str) -> None:
    records = [
        {"key": base64_of(b"\x00k"), "value": base64_of(b"\xff\x00"), "partition": 1},
        {"key": None, "value": "", "partition": 1},
        {"key": base64_of(b"\x00k"), "partition": 1},
    ]
    answer = proxy.produce(f"/topics/{topic}", {"records": records}, "binary")
    assert offsets(answer) == [(1, 0, None), (1, 1, None), (1, 2, None)]
    assert stored(service, topic, 1) == [(b"\x00k", b"\xff\x00"), (None, b""), (b"\x00k", None)]


def test_json_records_are_stored_as_compact_json_and_numbers_stay_exact(
    service: Service, proxy: ProxyClient, topic: str
) -> None:
    body = '{"records": [{"key": "k", "value": {"b": 1.5, "a": 123456789012345678901234567890}}]}'
    where = partition_of(b'"k"', 2)
    assert offsets(proxy.produce(f"/topics/{topic}", body)) == [(where, 0, None)]
    assert stored(service, topic, where) == [(b'"k"', b'{"b":1.5,"a":123456789012345678901234567890}')]


def test_keyless_records_of_one_request_stay_together_and_requests_take_turns(proxy: ProxyClient, topic: str) -> None:
    answers = [offsets(proxy.produce(f"/topics/{topic}", {"records": [{"value": 1}] * 3})) for _ in range(2)]
    assert [{partition for partition, *_ in answer} for answer in answers] in ([{0}, {1}], [{1}, {0}])


def test_offsets_of_more_records_than_a_batch_follow_each_other(
    service: Service, proxy: ProxyClient, topic: str
) -> None:
    answer = proxy.produce(f"/topics/{topic}/partitions/0", {"records": [{"value": n} for n in range(1203)]})
    assert offsets(answer) == [(0, n, None) for n in range(1203)]
    assert [value for _, value in stored(service, topic)] == [str(n).encode() for n in range(1203)]


def test_avro_is_written_by_a_schema_that_is_registered_once(service: Service, proxy: ProxyClient, topic: str) -> None:
    records = [{"value": {"a": {"string": "x"}}}, {"value": {"a": None}}]
    first = proxy.produce(f"/topics/{topic}/partitions/0", {"value_schema": AVRO, "records": records}, "avro").json()
    schema_id = first["value_schema_id"]
    assert (first["key_schema_id"], isinstance(schema_id, int)) == (None, True)
    again = {"value_schema_id": schema_id, "records": records}
    assert proxy.produce(f"/topics/{topic}/partitions/0", again, "avro").json()["value_schema_id"] == schema_id
    header = b"\0" + schema_id.to_bytes(4, "big")
    assert [value for _, value in stored(service, topic)] == [header + b"\x02\x02x", header + b"\0"] * 2
    assert service.engine.schemas.registry.latest(f"{topic}-value") is not None


def test_protobuf_and_json_schema_are_written_with_the_id(service: Service, proxy: ProxyClient, topic: str) -> None:
    body = {"value_schema": PROTO, "records": [{"value": {"a": "7", "longName": "x"}}]}
    answer = proxy.produce(f"/topics/{topic}/partitions/0", body, "protobuf").json()
    header = b"\0" + answer["value_schema_id"].to_bytes(4, "big")
    assert stored(service, topic) == [(None, header + b"\0\x08\x07\x12\x01x")]
    schema = json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}})
    body = {"key_schema": schema, "records": [{"key": {"a": 1}}]}
    answer = proxy.produce(f"/topics/{topic}/partitions/1", body, "jsonschema").json()
    header = b"\0" + answer["key_schema_id"].to_bytes(4, "big")
    assert stored(service, topic, 1) == [(header + b'{"a":1}', None)]


@pytest.mark.parametrize(
    ("format", "body", "answer"),
    [
        ("binary", {"records": [{"value": "AQ="}]}, (400, 400)),
        ("binary", {"records": [{"value": 5}]}, (400, 400)),
        ("json", "", (422, 42206)),
        ("json", "{", (400, 400)),
        ("json", "[]", (400, 400)),
        ("json", "null", (400, 400)),
        ("json", {}, (422, 422)),
        ("json", {"records": []}, (422, 422)),
        ("json", {"records": [1]}, (400, 400)),
        ("json", {"records": {"value": 1}}, (400, 400)),
        ("json", {"records": [{"value": 1, "partition": "x"}]}, (400, 400)),
        ("json", {"records": [{"value": 1, "partition": -1}]}, (422, 422)),
        ("json", {"records": [{}] * 10_001}, (422, 422)),
        ("json", '{"records": [{"value": "\\ud800"}]}', (400, 400)),
        ("json", '{"records": [{"value": NaN}]}', (400, 400)),
        ("json", '{"records": [{"value": ' + "[" * 50_000 + "}]}", (400, 400)),
        ("json", '{"records": [{"value": ' + "9" * 5000 + "}]}", (400, 400)),
        ("avro", {"records": [{"value": {"a": None}}]}, (422, 42202)),
        ("avro", {"records": [{"key": 1}]}, (422, 42201)),
        ("avro", {"value_schema": "{", "records": [{"value": 1}]}, (422, 42205)),
        ("avro", {"value_schema": 7, "records": [{"value": 1}]}, (400, 400)),
        ("avro", {"value_schema": AVRO, "records": [{"value": {"a": "x"}}]}, (422, 42203)),
        ("avro", {"value_schema": AVRO, "records": [{"value": {"a": {"string": 5}}}]}, (422, 42203)),
        ("avro", {"value_schema_id": 4711, "records": [{"value": 1}]}, (422, 42207)),
        ("protobuf", {"value_schema": PROTO, "records": [{"value": {"nope": 1}}]}, (422, 42203)),
        ("protobuf", {"value_schema": PROTO, "records": [{"value": 5}]}, (422, 42203)),
        ("v2", {"records": [{"value": 1}]}, (415, 415)),
    ],
)
def test_what_cannot_be_written_is_refused_as_a_whole(
    service: Service, proxy: ProxyClient, topic: str, format: str, body: Any, answer: tuple[int, int]
) -> None:
    if isinstance(body, dict) and isinstance(body.get("records"), list) and body["records"][:1]:
        body = {**body, "records": [{"partition": 0}, *body["records"]]} if len(body["records"]) < 9 else body
    assert refused(proxy.produce(f"/topics/{topic}", body, format)) == answer
    assert stored(service, topic, 0) == stored(service, topic, 1) == []


def test_a_record_that_the_topic_does_not_take_does_not_stop_the_others(
    service: Service, proxy: ProxyClient, topic: str
) -> None:
    records = [{"value": 1, "partition": 0}, {"value": 2, "partition": 7}, {"value": 3, "partition": 0}]
    answer = proxy.produce(f"/topics/{topic}", {"records": records})
    assert offsets(answer) == [(0, 0, None), (None, None, 40002), (0, 1, None)]
    assert [value for _, value in stored(service, topic)] == [b"1", b"3"]


def test_the_settings_of_a_topic_hold_for_records_of_the_proxy(service: Service, proxy: ProxyClient) -> None:
    service.engine.log.create_topic("small", 1, {"max.message.bytes": "1000"})
    fits = {"value": "x" * (1000 - 61 - 36 - 2)}
    answer = proxy.produce("/topics/small", {"records": [fits, {"value": fits["value"] + "x"}, {"value": 1}]})
    assert offsets(answer) == [(0, 0, None), (None, None, 413), (0, 1, None)]
    service.engine.log.create_topic("compacted", 1, {"cleanup.policy": "compact"})
    answer = proxy.produce("/topics/compacted", {"records": [{"value": 1}, {"key": 1, "value": 1}]})
    assert offsets(answer) == [(None, None, 40002), (0, 0, None)]


def test_what_belongs_to_millstream_is_not_written(proxy: ProxyClient) -> None:
    for name in ("_millstream-command", "__consumer_offsets", "_schemas"):
        assert refused(proxy.produce(f"/topics/{name}", {"records": [{"value": 1}]})) == (403, 40301)


def test_a_body_has_a_limit(proxy: ProxyClient, topic: str) -> None:
    body = {"records": [{"value": "x" * (1 << 20)}]}
    assert refused(proxy.produce(f"/topics/{topic}", body)) == (413, 413)


def test_pages_of_the_web_are_refused(proxy: ProxyClient, topic: str) -> None:
    headers = {"content-type": "application/vnd.kafka.json.v2+json", "origin": "http://evil"}
    answer = proxy.http.post(f"/topics/{topic}", content='{"records":[{"value":1}]}', headers=headers)
    assert answer.status_code == 403


def test_the_proxy_can_be_off(tmp_path_factory: pytest.TempPathFactory) -> None:
    with service_in(tmp_path_factory.mktemp("off"), rest_proxy=False) as off, ProxyClient(off) as client:
        assert client.get("/topics").status_code == 404
        assert client.http.get("/info").status_code == 200


def test_rights_are_those_of_the_kafka_port(tmp_path_factory: pytest.TempPathFactory) -> None:
    roles = {verb: {verb: ["own*"]} for verb in ("read", "insert", "ddl")}
    users = {name: {"tokens": [hash_token(name)], "roles": [name]} for name in roles}
    with service_in(tmp_path_factory.mktemp("access"), access={"users": users, "roles": roles}) as service:
        for name in ("own", "other"):
            service.engine.log.create_topic(name, 1)
        for user, status in (("read", 403), ("insert", 200), ("ddl", 403)):
            with ProxyClient(service, user) as client:
                assert client.get("/topics").json() == ["own"]
                assert client.get("/topics/own/partitions/0/offsets").status_code == 200
                assert refused(client.get("/topics/other")) == refused(client.get("/topics/none")) == (403, 40301)
                assert client.produce("/topics/own", {"records": [{"value": 1}]}).status_code == status
                assert refused(client.produce("/topics/other", {"records": [{"value": 1}]})) == (403, 40301)
        schema = {"value_schema": '"int"', "records": [{"value": 1}]}
        with ProxyClient(service, "insert") as client:
            own = client.produce("/topics/own", schema, "avro").json()["value_schema_id"]
            store = service.engine.schemas
            hidden = store.registry.new_version("other-value", GivenSchema("AVRO", '"string"'))
            store.append([hidden])
            for schema_id, answer in ((own, 200), (hidden.id, 422)):
                body = {"value_schema_id": schema_id, "records": [{"value": 1}]}
                assert client.produce("/topics/own", body, "avro").status_code == answer
