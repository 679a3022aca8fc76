"""POST /inserts-stream: rows in, acknowledgements out, at the same time; over HTTP/1.1 and HTTP/2."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest
from running_server import service_in
from waiting import eventually

from millstream.server.engine.session import Session
from millstream.server.http.context import Slots
from millstream.server.http.errors import RequestRefused
from millstream.server.service import Service

DDL = """
CREATE STREAM s (id INT KEY, v BIGINT, d DECIMAL(4, 2), b BYTES, t TIMESTAMP, a ARRAY<INT>, m MAP<STRING, INT>,
  r STRUCT<x INT, `y` STRING>, `low` STRING) WITH (kafka_topic='s', value_format='JSON', partitions=2);
CREATE TABLE k (id INT PRIMARY KEY, v INT) WITH (kafka_topic='k', value_format='JSON', partitions=1);
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_in(tmp_path_factory.mktemp("data")) as started:
        client = httpx.Client(base_url=f"http://{started.http_address}", timeout=60)
        assert client.post("/ksql", json={"ksql": DDL}).status_code == 200
        yield started


@pytest.fixture
def client(service: Service) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{service.http_address}", timeout=60) as opened:
        yield opened


def send(client: httpx.Client, *lines: Any, **headers: str) -> httpx.Response:
    body = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    return client.post("/inserts-stream", content=body, headers=headers)


def rows(client: httpx.Client, sql: str) -> list[Any]:
    lines = client.post("/query-stream", json={"sql": sql}).text.splitlines()
    return [json.loads(line) for line in lines[1:]]


def answers(response: httpx.Response) -> list[Any]:
    assert response.status_code == 200, response.text
    return [json.loads(line) for line in response.text.splitlines()]


def test_every_row_is_acknowledged_and_is_there(client: httpx.Client) -> None:
    row = {
        "id": 1, "V": 2, "`D`": "3.5", "b": "AAE=", "t": "2020-01-02T03:04:05Z", "a": [1, None], "m": {"k": 2},
        "r": {"x": 1, "`y`": "why"}, "`low`": "case", "unknown": 5,
    }  # fmt: skip
    response = send(client, {"target": "s"}, row, {"id": 2})
    assert response.headers["content-type"] == "application/vnd.ksqlapi.delimited.v1"
    assert answers(response) == [{"status": "ok", "seq": 0}, {"status": "ok", "seq": 1}]
    found = rows(client, "SELECT * FROM s WHERE id < 10;")
    assert [1, 2, 3.5, "AAE=", "2020-01-02T03:04:05.000", [1, None], {"k": 2}, {"X": 1, "y": "why"}, "case"] in found
    assert [2, *[None] * 8] in found


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"v": 1}, "Key field must be specified: ID"),
        ({"id": "x"}, "'x' is not INTEGER"),
        ({"id": 2**31}, "is not INTEGER"),
        ({"id": True}, "True is not INTEGER"),
        ({"id": 1, "d": 100}, "is not DECIMAL(4, 2)"),
        ({"id": 1, "d": "1e999999999"}, "is not DECIMAL(4, 2)"),
        ({"id": 1, "b": "?"}, "base64"),
        ({"id": 1, "t": "yesterday"}, "the value of T cannot be used"),
        ({"id": 1, "a": {}}, "is not an array"),
        ({"id": 1, "m": []}, "is not an object"),
        ({"id": 1, "r": 1}, "is not an object"),
    ],
    ids=str,
)
def test_a_row_that_does_not_fit_is_answered_by_an_error_and_the_next_one_goes_on(
    client: httpx.Client, row: dict[str, Any], words: str
) -> None:
    first, second = answers(send(client, {"target": "S"}, row, {"id": 77}))
    assert (first["status"], first["seq"], first["error_code"]) == ("error", 0, 40000)
    assert words in first["message"]
    assert second == {"status": "ok", "seq": 1}


def test_what_is_no_json_ends_the_stream(client: httpx.Client) -> None:
    found = answers(send(client, {"target": "s"}, {"id": 50}, "{", {"id": 51}))
    assert [answer["status"] for answer in found] == ["ok", "error"]
    assert "Invalid JSON in inserts stream" in found[1]["message"]
    assert rows(client, "SELECT id FROM s WHERE id IN (50, 51);") == [[50]]


def test_a_client_that_asks_for_json_gets_an_array(client: httpx.Client) -> None:
    response = send(client, {"target": "s"}, {"id": 3}, {"id": 4}, accept="application/json")
    assert response.headers["content-type"] == "application/json"
    assert [answer["seq"] for answer in response.json()] == [0, 1]


@pytest.mark.parametrize(
    ("first", "code"),
    [("{", 40000), ("", 40000), ({}, 40000), ({"target": 5}, 40000), ({"target": "nowhere"}, 40001),
     ({"target": "s", "properties": {"auto.offset.reset": "x"}}, 40000)],
    ids=str,
)  # fmt: skip
def test_a_stream_without_a_good_first_line_is_refused(client: httpx.Client, first: Any, code: int) -> None:
    response = send(client, first, {"id": 1})
    assert (response.status_code, response.json()["error_code"]) == (code // 100, code)


def test_a_line_has_a_longest_length(client: httpx.Client) -> None:
    found = answers(send(client, {"target": "s"}, {"id": 5}, {"id": 6, "low": "x" * 2_000_000}))
    assert found[-1]["error_code"] == 41300


def test_pages_of_other_origins_insert_nothing(client: httpx.Client) -> None:
    assert send(client, {"target": "s"}, {"id": 1}, origin="http://evil").json()["error_code"] == 40300


def test_acknowledgements_come_while_rows_are_still_being_sent(service: Service) -> None:
    address = service.http_address
    connection = http.client.HTTPConnection(address.host, address.port, timeout=60)
    connection.putrequest("POST", "/inserts-stream")
    connection.putheader("transfer-encoding", "chunked")
    connection.endheaders()
    assert connection.sock is not None

    def chunk(text: str) -> None:
        connection.send(f"{len(text):x}\r\n{text}\r\n".encode())

    chunk('{"target": "k"}\n')
    response = connection.getresponse()
    assert response.status == 200
    for number in range(3):
        chunk(f'{{"id": {number}, "v": {number}}}\n')
        assert json.loads(response.readline()) == {"status": "ok", "seq": number}
    connection.sock.sendall(b"0\r\n\r\n")
    assert response.read() == b""


def test_a_client_that_goes_away_leaves_nothing_open(service: Service) -> None:
    address = service.http_address
    connection = http.client.HTTPConnection(address.host, address.port, timeout=60)
    connection.putrequest("POST", "/inserts-stream")
    connection.putheader("transfer-encoding", "chunked")
    connection.endheaders()
    connection.send(b'10\r\n{"target": "k"}\n\r\n')
    connection.getresponse()
    assert in_use(service) == 1
    connection.sock.close()
    connection.close()
    eventually(lambda: in_use(service) == 0)


def test_no_more_streams_are_open_than_there_are_slots() -> None:
    slots = Slots(2, "streams of inserts")
    with slots, slots:
        with pytest.raises(RequestRefused, match="2 streams of inserts are already open") as refused, slots:
            raise AssertionError("it was let in")
        assert refused.value.error_code == 42900
    with slots:
        assert slots.taken == 1


def in_use(service: Service) -> int:
    with httpx.Client(base_url=f"http://{service.http_address}", timeout=60) as client:
        text = client.get("/metrics").text
    return int(
        float(next(line for line in text.splitlines() if "insert_streams " in line and line[0] != "#").split()[1])
    )


def test_inserts_travel_over_http_2_as_ksqldbs_clients_send_them(service: Service) -> None:
    command = ["curl", "-sS", "--http2-prior-knowledge", "--data-binary", "@-", "-w", "%{http_version}"]
    lines = '{"target": "k"}\n{"id": 900, "v": 1}\n{"id": 901, "v": 2}\n'
    url = f"http://{service.http_address}/inserts-stream"
    ended = subprocess.run([*command, url], input=lines, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == '{"status":"ok","seq":0}\n{"status":"ok","seq":1}\n2'


@pytest.mark.parametrize("http2", [False, True])
def test_rows_that_arrive_while_others_are_written_are_written_together(
    service: Service, monkeypatch: pytest.MonkeyPatch, http2: bool
) -> None:
    """Clients that send each row by itself do not wait for the disk once for each."""
    insert, written = service.engine.insert, list[int]()

    def slowly(name: str, rows: pa.Table, session: Session) -> int:
        time.sleep(0.05)
        written.append(rows.num_rows)
        return insert(name, rows, session)

    def one_by_one() -> Iterator[bytes]:
        yield b'{"target": "s"}\n'
        for number in range(300):
            yield b'{"id": %d}\n' % number

    monkeypatch.setattr(service.engine, "insert", slowly)
    with httpx.Client(http1=not http2, http2=http2, timeout=60) as client:
        answer = client.post(f"http://{service.http_address}/inserts-stream", content=one_by_one())
    assert [json.loads(line) for line in answer.text.splitlines()] == [{"status": "ok", "seq": n} for n in range(300)]
    assert sum(written) == 300
    assert len(written) < 20


def test_a_client_that_only_sends_for_a_while_is_answered_meanwhile(service: Service) -> None:
    before = count(service)
    with socket.create_connection((service.http_address.host, service.http_address.port), timeout=60) as connection:
        head = b"POST /inserts-stream HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
        lines = [b'{"target": "s"}\n', *(b'{"id": %d}\n' % number for number in range(500))]
        connection.sendall(head + b"".join(b"%x\r\n%s\r\n" % (len(line), line) for line in lines))
        while b'"seq":499' not in connection.recv(1 << 16):
            pass
    assert count(service) == before + 500


def count(service: Service) -> int:
    asked = {"sql": "SELECT id FROM s;"}
    return len(httpx.post(f"http://{service.http_address}/query-stream", json=asked, timeout=60).text.splitlines())
