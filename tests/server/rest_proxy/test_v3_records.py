"""Producing by v3 of the REST proxy: single records, streams of them, and batches."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from rest_proxy import ProxyClient, base64_of, cluster_path, refused, stored
from running_server import service_in

from millstream.logcore.client import FetchedRows
from millstream.logcore.murmur2 import partition_of
from millstream.server.security.access import hash_token
from millstream.server.service import Service

JSON = "application/json"
AVRO = json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]})


@pytest.fixture
def path(proxy: ProxyClient, topic: str) -> str:
    return f"{cluster_path(proxy)}/topics/{topic}/records"


def reports(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == JSON
    return [json.loads(line) for line in response.text.splitlines()]


def produce(proxy: ProxyClient, path: str, *records: Any) -> list[dict[str, Any]]:
    return reports(proxy.post(path, "".join(map(json.dumps, records)), JSON))


def codes(found: list[dict[str, Any]]) -> list[int]:
    return [report["error_code"] for report in found]


def string(text: Any) -> dict[str, Any]:
    return {"type": "STRING", "data": text}


def test_a_record_is_written_with_all_that_it_says(service: Service, proxy: ProxyClient, topic: str, path: str) -> None:
    record = {
        "partition_id": 1,
        "headers": [{"name": "h", "value": base64_of(b"\xff")}, {"name": "empty"}],
        "key": {"type": "BINARY", "data": base64_of(b"foobar")},
        "value": {"type": "JSON", "data": {"foo": "bar"}},
        "timestamp": "2021-02-05T19:14:42Z",
    }
    assert produce(proxy, path, record) == [
        {
            "error_code": 200,
            "cluster_id": path.split("/")[3],
            "topic_name": topic,
            "partition_id": 1,
            "offset": 0,
            "timestamp": "2021-02-05T19:14:42.000Z",
            "key": {"type": "BINARY", "size": 6},
            "value": {"type": "JSON", "size": 13},
        }
    ]
    (run,) = service.engine.log.fetch(topic, 1, 0).runs
    assert isinstance(run, FetchedRows)
    (row,) = run.table.to_pylist()
    assert (row["key"], row["value"], row["timestamp"]) == (b"foobar", b'{"foo":"bar"}', 1612552482000)
    assert row["headers"] == [{"key": "h", "value": b"\xff"}, {"key": "empty", "value": None}]


def test_a_key_says_the_partition_and_what_is_left_out_is_null(
    service: Service, proxy: ProxyClient, topic: str, path: str
) -> None:
    where = partition_of(b"k", 2)
    found = produce(proxy, path, {"key": string("k")}, {"key": string("k"), "value": string(None)}, {})
    assert [report["partition_id"] for report in found[:2]] == [where, where]
    assert codes(found) == [200] * 3
    assert stored(service, topic, where)[:2] == [(b"k", None), (b"k", None)]
    assert "value" not in found[0] and found[1]["value"] == {"type": "STRING", "size": 0}


def test_schemas_are_named_by_text_id_version_subject_or_not_at_all(
    service: Service, proxy: ProxyClient, topic: str, path: str
) -> None:
    (first,) = produce(proxy, path, {"value": {"type": "AVRO", "schema": AVRO, "data": {"a": 1}}})
    schema_id = first["value"]["schema_id"]
    expected = {
        "type": "AVRO", "subject": f"{topic}-value", "schema_id": schema_id, "schema_version": 1, "size": 6,
    }  # fmt: skip
    assert first["value"] == expected
    for said in (
        {"schema_id": schema_id}, {"schema_version": 1}, {"subject": f"{topic}-value"}, {},
        {"subject_name_strategy": "TOPIC_NAME"},
    ):  # fmt: skip
        (report,) = produce(proxy, path, {"value": {**said, "data": {"a": 1}}})
        assert report["value"] == expected, said
    elsewhere = {"type": "JSONSCHEMA", "schema": '{"type": "integer"}', "subject": "elsewhere", "data": 7}
    (report,) = produce(proxy, path, {"partition_id": 0, "value": elsewhere})
    assert (report["value"]["subject"], report["value"]["type"]) == ("elsewhere", "JSONSCHEMA")


@pytest.mark.parametrize(
    ("record", "code"),
    [
        ({"value": {"type": "BINARY", "data": "1"}}, 400),
        ({"value": {"type": "BINARY", "data": 1}}, 400),
        ({"value": {"type": "STRING", "data": 1}}, 400),
        ({"value": {"type": "XML", "data": 1}}, 400),
        ({"value": {"type": "AVRO", "data": 1}}, 400),
        ({"value": {"schema": '"int"', "data": 1}}, 400),
        ({"value": {"type": "JSON", "schema": '"int"', "data": 1}}, 200),
        ({"value": {"type": "AVRO", "schema": "{", "data": 1}}, 42205),
        ({"value": {"type": "AVRO", "schema": '"int"', "data": "x"}}, 42203),
        ({"value": {"schema_id": 4711, "data": 1}}, 42207),
        ({"value": {"schema_version": 9, "data": 1}}, 42207),
        ({"value": {"data": 1}}, 42207),
        ({"value": {"schema_id": 1, "schema_version": 1, "data": 1}}, 400),
        ({"value": {"subject_name_strategy": "RECORD_NAME", "data": 1}}, 400),
        ({"value": {"subject_name_strategy": "NOPE", "data": 1}}, 400),
        ({"value": 5}, 400),
        ({"partition_id": 2, "value": string("x")}, 40402),
        ({"partition_id": -1, "value": string("x")}, 40402),
        ({"partition_id": "x", "value": string("x")}, 400),
        ({"headers": [{"name": "h", "value": "1"}], "value": string("x")}, 400),
        ({"headers": [{}], "value": string("x")}, 400),
        ({"headers": 5, "value": string("x")}, 400),
        ({"timestamp": "yesterday", "value": string("x")}, 400),
        ({"timestamp": 5, "value": string("x")}, 400),
        ({"timestamp": "1969-12-31T23:59:59Z", "value": string("x")}, 400),
    ],
)
def test_a_record_that_cannot_be_written_is_reported_between_the_others(
    proxy: ProxyClient, path: str, record: Any, code: int
) -> None:
    found = produce(proxy, path, {"value": string("a")}, record, {"value": string("b")})
    assert codes(found) == [200, code, 200]
    assert code == 200 or found[1]["message"]


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ("", (422, 42206)),
        (" \r\n", (422, 42206)),
        ("[]", (400, 400)),
        ("{", (400, 400)),
        ('{"value": }', (400, 400)),
        ("5", (400, 400)),
        ('{"value": ' + "[" * 5000 + "}", (400, 400)),
        ('{"a": NaN}', (400, 400)),
    ],
)
def test_a_body_without_a_record_is_refused(proxy: ProxyClient, path: str, body: str, answer: tuple[int, int]) -> None:
    assert refused(proxy.post(path, body, JSON)) == answer
    assert refused(proxy.http.post(path, content=iter([body.encode()]), headers={"content-type": JSON})) == answer


def test_what_stands_before_broken_json_is_written_and_nothing_behind_it(
    service: Service, proxy: ProxyClient, topic: str, path: str
) -> None:
    good = json.dumps({"partition_id": 0, "value": string("good")})
    for broken in ('{"value": }', "[", '{"value"', "5"):
        before = len(stored(service, topic))
        assert codes(reports(proxy.post(path, f"{good}{broken}{good}", JSON))) == [200, 400], broken
        assert len(stored(service, topic)) == before + 1


def test_a_body_of_another_type_or_too_large_is_refused(proxy: ProxyClient, path: str) -> None:
    assert refused(proxy.post(path, "{}", "text/plain")) == (415, 415)
    assert refused(proxy.post(path, "{}", "application/vnd.kafka.v2+json")) == (415, 415)
    large = json.dumps({"value": string("x" * (1 << 20))})
    assert refused(proxy.post(path, large, JSON)) == (413, 413)
    chunks = iter([b"{}", large.encode()])
    found = proxy.http.post(path, content=chunks, headers={"content-type": JSON})
    assert codes(reports(found)) in ([200, 413], [413])


class Streaming:
    """A request that sends records and reads reports at the same time."""

    def __init__(self, service: Service, path: str) -> None:
        self._socket = socket.create_connection((service.http_address.host, service.http_address.port))
        self._socket.settimeout(30)
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {JSON}\r\ntransfer-encoding: chunked\r\n\r\n"
        self._socket.sendall(head.encode())
        self._file = self._socket.makefile("rb")
        self._began = False

    def send(self, data: bytes) -> None:
        self._socket.sendall(b"%x\r\n%s\r\n" % (len(data), data) if data else b"0\r\n\r\n")

    def report(self) -> dict[str, Any] | None:
        """None at the end."""
        if not self._began:
            self._began = True
            assert self._file.readline().startswith(b"HTTP/1.1 200")
            while self._file.readline() != b"\r\n":
                pass
        size = int(self._file.readline(), 16)
        data = self._file.read(size)
        self._file.readline()
        return json.loads(data) if size else None

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@pytest.fixture
def streaming(service: Service, path: str) -> Iterator[Streaming]:
    opened = Streaming(service, path)
    yield opened
    opened.close()


def test_each_record_of_a_stream_is_reported_while_it_lasts(service: Service, topic: str, streaming: Streaming) -> None:
    for number in range(3):
        record = json.dumps({"partition_id": 0, "value": {"type": "JSON", "data": number}}).encode()
        streaming.send(record[:9])
        streaming.send(record[9:])
        report = streaming.report()
        assert report is not None and (report["error_code"], report["offset"]) == (200, number)
        assert len(stored(service, topic)) == number + 1
    streaming.send(json.dumps({"value": {"type": "BINARY", "data": "1"}}).encode())
    report = streaming.report()
    assert report is not None and report["error_code"] == 400
    streaming.send(b"")
    assert streaming.report() is None


def test_a_stream_ends_where_its_json_is_broken(streaming: Streaming) -> None:
    streaming.send(b'{"value": {"type": "JSON", "data": 1}}')
    report = streaming.report()
    assert report is not None and report["error_code"] == 200
    streaming.send(b"]")
    report = streaming.report()
    assert report is not None and report["error_code"] == 400
    assert streaming.report() is None


def test_a_client_that_goes_away_in_the_middle_leaves_what_was_complete(
    service: Service, proxy: ProxyClient, topic: str, path: str, streaming: Streaming
) -> None:
    streaming.send(b'{"partition_id": 0, "value": {"type": "JSON", "data": 1}}{"partition_id": 0, "val')
    assert streaming.report() is not None
    streaming.close()
    assert codes(produce(proxy, path, {"partition_id": 0, "value": string("x")})) == [200]
    assert [value for _, value in stored(service, topic)] == [b"1", b"x"]


def test_a_batch_reports_successes_and_failures_by_their_ids(
    service: Service, proxy: ProxyClient, topic: str, path: str
) -> None:
    entries = [
        {"id": "1", "partition_id": 0, "value": string("a")},
        {"id": "2", "value": {"type": "BINARY", "data": "1"}},
        {"id": "3", "partition_id": 0, "value": string("b")},
    ]
    answer = proxy.post(f"{path}:batch", {"entries": entries}, JSON)
    assert answer.status_code == 207
    found = answer.json()
    assert [(each["id"], each["offset"]) for each in found["successes"]] == [("1", 0), ("3", 1)]
    assert [(each["id"], each["error_code"]) for each in found["failures"]] == [("2", 400)]
    assert [value for _, value in stored(service, topic)] == [b"a", b"b"]


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ({"entries": []}, (422, 42208)),
        ({"entries": [{"id": "1"}] * 2}, (422, 42208)),
        ({"entries": [{"id": ""}]}, (422, 42208)),
        ({"entries": [{"id": "x" * 81}]}, (422, 42208)),
        ({"entries": [{"id": 5}]}, (422, 42208)),
        ({"entries": [{}]}, (422, 42208)),
        ({"entries": [{"id": str(number)} for number in range(1001)]}, (422, 42208)),
        ({}, (422, 422)),
        ("", (422, 42206)),
    ],
)
def test_a_batch_that_makes_no_sense_is_refused(
    proxy: ProxyClient, path: str, body: Any, answer: tuple[int, int]
) -> None:
    assert refused(proxy.post(f"{path}:batch", body, JSON)) == answer


@pytest.mark.parametrize("suffix", ["", ":batch"])
def test_where_there_is_no_topic_or_no_such_cluster_nothing_is_written(proxy: ProxyClient, suffix: str) -> None:
    body = {"entries": [{"id": "1"}]}
    nowhere = f"{cluster_path(proxy)}/topics/nope/records{suffix}"
    assert refused(proxy.post(nowhere, body, JSON)) == (404, 40403)
    assert refused(proxy.post(f"/v3/clusters/nope/topics/t/records{suffix}", body, JSON)) == (404, 404)
    own = f"{cluster_path(proxy)}/topics/_millstream-command/records{suffix}"
    assert refused(proxy.post(own, body, JSON)) == (403, 40301)


def test_rights_are_those_of_the_kafka_port(tmp_path_factory: pytest.TempPathFactory) -> None:
    roles = {"writer": {"insert": ["own*"]}, "reader": {"read": ["own*"]}}
    users = {name: {"tokens": [hash_token(name)], "roles": [name]} for name in roles}
    with service_in(tmp_path_factory.mktemp("access"), access={"users": users, "roles": roles}) as service:
        service.engine.log.create_topic("own", 1)
        with ProxyClient(service, "reader") as reader:
            path = f"{cluster_path(reader)}/topics/own/records"
            for asked in (path, f"{path}:batch", path.replace("own", "other")):
                assert refused(reader.post(asked, {}, JSON)) == (403, 40301)
        with ProxyClient(service, "writer") as writer:
            foreign = {"type": "AVRO", "schema": '"int"', "subject": "other-value", "data": 1}
            own = {"type": "AVRO", "schema": '"int"', "data": 1}
            found = produce(writer, path, {"value": foreign}, {"value": own}, {"value": {**own, "subject": "own-x"}})
            assert codes(found) == [40301, 200, 200]
            assert service.engine.schemas.registry.subjects() == ["own-value", "own-x"]
