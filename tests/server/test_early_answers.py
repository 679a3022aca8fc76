"""HTTP/2: a request that is answered before its body has ended costs the other requests of its connection nothing."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import h2.config
import h2.connection
import h2.events
import pytest
from running_server import service_in

from millstream.server.service import Service

DDL = "CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);"
ENDED = b'{"target": "s"}\nno JSON\n'


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_in(tmp_path_factory.mktemp("data")) as started:
        with Http2(started) as client:
            client.ask("/ksql", json.dumps({"ksql": DDL}).encode())
        yield started


class Http2:
    """One connection. `seen`: per stream its status, its body, and how it ended."""

    def __init__(self, service: Service) -> None:
        address = service.http_address
        self._socket = socket.create_connection((address.host, address.port), timeout=30)
        self._spoken = h2.connection.H2Connection(h2.config.H2Configuration())
        self._spoken.initiate_connection()
        self.status: dict[int, str] = {}
        self.body: dict[int, bytes] = {}
        self.ended: dict[int, str] = {}

    def __enter__(self) -> Http2:
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.close()

    def begin(self, path: str, *, ended: bool = False, accept: str = "*/*") -> int:
        stream = self._spoken.get_next_available_stream_id()
        pairs = {":method": "POST", ":path": path, ":scheme": "http", ":authority": "127.0.0.1", "accept": accept}
        self._spoken.send_headers(stream, list({**pairs, "content-type": "application/json"}.items()), ended)
        self._flush()
        return stream

    def send(self, stream: int, data: bytes, *, last: bool = False) -> None:
        """Waits for the room that the other side gives, as all clients do."""
        while data and stream not in self.ended:
            room = min(self._spoken.local_flow_control_window(stream), self._spoken.max_outbound_frame_size, len(data))
            if room == 0:
                self._receive()
                continue
            self._spoken.send_data(stream, data[:room], end_stream=last and room == len(data))
            self._flush()
            data = data[room:]

    def until_ended(self, stream: int) -> None:
        while stream not in self.ended:
            self._receive()

    def until_body(self, stream: int, part: bytes) -> None:
        while part not in self.body.get(stream, b""):
            assert stream not in self.ended
            self._receive()

    def ask(self, path: str, body: bytes) -> tuple[str, bytes]:
        stream = self.begin(path)
        self.send(stream, body, last=True)
        self.until_ended(stream)
        return self.status[stream], self.body.get(stream, b"")

    def _flush(self) -> None:
        self._socket.sendall(self._spoken.data_to_send())

    def _receive(self) -> None:
        data = self._socket.recv(1 << 16)
        assert data, "the server has closed the connection"
        for event in self._spoken.receive_data(data):
            match event:
                case h2.events.ResponseReceived():
                    self.status[event.stream_id] = dict(event.headers)[b":status"].decode()
                case h2.events.DataReceived():
                    self.body[event.stream_id] = self.body.get(event.stream_id, b"") + event.data
                    self._spoken.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                case h2.events.StreamEnded():
                    self.ended.setdefault(event.stream_id, "ended")
                case h2.events.StreamReset():
                    self.ended.setdefault(event.stream_id, f"reset {event.error_code}")
                case h2.events.ConnectionTerminated():
                    raise AssertionError("the server ends the connection")
                case _:
                    pass
        self._flush()


@pytest.mark.parametrize(("path", "begun", "status"), [
    ("/inserts-stream", ENDED, "200"), ("/inserts-stream", b'{"target": "none"}\n', "400"), ("/nowhere", b"{", "404"),
])  # fmt: skip
@pytest.mark.parametrize("rest", [b"1\n", b"1" * 300_000], ids=["short", "long"])
def test_what_comes_after_the_answer_ends_no_other_request(
    service: Service, path: str, begun: bytes, status: str, rest: bytes
) -> None:
    with Http2(service) as client:
        rows = client.begin("/query-stream")
        client.send(rows, json.dumps({"sql": "SELECT v FROM s EMIT CHANGES;"}).encode(), last=True)
        client.until_body(rows, b"queryId")
        early = client.begin(path)
        client.send(early, begun)
        client.until_ended(early)
        assert (client.status[early], client.ended[early]) == (status, "ended")
        client.ended.clear()
        client.send(early, rest, last=True)
        inserted = client.ask("/inserts-stream", b'{"target": "s"}\n{"id": 1, "v": 17}\n')
        assert inserted == ("200", b'{"status":"ok","seq":0}\n')
        client.until_body(rows, b"[17]\n")


def test_a_long_body_that_nobody_reads_keeps_no_connection(service: Service) -> None:
    """More of the body than a route is given at once arrives before the refusal."""
    with Http2(service) as client:
        early = client.begin("/nowhere")
        for _ in range(4):
            client.send(early, b"1" * 1000)
        client.send(early, b"1" * 300_000, last=True)
        assert client.ask("/ksql", b'{"ksql": "SHOW TYPES;"}')[0] == "200"
        client.until_ended(early)
        assert client.status[early] == "404"


def test_a_client_that_never_stops_sending_after_its_answer_is_told_to(service: Service) -> None:
    with Http2(service) as client:
        early = client.begin("/inserts-stream")
        client.send(early, ENDED)
        client.until_ended(early)
        client.ended.clear()
        for _ in range(100):
            client.send(early, b"1" * 10_000)
        client.until_ended(early)
        assert client.ended[early] == "reset 0"
        assert client.ask("/ksql", b'{"ksql": "SHOW TYPES;"}')[0] == "200"
