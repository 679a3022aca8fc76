"""The push queries of clients in SHOW QUERIES, EXPLAIN and TERMINATE."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Generator, Iterator
from typing import Any
from urllib.parse import quote

import httpx
import psycopg
import pyarrow as pa
import pytest
from running_server import service_in
from waiting import eventually, once
from web_socket import WebSocketClient

from millstream.repl.text.entity_text import entity_lines, entity_table
from millstream.server.security.access import hash_token
from millstream.server.service import Service

SQL = "SELECT V FROM S WHERE V > 0 EMIT CHANGES;"
DDL = """
CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);
CREATE STREAM kept AS SELECT * FROM s;
"""
ACCESS = {
    "users": {
        name: {"tokens": [hash_token(name)], "roles": [role]}
        for name, role in (("ana", "reads"), ("bo", "reads"), ("root", "all"))
    },
    "roles": {"reads": {"read": ["s"]}, "all": {"admin": True}},
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_in(tmp_path_factory.mktemp("data"), pg="127.0.0.1:0") as started:
        with client_of(started) as http:
            assert http.post("/ksql", json={"ksql": DDL}).status_code == 200
        yield started


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A server with users."""
    with service_in(tmp_path_factory.mktemp("data"), access=ACCESS) as started:
        with client_of(started, "root") as root:
            assert root.post("/ksql", json={"ksql": DDL}).status_code == 200
        yield started


@pytest.fixture
def http(service: Service) -> Iterator[httpx.Client]:
    with client_of(service) as client:
        eventually(lambda: not pushes(client), otherwise="a query of another test goes on")
        yield client


def client_of(service: Service, user: str | None = None) -> httpx.Client:
    headers = {} if user is None else {"authorization": f"Bearer {user}"}
    return httpx.Client(base_url=f"http://{service.http_address}", timeout=60, headers=headers)


def run(http: httpx.Client, text: str) -> list[dict[str, Any]]:
    answer = http.post("/ksql", json={"ksql": text})
    assert answer.status_code == 200, answer.text
    entities: list[dict[str, Any]] = answer.json()
    return entities


def refusal(http: httpx.Client, text: str) -> str:
    answer = http.post("/ksql", json={"ksql": text})
    assert answer.status_code >= 400, answer.text
    return str(answer.json()["message"])


def pushes(http: httpx.Client) -> list[dict[str, Any]]:
    return [line for line in run(http, "SHOW QUERIES;")[0]["queries"] if line["queryType"] != "PERSISTENT"]


@contextlib.contextmanager
def opened(http: httpx.Client, sql: str = SQL, accept: str = "*/*") -> Generator[httpx.Response]:
    """A push query that runs."""
    with http.stream("POST", "/query-stream", json={"sql": sql}, headers={"accept": accept}) as response:
        assert response.status_code == 200, response.read()
        yield response


def test_a_push_query_is_listed_while_it_runs(http: httpx.Client) -> None:
    with opened(http) as response:
        lines = response.iter_lines()
        query_id = json.loads(next(lines))["queryId"]
        (shown,) = run(http, "SHOW QUERIES;")
        persistent, push = shown["queries"]
        assert (persistent["sinks"], persistent["queryType"]) == (["KEPT"], "PERSISTENT")
        assert push == {
            "queryString": SQL,
            "sinks": [],
            "sinkKafkaTopics": [],
            "id": query_id,
            "statusCount": {"RUNNING": 1},
            "queryType": "PUSH",
            "state": "RUNNING",
            "executor": None,
            "detail": None,
        }
        titles, (_, row) = entity_table(shown) or ((), ((), ()))
        assert dict(zip(titles, row, strict=True)) == {
            "Query ID": query_id, "Type": "PUSH", "State": "RUNNING", "Executor": "", "Sink": "", "Topic": "",
            "Statement": SQL,
        }  # fmt: skip
    eventually(lambda: not pushes(http))
    assert "does not exist" in refusal(http, f"TERMINATE {query_id};")


def test_a_push_query_is_described(http: httpx.Client) -> None:
    with opened(http):
        (line,) = pushes(http)
        (one,) = run(http, f"EXPLAIN {line['id'].lower()};")
        (all_of_them,) = run(http, "SHOW QUERIES EXTENDED;")
        described = one["queryDescription"]
        assert all_of_them["queryDescriptions"][1] == described
        assert {
            name: described[name] for name in ("id", "statementText", "queryType", "state", "sources", "sinks")
        } == {
            "id": line["id"],
            "statementText": SQL,
            "queryType": "PUSH",
            "state": "RUNNING",
            "sources": ["S"],
            "sinks": [],
        }
        assert [field["name"] for field in described["fields"]] == ["V"]
        assert "FILTER COALESCE(v0 > 0, FALSE)" in described["executionPlan"]
        text = "\n".join(entity_lines(one, 100))
        assert "Type      : PUSH" in text
        assert "None" not in text


def test_what_only_persistent_queries_can_do_says_so(http: httpx.Client) -> None:
    with opened(http):
        (line,) = pushes(http)
        for asked in ("PAUSE {};", "RESUME {};", "RESET {};", "EXPLAIN STALL {};"):
            assert f"{line['id']} is a push query" in refusal(http, asked.format(line["id"]))
        assert [each["id"] for each in pushes(http)] == [line["id"]]


def test_terminate_all_ends_no_push_query(http: httpx.Client) -> None:
    with opened(http):
        (line,) = pushes(http)
        run(http, "TERMINATE ALL;")
        assert run(http, "SHOW QUERIES;")[0]["queries"] == [line]
    run(http, "DROP STREAM kept; CREATE STREAM kept AS SELECT * FROM s;")


LAST_OF_STREAMED = {"finalMessage": "Query Terminated"}


@pytest.mark.parametrize(
    ("accept", "rows_of"),
    [
        ("application/vnd.ksqlapi.delimited.v1", lambda body: [json.loads(line) for line in body.splitlines()][1:]),
        ("application/json", lambda body: json.loads(body)[1:]),
        ("application/vnd.ksql.v1+json", lambda body: [row for row in json.loads(body)[1:] if row != LAST_OF_STREAMED]),
        ("application/x-ndjson", lambda body: [json.loads(line) for line in body.splitlines()]),
        ("application/vnd.apache.arrow.stream", lambda body: pa.ipc.open_stream(body).read_all().to_pylist()),
    ],
)
def test_the_answer_of_a_terminated_push_query_is_whole(
    http: httpx.Client, accept: str, rows_of: Callable[[bytes], list[object]]
) -> None:
    with opened(http, accept=accept) as response:
        (line,) = pushes(http)
        (status,) = run(http, f"TERMINATE {line['id']};")
        assert status["commandId"] == f"terminate/{line['id']}/execute"
        assert status["commandStatus"]["message"] == "Query terminated."
        assert pushes(http) == []
        assert rows_of(response.read()) == []


def test_a_push_query_of_a_web_socket_is_terminated(service: Service, http: httpx.Client) -> None:
    address, request = service.http_address, quote(json.dumps({"ksql": SQL}))
    with WebSocketClient(address.host, address.port, f"/ws/query?request={request}", {}) as opened:
        (line,) = eventually(lambda: pushes(http))
        run(http, f"TERMINATE {line['id']};")
        *_, code = opened.messages()
        assert code == 1000


def test_a_push_query_of_a_postgresql_client_is_terminated(service: Service, http: httpx.Client) -> None:
    assert service.pg_address is not None
    address = f"host=127.0.0.1 port={service.pg_address.port} user=ana dbname=millstream connect_timeout=30"
    with psycopg.connect(address, autocommit=True) as connection:
        once(lambda: pushes(http), lambda: run(http, f"TERMINATE {pushes(http)[0]['id']};"))
        assert connection.execute(SQL.encode()).fetchall() == []
        assert pushes(http) == []


def test_a_print_is_listed_and_terminated(http: httpx.Client) -> None:
    with opened(http, "PRINT 's';") as response:
        (line,) = pushes(http)
        assert line["queryString"] == "PRINT 's';"
        run(http, f"EXPLAIN {line['id']}; TERMINATE {line['id']};")
        assert pushes(http) == []
        response.read()


def test_a_push_query_is_shown_to_its_user_and_to_administrators(guarded: Service) -> None:
    with (
        client_of(guarded, "ana") as ana, client_of(guarded, "bo") as bo, client_of(guarded, "root") as root,
        opened(ana) as response,
    ):  # fmt: skip
        (line,) = pushes(ana)
        assert (pushes(bo), pushes(root)) == ([], [line])
        assert run(bo, "SHOW QUERIES EXTENDED;")[0]["queryDescriptions"] == []
        for asked in ("TERMINATE {};", "PAUSE {};", "EXPLAIN {};", "EXPLAIN STALL {};"):
            told = refusal(bo, asked.format(line["id"]))
            assert told == f"there is no query {line['id']} that bo may see"
            assert told == refusal(bo, asked.format("NONE")).replace("NONE", line["id"])
        assert "is a push query" in refusal(ana, f"PAUSE {line['id']};")
        run(ana, f"EXPLAIN {line['id']}; TERMINATE {line['id']};")
        assert (pushes(ana), pushes(root)) == ([], [])
        response.read()


def test_an_administrator_ends_the_push_query_of_another(guarded: Service) -> None:
    with client_of(guarded, "ana") as ana, client_of(guarded, "root") as root, opened(ana) as response:
        (line,) = pushes(root)
        run(root, f"TERMINATE {line['id']};")
        assert response.read().count(b"\n") == 1
        assert pushes(ana) == []
