"""The log over the network: what only disks and networks can do, which is to break."""

from __future__ import annotations

import multiprocessing
import pickle
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.logcore import failpoints
from millstream.logcore.client import (
    LogClient,
    TopicPartition,
)
from millstream.logcore.errors import (
    CorruptLog,
    LogFull,
    LogUnavailable,
    LogWriteFailed,
)
from millstream.logcore.log import Log, open_log
from millstream.logcore.remote import RemoteLog
from millstream.logcore.server import LogServer

from .log_records import columnar, rows, segment_files, values_of

WHERE = TopicPartition("t", 0)
SOURCE = TopicPartition("t", 1)


@pytest.fixture
def server(log: Log) -> Iterator[LogServer]:
    with LogServer(log, port=0) as running:
        yield running


@pytest.fixture
def remote(server: LogServer) -> Iterator[RemoteLog]:
    with RemoteLog(server.address) as client:
        yield client


@pytest.fixture(params=["in process", "remote"])
def client(request: pytest.FixtureRequest, log: Log) -> LogClient:
    """The durable log with topic "t" of two partitions, by either way."""
    return log if request.param == "in process" else request.getfixturevalue("remote")


# Disks that fail


def test_a_full_disk_refuses_an_append_and_the_next_one_is_taken(client: LogClient) -> None:
    client.append("t", 0, rows(b"a"))
    failpoints.arm("append.write:1:enospc")
    with pytest.raises(LogFull):
        client.append("t", 0, rows(b"refused"))
    failpoints.arm("")
    assert client.append("t", 0, rows(b"b")) == 1
    assert values_of(client, "t") == [b"a", b"b"]


def test_damaged_files_are_reported(client: LogClient, folder: Path) -> None:
    client.append("t", 0, rows(b"abcdefgh"))
    (file,) = segment_files(folder)
    content = bytearray(file.read_bytes())
    content[70] ^= 1  # inside the only record
    file.write_bytes(content)
    with pytest.raises(CorruptLog):
        client.fetch("t", 0, 0)


def test_a_commit_that_the_disk_refuses_is_an_abort(client: LogClient) -> None:
    producer = client.transactional_producer("q")
    producer.begin()
    producer.append("t", 0, rows(b"a"))
    producer.send_offsets("g", {SOURCE: 1})
    failpoints.arm("append.write:1:enospc")
    with pytest.raises((LogFull, LogWriteFailed)):  # over the network no code says that it is full
        producer.commit()
    failpoints.arm("")
    producer.abort()
    assert values_of(client, "t") == []
    producer.begin()
    producer.append("t", 0, rows(b"b"))
    producer.commit()
    assert values_of(client, "t") == [b"b"]
    assert client.committed_offsets("g") == {}


def test_after_a_refused_append_the_transaction_can_be_aborted_and_the_next_one_works(client: LogClient) -> None:
    producer = client.transactional_producer("q")
    producer.begin()
    producer.append("t", 0, rows(b"a"))
    failpoints.arm("append.write:1:enospc")
    with pytest.raises(LogFull):
        producer.append("t", 0, rows(b"b"))
    failpoints.arm("")
    producer.abort()
    producer.begin()
    producer.append("t", 0, rows(b"c"))
    producer.commit()
    assert values_of(client, "t") == [b"c"]


# Only over the network


def test_pickled_only_the_address_travels(remote: RemoteLog) -> None:
    remote.append("t", 0, rows(b"a"))
    other: RemoteLog = pickle.loads(pickle.dumps(remote))
    assert other.append("t", 0, rows(b"b")) == 1
    other.close()
    assert values_of(remote, "t") == [b"a", b"b"]


def _append_in_child(remote: RemoteLog) -> None:
    assert remote.append("t", 0, rows(b"child")) == 1
    assert values_of(remote, "t") == [b"parent", b"child"]


def test_a_forked_process_makes_connections_of_its_own(remote: RemoteLog) -> None:
    remote.append("t", 0, rows(b"parent"))
    child = multiprocessing.get_context("fork").Process(target=_append_in_child, args=(remote,))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert remote.append("t", 0, rows(b"parent again")) == 2


def test_an_address_where_nobody_listens_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(LogUnavailable, match=f"no log answers at 127.0.0.1:{port}: connection refused"):
        RemoteLog(f"127.0.0.1:{port}").topics()


@pytest.mark.parametrize("bootstrap", ["", "localhost", "localhost:", ":9092", "localhost:x", "localhost:70000"])
def test_what_is_no_address_is_refused_at_once(bootstrap: str) -> None:
    with pytest.raises(LogUnavailable, match="is not the address of a log"):
        RemoteLog(bootstrap)


def test_a_server_of_another_protocol_is_recognised() -> None:
    def answer_like_http(listener: socket.socket) -> None:
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            with accepted:
                accepted.recv(1000)
                accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer_like_http, args=(listener,), daemon=True).start()
        with pytest.raises(LogUnavailable, match="does not speak the Kafka protocol"):
            RemoteLog(f"127.0.0.1:{listener.getsockname()[1]}").topics()


def test_a_client_goes_on_when_the_server_is_back(log: Log, folder: Path) -> None:
    first = LogServer(log, port=0)
    first.start()
    remote = RemoteLog(first.address, patience_s=5)
    producer = remote.transactional_producer("q")
    producer.begin()
    producer.append("t", 0, rows(b"goes on"))
    remote.append("t", 1, rows(b"a"))
    first.stop()
    with pytest.raises(LogUnavailable):
        remote.append("t", 1, rows(b"unheard"))
    log.close()
    with open_log(folder) as reopened, LogServer(reopened, port=first.port):
        assert remote.append("t", 1, rows(b"b")) == 1
        producer.commit()
        assert remote.wait({TopicPartition("t", 0): 0}, 60)
        assert values_of(remote, "t", 0) == [b"goes on"]
        assert values_of(remote, "t", 1) == [b"a", b"b"]
        again = remote.transactional_producer("q")
        again.begin()
        again.append("t", 0, rows(b"kept"))
        again.commit()
        assert remote.wait({TopicPartition("t", 0): 2}, 60)
        assert values_of(remote, "t", 0) == [b"goes on", b"kept"]
    remote.close()


class _LossyProxy:
    """Passes connections on; of every second answer it drops the connection in its place."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.lossy = False
        self.lost = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(accepted,), daemon=True).start()

    def _pass_on(self, accepted: socket.socket) -> None:
        """One request and one answer at a time, as `Channel` does."""
        with accepted, socket.create_connection(("127.0.0.1", self._port)) as server:
            answers = 0
            while request := _frame_of(accepted):
                server.sendall(request)
                answer = _frame_of(server)
                answers += 1
                if self.lossy and answers > 2:
                    self.lost += 1
                    return
                accepted.sendall(answer)

    def close(self) -> None:
        self._listener.close()


def _frame_of(peer: socket.socket) -> bytes:
    prefix = peer.recv(4, socket.MSG_WAITALL)
    return prefix + peer.recv(int.from_bytes(prefix, "big"), socket.MSG_WAITALL) if prefix else b""


def test_records_whose_answer_was_lost_are_stored_once(log: Log, server: LogServer) -> None:
    proxy = _LossyProxy(server.port)
    remote = RemoteLog(proxy.address)
    proxy.lossy = True
    for i in range(20):
        assert remote.append("t", 0, rows(b"%d" % i)) == i
    producer = remote.transactional_producer("q")
    for i in range(10):
        producer.begin()
        producer.append("t", 1, rows(b"%d" % i))
        producer.append("t", 1, columnar(i))
        producer.commit()
    assert proxy.lost > 10
    assert values_of(log, "t", 0) == [b"%d" % i for i in range(20)]
    assert values_of(log, "t", 1) == [value for i in range(10) for value in (b"%d" % i, i)]
    remote.close()
    proxy.close()
