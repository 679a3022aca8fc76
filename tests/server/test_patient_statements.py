"""ASSERT waits for what others do: however many of them wait, others are answered, and who has gone waits no longer."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from running_server import service_in
from waiting import eventually

from millstream.server.client import connect
from millstream.server.http.context import PATIENT, WORKERS
from millstream.server.service import Service

FOREVER = "ASSERT TOPIC nowhere TIMEOUT 1000 DAYS;"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with service_in(tmp_path / "data") as running:
        yield running


def ask(service: Service, text: str) -> socket.socket:
    """Sends a statement, and waits for nothing."""
    body = json.dumps({"ksql": text}).encode()
    connection = socket.create_connection((service.http_address.host, service.http_address.port), timeout=60)
    head = f"POST /ksql HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    connection.sendall(f"{head}\r\n\r\n".encode() + body)
    return connection


def waiting() -> int:
    """Threads that are in an assertion."""
    return sum(thread.name.startswith("millstream-patient") for thread in threading.enumerate())


@pytest.mark.parametrize("text", [FOREVER, f"SHOW TOPICS; /* then */ {FOREVER.lower()}"])
def test_statements_are_answered_while_many_wait(service: Service, text: str) -> None:
    with ExitStack() as kept:
        for _ in range(WORKERS + PATIENT):
            kept.enter_context(ask(service, text))
        eventually(lambda: waiting() == PATIENT)
        answered = ask(service, "SHOW TOPICS;")
        answered.settimeout(120)
        assert answered.recv(100).startswith(b"HTTP/1.1 200 ")
        answered.close()


def test_who_leaves_waits_no_longer(service: Service) -> None:
    with ExitStack() as kept:
        for _ in range(PATIENT):
            kept.enter_context(ask(service, FOREVER))
        eventually(lambda: waiting() == PATIENT)
    client = connect(f"http://{service.http_address}")
    client.execute("CREATE STREAM s (v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);")
    assert client.execute("ASSERT TOPIC s;")[0]["exists"]


def test_a_server_ends_while_a_statement_waits(service: Service) -> None:
    with ask(service, FOREVER) as connection:
        eventually(lambda: waiting() == 1)
        service.stop()
        assert waiting() == 0
        assert connection.recv(1000)[9:12] in (b"417", b"503")
