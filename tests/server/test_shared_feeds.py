"""Push queries that ask the same share what is read: each client gets what it would have got alone."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator

import httpx
import pytest
from running_server import service_in
from waiting import eventually

from millstream.server.engine import shared_stream
from millstream.server.service import Service

DDL = """
CREATE TABLE feed (id INT PRIMARY KEY, n BIGINT) WITH (kafka_topic='feed', value_format='JSON', partitions=2);
CREATE STREAM s (id INT KEY, n BIGINT) WITH (kafka_topic='s', value_format='JSON', partitions=1);
"""


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_in(tmp_path_factory.mktemp("data"), properties={"ksql.max.push.queries": "100"}) as started:
        yield started


@pytest.fixture
def http(service: Service) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{service.http_address}", timeout=60) as client:
        assert client.post("/ksql", json={"ksql": DDL}).status_code == 200
        yield client


def feed_threads() -> int:
    return sum(thread.name == "millstream-feed" for thread in threading.enumerate())


def insert(http: httpx.Client, target: str, numbers: range) -> None:
    rows = b"".join(b'{"ID":%d,"N":%d}\n' % (number % 7, number) for number in numbers)
    answer = http.post("/inserts-stream", content=b'{"target":"%b"}\n' % target.encode() + rows)
    assert answer.text.count('"ok"') == len(numbers)


class Client(threading.Thread):
    """Takes rows until it has so many, or the stream ends."""

    def __init__(self, http: httpx.Client, sql: str, rows: int, reset: str = "latest", accept: str = "*/*") -> None:
        super().__init__(daemon=True)
        self.rows: list[list[int]] = []
        self.began = threading.Event()
        self._http, self._count, self._headers = http, rows, {"accept": accept}
        self._body = {"sql": sql, "properties": {"auto.offset.reset": reset}}
        self.start()
        assert self.began.wait(60)

    def run(self) -> None:
        with self._http.stream("POST", "/query-stream", json=self._body, headers=self._headers) as response:
            rest = ""
            for text in response.iter_text():
                *lines, rest = (rest + text).split("\n")
                self.rows += [json.loads(f"[{line.strip('[],')}]") for line in lines if "queryId" not in line]
                self.began.set()
                if len(self.rows) + (rest.endswith("]") and "queryId" not in rest) >= self._count:
                    break
            if len(self.rows) < self._count and rest.strip("[],"):
                self.rows.append(json.loads(f"[{rest.strip('[],')}]"))


def numbers_of(client: Client) -> list[int]:
    client.join(60)
    return [row[-1] for row in client.rows]


def test_many_clients_of_one_query_have_one_feed_and_each_gets_every_row(http: httpx.Client) -> None:
    clients = [Client(http, "SELECT * FROM s EMIT CHANGES;", 30) for _ in range(8)]
    insert(http, "S", range(10))
    late = Client(http, "SELECT * FROM s EMIT CHANGES;", 20)
    assert feed_threads() == 1
    insert(http, "S", range(10, 20))
    insert(http, "S", range(20, 30))
    assert all(numbers_of(client) == list(range(30)) for client in clients)
    assert numbers_of(late) == list(range(10, 30))
    eventually(lambda: feed_threads() == 0)


def test_who_reads_from_the_start_gets_what_was_before_and_then_what_the_others_get(http: httpx.Client) -> None:
    insert(http, "FEED", range(50))
    first = Client(http, "SELECT * FROM feed EMIT CHANGES;", 20)
    whole = Client(http, "SELECT * FROM feed EMIT CHANGES;", 70, reset="earliest")
    assert feed_threads() == 1
    insert(http, "FEED", range(50, 70))
    assert sorted(numbers_of(first)) == list(range(50, 70))
    assert sorted(numbers_of(whole)) == list(range(70))


def test_formats_and_conditions_are_not_mixed_up(http: httpx.Client) -> None:
    plain = Client(http, "SELECT * FROM s EMIT CHANGES;", 10)
    array = Client(http, "SELECT * FROM s EMIT CHANGES;", 10, accept="application/json")
    some = Client(http, "SELECT * FROM s WHERE n > 4 EMIT CHANGES;", 5)
    grouped = Client(http, "SELECT id, COUNT(*) AS c FROM s WHERE id = 0 GROUP BY id EMIT CHANGES;", 1)
    insert(http, "S", range(10))
    assert numbers_of(plain) == numbers_of(array) == list(range(10))
    assert numbers_of(some) == list(range(5, 10))
    assert len(numbers_of(grouped)) == 1


def test_a_client_that_stalls_reads_alone_and_misses_nothing(
    service: Service, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_stream, "BUFFER_BYTES_MAX", 10_000)
    monkeypatch.setattr(shared_stream, "_WRITTEN_AHEAD_MAX", 1_000)
    rows, wide = 400, "x" * 20_000
    http.post("/ksql", json={"ksql": DDL.replace(" s ", " w ").replace("'s'", "'w'").split(";")[1] + ";"})
    body = json.dumps({"sql": f"SELECT n, '{wide}' AS w FROM w EMIT CHANGES;"}).encode()
    with socket.create_connection((service.http_address.host, service.http_address.port), timeout=60) as stalled:
        head = f"POST /query-stream HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        stalled.sendall(head.encode() + body)
        received = stalled.recv(100_000)
        quick = Client(http, "SELECT * FROM w EMIT CHANGES;", rows)
        for begin in range(0, rows, 50):
            insert(http, "W", range(begin, begin + 50))
        assert numbers_of(quick) == list(range(rows))  # meanwhile the other one takes nothing
        while received.count(wide.encode()) < rows + 0 and (more := stalled.recv(1 << 20)):
            received += more
            if received.endswith(b'"]\n\r\n') and f"[{rows - 1},".encode() in received:
                break
    assert [number for number in range(rows) if f"[{number},".encode() not in received] == []


def test_close_query_ends_one_client_of_a_feed_and_not_the_others(http: httpx.Client) -> None:
    other = Client(http, "SELECT * FROM s EMIT CHANGES;", 3)
    with http.stream("POST", "/query-stream", json={"sql": "SELECT * FROM s EMIT CHANGES;"}) as response:
        lines = response.iter_lines()
        query_id = json.loads(next(lines))["queryId"]
        insert(http, "S", range(1))
        assert next(lines) == "[0,0]"
        assert http.post("/close-query", json={"queryId": query_id}).status_code == 200
        assert list(lines) == []
    insert(http, "S", range(1, 3))
    assert numbers_of(other) == [0, 1, 2]


def test_a_topic_that_goes_ends_all_clients_with_an_error(http: httpx.Client) -> None:
    clients = [Client(http, "SELECT * FROM s EMIT CHANGES;", 3) for _ in range(2)]
    insert(http, "S", range(1))
    assert http.post("/ksql", json={"ksql": "DROP STREAM s DELETE TOPIC;"}).status_code == 200
    for client in clients:
        client.join(60)
        assert not client.is_alive()
