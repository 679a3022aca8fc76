"""What a listener does with peers that do not behave: it hangs up on them, and serves the others."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from structlog.testing import capture_logs

from millstream.logcore.client import TopicPartition
from millstream.logcore.log import Log
from millstream.logcore.protocol.admission import ConnectionLimits, HeldConnections
from millstream.logcore.protocol.connection import IN_FLIGHT_MAX, Answer, KafkaConnection, KafkaRequest
from millstream.logcore.protocol.kafka_service import KafkaService, KafkaServiceSettings
from millstream.logcore.protocol.requests.record_requests import answer_fetch
from millstream.logcore.protocol.security.peer import Peer
from millstream.logcore.protocol.wire import fetch_messages as fetch
from millstream.logcore.protocol.wire import messages
from millstream.logcore.protocol.wire import produce_messages as produce
from millstream.logcore.protocol.wire.apis import KNOWN, Api
from millstream.logcore.protocol.wire.fetch_messages import ClientFetch, FetchPosition
from millstream.logcore.protocol.wire.frames import FRAME_BYTES_MAX, RequestHeader, write_request_frame
from millstream.logcore.protocol.wire.produce_messages import ProduceData, ProduceRequest
from millstream.logcore.records.batch import BatchProducer, Buffer
from millstream.logcore.records.codec import encode
from millstream.logcore.remote import RemoteLog
from millstream.logcore.server import ListenFailed, LogServer

from ..log_records import rows, values_of


@pytest.fixture
def server(log: Log) -> Iterator[LogServer]:
    with LogServer(log, port=0) as running:
        yield running
        with RemoteLog(running.address) as bystander:  # whatever happened: others are served
            assert "t" in bystander.topics()


@pytest.fixture
def peer(server: LogServer) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connected:
        yield connected


def frame(api: int, version: int, body: bytes = b"", correlation_id: int = 1) -> bytes:
    """With an older header, which has no tagged fields."""
    message = struct.pack(">hhih", api, version, correlation_id, -1) + body
    return struct.pack(">i", len(message)) + message


def hangs_up(peer: socket.socket) -> bool:
    try:
        return peer.recv(1) == b""
    except ConnectionResetError:
        return True


def answer(peer: socket.socket) -> bytes:
    return received(peer, struct.unpack(">i", received(peer, 4))[0])


def received(peer: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = peer.recv(size - len(found))
        assert part, "the server hung up"
        found += part
    return found


def send_produce(peer: socket.socket, request: ProduceRequest, correlation_id: int = 1) -> None:
    body = produce.write_request(request, 9)
    peer.sendall(b"".join(write_request_frame(Api.PRODUCE, 9, correlation_id, body)))


def batch_of(*values: bytes) -> bytes:
    return b"".join(encode(rows(*values))[0].buffers)


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">i", -1),
        struct.pack(">i", FRAME_BYTES_MAX + 1),
        struct.pack(">i", 0x7FFFFFFF),
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 600,  # a TLS hello
        frame(999, 0),
        frame(-1, 0),
        frame(Api.METADATA, 99),
        frame(Api.METADATA, -1),
        frame(Api.PRODUCE, 0),
        frame(Api.PRODUCE, 3),
        frame(Api.FETCH, 4, b"\x7f" * 40),
        frame(Api.METADATA, 1, struct.pack(">i", 0x7FFFFFFF)),
        frame(Api.METADATA, 1, struct.pack(">ih", 1, -7)),
        frame(Api.METADATA, 9, b"\x00" + b"\xff" * 20),
        frame(Api.OFFSET_COMMIT, 2, b"\x00\x01\xff"),
    ],
)
def test_what_is_no_request_ends_the_connection(peer: socket.socket, sent: bytes) -> None:
    peer.sendall(sent)
    assert hangs_up(peer)


def test_random_bytes_in_a_frame_of_any_kind_do_no_harm(server: LogServer) -> None:
    chance = random.Random(7)
    for api in [*KNOWN, Api.PRODUCE]:
        for version in range(KNOWN[api].oldest, KNOWN[api].newest + 1):
            with socket.create_connection(("127.0.0.1", server.port), timeout=60) as peer:
                body = chance.randbytes(chance.randrange(200))
                peer.sendall(frame(api, version, b"\0" * (version >= KNOWN[api].flexible) + body))
                peer.shutdown(socket.SHUT_WR)
                while not hangs_up(peer):
                    pass


def test_a_peer_that_goes_away_inside_a_frame_does_no_harm(server: LogServer) -> None:
    request = frame(Api.METADATA, 1, struct.pack(">i", -1))
    for end in range(len(request)):
        with socket.create_connection(("127.0.0.1", server.port)) as peer:
            peer.sendall(request[:end])


def test_a_newer_question_for_versions_gets_the_oldest_answer(peer: socket.socket) -> None:
    peer.sendall(frame(Api.API_VERSIONS, 77, b"\0"))
    found = messages.read_response(Api.API_VERSIONS, 0, memoryview(answer(peer)), 4)
    assert found.error_code == 35  # unsupported version
    assert {entry.api_key: (entry.min_version, entry.max_version) for entry in found.api_keys}[0] == (0, 13)


def test_many_requests_at_once_are_answered_in_order(peer: socket.socket) -> None:
    body = messages.write_request(Api.METADATA, 1, {"topics": None})
    peer.sendall(b"".join(frame(Api.METADATA, 1, body, number) for number in range(3000)))
    assert [struct.unpack(">i", answer(peer)[:4])[0] for _ in range(3000)] == list(range(3000))


def test_a_peer_that_does_not_take_its_answers_is_not_read_any_more(log: Log, peer: socket.socket) -> None:
    log.create_topic("x" * 200, 200)
    body = messages.write_request(Api.METADATA, 1, {"topics": None})
    request = frame(Api.METADATA, 1, body)
    peer.setblocking(False)
    sent, deadline = 0, time.monotonic() + 1
    while time.monotonic() < deadline:
        try:
            sent += peer.send(request * 1000)
        except BlockingIOError:
            time.sleep(0.01)
    assert sent < 16 * 1024 * 1024  # what the system's buffers hold


def test_produced_batches_are_stored_in_the_order_they_were_sent(log: Log, peer: socket.socket) -> None:
    where = TopicPartition("t", 0)
    for number in range(200):
        send_produce(peer, ProduceRequest(None, -1, 1000, [ProduceData(where, [batch_of(b"%d" % number)])]), number)
    for number in range(200):
        message = memoryview(answer(peer))
        (result,) = produce.read_response(message, 5, 9)
        assert (struct.unpack(">i", message[:4])[0], result.error_code, result.base_offset) == (number, 0, number)
    assert values_of(log, "t") == [b"%d" % number for number in range(200)]


def test_a_damaged_batch_is_refused_and_its_neighbour_stored(log: Log, peer: socket.socket) -> None:
    bad = bytearray(batch_of(b"bad"))
    bad[-3] ^= 1
    data = [ProduceData(TopicPartition("t", 0), [bad]), ProduceData(TopicPartition("t", 1), [batch_of(b"good")])]
    data += [ProduceData(TopicPartition("t", 2), [batch_of(b"nowhere")])]
    send_produce(peer, ProduceRequest(None, -1, 1000, data))
    results = produce.read_response(memoryview(answer(peer)), 5, 9)
    assert [result.error_code for result in results] == [2, 0, 3]
    assert results[0].error_message == "CORRUPT_RECORDS: the checksum of a record batch does not fit"
    assert (values_of(log, "t", 0), values_of(log, "t", 1)) == ([], [b"good"])


def test_a_producer_that_wants_no_answer_gets_none(log: Log, peer: socket.socket) -> None:
    send_produce(peer, ProduceRequest(None, 0, 1000, [ProduceData(TopicPartition("t", 0), [batch_of(b"a")])]))
    peer.sendall(frame(Api.API_VERSIONS, 0, correlation_id=5))
    assert struct.unpack(">i", answer(peer)[:4]) == (5,)
    assert log.wait({TopicPartition("t", 0): 0}, 10)
    assert values_of(log, "t") == [b"a"]


def test_what_was_sent_is_stored_though_the_client_has_gone(log: Log, server: LogServer) -> None:
    data = [ProduceData(TopicPartition("t", 0), [batch_of(b"a")])]
    for acks in [0, -1] * 20:
        with socket.create_connection(("127.0.0.1", server.port)) as peer:
            send_produce(peer, ProduceRequest(None, acks, 1000, data))
            peer.shutdown(socket.SHUT_WR)
    assert log.wait({TopicPartition("t", 0): 39}, 10)


def test_whole_requests_are_handled_though_their_client_closed_behind_them(log: Log, server: LogServer) -> None:
    heavy = batch_of(*[b"x"] * 20)  # written by a thread: others come, and the end of the connection, meanwhile
    body = produce.write_request(ProduceRequest(None, 0, 1000, [ProduceData(TopicPartition("t", 0), [heavy])]), 9)
    sent = b"".join(b"".join(write_request_frame(Api.PRODUCE, 9, number, body)) for number in range(40))
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", server.port)) as peer:
            peer.sendall(sent + sent[:50])
    assert log.wait({TopicPartition("t", 0): 5 * 40 * 20 - 1}, 10)
    assert log.offsets("t", 0).log_end_offset == 5 * 40 * 20


class NoSocket(asyncio.Transport):
    closed = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


class HeldConnection:
    """A connection without a socket, whose requests are handled once `go` is set."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.handled: list[int] = []
        self.held = HeldConnections[KafkaConnection](ConnectionLimits(10, 10))
        self.connection = KafkaConnection(self.handle, self.held)
        self.transport = NoSocket()
        self.connection.connection_made(self.transport)

    async def handle(self, request: KafkaRequest) -> Answer:
        await self.go.wait()
        self.handled.append(request.header.correlation_id)
        done: asyncio.Future[list[Buffer] | None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def receive(self, *frames: bytes) -> None:
        sent = b"".join(frames)
        self.connection.get_buffer(-1)[: len(sent)] = sent
        self.connection.buffer_updated(len(sent))
        await asyncio.sleep(0)


def test_a_connection_counts_until_what_came_before_its_end_is_handled() -> None:
    async def lose() -> HeldConnection:
        held = HeldConnection()
        await held.receive(*(frame(Api.API_VERSIONS, 0, correlation_id=number) for number in range(20)))
        held.connection.connection_lost(None)
        await asyncio.sleep(0)
        assert list(held.held) == [held.connection], "what it holds in memory is bounded by the count of connections"
        held.go.set()
        while list(held.held):
            await asyncio.sleep(0)
        return held

    assert asyncio.run(asyncio.wait_for(lose(), 10)).handled == list(range(20))


def test_nothing_more_is_handled_of_a_connection_that_the_server_closes() -> None:
    async def close() -> HeldConnection:
        held = HeldConnection()
        await held.receive(*(frame(Api.API_VERSIONS, 0, correlation_id=number) for number in range(3)))
        held.connection.connection_lost(None)
        held.connection.close()
        held.go.set()
        while list(held.held):
            await asyncio.sleep(0)
        return held

    assert asyncio.run(asyncio.wait_for(close(), 10)).handled == []


def test_nothing_more_is_handled_of_a_connection_that_still_has_to_send_when_the_server_closes_it() -> None:
    async def close() -> HeldConnection:
        held = HeldConnection()
        await held.receive(*(frame(Api.API_VERSIONS, 0, correlation_id=number) for number in range(3)))
        held.held.close()
        held.go.set()
        for _ in range(20):
            await asyncio.sleep(0)
        held.connection.connection_lost(None)
        return held

    assert asyncio.run(asyncio.wait_for(close(), 10)).handled == [0], "the one that was under way"


def test_a_connection_that_comes_while_the_server_ends_is_closed() -> None:
    async def come() -> list[bool]:
        held = HeldConnection()
        held.held.close()
        late = NoSocket()
        KafkaConnection(held.handle, held.held).connection_made(late)
        assert list(held.held) == [held.connection]
        return [held.transport.closed, late.closed]

    assert asyncio.run(asyncio.wait_for(come(), 10)) == [True, True]


def test_a_fetch_waits_no_longer_when_its_client_is_gone_and_what_came_behind_it_is_handled(
    log: Log, server: LogServer
) -> None:
    waiting = ClientFetch(300_000, 1, 1 << 20, "read_committed", [FetchPosition(TopicPartition("t", 1), 0, 1 << 20)])
    data = [ProduceData(TopicPartition("t", 0), [batch_of(b"a")])]
    with socket.create_connection(("127.0.0.1", server.port)) as peer:
        peer.sendall(b"".join(write_request_frame(Api.FETCH, 11, 1, fetch.write_request(waiting, 11))))
        send_produce(peer, ProduceRequest(None, 0, 1000, data))
    assert log.wait({TopicPartition("t", 0): 0}, 10)


class NotedService(KafkaService):
    """State: whether something was read."""

    def __init__(self, log: Log) -> None:
        super().__init__(log.serving(), asyncio.get_running_loop(), KafkaServiceSettings())
        self.has_read = asyncio.Event()

    async def blocking(self, work: Callable[[], Any]) -> Any:
        result = await super().blocking(work)
        self.has_read.set()
        return result


def test_a_fetch_that_records_wake_while_the_server_ends_ends_with_it(log: Log) -> None:
    waiting = ClientFetch(300_000, 1, 1 << 20, "read_committed", [FetchPosition(TopicPartition("t", 1), 0, 1 << 20)])
    message = memoryview(b"".join(fetch.write_request(waiting, 11)))

    async def close() -> asyncio.Task[list[Buffer]]:
        service = NotedService(log)
        request = KafkaRequest(RequestHeader(Api.FETCH, 11, 1, None), message, 0, Peer(("here", 1), ("there", 2)))
        waits = asyncio.create_task(answer_fetch(service, request))
        await service.has_read.wait()
        log.append("t", 1, rows(b"a"))
        await service.close()  # the loop has not told the fetch yet
        await asyncio.wait({waits})
        return waits

    assert asyncio.run(close()).cancelled()


def test_transactions_that_nobody_began_are_refused(log: Log, peer: socket.socket) -> None:
    def ask(api: Api, **fields: Any) -> Any:
        body = messages.write_request(api, 2 if api is not Api.INIT_PRODUCER_ID else 1, fields)
        peer.sendall(frame(api, 2 if api is not Api.INIT_PRODUCER_ID else 1, body))
        version = 2 if api is not Api.INIT_PRODUCER_ID else 1
        return messages.read_response(api, version, memoryview(answer(peer)), 4)

    log.transactional_producer("other")  # there is a coordinator
    assert ask(Api.END_TXN, transactional_id="q", producer_id=0, producer_epoch=0, committed=True).error_code == 49
    assert ask(Api.INIT_PRODUCER_ID, transactional_id="").error_code == 42
    assert ask(Api.INIT_PRODUCER_ID, transactional_id="q").error_code == 50  # no time allowed
    (batch,) = encode(rows(b"a"), BatchProducer(77, 0, 0, transactional=True))
    data = [ProduceData(TopicPartition("t", 0), batch.buffers)]
    send_produce(peer, ProduceRequest("q", -1, 1000, data))
    assert produce.read_response(memoryview(answer(peer)), 5, 9)[0].error_code == 49
    assert values_of(log, "t", isolation="read_uncommitted") == []


def test_a_port_in_use_is_named(server: LogServer, log: Log) -> None:
    with pytest.raises(ListenFailed, match=f"cannot listen at 127.0.0.1:{server.port}"):
        LogServer(log, port=server.port).start()


def test_a_host_that_cannot_be_is_named(log: Log) -> None:
    with pytest.raises(ListenFailed, match=r"cannot listen at a\.\.b:0"):
        LogServer(log, "a..b", port=0).start()


def test_a_server_can_be_stopped_while_a_client_waits(log: Log) -> None:
    with LogServer(log, port=0) as running:
        peer = socket.create_connection(("127.0.0.1", running.port), timeout=60)
        peer.sendall(frame(Api.API_VERSIONS, 0))
        answer(peer)
    assert hangs_up(peer)
    peer.close()


def test_a_connection_on_which_nothing_happens_is_closed(log: Log) -> None:
    """Not while its client waits for an answer."""
    wanted = ClientFetch(1_000, 1, 1 << 20, "read_committed", [FetchPosition(TopicPartition("t", 0), 0, 1 << 20)])
    body = fetch.write_request(wanted, 11)
    with LogServer(log, port=0, idle_ms=300) as server:
        address = ("127.0.0.1", server.port)
        with socket.create_connection(address, timeout=60) as waiting, socket.create_connection(address) as idle:
            idle.settimeout(10)
            waiting.sendall(b"".join(write_request_frame(Api.FETCH, 11, 1, body)))
            began = time.monotonic()
            assert hangs_up(idle)
            assert answer(waiting)
            assert time.monotonic() - began > 0.9
            assert hangs_up(waiting)


def test_clients_that_come_again_and_again_do_not_fill_the_log(log: Log) -> None:
    with LogServer(log, port=0, limits=ConnectionLimits(1, 1)) as server, capture_logs() as said:
        address = ("127.0.0.1", server.port)
        with socket.create_connection(address, timeout=60) as first:
            first.sendall(frame(Api.API_VERSIONS, 0))
            answer(first)
            for _ in range(20):
                with socket.create_connection(address, timeout=60) as refused:
                    refused.sendall(frame(Api.METADATA, 0, struct.pack(">i", 0)))
                    assert hangs_up(refused)
    (line,) = (each for each in said if each["event"] == "kafka connection closed")
    assert "kafka_connections_max" in line["reason"]


def test_a_client_that_does_not_take_its_answers_is_idle_too(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(20):
        log.append("t", 0, rows(b"x" * 900_000))
    wanted = ClientFetch(0, 1, 1 << 26, "read_committed", [FetchPosition(TopicPartition("t", 0), 0, 1 << 26)])
    body = fetch.write_request(wanted, 11)
    lost, connection_lost = threading.Event(), KafkaConnection.connection_lost

    def noted(connection: KafkaConnection, error: Exception | None) -> None:
        connection_lost(connection, error)
        lost.set()

    monkeypatch.setattr(KafkaConnection, "connection_lost", noted)
    with LogServer(log, port=0, idle_ms=300) as server, socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect(("127.0.0.1", server.port))
        for number in range(IN_FLIGHT_MAX + 4):
            peer.sendall(b"".join(write_request_frame(Api.FETCH, 11, number, body)))
        peer.settimeout(10)
        assert lost.wait(60)
        received = 0
        with suppress(ConnectionResetError):
            while part := peer.recv(1 << 20):
                received += len(part)
        assert received < 18_000_000, "not even the first answer"
