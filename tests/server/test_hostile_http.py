"""Requests that try to confuse, exhaust or outstay: each is refused with a code, and the server goes on."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
from collections.abc import Iterator

import h2.config
import h2.connection
import httpx
import pytest
from readiness import is_readable, readable_and_writable
from running_server import service_in
from waiting import eventually

from millstream.server.service import Service


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_in(tmp_path_factory.mktemp("data")) as started:
        yield started


@pytest.fixture
def http(service: Service) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{service.http_address}", timeout=60) as client:
        yield client
        assert client.get("/healthcheck").json()["isHealthy"] is True


def said(service: Service, request: bytes, *, to_end: bool = True) -> bytes:
    """All that comes back; `to_end`: until the server closes."""
    with socket.create_connection((service.http_address.host, service.http_address.port), timeout=60) as connection:
        connection.sendall(request)
        answer = b""
        while more := connection.recv(65536):
            answer += more
            if not to_end:
                break
        return answer


STATEMENT = b'{"ksql": "SHOW STREAMS;"}'
HEAD = b"POST /ksql HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


@pytest.mark.parametrize(
    "headers",
    [
        b"content-length: 25\r\ncontent-length: 3\r\n",
        b"content-length: 25\r\ncontent-length: 25\r\nx: y\r\ntransfer-encoding: identity\r\n",
        b"transfer-encoding: gzip, chunked\r\n",
        b"transfer-encoding : chunked\r\n",
        b"content-length: -1\r\n",
        b"content-length: +25\r\n",
        b"content-length: 0x19\r\n",
        b"x: a\r\n folded\r\n\x00: b\r\n",
    ],
)
def test_two_ways_to_read_a_length_are_none(service: Service, http: httpx.Client, headers: bytes) -> None:
    answer = said(service, HEAD + headers + b"\r\n" + STATEMENT)
    assert answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 501"))
    assert answer.count(b"HTTP/1.1 ") == 1


def test_a_second_request_cannot_hide_in_the_body_of_the_first(service: Service, http: httpx.Client) -> None:
    hidden = b"GET /v1/metadata/id HTTP/1.1\r\nhost: localhost\r\n\r\n"
    chunked = HEAD + b"content-length: 4\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n0\r\n\r\n" + hidden
    assert b"kafka-cluster" not in said(service, chunked)


@pytest.mark.parametrize(
    "path",
    ["/../etc/passwd", "/..%2f..%2fetc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/\x00", "/%00",
     "/status/../../etc/passwd/x", "/v1/sources/..%2f..%2fetc%2fpasswd/rows", "/openapi.json%00.html",
     "/is_valid_property/..%2f..%2fetc%2fpasswd"],
)  # fmt: skip
def test_a_path_leads_to_a_route_or_nowhere(service: Service, http: httpx.Client, path: str) -> None:
    answer = said(service, f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode("latin-1"))
    assert b"root:" not in answer
    assert answer.startswith(b"HTTP/1.1 4")


def test_too_many_and_too_large_headers_are_refused(service: Service, http: httpx.Client) -> None:
    many = b"".join(b"x%d: y\r\n" % number for number in range(101))
    large = b"x: " + b"y" * (1 << 15) + b"\r\n"
    for headers, status in ((many, b"HTTP/1.1 431"), (large, b"HTTP/1.1 4")):
        request = b"GET /info HTTP/1.1\r\nhost: localhost\r\n" + headers + b"\r\n"
        assert said(service, request, to_end=False).startswith(status)


def test_a_body_without_an_end_is_cut_off_at_its_most(service: Service, http: httpx.Client) -> None:
    with socket.create_connection((service.http_address.host, service.http_address.port), timeout=60) as connection:
        connection.sendall(HEAD + b"transfer-encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        connection.setblocking(False)
        sent, answer = 0, b""
        while sent < 2_000 and not answer.startswith(b"HTTP/1.1 413"):
            readable, writable = readable_and_writable(connection, 10)
            if readable:
                answer += connection.recv(65536)
            elif writable:
                with contextlib.suppress(BrokenPipeError):  # the answer is there, and nothing more is read
                    connection.send(chunk)
                sent += 1
        assert answer.startswith(b"HTTP/1.1 413")
        assert sent < 1_000  # of which the system's buffers hold most, while the server is busy elsewhere


def test_a_body_that_unpacks_to_a_thousand_times_its_size_is_not_unpacked(http: httpx.Client) -> None:
    body = gzip.compress(b" " * 50_000_000)
    headers = {"content-encoding": "gzip", "content-type": "application/json"}
    refused = http.post("/ksql", content=body, headers=headers)
    assert (refused.status_code, refused.json()["error_code"]) == (415, 41500)


@pytest.mark.parametrize("depth", [100, 2_000, 100_000])
def test_json_however_deep_is_read_or_refused(http: httpx.Client, depth: int) -> None:
    for body in ("[" * depth + "]" * depth, '{"ksql":' * depth + "1" + "}" * depth, "[" * depth):
        refused = http.post("/ksql", content=body, headers={"content-type": "application/json"})
        assert (refused.status_code, refused.json()["error_code"]) == (400, 40000)


def test_pages_of_other_origins_can_neither_ask_nor_read(http: httpx.Client) -> None:
    for headers in ({"origin": "http://evil.example"}, {"origin": "null"}, {"content-type": "text/plain"}):
        refused = http.post("/ksql", content=STATEMENT, headers=headers)
        assert refused.status_code in (403, 415)
        assert not [name for name in refused.headers if name.startswith("access-control")]
    preflight = http.options("/ksql", headers={"origin": "http://a.example", "access-control-request-method": "POST"})
    assert preflight.status_code == 405
    assert not [name for name in preflight.headers if name.startswith("access-control")]


def test_errors_show_neither_stacks_nor_paths(http: httpx.Client) -> None:
    for body in (
        b"\xff\xfe",
        b"{",
        b'{"ksql": "\\ud800"}',
        b'{"ksql": 1e999999}',
        json.dumps({"ksql": "SELECT \x00"}).encode(),
    ):
        refused = http.post("/ksql", content=body, headers={"content-type": "application/json"})
        assert refused.status_code == 400
        assert not any(word in refused.text for word in ("Traceback", ".py", "site-packages", "/work", "/tmp"))


def test_streams_that_are_taken_back_at_once_end_their_connection(service: Service, http: httpx.Client) -> None:
    with socket.create_connection((service.http_address.host, service.http_address.port), timeout=60) as connection:
        client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        client.initiate_connection()
        headers = [(":method", "GET"), (":path", "/info"), (":scheme", "http"), (":authority", "x")]
        connection.settimeout(5)
        ended = False
        try:
            for number in range(3_000):
                client.send_headers(2 * number + 1, headers, end_stream=True)
                client.reset_stream(2 * number + 1)
                connection.sendall(client.data_to_send())
            while connection.recv(65536):
                pass
            ended = True
        except (BrokenPipeError, ConnectionResetError):
            ended = True
        assert ended
    eventually(lambda: http.get("/healthcheck").status_code == 200)


ANSWERED_UNREAD = pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"POST /info/", b"307"),
        (b"POST /nowhere", b"404"),
        (b"DELETE /ksql", b"405"),
        (b"GET /info", b"200"),
        (b"HEAD /topics", b"200"),
        (b"POST /topics/nothing/partitions/0", b"4"),
    ],
)


@ANSWERED_UNREAD
def test_a_body_that_nobody_reads_ends_no_connection(service: Service, line: bytes, status: bytes) -> None:
    head = line + b" HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n"
    with socket.create_connection((service.http_address.host, service.http_address.port), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(head)
        is_readable(connection, 0.1)
        connection.sendall(b"0123456789")
        assert connection.recv(65536).startswith(b"HTTP/1.1 " + status)
        connection.sendall(b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        rest = b"".join(iter(lambda: connection.recv(65536), b""))
        assert rest.count(b"HTTP/1.1 200") == 1


@ANSWERED_UNREAD
def test_a_connection_whose_request_is_not_read_to_its_end_says_that_it_closes(
    service: Service, line: bytes, status: bytes
) -> None:
    head = line + b" HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000000\r\n\r\n"
    for body in (b"", bytes(200_000)):
        answer = said(service, head + body)
        assert answer.startswith(b"HTTP/1.1 " + status)
        assert b"\r\nconnection: close\r\n" in answer.partition(b"\r\n\r\n")[0] + b"\r\n"
