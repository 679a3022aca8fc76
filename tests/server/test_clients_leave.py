"""Work for a client that has gone away ends, also while it is inside DuckDB or inside a Python function."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from urllib.parse import quote

import h2.config
import h2.connection
import pytest
from running_server import service_in
from waiting import eventually
from web_socket import WebSocketClient

from millstream.server.client import connect
from millstream.server.config.configuration import ListenAddress
from millstream.server.service import Service

SETTINGS = {
    "millstream.pull.full.sql": "true",
    "millstream.query.pull.max.seconds": "3600",
    "millstream.functions.max.seconds": "3600",
    "millstream.functions.python.enabled": "true",
}
STATEMENTS = """
CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);
CREATE FUNCTION forever(a INT) RETURNS INT LANGUAGE PYTHON AS $$
  while True:
    a += 1
  return a
$$;
"""
ROWS = ", ".join(f"({number}, {number % 7})" for number in range(200))
_PAIRS = " ".join(f"JOIN s s{number} WITHIN 1 DAY ON s.v - s.v = s{number}.v - s{number}.v" for number in range(6))
ENDLESS = {
    "DuckDB": f"SELECT COUNT(*) FROM s {_PAIRS};",
    "a user's function": "SELECT forever(v) FROM s;",
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_in(tmp_path_factory.mktemp("data"), properties=SETTINGS) as running:
        client = connect(f"http://{running.http_address}")
        client.execute(STATEMENTS)
        client.execute(f"INSERT INTO s VALUES {ROWS};")
        yield running


def _works() -> bool:
    """Whether a thread of the server is busy with a query for a client, or with a user's function."""
    frames = sys._current_frames()
    stacks = [_functions(frames.get(thread.ident or 0)) for thread in threading.enumerate()]
    return any("start_rows" in stack for stack in stacks) or _is_inside("a user's function")


def _is_inside(place: str) -> bool:
    if place == "a user's function":
        return any(thread.name == "user-function" for thread in threading.enumerate())
    stacks = [_functions(frame) for frame in sys._current_frames().values()]
    return any({"start_rows", "execute"} <= stack for stack in stacks)


def _functions(frame: FrameType | None) -> set[str]:
    """The names of all that are under way."""
    found: set[str] = set()
    while frame is not None:
        found.add(frame.f_code.co_name)
        frame = frame.f_back
    return found


def _pushes() -> bool:
    """Whether a batch of a push query is computed."""
    stacks = [_functions(frame) for frame in sys._current_frames().values()]
    return any({"poll", "process"} <= stack for stack in stacks)


def leaves_http1(address: ListenAddress, query: str, reset: str = "earliest") -> Callable[[], object]:
    """Sends the query; what it gives ends the connection."""
    body = json.dumps({"sql": query, "properties": {"auto.offset.reset": reset}}).encode()
    connection = socket.create_connection((address.host, address.port), timeout=60)
    head = "POST /query-stream HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    return connection.close


def leaves_http2(address: ListenAddress, query: str) -> Callable[[], object]:
    """The same; what it gives takes the request back, and keeps the connection."""
    body = json.dumps({"sql": query}).encode()
    connection = socket.create_connection((address.host, address.port), timeout=60)
    spoken = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    spoken.initiate_connection()
    headers = [(":method", "POST"), (":scheme", "http"), (":authority", "localhost"), (":path", "/query-stream")]
    spoken.send_headers(1, [*headers, ("content-type", "application/json")])
    spoken.send_data(1, body, end_stream=True)
    connection.sendall(spoken.data_to_send())

    def reset() -> socket.socket:
        spoken.reset_stream(1)
        connection.sendall(spoken.data_to_send())
        return connection

    return reset


def leaves_socket(address: ListenAddress, query: str) -> Callable[[], object]:
    request = quote(json.dumps({"ksql": query}))
    opened = WebSocketClient(address.host, address.port, f"/ws/query?request={request}", {})
    return lambda: opened.__exit__(None, None, None)


@pytest.mark.parametrize("place", ENDLESS)
@pytest.mark.parametrize("ask", [leaves_http1, leaves_http2, leaves_socket], ids=["HTTP/1.1", "HTTP/2", "web socket"])
def test_a_pull_query_ends_when_its_client_goes(
    service: Service, ask: Callable[[ListenAddress, str], Callable[[], object]], place: str
) -> None:
    leave = ask(service.http_address, ENDLESS[place])
    eventually(lambda: _is_inside(place), 30)
    kept = leave()
    eventually(lambda: not _works(), 40)
    if isinstance(kept, socket.socket):
        kept.close()


@pytest.mark.parametrize("reads", ["alone", "with others"])
def test_the_batch_of_a_push_query_ends_when_its_last_client_goes(service: Service, reads: str) -> None:
    reset = "earliest" if reads == "alone" else "latest"
    leave = leaves_http1(service.http_address, "SELECT forever(v) FROM s EMIT CHANGES;", reset)
    if reads == "with others":
        eventually(lambda: len(_feeds()) == 1, 30)
        connect(f"http://{service.http_address}").execute("INSERT INTO s VALUES (1, 1), (2, 2);")
    eventually(_pushes, 30)
    leave()
    eventually(lambda: not _pushes() and not _feeds(), 40)


def _feeds() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "millstream-feed"]


_ASKED = b"GET /healthcheck HTTP/1.1\r\nhost: localhost\r\n\r\n"


@pytest.mark.parametrize("requests", [1, 3])
def test_a_client_that_sends_nothing_more_gets_its_answers_and_the_end(service: Service, requests: int) -> None:
    """It has closed its half before the first answer began; the connection stayed for the minute of keep-alive."""
    with socket.create_connection((service.http_address.host, service.http_address.port), timeout=30) as client:
        client.sendall(_ASKED * requests)
        client.shutdown(socket.SHUT_WR)
        received = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert received.count(b"HTTP/1.1 200 OK") == requests
