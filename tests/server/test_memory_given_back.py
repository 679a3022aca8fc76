"""What a query holds for its client is given back when the client leaves, however much of the answer is left."""

from __future__ import annotations

import functools
import json
import socket
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakSet

import pyarrow as pa
import pytest
from running_server import eventually, service_in

from millstream.executor.answers.pull_query import PullQuery
from millstream.server.client import connect
from millstream.server.config.configuration import ListenAddress
from millstream.server.engine.row_stream import RowStream
from millstream.server.service import Service

ROWS, ROW_BYTES = 400, 64 * 1024
SMALL = ROWS * ROW_BYTES // 8
QUERIES = {
    "rows as they are": "SELECT id, v FROM big;",
    "rows that are computed": "SELECT id, UCASE(v) AS v FROM big WHERE LEN(v) > id;",
    "a sorted answer": "SELECT id, v FROM big ORDER BY v DESC, id;",
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    properties = {"millstream.pull.full.sql": "true"}
    with service_in(tmp_path_factory.mktemp("data"), properties=properties) as running:
        client = connect(f"http://{running.http_address}")
        client.execute(
            "CREATE STREAM big (id INT KEY, v STRING) WITH (kafka_topic='big', value_format='JSON', partitions=1);"
        )
        client.insert("BIG", pa.table({"ID": range(ROWS), "V": [chr(97 + i % 26) * ROW_BYTES for i in range(ROWS)]}))
        yield running


@pytest.fixture(scope="module", autouse=True)
def held() -> Iterator[Callable[[], tuple[int, int]]]:
    """The objects that answer clients, and the bytes of Arrow's columns. Nothing waits for the collector of cycles: it
    comes when it likes, and to ask for it at each look takes minutes in a process that has run other tests."""
    alive: WeakSet[object] = WeakSet()
    with pytest.MonkeyPatch.context() as patch:
        for kind in (RowStream, PullQuery):
            patch.setattr(kind, "__init__", _noted(kind.__init__, alive))
        yield lambda: (len(alive), pa.total_allocated_bytes())


def _noted(make: Callable[..., None], alive: WeakSet[object]) -> Callable[..., None]:
    @functools.wraps(make)
    def made(self: object, *arguments: Any, **named: Any) -> None:
        alive.add(self)
        make(self, *arguments, **named)

    return made


def _ask(address: ListenAddress, query: str) -> socket.socket:
    """A client that has begun to read its answer."""
    body = json.dumps({"sql": query}).encode()
    connection = socket.create_connection((address.host, address.port), timeout=60)
    head = "POST /query-stream HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    got = b""
    while len(got) < 4 * ROW_BYTES:
        part = connection.recv(65_536)
        assert part, got[:500]
        got += part
    return connection


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_a_client_that_leaves_takes_its_memory_along(
    service: Service, query: str, held: Callable[[], tuple[int, int]]
) -> None:
    _ask(service.http_address, query).close()  # what is made once for all clients
    eventually(lambda: held()[0] == 0, 60)
    before = held()[1]
    for _ in range(2):
        with _ask(service.http_address, query):
            assert held()[0] > 0, "the answer is not read to its end"
        eventually(lambda: held()[0] == 0 and held()[1] < before + SMALL, 60)
