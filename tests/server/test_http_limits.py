"""What one client, one address and all of them together may take, and who is known by a certificate."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from running_server import service_in
from waiting import eventually
from web_socket import WebSocketClient

from millstream.server.config.server_settings import PullGateSettings
from millstream.server.engine.query_limits import PullGate
from millstream.server.http import connections as http_connections
from millstream.server.http.connections import certificate_names
from millstream.server.http.errors import RequestRefused
from millstream.server.security.access import AccessSettings, Authenticator
from millstream.server.service import Service

DDL = """
CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);
CREATE TABLE t AS SELECT id, COUNT(*) AS n FROM s GROUP BY id;
INSERT INTO s VALUES (1, 10); INSERT INTO s VALUES (2, 20); INSERT INTO s VALUES (1, 30);
"""
PUSH = {"sql": "SELECT id, v FROM s EMIT CHANGES;", "properties": {"auto.offset.reset": "earliest"}}
LOOKUP = {"sql": "SELECT n FROM t WHERE id = 1;"}


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@contextlib.contextmanager
def client_of(service: Service) -> Generator[httpx.Client]:
    with httpx.Client(base_url=f"http://{service.http_address}", timeout=60) as client:
        assert client.post("/ksql", json={"ksql": DDL}).status_code == 200
        yield client


def lines(response: httpx.Response) -> list[Any]:
    return [json.loads(line) for line in response.text.splitlines()]


def test_a_push_query_ends_after_its_rows(folder: Path) -> None:
    with (
        service_in(folder, properties={"millstream.query.push.max.rows": "2"}) as service,
        client_of(service) as client,
    ):
        header, *rows, last = lines(client.post("/query-stream", json=PUSH))
    assert header["columnNames"] == ["ID", "V"]
    assert rows == [[1, 10], [2, 20]]
    assert last["error_code"] == 40001
    assert "2 rows" in last["message"]


@pytest.mark.parametrize("sql", [PUSH["sql"], "SELECT id, COUNT(*) FROM s GROUP BY id EMIT CHANGES;"])
def test_a_push_query_ends_after_its_time_whether_it_is_shared_or_not(folder: Path, sql: str) -> None:
    properties = {"millstream.query.push.max.seconds": "0.5"}
    with service_in(folder, properties=properties) as service, client_of(service) as client:
        last = lines(client.post("/query-stream", json={**PUSH, "sql": sql}))[-1]
        eventually(lambda: 'client_queries{kind="push"} 0.0' in client.get("/metrics").text)
    assert last["error_code"] == 40001
    assert "0.5 seconds" in last["message"]


@pytest.mark.parametrize("sql", [LOOKUP["sql"], "SELECT * FROM s;"])
def test_pull_queries_have_a_rate(folder: Path, sql: str) -> None:
    properties = {"ksql.query.pull.max.qps": "0"}
    with service_in(folder, properties=properties) as service, client_of(service) as client:
        refused = client.post("/query-stream", json={"sql": sql})
    assert (refused.status_code, refused.json()["error_code"]) == (429, 42900)


def goodbye(service: Service, sql: str) -> tuple[list[Any], int, str]:
    """What comes over a web socket, and the code and the reason of its end."""
    request = quote(json.dumps({"ksql": sql, "streamsProperties": PUSH["properties"]}))
    address = service.http_address
    with WebSocketClient(address.host, address.port, f"/ws/query?request={request}", {}) as opened:
        *messages, code = list(opened.messages())
    return [json.loads(str(each)) for each in messages], int(code), opened.reason


def test_a_push_query_over_a_web_socket_ends_after_its_time(folder: Path) -> None:
    properties = {"millstream.query.push.max.seconds": "0.5"}
    with service_in(folder, properties=properties) as service, client_of(service) as client:
        messages, code, reason = goodbye(service, str(PUSH["sql"]))
        eventually(lambda: 'client_queries{kind="push"} 0.0' in client.get("/metrics").text)
    assert [each["row"]["columns"] for each in messages[1:-1]] == [[1, 10], [2, 20], [1, 30]]
    assert code == 1011
    assert "0.5 seconds" in reason


def test_a_pull_query_over_a_web_socket_has_a_rate(folder: Path) -> None:
    properties = {"ksql.query.pull.max.qps": "0"}
    with service_in(folder, properties=properties) as service, client_of(service):
        messages, code, reason = goodbye(service, "SELECT * FROM s;")
    assert (messages, code) == ([], 1003)
    assert "within a second" in reason


def test_what_a_web_socket_takes_counts_for_the_hour(folder: Path) -> None:
    properties = {"ksql.query.pull.max.hourly.bandwidth.megabytes": "1"}
    with service_in(folder, properties=properties) as service, client_of(service) as client:
        client.post(
            "/ksql",
            json={"ksql": "CREATE STREAM w (v STRING) WITH (kafka_topic='w', value_format='JSON', partitions=1);"},
        )
        client.post(
            "/ksql",
            json={"ksql": f"INSERT INTO w VALUES ('{'x' * 600_000}'); INSERT INTO w VALUES ('{'x' * 400_000}');"},
        )
        messages, code, _ = goodbye(service, "SELECT * FROM w;")
        assert (len(messages), code) == (4, 1000)
        refused = client.post("/query-stream", json={"sql": "SELECT * FROM s;"})
    assert refused.status_code == 429


def test_pull_queries_have_seconds_hours_and_a_number_at_a_time() -> None:
    now = 0.0
    gate = PullGate(PullGateSettings(per_second=2, concurrent=1, bytes_per_hour=1_000_000), clock=lambda: now)
    with gate.admitted(), pytest.raises(RequestRefused, match="are running already"):
        gate._enter()
    with gate.admitted():
        pass
    with pytest.raises(RequestRefused, match="within a second"):
        gate._enter()
    now = 1.0
    gate.sent(1_000_000)
    with pytest.raises(RequestRefused, match="bandwidth limit of this hour"):
        gate._enter()
    now = 3600.0
    with gate.admitted():
        pass


def test_more_connections_than_there_may_be_are_turned_away_with_a_reason(folder: Path) -> None:
    with service_in(folder, connections_per_address_max=3) as service:
        address = (service.http_address.host, service.http_address.port)
        open_ones = [socket.create_connection(address, timeout=60) for _ in range(3)]
        with socket.create_connection(address, timeout=60) as late:
            late.sendall(b"GET /info HTTP/1.1\r\nhost: localhost\r\n\r\n")
            answer = late.makefile("rb").read()
            assert answer.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
            assert b'"error_code":42900' in answer
        for connection in open_ones:
            connection.close()
        eventually(lambda: httpx.get(f"http://{address[0]}:{address[1]}/livez").status_code == 200)


@pytest.mark.parametrize("begun", [b"GET /info HTT", b"POST /ksql HTTP/1.1\r\nhost: localhost\r\nx: "])
def test_headers_that_come_too_slowly_end_the_connection(
    folder: Path, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connections, "HEADER_SECONDS_MAX", 0.3)
    with service_in(folder) as service:
        with socket.create_connection((service.http_address.host, service.http_address.port), timeout=60) as slow:
            slow.sendall(begun)
            slow.settimeout(0.02)
            eventually(lambda: _has_ended(slow))


def _has_ended(connection: socket.socket) -> bool:
    """If not, one more byte is sent."""
    try:
        assert connection.recv(100) == b""
    except TimeoutError:
        connection.sendall(b"y")
        return False
    except ConnectionResetError:
        pass  # the last byte came too late
    return True


def test_a_status_line_names_its_reason(folder: Path) -> None:
    with service_in(folder) as service:
        with socket.create_connection((service.http_address.host, service.http_address.port), timeout=60) as client:
            client.sendall(b"GET http://elsewhere/livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert client.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_server_that_is_told_to_stop_ends_streams_properly(folder: Path) -> None:
    with service_in(folder) as service, client_of(service) as client:
        with client.stream(
            "POST", "/query", json={"ksql": PUSH["sql"], "streamsProperties": PUSH["properties"]}
        ) as rows:
            found = rows.iter_lines()
            assert "header" in next(found)
            service.stop()
            text = "".join(["[{},", *found])
    assert len(json.loads(text)) >= 2  # to its closing bracket


def test_a_certificates_names_are_those_of_its_subject_and_its_other_names() -> None:
    certificate = {"subject": ((("commonName", "ana"),),), "subjectAltName": (("URI", "spiffe://a/b"),)}
    names = certificate_names(certificate)
    settings = {
        "users": {"ana": {"certificates": ["URI:spiffe://a/b"], "roles": ["r"]}},
        "roles": {"r": {"admin": True}},
    }
    known = Authenticator(AccessSettings.model_validate(settings))
    found = known.certified(names)
    assert found is not None
    assert found.name == "ana"
    assert known.certified(("CN=ana",)) is None
    assert known.certified(()) is None
