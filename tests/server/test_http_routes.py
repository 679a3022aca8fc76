"""The routes around the queries: web sockets, other servers, probes, metrics, the OpenAPI document."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from running_server import service_in
from waiting import eventually
from web_socket import WebSocketClient

from millstream.server.service import Service

DDL = """
CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);
CREATE TABLE t AS SELECT id, COUNT(*) AS n FROM s GROUP BY id EMIT CHANGES;
INSERT INTO s VALUES (1, 10);
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    denied = {"ksql.properties.overrides.denylist": "ksql.suppress.enabled, auto.offset.rest"}
    timeout = {"ksql.server.command.response.timeout.ms": "50"}
    properties = {"auto.offset.reset": "earliest", **denied, **timeout}
    with service_in(tmp_path_factory.mktemp("data"), properties=properties) as started:
        client = httpx.Client(base_url=f"http://{started.http_address}", timeout=60)
        assert client.post("/ksql", json={"ksql": DDL}).status_code == 200
        yield started


@pytest.fixture
def http(service: Service) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{service.http_address}", timeout=60) as opened:
        yield opened


def socket_of(service: Service, text: str, **headers: str) -> WebSocketClient:
    request = quote(json.dumps({"ksql": text, "streamsProperties": {"auto.offset.reset": "earliest"}}))
    return WebSocketClient(
        service.http_address.host, service.http_address.port, f"/ws/query?request={request}", headers
    )


def test_a_web_socket_gets_the_columns_then_the_rows_then_goodbye(service: Service) -> None:
    with socket_of(service, "SELECT id, v FROM s EMIT CHANGES LIMIT 1;") as socket:
        *messages, code = list(socket.messages())
    columns, row, last = (json.loads(str(message)) for message in messages)
    assert [(column["name"], column["schema"]["type"]) for column in columns] == [("ID", "INTEGER"), ("V", "INTEGER")]
    assert row == {"row": {"columns": [1, 10]}}
    assert last == {"finalMessage": "Limit Reached"}
    assert code == 1000


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x81\x01x", 1002),  # not masked
        (b"\xf1\x80\0\0\0\0", 1002),  # of bits that mean nothing yet
        (b"\x83\x80\0\0\0\0", 1002),  # of a kind that there is not
        (b"\x09\x80\0\0\0\0", 1002),  # a ping in pieces
        (b"\x81\x81\0\0\0\0\xff", 1007),
        (b"\x81\xff" + (2**24 + 1).to_bytes(8, "big") + bytes(4 + 2**24 + 1), 1009),
    ],
)
def test_a_client_that_breaks_the_protocol_of_web_sockets_is_told_so(service: Service, frame: bytes, code: int) -> None:
    with socket_of(service, "SELECT id, v FROM s EMIT CHANGES;") as socket:
        socket.send(frame)
        assert list(socket.messages())[-1] == code


def test_a_web_socket_that_closes_ends_its_query(service: Service, http: httpx.Client) -> None:
    with socket_of(service, "SELECT id FROM s EMIT CHANGES;") as socket:
        messages = socket.messages()
        next(messages)
        assert json.loads(str(next(messages))) == {"row": {"columns": [1]}}
        assert metric(http, 'millstream_client_queries{kind="push"}') == 1
    eventually(lambda: metric(http, 'millstream_client_queries{kind="push"}') == 0)


def test_what_cannot_be_run_closes_the_web_socket_with_the_reason(service: Service) -> None:
    for text in ("SELECT nope FROM s EMIT CHANGES;", "SHOW STREAMS;", "SELECT"):
        with socket_of(service, text) as socket:
            assert list(socket.messages()) == [1003], text


def test_pages_of_other_origins_get_no_web_socket(service: Service) -> None:
    with pytest.raises(ConnectionError, match="403"):
        socket_of(service, "SELECT id FROM s EMIT CHANGES;", origin="http://evil")


def test_rows_come_as_objects_for_programs_that_read_lines_of_json(http: httpx.Client) -> None:
    for route, member in (("/query-stream", "sql"), ("/query", "ksql")):
        response = http.post(route, json={member: "SELECT * FROM s;"}, headers={"accept": "application/x-ndjson"})
        assert response.headers["content-type"] == "application/x-ndjson"
        assert [json.loads(line) for line in response.text.splitlines()] == [{"ID": 1, "V": 10}]


PROTOBUF = "application/vnd.ksql.v1+protobuf"


@pytest.mark.parametrize("route", ["/query-stream", "/query", "/ksql"])
@pytest.mark.parametrize("accept", [PROTOBUF, f"{PROTOBUF};q=0.5, text/html", f"{PROTOBUF}, application/json;q=0"])
def test_who_wants_a_type_that_there_is_not_is_told_so(http: httpx.Client, route: str, accept: str) -> None:
    text = "SHOW STREAMS;" if route == "/ksql" else "SELECT * FROM s;"
    refused = http.post(route, json={"ksql": text}, headers={"accept": accept})
    assert (refused.status_code, refused.json()["error_code"]) == (406, 40600)
    assert "application/vnd.ksql.v1+json" in refused.json()["message"]


@pytest.mark.parametrize(
    ("accept", "given"),
    [
        (f"{PROTOBUF}, */*;q=0.1", "application/vnd.ksqlapi.delimited.v1"),
        (f"{PROTOBUF}, application/*", "application/vnd.ksqlapi.delimited.v1"),
        ("application/json;q=0.2, application/x-ndjson;q=0.9", "application/x-ndjson"),
        ("Application/X-NDJSON", "application/x-ndjson"),
        ("", "application/vnd.ksqlapi.delimited.v1"),
        (";;,,", "application/vnd.ksqlapi.delimited.v1"),
    ],
)
def test_the_type_that_is_wanted_most_is_given(http: httpx.Client, accept: str, given: str) -> None:
    response = http.post("/query-stream", json={"sql": "SELECT * FROM s;"}, headers={"accept": accept})
    assert (response.status_code, response.headers["content-type"]) == (200, given)


def test_a_request_can_wait_for_a_command_and_not_for_one_that_never_comes(http: httpx.Client) -> None:
    ddl = "CREATE STREAM seen (v INT) WITH (kafka_topic='seen', value_format='JSON', partitions=1);"
    number = http.post("/ksql", json={"ksql": ddl}).json()[0]["commandSequenceNumber"]
    body = {"ksql": "SHOW STREAMS;", "commandSequenceNumber": number}
    assert "SEEN" in http.post("/ksql", json=body).text
    for route, text in (("/ksql", "SHOW STREAMS;"), ("/query", "SELECT * FROM s;")):
        late = http.post(route, json={"ksql": text, "commandSequenceNumber": number + 1000})
        assert (late.status_code, late.json()["error_code"]) == (503, 50301)
    wrong = http.post("/ksql", json={"ksql": "SHOW STREAMS;", "commandSequenceNumber": "1"})
    assert wrong.json()["error_code"] == 40000


def test_properties_on_the_deny_list_are_refused_in_requests_and_statements(http: httpx.Client) -> None:
    request = http.post("/ksql", json={"ksql": ";", "streamsProperties": {"ksql.suppress.enabled": "true"}})
    assert (request.json()["error_code"], "Cannot override property" in request.text) == (40000, True)
    statement = http.post("/ksql", json={"ksql": "SET 'ksql.suppress.enabled'='true';"})
    assert (statement.json()["error_code"], "Cannot override property" in statement.text) == (40001, True)
    assert http.post("/ksql", json={"ksql": "SET 'ksql.query.pull.table.scan.enabled'='true';"}).status_code == 200


def test_a_request_has_a_number_its_own_or_one_of_ours(http: httpx.Client) -> None:
    assert http.get("/info", headers={"x-request-id": "trace-7"}).headers["x-request-id"] == "trace-7"
    assert len(http.get("/info", headers={"x-request-id": "a b\tc"}).headers["x-request-id"]) == 32
    assert len(http.get("/nowhere").headers["x-request-id"]) == 32


def test_probes_answer(http: httpx.Client) -> None:
    assert [http.get(path).status_code for path in ("/livez", "/readyz", "/chc/live", "/chc/ready")] == [200] * 4


def metric(http: httpx.Client, name: str) -> float:
    lines = http.get("/metrics").text.splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def test_metrics_count_requests_queries_rows_lag_and_topics(http: httpx.Client) -> None:
    http.get("/nowhere/really")
    assert metric(http, 'millstream_http_requests_total{method="GET",route="other",status="404"}') >= 1
    eventually(lambda: metric(http, 'millstream_query_rows_in_total{query="CTAS_T_1"}') == 1)
    assert metric(http, 'millstream_query_state{query="CTAS_T_1",state="RUNNING"}') == 1
    assert metric(http, 'millstream_query_lag{partition="0",query="CTAS_T_1",topic="s"}') == 0
    assert metric(http, 'millstream_topic_records{partition="0",topic="s"}') == 1
    assert metric(http, 'millstream_topic_bytes{partition="0",topic="s"}') > 60
    assert metric(http, 'millstream_sources{kind="table"}') == 1


def test_the_cluster_is_this_server_and_those_that_told_of_themselves(service: Service, http: httpx.Client) -> None:
    host = {"host": "other", "port": 8088}
    assert http.post("/heartbeat", json={"hostInfo": host, "timestamp": 1}).json() == {"isOk": True}
    lags = {"stateStoreLags": {}, "updateTimeMs": 5}
    assert http.post("/lag", json={"ksqlHost": host, "hostStoreLags": lags}).json() == {"isOk": True}
    status = http.get("/clusterStatus").json()["clusterStatus"]
    own = status[str(service.http_address)]
    assert own["hostAlive"] is True
    places = own["hostStoreLags"]["stateStoreLags"]["CTAS_T_1"]["lagByPartition"]
    assert places["s-0"]["endOffsetPosition"] >= places["s-0"]["currentOffsetPosition"]
    assert (status["other:8088"]["hostAlive"], status["other:8088"]["hostStoreLags"]) == (True, lags)
    for body in ({}, {"hostInfo": 5, "timestamp": 1}, {"hostInfo": host, "timestamp": "now"}):
        assert http.post("/heartbeat", json=body).json()["error_code"] == 40000


def test_the_openapi_document_names_every_route(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    for path, operations in document["paths"].items():
        for method in operations:
            asked = http.request(method.upper(), path, content=b"")
            assert asked.status_code not in (404, 405, 500) or path.startswith(
                (
                    *(
                        "/status/",
                        "/queries/",
                        "/ws/",
                        "/connectors/",
                        "/connector-plugins/",
                        "/console/{",
                        "/mcp",
                        "/admin/",
                    ),
                    *("/v1/subjects/", "/topics/", "/consumers/", "/v3/", "/hooks/"),
                )
            ), path
    references: list[str] = []
    collect(document, references)
    assert all(reference.rpartition("/")[2] in document["components"]["schemas"] for reference in references)


def collect(value: Any, references: list[str]) -> None:
    if isinstance(value, dict):
        references += [value["$ref"]] if "$ref" in value else []
        for item in value.values():
            collect(item, references)
    elif isinstance(value, list):
        for item in value:
            collect(item, references)


def test_curl_speaks_http_2_with_prior_knowledge(service: Service) -> None:
    command = ["curl", "-sS", "--http2-prior-knowledge", "-w", "%{http_version}", "-o", "/dev/null"]
    ended = subprocess.run(
        [*command, f"http://{service.http_address}/info"], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout == "2"


def test_terminate_drops_all_and_deletes_the_topics_that_are_named(tmp_path_factory: pytest.TempPathFactory) -> None:
    with service_in(tmp_path_factory.mktemp("ended")) as service:
        with httpx.Client(base_url=f"http://{service.http_address}", timeout=60) as http:
            assert http.post("/ksql", json={"ksql": DDL}).status_code == 200
            for wrong in ({"deleteTopicList": "s"}, {"deleteTopicList": ["("]}, {"deleteTopicList": [5]}):
                assert http.post("/ksql/terminate", json=wrong).json()["error_code"] == 40000
            done = http.post("/ksql/terminate", json={"deleteTopicList": ["T.*", "nothing"]})
            assert done.json()[0]["commandStatus"]["message"] == "Cluster terminated"
            assert len(service.engine.catalog.sources) == len(service.engine.catalog.queries) == 0
            assert "s" in service.engine.log.topics()
            assert "T" not in service.engine.log.topics()
