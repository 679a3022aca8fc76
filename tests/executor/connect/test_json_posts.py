"""Requests over a connection that the server closes: between two requests, and before it has read one."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Generator

import pytest

from millstream.executor.connect.connector_errors import InvalidConnector, SystemUnavailable
from millstream.executor.connect.sinks.json_posts import HttpDatabase

Serve = Callable[[socket.socket, int], None]


@contextlib.contextmanager
def closing_server(serve: Serve) -> Generator[str]:
    """In: `serve`: is given each connection and its number, and closes it by returning."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        for number in range(1000):
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                serve(connection, number)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def answer(connection: socket.socket, status: str = "200 OK") -> None:
    connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok".encode())


def test_a_connection_that_the_server_has_closed_is_opened_again() -> None:
    seen: list[int] = []

    def serve(connection: socket.socket, number: int) -> None:
        connection.recv(65536)
        seen.append(number)
        answer(connection)

    with closing_server(serve) as url:
        database = HttpDatabase([url], "connection.url", {}, 5)
        for _ in range(3):
            assert database.request("POST", "/", b"x").content == b"ok"
        database.close()
    assert seen == [0, 1, 2]


def test_a_new_connection_that_is_closed_without_an_answer_is_an_error() -> None:
    seen: list[int] = []

    def serve(connection: socket.socket, number: int) -> None:
        connection.recv(65536)
        seen.append(number)

    with closing_server(serve) as url:
        database = HttpDatabase([url], "connection.url", {}, 5)
        with pytest.raises(SystemUnavailable, match="does not answer"):
            database.request("POST", "/", b"x")
    assert seen == [0]


def test_an_answer_that_comes_before_the_body_is_read_counts() -> None:
    def serve(connection: socket.socket, number: int) -> None:
        del number
        connection.recv(1000)
        answer(connection, "413 Too Large")

    with closing_server(serve) as url:
        database = HttpDatabase([url], "connection.url", {}, 5)
        for _ in range(3):
            assert database.request("POST", "/", b"x" * 30_000_000).status == 413
        database.close()


def test_headers_are_utf_8_and_have_no_line_ends() -> None:
    heads: list[bytes] = []

    def serve(connection: socket.socket, number: int) -> None:
        del number
        heads.append(connection.recv(65536))
        answer(connection)

    with closing_server(serve) as url:
        HttpDatabase([url], "connection.url", {"X-Key": "pässwörd€"}, 5).request("POST", "/", b"x")
    assert "X-Key: pässwörd€\r\n".encode() in heads[0]
    with pytest.raises(InvalidConnector, match="must be printable") as refused:
        HttpDatabase(["http://127.0.0.1:1"], "connection.url", {"X-Key": "hunter2\nhunter2"}, 5)
    assert "hunter2" not in str(refused.value)
