"""The HTTP API on a real socket: ksqlDB's routes, shapes and codes."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from running_server import service_in
from waiting import eventually

from millstream.server.http import query_responses as http_queries
from millstream.server.http import requests as http_requests
from millstream.server.service import Service

STREAM = (
    "CREATE STREAM s (id INT KEY, v INT, d DECIMAL(4, 2)) WITH (kafka_topic='s', value_format='JSON', partitions=1);"
)
ROWS = "INSERT INTO s VALUES (1, 2, 3.50); INSERT INTO s VALUES (1, 3, 4.00);"
EARLIEST = {"ksql.streams.auto.offset.reset": "earliest"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_in(tmp_path_factory.mktemp("data")) as started:
        yield started


@pytest.fixture(scope="module")
def http(service: Service) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{service.http_address}", timeout=60) as client:
        response = ksql(client, STREAM + ROWS)
        assert response.status_code == 200, response.text
        yield client


def ksql(client: httpx.Client, text: str, **members: Any) -> httpx.Response:
    return client.post("/ksql", json={"ksql": text, **members})


def push_threads() -> list[str]:
    """The threads that run clients' queries."""
    names = ("millstream-transient", "millstream-feed")
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(names)]


def test_info_and_health_answer_as_ksqldb_does(http: httpx.Client) -> None:
    info = http.get("/", follow_redirects=True).json()["KsqlServerInfo"]
    assert info["ksqlServiceId"] == "default_"
    assert info["serverStatus"] == "RUNNING"
    major, minor, _ = map(int, info["version"].split("."))
    assert (major, minor) >= (0, 14)  # older than this, ksqlDB's migrations tool refuses a server
    assert info["millstreamVersion"] == importlib.metadata.version("millstream")
    health = http.get("/healthcheck").json()
    assert health["isHealthy"] is True
    assert health["details"] == {name: {"isHealthy": True} for name in ("metastore", "kafka", "commandRunner")}
    assert http.get("/chc/live").status_code == http.get("/chc/ready").status_code == 200
    clusters = http.get("/v1/metadata").json()["clusterId"]["scope"]["clusters"]
    assert (
        clusters["kafka-cluster"]
        == info["kafkaClusterId"]
        == http.get("/v1/metadata/id").json()["scope"]["clusters"]["kafka-cluster"]
    )


def test_statements_answer_with_entities(http: httpx.Client) -> None:
    streams = ksql(http, "SHOW STREAMS; SHOW TABLES;")
    assert streams.headers["content-type"] == "application/json"
    assert [entity["@type"] for entity in streams.json()] == ["streams", "tables"]
    assert streams.json()[0]["streams"][0]["name"] == "S"


def test_a_refused_statement_says_which_one_and_what_was_done_before(http: httpx.Client) -> None:
    response = ksql(http, "SHOW TABLES;\nDROP STREAM nope;")
    assert response.status_code == 400
    body = response.json()
    assert body["@type"] == "statement_error"
    assert body["error_code"] == 40001
    assert body["statementText"] == "DROP STREAM nope;"
    assert body["entities"] == []
    assert body["message"].splitlines()[:2] == ["Stream NOPE does not exist.", "  2 | DROP STREAM nope;"]
    body = ksql(http, "SHOW TABLES;\nDROP CONNECTOR nope;").json()  # which is known when it is done
    assert body["statementText"] == "DROP CONNECTOR nope;"
    assert [entity["@type"] for entity in body["entities"]] == ["tables"]


def test_a_syntax_mistake_runs_nothing_and_points_at_the_place(http: httpx.Client) -> None:
    body = ksql(http, "INSERT INTO s VALUES (9, 9, 9.00); SHOW STREEMS;").json()
    assert body["error_code"] == 40001
    assert body["entities"] == []
    assert "^^^^^^^" in body["message"]


def test_rows_are_not_for_ksql(http: httpx.Client) -> None:
    body = ksql(http, "SHOW STREAMS; SELECT * FROM s;").json()
    assert body["error_code"] == 40002
    assert body["statementText"] == "SELECT * FROM s;"
    assert "/query" in body["message"]


def test_a_failed_assertion_has_a_code_of_its_own(http: httpx.Client) -> None:
    response = ksql(http, "ASSERT TOPIC nowhere TIMEOUT 10 MILLISECONDS;")
    assert (response.status_code, response.json()["error_code"]) == (417, 41700)


def test_query_gives_an_array_of_header_rows_and_last_words(http: httpx.Client) -> None:
    response = http.post(
        "/query", json={"ksql": "SELECT * FROM s EMIT CHANGES LIMIT 2;", "streamsProperties": EARLIEST}
    )
    header, *rows, last = response.json()
    assert header["header"]["schema"] == "`ID` INTEGER, `V` INTEGER, `D` DECIMAL(4, 2)"
    assert rows == [{"row": {"columns": [1, 2, 3.5]}}, {"row": {"columns": [1, 3, 4]}}]
    assert last == {"finalMessage": "Limit Reached"}
    assert '"columns":[1,2,3.50]' in response.text, "DECIMAL keeps its digits"


def test_a_push_query_of_query_ends_each_row_with_its_line(http: httpx.Client) -> None:
    asked = {"ksql": "SELECT v FROM s EMIT CHANGES;", "streamsProperties": EARLIEST}
    lines: list[str] = []
    with http.stream("POST", "/query", json=asked) as response:
        for line in response.iter_lines():  # the second row is the last one: nothing comes after it
            lines.append(line)
            if len(lines) == 3:
                query_id = json.loads(lines[0].strip("[,"))["header"]["queryId"]
                assert http.post("/close-query", json={"queryId": query_id}).status_code == 200
    assert json.loads("".join(lines))[1:] == [
        {"row": {"columns": [2]}},
        {"row": {"columns": [3]}},
        {"finalMessage": "Query Terminated"},
    ]


def test_query_stream_gives_a_line_per_row(http: httpx.Client) -> None:
    response = http.post("/query-stream", json={"sql": "SELECT v, id FROM s;"})
    assert response.headers["content-type"] == "application/vnd.ksqlapi.delimited.v1"
    header, *rows = map(json.loads, response.text.splitlines())
    assert (header["columnNames"], header["columnTypes"]) == (["V", "ID"], ["INTEGER", "INTEGER"])
    assert rows == [[2, 1], [3, 1]]


def test_query_stream_gives_one_json_array_to_who_asks_for_json(http: httpx.Client) -> None:
    response = http.post("/query-stream", json={"sql": "SELECT v FROM s;"}, headers={"accept": "application/json"})
    assert response.json()[1:] == [[2], [3]]


def test_query_stream_speaks_http_2_to_who_knows_that_it_does(service: Service, http: httpx.Client) -> None:
    del http
    with httpx.Client(base_url=f"http://{service.http_address}", http1=False, http2=True, timeout=60) as client:
        response = client.post("/query-stream", json={"sql": "SELECT v FROM s;"})
        assert response.http_version == "HTTP/2"
        assert response.text.splitlines()[1:] == ["[2]", "[3]"]


def test_print_gives_lines(http: httpx.Client) -> None:
    response = http.post("/query-stream", json={"sql": "PRINT s FROM BEGINNING LIMIT 1;"})
    lines = response.text.splitlines()
    assert lines[:2] == ["Key format: KAFKA", "Value format: JSON"]
    assert "key: 1" in lines[2]
    missing = http.post("/query-stream", json={"sql": "PRINT nope;"})
    assert (missing.status_code, missing.json()["@type"]) == (400, "statement_error")


def test_variables_and_properties_of_a_request_hold_for_it_alone(http: httpx.Client) -> None:
    listed = ksql(
        http, "SHOW VARIABLES; SHOW PROPERTIES;", sessionVariables={"a": "b"}, streamsProperties=EARLIEST
    ).json()
    assert listed[0]["variables"] == [{"name": "a", "value": "b"}]
    assert listed[1]["overwrittenProperties"] == ["auto.offset.reset"]
    assert ksql(http, "SHOW VARIABLES;").json()[0]["variables"] == []


def test_show_properties_shows_the_address_that_answers(service: Service, http: httpx.Client) -> None:
    listed = ksql(http, "SHOW PROPERTIES;").json()[0]
    values = {line["name"]: line["value"] for line in listed["properties"]}
    assert values["listeners"] == f"http://{service.http_address}"
    assert "listeners" not in listed["defaultProperties"]


def test_a_push_query_sends_rows_as_they_come_and_ends_with_its_client(http: httpx.Client) -> None:
    with http.stream("POST", "/query-stream", json={"sql": "SELECT v FROM s EMIT CHANGES;"}) as response:
        lines = response.iter_lines()
        assert "queryId" in next(lines)
        ksql(http, "INSERT INTO s VALUES (2, 77, 1.00);")
        assert next(lines) == "[77]"
        assert len(push_threads()) == 1
    eventually(lambda: not push_threads())


def test_close_query_ends_a_push_query(http: httpx.Client) -> None:
    with http.stream("POST", "/query-stream", json={"sql": "SELECT v FROM s EMIT CHANGES;"}) as response:
        lines = response.iter_lines()
        query_id = json.loads(next(lines))["queryId"]
        assert http.post("/close-query", json={"queryId": query_id}).status_code == 200
        assert list(lines) == []
    unknown = http.post("/close-query", json={"queryId": query_id})
    assert (unknown.status_code, unknown.json()["error_code"]) == (400, 40001)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"content": b"{"}, 40000),
        ({"content": b"[]"}, 40000),
        ({"content": b"{}"}, 40000),
        ({"content": b'{"ksql": 5}'}, 40000),
        ({"content": b'{"ksql": "\\ud800"}'}, 40000),
        ({"content": b'{"ksql": ";", "streamsProperties": {"auto.offset.reset": "sideways"}}'}, 40000),
        ({"content": b'{"ksql": ";", "streamsProperties": {"listeners": "x"}}'}, 40000),
        ({"content": b'{"ksql": ";", "streamsProperties": {"a": {"b": 1}}}'}, 40000),
        ({"content": b"{}", "headers": {"content-type": "text/plain"}}, 41500),
        ({"content": b"{}", "headers": {"content-encoding": "gzip"}}, 41500),
        ({"content": b"{}", "headers": {"origin": "http://127.0.0.1:8088"}}, 40300),
        ({"content": b" " * 2_000_000}, 41300),
        ({"content": iter([b" " * 1_000_000] * 3)}, 41300),
        ({"content": b"{}", "headers": {f"x-{number}": "y" for number in range(120)}}, 43100),
        ({"content": b"{}", "headers": {"x-long": "y" * 17_000}}, 43100),
        ({"content": b"{}", "url": "/nope"}, 40400),
        ({"content": b"{}", "url": "/info"}, 40500),
    ],
    ids=lambda value: None if isinstance(value, dict) else str(value),
)  # fmt: skip
def test_a_bad_request_is_refused_with_its_code(http: httpx.Client, change: dict[str, Any], code: int) -> None:
    headers = {"content-type": "application/json", **change.get("headers", {})}
    response = http.post(change.get("url", "/ksql"), content=change["content"], headers=headers)
    assert (response.status_code, response.json()["error_code"]) == (code // 100, code)
    assert response.json()["@type"] == "generic_error"
    assert "access-control-allow-origin" not in response.headers


def test_curl_may_send_a_statement_without_naming_its_type(http: httpx.Client) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert http.post("/ksql", content=b'{"ksql": "SHOW STREAMS;"}', headers=form).status_code == 200


def test_properties_can_be_checked_before_they_are_set(http: httpx.Client) -> None:
    assert http.get("/is_valid_property/auto.offset.reset").json() is True
    for name in ("auto.offset.rest", "listeners"):
        assert http.get(f"/is_valid_property/{name}").json()["error_code"] == 40000


def test_the_status_of_a_command_is_known_by_its_id(http: httpx.Client) -> None:
    assert http.get("/status").json()["commandStatuses"]["stream/`S`/create"] == "SUCCESS"
    assert http.get("/status/stream/S/create").json()["message"] == "Stream created"
    assert http.get("/status/stream/nope/create").status_code == 404


SECRETS = {
    "ksql.schema.registry.basic.auth.user.info": "u:hunter1",
    "ksql.streams.producer.sasl.jaas.config": "Module required password='hunter2';",
    "spark.hadoop.fs.s3a.secret.key": "hunter3",
}


def test_secrets_of_the_configuration_are_shown_to_nobody(tmp_path: Path) -> None:
    with service_in(tmp_path, properties={**SECRETS, "ksql.query.pull.max.qps": "900"}) as started:
        client = httpx.Client(base_url=f"http://{started.http_address}", timeout=60)
        ksql(client, "CREATE STREAM s (v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);")
        ksql(client, "SET 'auto.offset.reset'='earliest'; CREATE STREAM t AS SELECT * FROM s;")
        asked = "SHOW PROPERTIES; SHOW QUERIES EXTENDED; DESCRIBE t EXTENDED; EXPLAIN SELECT * FROM s EMIT CHANGES;"
        answer = ksql(client, asked)
        assert "hunter" not in answer.text
        properties, queries, *_ = answer.json()
        shown = {each["name"]: each["value"] for each in properties["properties"]}
        assert {shown[name] for name in SECRETS} == {"********"}
        overridden = queries["queryDescriptions"][0]["overriddenProperties"]
        assert overridden["auto.offset.reset"] == "earliest"
        assert not {"listeners", "ksql.query.pull.max.qps"} & overridden.keys()


CHANGES = (
    "CREATE STREAM st (id INT KEY, v INT) WITH (kafka_topic='st', value_format='JSON', partitions=1);",
    "CREATE STREAM st_2 AS SELECT * FROM st;",
    "ALTER STREAM st ADD COLUMN w INT;",
    "INSERT INTO st_2 SELECT id, v FROM st WHERE v > 1;",
    "PAUSE ALL;",
    "RESUME ALL;",
    "CREATE TYPE st_type AS STRUCT<a INT>;",
    "DROP TYPE st_type;",
    "TERMINATE ALL;",
    "DROP STREAM st_2;",
    "DROP STREAM IF EXISTS st_3;",
)


def test_every_command_is_known_by_the_id_of_its_answer(http: httpx.Client) -> None:
    for statement in CHANGES:
        (answer,) = http.post("/ksql", json={"ksql": statement}).json()
        assert http.get(f"/status/{answer['commandId']}").json() == answer["commandStatus"], statement
    assert http.get("/status").json()["commandStatuses"]["stream/`ST_2`/drop"] == "SUCCESS"


def test_too_many_push_queries_are_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    with service_in(tmp_path_factory.mktemp("few"), properties={"ksql.max.push.queries": "1"}) as service:
        with httpx.Client(base_url=f"http://{service.http_address}", timeout=60) as client:
            ksql(client, STREAM)
            body = {"sql": "SELECT v FROM s EMIT CHANGES;"}
            with client.stream("POST", "/query-stream", json=body) as response:
                lines = response.iter_lines()  # kept: httpx closes a response whose iterator is gone
                next(lines)
                assert client.post("/query-stream", json=body).json()["error_code"] == 40003


def test_garbage_on_the_socket_does_no_harm(service: Service, http: httpx.Client) -> None:
    at = (service.http_address.host, service.http_address.port)
    garbage = (
        b"\x00" * 100,
        b"\xff" * 100_000,
        b"GET / HTTP/9\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nhost: localhost\r\n\r\n",
        (
            b"POST /ksql HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
            b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
        ),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x01" * 50,
    )
    for sent in garbage:
        with socket.create_connection(at, timeout=60) as connection, contextlib.suppress(ConnectionError):
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
    assert http.get("/healthcheck").json()["isHealthy"] is True


def test_a_body_that_never_ends_is_given_up(
    service: Service, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    del http
    monkeypatch.setattr(http_requests, "BODY_SECONDS_MAX", 0.3)
    for path in ("/ksql", "/query", "/close-query"):
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n1\r\n \r\n"
        with socket.create_connection((service.http_address.host, service.http_address.port), timeout=60) as connection:
            connection.sendall(head.encode())
            received = connection.makefile("rb").read()
        assert b"HTTP/1.1 408" in received
        assert b'"error_code":40800' in received


def test_a_client_that_takes_nothing_for_too_long_loses_its_query(
    http: httpx.Client, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_queries, "STALL_SECONDS_MAX", 0.3)
    ksql(http, "CREATE STREAM big (id INT KEY, t STRING) WITH (kafka_topic='big', value_format='JSON', partitions=1);")
    ksql(http, "".join(f"INSERT INTO big VALUES ({n}, LPAD('x', 200000, 'y'));" for n in range(100)))
    body = json.dumps({"sql": "SELECT t FROM big EMIT CHANGES;", "properties": EARLIEST}).encode()
    head = f"POST /query-stream HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection((service.http_address.host, service.http_address.port)) as connection:
        connection.sendall(head + body)
        eventually(push_threads)
        eventually(lambda: not push_threads())


def test_a_client_that_does_not_read_slows_its_query_down_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with service_in(tmp_path_factory.mktemp("slow")) as service:
        with httpx.Client(base_url=f"http://{service.http_address}", timeout=60) as client:
            ksql(
                client,
                "CREATE STREAM wide (id INT KEY, t STRING) WITH (kafka_topic='w', value_format='JSON', partitions=1);",
            )
            ksql(client, "".join(f"INSERT INTO wide VALUES ({n}, LPAD('x', 100000, 'y'));" for n in range(150)))
            query = {"sql": "SELECT t FROM wide EMIT CHANGES;", "properties": EARLIEST}
            with client.stream("POST", "/query-stream", json=query) as response:
                lines = response.iter_lines()
                next(lines)
                assert ksql(client, "SHOW STREAMS;").status_code == 200
                assert sum(len(next(lines)) for _ in range(150)) > 15_000_000
